"""Makes placements true: many Bindings on their way at once, each until it is known what became of it.

A write whose answer was lost is sent again: with uid and resourceVersion as preconditions it can happen only once. As
long as nobody knows, the cards stay reserved; before they are given up, the pod is stamped, so that the write fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import msgspec

from dovetail.kube import objects
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, NotFound, Throttled, Unauthorized, Unavailable
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.live.binding import LABELS_SINCE, NODE, binding, pod_path
from dovetail.kube.live.fencing import put_stamp
from dovetail.kube.vendors import Vendors
from dovetail.model.events import Bind
from dovetail.model.node import Node

_POD = msgspec.json.Decoder(objects.Pod)


class Fate(Enum):
    """What became of a placement."""

    BOUND = auto()
    CHANGED = auto()  # pod or node are not what they were when it was placed; `pod` is what it is now
    GONE = auto()
    REFUSED = auto()  # the API server does not want it so; `message` says why
    VOLUMES = auto()  # its volumes were not bound; likewise


@dataclass(frozen=True, slots=True)
class Outcome:
    bind: Bind
    fate: Fate
    message: str = ""
    pod: objects.Pod | None = None

    @property
    def came_true(self) -> bool:
        """Also by a write whose answer was lost."""
        has_it = self.pod is not None and self.pod.spec.node_name == self.bind.decision.node
        return self.fate is Fate.BOUND or (self.fate is Fate.CHANGED and has_it)


class Turn(Protocol):
    """Somebody whose turn must be waited for before a node is written to."""

    async def take(self, bind: Bind) -> bool:
        """True where the node's plugin will confirm."""

    async def give_back(self, bind: Bind, bound: bool) -> None: ...


class Binder:
    """`submit` returns at once; every submitted placement ends as one Outcome."""

    def __init__(
        self,
        api: Api,
        vendors: Vendors,
        *,
        nodes: Mapping[str, Node],
        version_of: Callable[[Bind], str | None],  # the pod's resourceVersion, None = it is not that pod any more
        settled: Callable[[str], Awaitable[None]],  # returns when no other write of ours to the pod is under way
        volumes: Callable[[Bind], Awaitable[str]],  # "" once the pod's volumes are bound, else why not
        report: Callable[[Outcome], None],
        now: Callable[[], float],
        epoch: str = "",  # of our reign
        may_write: Callable[[], bool] = lambda: True,  # whether we are surely the scheduler at this moment
        server: tuple[int, int] = LABELS_SINCE,
        turn: Turn | None = None,
        most: int = 64,
        world: World = REAL,
    ) -> None:
        self._epoch, self._may_write = epoch, may_write
        self._api, self._vendors, self._nodes = api, vendors, nodes
        self._version_of, self._settled, self._volumes = version_of, settled, volumes
        self._report, self._now, self._server, self._turn, self._world = report, now, server, turn, world
        self.gate = Gate(most)
        self.under_way: dict[str, asyncio.Task[None]] = {}  # by uid
        self.writes = 0  # sent, events and conditions apart
        self.stamps = 0

    def submit(self, bind: Bind) -> None:
        task = asyncio.create_task(self._carry_out(bind), name=f"bind {bind.pod.key}")
        self.under_way[bind.pod.uid] = task
        task.add_done_callback(lambda done: self._finished(bind, done))

    async def drain(self, seconds: float) -> None:
        """Wait for what is under way, as long as that."""
        if self.under_way:
            await asyncio.wait(list(self.under_way.values()), timeout=seconds)

    def _finished(self, bind: Bind, done: asyncio.Task[None]) -> None:
        if self.under_way.get(bind.pod.uid) is done:
            del self.under_way[bind.pod.uid]
        if not done.cancelled() and (error := done.exception()) is not None:
            self._report(Outcome(bind, Fate.REFUSED, f"{type(error).__name__}: {error}"))

    async def _carry_out(self, bind: Bind) -> None:
        if bind.volumes and (why := await self._volumes(bind)):
            self._report(Outcome(bind, Fate.VOLUMES, why))
            return
        locked = await self._turn.take(bind) if self._turn is not None else False
        outcome = Outcome(bind, Fate.REFUSED, "interrupted")
        try:
            outcome = await self._until_known(bind, locked)
        finally:
            if locked and self._turn is not None:
                await self._turn.give_back(bind, outcome.came_true)
        self._report(outcome)

    async def _until_known(self, bind: Bind, locked: bool) -> Outcome:
        failures, unsure = 0, False  # unsure: a write of before may still become true
        while True:
            try:
                async with self.gate():
                    await self._settled(bind.pod.uid)
                    version, node = self._version_of(bind), self._target(bind)
                    if version is None or node is None:
                        break
                    await self._write(bind, node, version, locked)
                    return Outcome(bind, Fate.BOUND)
            except Conflict:
                break
            except NotFound:
                return Outcome(bind, Fate.GONE)
            except (Throttled, Unavailable, Unauthorized) as error:
                failures, unsure = failures + 1, unsure or error.sent
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
            except ApiError as error:
                if not unsure:
                    return Outcome(bind, Fate.REFUSED, error.message)
                break
        return await self._look(bind, unsure)

    def _target(self, bind: Bind) -> Node | None:
        """The node as it is now; None where it is gone, or a card that was chosen is."""
        node = self._nodes.get(str(bind.decision.node))
        if node is None or not {share.uuid for share in bind.decision.shares} <= {card.uuid for card in node.devices}:
            return None
        return node

    async def _write(self, bind: Bind, node: Node, version: str, locked: bool) -> None:
        """The lease is looked at last: whoever takes over later will find this pod waiting, and stamp it."""
        body = binding(bind.pod, bind.decision, node, version, self._vendors, self._now(), locked)
        if not self._may_write():
            raise Unavailable("the lease was not renewed in time", sent=False)
        self.writes += 1
        await self._api.post(f"{pod_path(bind.pod.namespace, bind.pod.name)}/binding", body)
        if self._server < LABELS_SINCE and "labels" in body["metadata"]:
            self.writes += 1
            await self._label(bind, node.name)

    async def _label(self, bind: Bind, node: str) -> None:
        """Before 1.35 a Binding's labels were dropped. Only HAMi's monitor misses it where this fails."""
        body = {"metadata": {"uid": bind.pod.uid, "labels": {NODE: node}}}
        try:
            await self._api.patch(pod_path(bind.pod.namespace, bind.pod.name), body)
        except ApiError:
            return

    async def _look(self, bind: Bind, unsure: bool) -> Outcome:
        """Something is not as we thought: ask how the pod is. If it waits, no write of ours may reach it any more."""
        failures, path = 0, pod_path(bind.pod.namespace, bind.pod.name)
        while True:
            try:
                source = _POD.decode(await self._api.get(path))
                if unsure and source.metadata.uid == bind.pod.uid and not source.spec.node_name:
                    self.stamps += 1  # a stamp that is there already would change nothing
                    stamped = await put_stamp(self._api, path, bind.pod.uid, f"{self._epoch}.{self.stamps}")
                    if stamped is None:
                        return Outcome(bind, Fate.GONE)
                    source = stamped
                break
            except NotFound:
                return Outcome(bind, Fate.GONE)
            except msgspec.DecodeError as error:
                return Outcome(bind, Fate.REFUSED, f"the pod cannot be read: {error}")
            except ApiError as error:
                failures += 1
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
        if source.metadata.uid != bind.pod.uid:
            return Outcome(bind, Fate.GONE)
        return Outcome(bind, Fate.CHANGED, "", source)
