"""Stops pods for others: evictions, and deletions where a disruption budget must be broken. Each until it is decided.

The Eviction API checks disruption budgets and counts the eviction in the same step. It also writes the condition
DisruptionTarget, with a reason of its own; ours replaces it afterwards. A deletion breaks a budget. It is sent only
where the engine found no other way, as kube-scheduler does for every preemption
(pkg/scheduler/framework/preemption/executor.go).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, NotFound, Throttled, Unauthorized, Unavailable
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.live.binding import pod_path
from dovetail.kube.live.election import only_while
from dovetail.kube.live.tell import CONTROLLER, ScheduledCondition
from dovetail.kube.live.times import to_second
from dovetail.kube.live.words import cut
from dovetail.kube.log import ERROR, INFO, WARNING, Log, silent
from dovetail.model.events import Evict
from dovetail.model.pod import Pod

EVICTIONS_AT_ONCE = 32
MARK_AFTER = 0.25  # seconds from an eviction to our condition: a pod without a grace period is gone by then
MOST_FAILURES = 5  # answers 409 or 5xx to one eviction, after which it is given up
DISRUPTION_REASON = "PreemptionByScheduler"  # Kubernetes' reason of DisruptionTarget after a preemption


class _Forbidden(Exception):
    """A disruption budget forbids the eviction. It is no sign of a busy server, so the gate must not see a 429."""


@dataclass(slots=True)
class _Losses:
    """What one plan has stopped so far."""

    stopped: set[str] = field(default_factory=set)  # uids
    broken: set[str] = field(default_factory=set)  # gangs that have too few members without these pods


@dataclass(slots=True)
class EvictionCounts:
    """Counters for metrics."""

    evicted: int = 0
    refused: int = 0


def preempted(effect: Evict) -> ScheduledCondition:
    """What DisruptionTarget says of a pod that yields to another one, in kube-scheduler's words."""
    for_whom = f" {effect.preemptor.key}" if effect.preemptor is not None else ""
    scheduler = (effect.preemptor.scheduler if effect.preemptor is not None else "") or CONTROLLER
    return ScheduledCondition(
        DISRUPTION_REASON, f"{scheduler}: preempting to accommodate a higher priority pod{for_whom}"
    )


