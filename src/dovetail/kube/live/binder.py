"""Binds pods to their nodes: many Bindings under way at once, each until its result is known.

A write whose answer was lost is sent again. Its preconditions, uid and resourceVersion, let it succeed only once. While
the result is unknown, the cards stay reserved. Before they are freed, our epoch is written on the pod, so that the lost
write fails.
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
from dovetail.kube.conversion.reading import NODE_LABEL
from dovetail.kube.conversion.seals import NO_SEALS, Seals
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.live.binding import LABELS_SINCE, binding, pod_path
from dovetail.kube.live.election import only_while
from dovetail.kube.live.fencing import PodUnreadable, put_stamp, read_pod
from dovetail.kube.log import WARNING, Log, silent
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from dovetail.model.node import Node

LATE = 2.0  # seconds of waiting at the gate after which a placement is checked again
Claimed = Callable[[], Iterable[str]]  # annotations in which the pod claims cards by now


class Fate(Enum):
    """The result of a placement."""

    BOUND = auto()
    CHANGED = auto()  # the pod has changed since it was placed; `pod` is its present object
    OUTDATED = auto()  # nothing was written: it would not be placed like this any more; `message` says why
    GONE = auto()
    REFUSED = auto()  # the API server refused it; `message` says why
    VOLUMES = auto()  # its volumes were not bound; `message` says why


@dataclass(frozen=True, slots=True)
class Outcome:
    bind: Bind
    fate: Fate
    message: str = ""
    pod: objects.Pod | None = None

    @property
    def came_true(self) -> bool:
        """Whether the pod is bound to the node of the decision, also by a write whose answer was lost."""
        has_it = self.pod is not None and self.pod.spec.node_name == self.bind.decision.node
        return self.fate is Fate.BOUND or (self.fate is Fate.CHANGED and has_it)


class Turn(Protocol):
    """A lock that must be taken before a pod is bound to a node."""

    async def take(self, bind: Bind) -> bool:
        """Take the lock. True where the node's plugin will confirm."""

    def holds(self, bind: Bind) -> bool:
        """Whether the result of `take` still holds: the lock is held, or the node needs none."""

    async def give_back(self, bind: Bind, bound: bool) -> None: ...


class Binder:
    """Sends Bindings. `submit` returns at once; every submitted placement ends with one Outcome."""

    def __init__(
        self,
        api: Api,
        vendors: Vendors,
        *,
        nodes: Mapping[str, Node],
        version_of: Callable[[Bind], str | None],  # the pod's resourceVersion, None = it is not that pod any more
        # Why it would not be placed so now, "" = it would; True = the bind waited.
        objection: Callable[[Bind, bool], str],
        settled: Callable[[str], Awaitable[None]],  # returns when none of our other writes to the pod is under way
        volumes: Callable[[Bind], Awaitable[str]],  # "" once the pod's volumes are bound, else why not
        report: Callable[[Outcome], None],
        now: Callable[[], float],
        epoch: str = "",  # the epoch of our leadership
        bound_by: str = "",  # our value of the bound-by annotation, on pods that hold cards
        seals: Seals = NO_SEALS,
        may_write: Callable[[], bool] = lambda: True,  # whether we are certain to be the leader at this moment
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
        self.sending: set[str] = set()  # uids of these binds: no outcome is certain before the server has answered
        self.writing = 0  # binds of `under_way` past the gate: their volumes are bound, and they hold the node's lock
        self.writes = 0  # writes sent, without events and conditions
        self.stamps = 0

    def submit(self, bind: Bind, claimed: Claimed = tuple) -> None:
        task = asyncio.create_task(self._carry_out(bind, claimed), name=f"bind {bind.pod.key}")
        self.under_way[bind.pod.uid] = task
        task.add_done_callback(lambda done: self._finished(bind, done))

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for binds under way."""
        if self.under_way:
            await asyncio.wait(list(self.under_way.values()), timeout=seconds)

    def _finished(self, bind: Bind, done: asyncio.Task[None]) -> None:
        """Report a bind whose task failed. Nothing was sent then: `_until_known` raises nothing."""
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
        """Give the lock back. A failure does not change the outcome of the bind."""
        try:
            await turn.give_back(outcome.bind, outcome.came_true)
        except Exception as error:
            node = str(outcome.bind.decision.node)
            self._log(
                f"lock of node {node}: {_said(error)}",
                WARNING,
                pod=outcome.bind.pod.key,
                uid=outcome.bind.pod.uid,
                node=node,
            )

    async def _until_known(self, bind: Bind, locked: bool, claimed: Claimed) -> Outcome:
        self.writing += 1
        self.sending.add(bind.pod.uid)
        try:
            outcome, unsure = await self._send(bind, locked, claimed)
            return outcome or await self._look(bind, unsure)
        finally:
            self.writing -= 1
            self.sending.discard(bind.pod.uid)

    async def _send(self, bind: Bind, locked: bool, claimed: Claimed) -> tuple[Outcome | None, bool]:
        """Send until the server has decided. None: the pod must be read; True: one of our writes may still succeed."""
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
        """Why the placement must not be written; checked last, since lock, volumes and retries take time."""
        if why := self._objection(bind, waited):
            return why
        if self._turn is not None and not self._turn.holds(bind):
            return f"node {bind.decision.node}: " + ("HAMi's lock was lost" if locked else "it wants HAMi's lock now")
        return ""

    async def _write(self, bind: Bind, node: Node, body: dict[str, Any]) -> None:
        """Write the Binding.

        The lease is checked last: a later leader finds this pod waiting, and writes its own epoch on it.
        """
        only_while(self._may_write)
        self.writes += 1
        try:
            await self._api.post(f"{pod_path(bind.pod.namespace, bind.pod.name)}/binding", body)
        except ApiError:
            raise
        except Exception as error:
            self._log(f"{bind.pod.key}: {_said(error)}", WARNING, pod=bind.pod.key, uid=bind.pod.uid, node=node.name)
            raise Unavailable(_said(error)) from error  # it is unknown how far the write came
        if self._server < LABELS_SINCE and "labels" in body["metadata"] and self._may_write():
            self.writes += 1
            await self._label(bind, node.name)

    async def _label(self, bind: Bind, node: str) -> None:
        """Write the labels, which a Binding drops before Kubernetes 1.35.

        If this fails, only HAMi's monitor misses them.
        """
        body = {"metadata": {"uid": bind.pod.uid, "labels": {NODE_LABEL: node}}}
        with suppress(Exception):
            await self._api.patch(f"{pod_path(bind.pod.namespace, bind.pod.name)}/status", body)

    async def _look(self, bind: Bind, unsure: bool) -> Outcome:
        """Read the pod until its state is known, after an unexpected answer.

        While one of our writes may still succeed, the cards stay reserved, whatever the answers are.
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
                    self._log(text, WARNING, pod=bind.pod.key, uid=bind.pod.uid)
                asked = error.retry_after if isinstance(error, ApiError) else None
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), asked))

    async def _as_it_is(self, bind: Bind, unsure: bool) -> objects.Pod | None:
        """The pod as it is; None = it is gone. If it waits, none of our writes can reach it after this."""
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
        self.stamps += 1  # counted, because writing the same epoch again would not change the resourceVersion
        return await put_stamp(self._api, path, bind.pod.uid, f"{self._epoch}.{self.stamps}")


def _said(error: BaseException) -> str:
    return error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
