"""The events that a pod gets: who reports them, and what they say."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import msgspec
import pytest

from dovetail.engine.ledger.remembered import size_of
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.tell import Note, ScheduledCondition, Teller
from dovetail.kube.log import silent
from dovetail.model.pod import Pod
from tests.kube.live.stage import read, waiting

pytestmark = pytest.mark.asyncio


class Server:
    """Keeps the events that are posted, and the paths of what is patched."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.patched: list[str] = []
        self.came = asyncio.Event()

    async def patch(self, path: str, body: object, how: str) -> bytes:
        self.patched.append(path)
        await asyncio.sleep(0)
        return b"{}"

    async def post(self, path: str, body: bytes) -> bytes:
        self.events.append(msgspec.json.decode(body))
        self.came.set()
        return b"{}"


def teller_to(server: Server) -> Teller:
    api: Any = server
    return Teller(
        api,
        "dovetail-0",
        written=lambda *_: None,
        may_write=lambda: True,
        busy=lambda: False,
        now=lambda: 1000.0,
        log=silent,
    )


async def reported_by(pod: Pod) -> str:
    """The controller of an event about this pod."""
    server = Server()
    teller = teller_to(server)
    teller.note(Note(pod, "Scheduled", "Successfully assigned ml/a to n", action="Binding"))
    running = asyncio.create_task(teller.run())
    try:
        await asyncio.wait_for(server.came.wait(), 10)
    finally:
        running.cancel()
        await asyncio.wait({running})
    (event,) = server.events
    return str(event["reportingController"])


async def test_an_event_is_reported_by_the_scheduler_that_the_pod_names() -> None:
    assert await reported_by(Pod("ml", "a", "u", scheduler="default-scheduler")) == "default-scheduler"


async def test_an_event_about_a_pod_that_names_no_scheduler_is_dovetails() -> None:
    assert await reported_by(Pod("ml", "a", "u")) == "dovetail"


async def test_the_scheduler_that_a_pod_names_is_read() -> None:
    assert PodReader({"dovetail": Settings()}).pod(read(waiting("a"))).pod.scheduler == "dovetail"


async def test_conditions_and_events_of_one_namespace_do_not_stand_before_anothers() -> None:
    """1,000 conditions and 6,000 events of one tenant, of which 5,000 are kept; then one of each of another tenant."""
    server = Server()
    teller = teller_to(server)
    for number in range(6_000):
        pod = Pod("many", f"p{number}", f"u{number}")
        teller.note(Note(pod, "FailedScheduling", "no room"))
        if number < 1_000:
            teller.waits(pod, ScheduledCondition("Unschedulable", "no room"))
    few = Pod("few", "p", "u")
    teller.note(Note(few, "FailedScheduling", "no room"))
    teller.waits(few, ScheduledCondition("Unschedulable", "no room"))
    assert teller.dropped == 1_001
    running = asyncio.create_task(teller.run())
    try:
        await asyncio.wait_for(server.came.wait(), 10)
        await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert any("/namespaces/few/" in path for path in server.patched[:9])  # of 8 writers
    assert "few" in [event["metadata"]["namespace"] for event in server.events[:3]]  # of 2 writers


async def test_an_event_that_waits_to_be_sent_keeps_no_pod() -> None:
    """5,000 may wait where the API server is slow: with pods of 250 kB they took 1 GiB after the pods were deleted."""

    class Spec(dict[str, int]):
        """Something that can be referred to weakly."""

    teller = teller_to(Server())
    spec = Spec(cpu=1)
    kept = weakref.ref(spec)
    teller.note(Note(Pod("ml", "a", "u", resources=spec), "FailedScheduling", "x" * 100_000))
    del spec
    assert kept() is None
    assert size_of(list(teller._events._lines.values())) < 4_000