class Evictor:
    def __init__(
        self,
        api: Api,
        *,
        runs: Callable[[str], bool],  # by uid: the pod has a node and is not ending
        exists: Callable[[str], bool],  # by uid: the pod is there, ending or not
        wanted: Callable[[Evict], bool],  # whether a pod still waits for its place
        nominated: Callable[[Evict], Awaitable[None]],  # returns when the nominations of these pods are written
        evicted: Callable[[Evict], None],
        refused: Callable[[Evict, str], None],  # it goes on, and why
        may_write: Callable[[], bool],  # whether we are certain to be the leader at this moment
        now: Callable[[], float],
        log: Log = silent,
        condition: Callable[[Evict], ScheduledCondition] = preempted,  # reason and message of DisruptionTarget
        # By gang and the uids of members that were stopped: whether it has too few members without them.
        is_broken: Callable[[str, Collection[str]], bool] = lambda gang, stopped: True,
        most: int = EVICTIONS_AT_ONCE,
        world: World = REAL,
    ) -> None:
        self._condition, self._is_broken = condition, is_broken
        self._api, self._runs, self._exists, self._wanted, self._nominated = api, runs, exists, wanted, nominated
        self._evicted, self._refused, self._may_write = evicted, refused, may_write
        self._now, self._log, self._world = now, log, world
        self.gate = Gate(most)
        self.under_way: set[asyncio.Task[None]] = set()
        self.counts = EvictionCounts()

    def submit(self, evictions: Sequence[Evict]) -> None:
        """Stop the pods of one plan. Returns at once."""
        task = asyncio.create_task(self._carry_out(evictions), name=f"evict for {evictions[0].by}")
        self.under_way.add(task)
        task.add_done_callback(self._finished)

    async def drain(self) -> None:
        """Cancel evictions that were not sent."""
        tasks = list(self.under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log(f"{task.get_name()}: {type(error).__name__}: {error}", ERROR)

    async def _carry_out(self, evictions: Sequence[Evict]) -> None:
        """A nomination is written before the first eviction.

        A scheduler that starts after a crash then finds for whom a pod is ending, and stops no other one.
        """
        await self._nominated(evictions[0])
        losses = _Losses()
        await asyncio.gather(*(self._evict(one, losses) for one in evictions))

    async def _evict(self, effect: Evict, losses: _Losses) -> None:
        turn = effect.preemptor.namespace if effect.preemptor is not None else effect.pod.namespace
        failures = 0
        while self._runs(effect.pod.uid):
            try:
                async with self.gate(turn):
                    why = self._objection(effect, losses)
                    if why is None:
                        return
                    if why:
                        self._give_up(effect, why)
                        return
                    await self._send(effect)
                self._note_loss(effect.pod, losses)
                await self._succeeded(effect)
                return
            except NotFound:
                return  # the watch says so, too
            except _Forbidden as error:
                self._give_up(effect, str(error))
                return
            except (Conflict, Throttled, Unavailable, Unauthorized) as error:
                failures += isinstance(error, Conflict) or error.code >= 500
                if failures >= MOST_FAILURES:
                    self._give_up(effect, error.message)
                    return
                await self._world.sleep(BACKOFF.wait(failures or 1, self._world.chance(), error.retry_after))
            except Exception as error:
                self._give_up(
                    effect, error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
                )
                return

    def _note_loss(self, pod: Pod, losses: _Losses) -> None:
        losses.stopped.add(pod.uid)
        if pod.group and pod.group not in losses.broken and self._is_broken(pod.group, losses.stopped):
            losses.broken.add(pod.group)

    def _objection(self, effect: Evict, losses: _Losses) -> str | None:
        """Why the pod must not be stopped any more; "" = it must; None = it is ending by itself. Checked last.

        The rest of a gang that has lost members which it needs is stopped in any case: it cannot work.
        """
        if not self._runs(effect.pod.uid):
            return None
        needed = effect.pod.group in losses.broken or self._wanted(effect)
        return "" if needed else "its place is no longer needed"

    async def _send(self, effect: Evict) -> None:
        pod = effect.pod
        path, options = pod_path(pod.namespace, pod.name), {"preconditions": {"uid": pod.uid}}
        only_while(self._may_write)
        if effect.breaks_budget:
            await self._mark(effect)
            only_while(self._may_write)
            await self._api.delete(path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            await self._api.post(f"{path}/eviction", body)
        except Throttled as error:
            if error.by_budget:
                raise _Forbidden(error.message) from error
            raise

    async def _mark(self, effect: Evict) -> None:
        """Write the condition that tells controllers and people why the pod ends."""
        pod = effect.pod
        said = self._condition(effect)
        condition: dict[str, Any] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": said.reason,
            "message": cut(said.message),
            "lastTransitionTime": to_second(self._now()),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._api.patch(f"{pod_path(pod.namespace, pod.name)}/status", body, "strategic")

    async def _succeeded(self, effect: Evict) -> None:
        self.counts.evicted += 1
        why = f" for {effect.preemptor.key}" if effect.preemptor is not None else f": {effect.reason}"
        self._log(
            f"{effect.pod.key} on {effect.node} is stopped{why}",
            INFO,
            pod=effect.pod.key,
            uid=effect.pod.uid,
            node=effect.node,
        )
        self._evicted(effect)
        if effect.breaks_budget:
            return
        await self._world.sleep(MARK_AFTER)
        if self._may_write() and self._exists(effect.pod.uid):
            with suppress(ApiError):  # it may have ended meanwhile
                await self._mark(effect)

    def _give_up(self, effect: Evict, why: str) -> None:
        self.counts.refused += 1
        self._log(
            f"{effect.pod.key} is not stopped: {why}", WARNING, pod=effect.pod.key, uid=effect.pod.uid, node=effect.node
        )
        self._refused(effect, why)
