"""Nominations that are written: before other conditions, in one write with the pod's own, and awaited by evictions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.kube.live.tell import ScheduledCondition, Teller
from dovetail.kube.log import silent
from dovetail.model.pod import Pod

pytestmark = pytest.mark.asyncio
HIGH = Pod("ml", "high", "uid-high")
WAITS = ScheduledCondition("Preempting", "Preempting 1 pod on node n, waiting for the end of ml/low.")


class Server:
    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def patch(self, path: str, body: Any, kind: str) -> bytes:
        await asyncio.sleep(0)
        self.bodies.append((path, body))
        return b"{}"


async def told(*, queue: Any) -> tuple[Server, list[Any]]:
    """What a teller wrote after `queue(teller)`, and what it reported."""
    server, written = Server(), list[Any]()
    api: Any = server
    teller = Teller(
        api,
        "me",
        written=lambda uid, answer, condition, node: written.append((uid, condition, node)),
        may_write=lambda: True,
        busy=lambda: False,
        now=lambda: 1000.0,
        log=silent,
    )
    queue(teller)
    running = asyncio.create_task(teller.run())
    try:
        await asyncio.wait_for(teller.nominated(["uid-high", "uid-other"]), 10)
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert not teller.is_nominating("uid-high")
    return server, written


async def test_the_node_and_the_condition_are_one_write_before_all_others() -> None:
    def queue(teller: Teller) -> None:
        for number in range(1_000):
            teller.waits(Pod("ml", f"p{number}", f"u{number}"), ScheduledCondition("Unschedulable", "no room"))
        teller.waits(HIGH, WAITS)
        teller.nominate(HIGH, "n")
        assert teller.is_nominating("uid-high")

    server, written = await told(queue=queue)
    (body,) = [body for path, body in server.bodies if path.endswith("/high/status")]
    assert body["status"]["nominatedNodeName"] == "n"
    assert [one["reason"] for one in body["status"]["conditions"]] == ["Preempting"]
    assert server.bodies[0][0].endswith("/high/status")
    assert ("uid-high", WAITS, "n") in written


async def test_a_nomination_is_taken_back_by_null_and_leaves_the_condition() -> None:
    server, written = await told(queue=lambda teller: teller.nominate(HIGH, ""))
    ((_, body),) = server.bodies
    assert body["status"] == {"nominatedNodeName": None}
    assert written == [("uid-high", None, "")]


async def test_only_the_last_nomination_is_written() -> None:
    def queue(teller: Teller) -> None:
        teller.nominate(HIGH, "n1")
        teller.nominate(HIGH, "n2")

    server, _ = await told(queue=queue)
    assert [body["status"]["nominatedNodeName"] for _, body in server.bodies] == ["n2"]


async def test_what_is_forgotten_is_not_awaited() -> None:
    def queue(teller: Teller) -> None:
        teller.nominate(HIGH, "n")
        teller.forget("uid-high")

    server, _ = await told(queue=queue)
    assert server.bodies == []
