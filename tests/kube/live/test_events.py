"""The events that a pod gets: who reports them, and what they say."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.reader import Reader
from dovetail.kube.live.tell import Note, Teller
from dovetail.kube.log import silent
from dovetail.model.pod import Pod
from tests.kube.live.stage import read, waiting

pytestmark = pytest.mark.asyncio


class Server:
    """Keeps the events that are posted."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.came = asyncio.Event()

    async def post(self, path: str, body: bytes) -> bytes:
        self.events.append(msgspec.json.decode(body))
        self.came.set()
        return b"{}"


async def reported_by(pod: Pod) -> str:
    """The controller of an event about this pod."""
    server = Server()
    api: Any = server
    teller = Teller(
        api,
        "dovetail-0",
        written=lambda *_: None,
        may_write=lambda: True,
        busy=lambda: False,
        now=lambda: 1000.0,
        log=silent,
    )
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
    assert Reader({"dovetail": Settings()}).pod(read(waiting("a"))).pod.scheduler == "dovetail"
