"""Whoever does not surely hold the lease writes nothing: the whole service, and an API server that takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.service import LiveScheduler, Options
from dovetail.kube.live.tell import Note, ScheduledCondition
from dovetail.kube.log import silent
from dovetail.kube.objects import core as objects
from dovetail.model.decision import Decision, Share
from dovetail.model.events import Bind
from dovetail.model.reason import Reason
from dovetail.model.volumes import VolumeChoice
from tests.kube.live.stage import gpu_node, read, waiting
from tests.kube.live.test_election import Clock, Leases, candidate

pytestmark = pytest.mark.asyncio
A_WHILE = 0.4  # seconds


class Server(Leases):
    """The Lease, a pod, and a record of every other write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[str] = set()

    async def post(self, path: str, body: Any) -> bytes:
        return await super().post(path, body) if path.endswith("/leases") else self._note(path)

    async def patch(self, path: str, body: Any, kind: str = "merge") -> bytes:
        return self._note(path)

    def _note(self, path: str) -> bytes:
        self.written.add(path)
        return msgspec.json.encode(waiting("a", version=2))


class Stand:
    """A service that leads and has heard of a pod and a node."""

    def __init__(self) -> None:
        self.server = Server()
        api: Any = self.server
        options = Options(identity="me", profiles={"dovetail": Settings()})
        self.service = LiveScheduler(api, options, now=lambda: 1000.0, log=silent)

    async def lead(self) -> Driver:
        await self.service.election.acquire()
        self.driver = self.service.driver = self.service._put_together((1, 34))
        self.driver.happened(self.service.mirror.hear_nodes([Changed(msgspec.convert(gpu_node(), objects.Node))]))
        self.driver.take_truth()
        self.hear(waiting("a"))
        return self.driver

    def hear(self, pod: Any) -> None:
        self.driver.hear_pods([Changed(read(pod))])

    async def lose(self) -> None:
        """Somebody deletes the lease, and another one is faster."""
        self.server.lease = None
        await candidate(self.server, Clock(), "other").acquire()
        self.service.election.doubt()
        await self.service.election.keep()

    def bind(self, *volumes: VolumeChoice) -> Bind:
        pod = self.service.mirror.pods["uid-a"].pod
        return Bind(pod, Decision(pod.uid, "n", (Share(0, "GPU-n-0", 1024, 1000),), Reason.OK, 0), volumes)

    async def condition(self) -> None:
        self.driver.teller.waits(self.bind().pod, ScheduledCondition("Unschedulable", "no room"))
        await self.driver.teller.run()

    async def event(self) -> None:
        self.driver.teller.note(Note(self.bind().pod, "FailedScheduling", "no room"))
        await self.driver.teller.run()

    async def binding(self) -> None:
        pod = self.bind().pod
        [decision] = self.service.scheduler.place([self.service.mirror.gangs.group(pod)])
        self.driver.binder.submit(Bind(pod, decision))

    async def volume(self) -> None:
        await self.service._bind_volumes(self.bind(VolumeChoice("ml/c", "uid-c", "n", "v", "1")))

    async def claim(self) -> None:
        await self.service._bind_volumes(self.bind(VolumeChoice("ml/c", "uid-c", "n")))

    async def stamp(self) -> None:
        await self.service._fence(self.driver)


async def _for_a_while(work: Coroutine[Any, Any, None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(A_WHILE):
            await work
            await asyncio.sleep(A_WHILE)


POD = "/api/v1/namespaces/ml/pods/a"
WRITERS: list[tuple[Callable[[Stand], Coroutine[Any, Any, None]], set[str]]] = [
    (Stand.condition, {f"{POD}/status"}),
    (Stand.event, {"/apis/events.k8s.io/v1/namespaces/ml/events"}),
    (Stand.binding, {f"{POD}/binding", f"{POD}/status"}),  # and the label
    (Stand.volume, {"/api/v1/persistentvolumes/v"}),
    (Stand.claim, {"/api/v1/namespaces/ml/persistentvolumeclaims/c"}),
    (Stand.stamp, {f"{POD}/status"}),
]


@pytest.mark.parametrize(("writer", "paths"), WRITERS)
async def test_the_leader_writes(writer: Callable[[Stand], Coroutine[Any, Any, None]], paths: set[str]) -> None:
    stand = Stand()
    await stand.lead()
    await _for_a_while(writer(stand))
    assert stand.server.written == paths


@pytest.mark.parametrize("writer", [writer for writer, _ in WRITERS])
async def test_losing_the_lease_stops_all_writes_at_once(
    writer: Callable[[Stand], Coroutine[Any, Any, None]],
) -> None:
    stand = Stand()
    driver = await stand.lead()
    await stand.lose()
    await _for_a_while(writer(stand))
    assert stand.server.written == set()
    await stand.service._end_tasks()
    assert all(task.done() for task in driver.binder.under_way.values())


async def test_a_pod_with_anothers_stamp_is_bound_once_the_lease_was_looked_at() -> None:
    stand = Stand()
    await stand.lead()
    stamped = waiting("a", version=2)
    stamped["metadata"]["annotations"] = {"dovetail.dev/epoch": "7.other"}
    stand.hear(stamped)
    await _for_a_while(stand.binding())
    assert stand.server.written == set()
    keeping = asyncio.create_task(stand.service.election.keep())
    await stand.driver.binder.drain(10)
    keeping.cancel()
    assert f"{POD}/binding" in stand.server.written
