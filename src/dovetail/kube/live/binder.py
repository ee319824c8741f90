"""Makes placements true: many Bindings on their way at once, each until it is known what became of it.

A write whose answer was lost is sent again: with uid and resourceVersion as preconditions it can happen only once. As
long as nobody knows, the cards stay reserved; before they are given up, the pod is stamped, so that the write fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, Forbidden, NotFound, Throttled, Unauthorized, Unavailable
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.conversion.seals import NO_SEALS, Seals
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.live.binding import LABELS_SINCE, NODE, binding, pod_path
from dovetail.kube.live.election import only_while
from dovetail.kube.live.fencing import PodUnreadable, put_stamp, read_pod
from dovetail.kube.log import WARNING, Log, silent
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from dovetail.model.node import Node

LATE = 2.0  # seconds at the gate after which a placement is held against the present again
Claimed = Callable[[], Iterable[str]]  # annotations by which the pod says by now which cards it has


class Fate(Enum):
    """What became of a placement."""

    BOUND = auto()
    CHANGED = auto()  # the pod is not what it was when it was placed; `pod` is what it is now
    OUTDATED = auto()  # nothing was written: it would not be placed like this any more; `message` says why
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

    def holds(self, bind: Bind) -> bool:
        """Whether what `take` said is still so: the lock is held, or the node wants none."""

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
        objection: Callable[[Bind, bool], str],  # why it would not be placed so now, "" = it would; True = it waited
        settled: Callable[[str], Awaitable[None]],  # returns when no other write of ours to the pod is under way
        volumes: Callable[[Bind], Awaitable[str]],  # "" once the pod's volumes are bound, else why not
        report: Callable[[Outcome], None],
        now: Callable[[], float],
        epoch: str = "",  # of our reign
        bound_by: str = "",  # the mark on pods that hold cards
        seals: Seals = NO_SEALS,
        may_write: Callable[[], bool] = lambda: True,  # whether we are surely the scheduler at this moment
        log: Log = silent,
        server: tuple[int, int] = LABELS_SINCE,
        turn: Turn | None = None,
        most: int = 64,
        world: World = REAL,
    ) -> None:
        self._epoch, self._bound_by, self._may_write, self._log = epoch, bound_by, may_write, log
        self._seals = seals
        self._api, self._vendors, self._nodes = api, vendors, nodes
        self._version_of, self._objection, self._settled, self._volumes = version_of, objection, settled, volumes
        self._report, self._now, self._server, self._turn, self._world = report, now, server, turn, world
        self.gate = Gate(most)
        self.under_way: dict[str, asyncio.Task[None]] = {}  # by uid
        self.writing = 0  # binds of `under_way` whose turn has come: their volumes are bound, and the node is theirs
        self.writes = 0  # sent, events and conditions apart
        self.stamps = 0

    def submit(self, bind: Bind, claimed: Claimed = tuple) -> None:
        task = asyncio.create_task(self._carry_out(bind, claimed), name=f"bind {bind.pod.key}")
        self.under_way[bind.pod.uid] = task
        task.add_done_callback(lambda done: self._finished(bind, done))

    async def drain(self, seconds: float) -> None:
        """Wait for what is under way, as long as that."""
        if self.under_way:
            await asyncio.wait(list(self.under_way.values()), timeout=seconds)

    def _finished(self, bind: Bind, done: asyncio.Task[None]) -> None:
        """Whatever failed did so before anything was sent: `_until_known` raises nothing."""
        if self.under_way.get(bind.pod.uid) is done:
            del self.under_way[bind.pod.uid]
        if not done.cancelled() and (error := done.exception()) is not None:
            self._report(Outcome(bind, Fate.REFUSED, _said(error)))

    async def _carry_out(self, bind: Bind, claimed: Claimed) -> None:
        if bind.volumes and (why := await self._volumes(bind)):
            self._report(Outcome(bind, Fate.VOLUMES, why))
            return
        locked = await self._turn.take(bind) if self._turn is not None else False
        outcome = Outcome(bind, Fate.REFUSED, "interrupted")
        try:
            outcome = await self._until_known(bind, locked, claimed)
        finally:
            if locked and self._turn is not None:
                await self._give_back(self._turn, outcome)
        self._report(outcome)

    async def _give_back(self, turn: Turn, outcome: Outcome) -> None:
        """That it fails changes nothing about what became of the bind."""
        try:
            await turn.give_back(outcome.bind, outcome.came_true)
        except Exception as error:
            node = str(outcome.bind.decision.node)
            self._log(f"lock of node {node}: {_said(error)}", WARNING, pod=outcome.bind.pod.key, node=node)

    async def _until_known(self, bind: Bind, locked: bool, claimed: Claimed) -> Outcome:
        self.writing += 1
        try:
            outcome, unsure = await self._send(bind, locked, claimed)
        finally:
            self.writing -= 1
        return outcome or await self._look(bind, unsure)

    async def _send(self, bind: Bind, locked: bool, claimed: Claimed) -> tuple[Outcome | None, bool]:
        """Until the server has decided. None: the pod must be asked; True: a write of ours may still become true."""
        failures, unsure, began = 0, False, self._world.now()
        while True:
            try:
                async with self.gate(bind.pod.namespace):
                    await self._settled(bind.pod.uid)
                    version = self._version_of(bind)
                    if version is None:
                        return None, unsure
                    late = failures > 0 or self._world.now() - began > LATE
                    if why := self._outdated(bind, locked, waited=late or locked or bool(bind.volumes)):
                        return (None, True) if unsure else (Outcome(bind, Fate.OUTDATED, why), False)
                    node = self._nodes[str(bind.decision.node)]
                    body = binding(
                        bind.pod,
                        bind.decision,
                        node,
                        version,
                        self._vendors,
                        self._now(),
                        locked,
                        claimed(),
                        self._bound_by,
                        self._seals,
                    )
                    await self._write(bind, node, body)
                    return Outcome(bind, Fate.BOUND), False
            except Conflict:
                return None, unsure
            except NotFound:
                return Outcome(bind, Fate.GONE), False
            except (Throttled, Unavailable, Unauthorized) as error:
                failures, unsure = failures + 1, unsure or error.sent
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
            except Exception as error:
                # The pods of a namespace that is being deleted are deleted soon: nothing to try again or to report.
                fate = Fate.GONE if isinstance(error, Forbidden) and error.namespace_ends else Fate.REFUSED
                return (None, True) if unsure else (Outcome(bind, fate, _said(error)), False)

    def _outdated(self, bind: Bind, locked: bool, waited: bool) -> str:
        """Why the placement must not be written; asked last, since lock, volumes and retries take time."""
        if why := self._objection(bind, waited):
            return why
        if self._turn is not None and not self._turn.holds(bind):
            return f"node {bind.decision.node}: " + ("HAMi's lock was lost" if locked else "it wants HAMi's lock now")
        return ""

    async def _write(self, bind: Bind, node: Node, body: dict[str, Any]) -> None:
        """The lease is looked at last: whoever takes over later will find this pod waiting, and stamp it."""
        only_while(self._may_write)
        self.writes += 1
        try:
            await self._api.post(f"{pod_path(bind.pod.namespace, bind.pod.name)}/binding", body)
        except ApiError:
            raise
        except Exception as error:
            self._log(f"{bind.pod.key}: {_said(error)}", WARNING, pod=bind.pod.key, node=node.name)
            raise Unavailable(_said(error)) from error  # nobody knows how far it came
        if self._server < LABELS_SINCE and "labels" in body["metadata"] and self._may_write():
            self.writes += 1
            await self._label(bind, node.name)

    async def _label(self, bind: Bind, node: str) -> None:
        """Before 1.35 a Binding's labels were dropped. Only HAMi's monitor misses it where this fails."""
        body = {"metadata": {"uid": bind.pod.uid, "labels": {NODE: node}}}
        with suppress(Exception):
            await self._api.patch(f"{pod_path(bind.pod.namespace, bind.pod.name)}/status", body)

    async def _look(self, bind: Bind, unsure: bool) -> Outcome:
        """Something is not as we thought: ask how the pod is, until it is known.

        As long as a write may become true the cards are not given up, whatever the answers are.
        """
        failures = 0
        while True:
            try:
                source = await self._as_it_is(bind, unsure)
                return Outcome(bind, Fate.GONE) if source is None else Outcome(bind, Fate.CHANGED, "", source)
            except Exception as error:
                passes = isinstance(error, ApiError) and not isinstance(error, PodUnreadable)
                if not unsure and not passes:
                    return Outcome(bind, Fate.REFUSED, _said(error))
                failures += 1
                if failures % 5 == 3:
                    text = f"{bind.pod.key}: not known yet whether it is bound: {_said(error)}"
                    self._log(text, WARNING, pod=bind.pod.key)
                asked = error.retry_after if isinstance(error, ApiError) else None
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), asked))

    async def _as_it_is(self, bind: Bind, unsure: bool) -> objects.Pod | None:
        """None: it is gone. If it waits, no write of ours may reach it any more."""
        path = pod_path(bind.pod.namespace, bind.pod.name)
        try:
            source = read_pod(await self._api.get(path))
        except NotFound:
            return None
        if source.metadata.uid != bind.pod.uid:
            return None
        if not unsure or source.spec.node_name:
            return source
        only_while(self._may_write)
        self.stamps += 1  # a stamp that is there already would change nothing
        return await put_stamp(self._api, path, bind.pod.uid, f"{self._epoch}.{self.stamps}")


def _said(error: BaseException) -> str:
    return error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
