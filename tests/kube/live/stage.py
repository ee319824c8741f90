"""The live driver with the engine and the mirror, and nobody at the other end: binds are collected, not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self, cast

import msgspec

from dovetail.engine.scheduler import DEFAULT_RIGHTS, Rights, Scheduler
from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.binder import Binder, Claimed, Fate, Outcome
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.evictor import Evictor
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.tell import Note, ScheduledCondition, Teller
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind, Evict
from dovetail.model.pod import Pod
from tests.kube.logged import Logged
from tests.kube.manifests import ALLOCATED, Object, card, container, node

WHOLE = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100}


class Hands:
    """In place of binder and teller."""

    def __init__(self) -> None:
        self.binds: list[Bind] = []
        self.under_way: dict[str, Bind] = {}
        self.writing = 0  # as if no Binding were being written
        self.notes: list[Note] = []
        self.conditions: dict[str, ScheduledCondition] = {}  # by uid
        self.nominations: dict[str, str] = {}  # by uid
        self.writes_nominations = False  # True = none was written yet

    def submit(self, bind: Bind, claimed: Claimed = tuple) -> None:
        self.binds.append(bind)
        self.under_way[bind.pod.uid] = bind
        self.claimed = claimed()  # of the last one

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def waits(self, pod: Pod, condition: ScheduledCondition) -> None:
        self.conditions[pod.uid] = condition

    def forget(self, uid: str) -> None:
        self.conditions.pop(uid, None)

    def nominate(self, pod: Pod, node: str) -> None:
        self.nominations[pod.uid] = node

    def is_nominating(self, uid: str) -> bool:
        return self.writes_nominations and uid in self.nominations


class EvictorsHands:
    """In place of the evictor."""

    def __init__(self) -> None:
        self.evictions: list[Evict] = []

    def submit(self, evictions: Sequence[Evict]) -> None:
        self.evictions += evictions


class Stage:
    """`async with Stage() as stage:`, then say what happens and `await stage.settle()`."""

    def __init__(
        self, unknown_group: str = "wait", settings: Settings | None = None, rights: Rights = DEFAULT_RIGHTS
    ) -> None:
        self.clock = 1000.0
        self.log = Logged()
        self.scheduler = Scheduler(mode="interpreted", rights=rights)
        self.mirror = Mirror(PodReader({"dovetail": settings or Settings()}), lambda: self.clock, Gangs(unknown_group))
        self.driver = Driver(self.scheduler, self.mirror, epoch="1.me", now=lambda: self.clock, log=self.log)
        self.hands = Hands()
        self.doubts = 0
        self.driver.doubt = self._doubt
        self.driver.binder = cast(Binder, self.hands)
        self.driver.teller = cast(Teller, self.hands)
        self.evictors = EvictorsHands()
        self.driver.preemptions.evictor = cast(Evictor, self.evictors)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.driver.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})
        assert self._running.cancelled(), self._running.exception()

    def _doubt(self) -> int:
        """Nobody looks at the lease: whoever waits for that look waits."""
        self.doubts += 1
        return self.doubts

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)
        assert not self._running.done(), self._running.exception()
        if not self.driver.paused and not self.driver._inbox:  # all that is known is booked
            assert self.driver.audit.look_at_all() == []

    def nodes(self, *items: Object) -> None:
        batch: list[Any] = [Changed(msgspec.convert(item, objects.Node)) for item in items]
        self.driver.happened(self.mirror.hear_nodes(batch))

    def node_gone(self, name: str) -> None:
        self.driver.happened(self.mirror.hear_nodes([Deleted(Ref("", name, ""), None)]))

    def pods(self, *items: Object) -> None:
        self.driver.hear_pods([Changed(read(item)) for item in items])

    def pod_gone(self, item: Object) -> None:
        meta = item["metadata"]
        self.driver.hear_pods([Deleted(Ref(meta["namespace"], meta["name"], meta["uid"]), None)])

    def answer(self, fate: Fate, bind: Bind, item: Object | None = None, message: str = "") -> None:
        self.driver.outcomes.take(Outcome(bind, fate, message, read(item) if item is not None else None))
        self.hands.under_way.pop(bind.pod.uid, None)

    def holders(self) -> set[str]:
        """Names of pods that hold something in the ledger."""
        return {self.scheduler.ledger.pods.pod(uid).name for uid in self.scheduler.ledger.pods}


def read(item: Object) -> objects.Pod:
    return msgspec.convert(item, objects.Pod)


def gpu_node(name: str = "n", cards: int = 1) -> Object:
    return node(name, *(card(f"GPU-{name}-{index}") for index in range(cards)))


def waiting(name: str, version: int = 1, labels: Object | None = None, limits: Object | None = None) -> Object:
    """A pod of ours that wants a whole card."""
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": labels or {},
        },
        "spec": {"schedulerName": "dovetail", "containers": [container(WHOLE if limits is None else limits)]},
    }


def bound(name: str, bind: Bind, version: int = 2) -> Object:
    """The same pod with what the bind says."""
    item = waiting(name, version)
    shares = "".join(f"{share.uuid},NVIDIA,{share.memory_mib},100:" for share in bind.decision.shares)
    item["metadata"]["annotations"] = {ALLOCATED: f"{shares};"}
    item["spec"]["nodeName"] = bind.decision.node
    return item
