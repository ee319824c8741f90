"""A waiting pod's rights: what its queue is owed, who holds it, and which way would place the pod, at what cost.

The ways are tried on the engine: waiting for running pods to end, borrowing what is free, reclaiming what other queues
have borrowed, and preempting pods of a lower priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dovetail.engine.rights.queue_status import Loan
from dovetail.engine.rights.queue_wording import amount_in_queue
from dovetail.engine.rights.service import gpus_of
from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Group, Pod
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from dovetail.whatif.preempting import Decided, Eviction, decide_all
from dovetail.whatif.situation import EngineOptions, Situation, start

WAIT, BORROW, RECLAIM, PREEMPT = "wait", "borrow", "reclaim", "preempt"
HIGHEST_TRIED = 2_000_000_000  # below Kubernetes' own system-node-critical


@dataclass(frozen=True, slots=True)
class OwedAmount:
    """One resource of a queue, in the resource's unit."""

    resource: str
    guarantee: int
    deserved: int  # what its arithmetic gives it now
    used: int
    ceiling: int | None  # None = there is none


@dataclass(frozen=True, slots=True)
class Owed:
    """What the pod's queue is owed, and who holds it."""

    queue: str
    amounts: tuple[OwedAmount, ...]  # by resource
    loans: tuple[Loan, ...]  # parts of its guarantee that other queues use


@dataclass(frozen=True, slots=True)
class StoppedPod:
    """A pod that would be stopped. `gpu_hours`: its GPUs × the time since it started; None = that is not known."""

    pod: Pod
    node: str
    gpus: float
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a place. `possible`: the pod may take it now, and gets a place by it."""

    kind: str
    possible: bool
    sentence: str
    stops: tuple[StoppedPod, ...] = ()

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours that the stopped pods lose; None = for one of them it is not known."""
        known = [one.gpu_hours for one in self.stops if one.gpu_hours is not None]
        return sum(known) if len(known) == len(self.stops) else None


def matter(situation: Situation) -> bool:
    """Whether rights can decide anything: there are queues, or pods of different priorities."""
    running = {held.pod.priority for held in situation.running}
    waiting = {pod.priority for group in situation.groups for pod in group.pods}
    return bool(situation.queues) or len(running | waiting) > 1


def owed(situation: Situation, scheduler: Scheduler, pod: Pod) -> Owed | None:
    """What the pod's queue is owed now; None = it has no queue."""
    queues = scheduler.claims.queues
    name = queues.queue_of(pod) if queues.active else ""
    status = queues.status(name) if name else None
    if status is None:
        return None
    ceiling = next(queue.ceiling for queue in situation.queues if queue.name == name)
    amounts = tuple(
        OwedAmount(
            resource,
            status.guarantee.get(resource, 0),
            status.deserved.get(resource, 0),
            status.used.get(resource, 0),
            ceiling.get(resource),
        )
        for resource in sorted({*status.guarantee, *status.deserved, *status.used, *ceiling})
    )
    return Owed(name, amounts, tuple(loan for loan in queues.borrowing() if loan.lender == name))


def ways(situation: Situation, options: EngineOptions, scheduler: Scheduler, group: Group, pod: Pod) -> tuple[Way, ...]:
    """The ways of a waiting group, after all other groups were decided. `group` has its waiting members only."""
    found = [_wait(scheduler, group)]
    in_queue = scheduler.claims.queues.active and bool(scheduler.claims.queues.queue_of(pod))
    if in_queue:
        found.append(_borrow(situation, scheduler, group, pod))
    stopped = Stopping(situation, options, group)
    now = stopped.now()
    if in_queue:
        found.append(_reclaim(scheduler, pod, stopped, [one for one in now if _is_reclaimed(scheduler, one)]))
    mine = [one for one in now if not in_queue or not _is_reclaimed(scheduler, one)]
    found.append(_preempt(pod, stopped, mine))
    return tuple(found)


def _fits(scheduler: Scheduler, group: Group) -> bool:
    """Whether the group gets a place with the ledger as it is; call it in a trial."""
    placed = sum(decision.placed for decision in scheduler.place([group]))
    return placed >= max(1, group.needed)


def _wait(scheduler: Scheduler, group: Group) -> Way:
    with scheduler.trial():
        scheduler.ledger.release_all(list(scheduler.ledger.pods))
        fits = _fits(scheduler, group)
    if fits:
        return Way(WAIT, True, "it gets a place when enough running pods have ended; when that is, is not known")
    return Way(WAIT, False, "it does not fit even if all running pods have ended")


@contextmanager
def _without_queue(scheduler: Scheduler, situation: Situation, name: str) -> Iterator[None]:
    """Take the queue out of the tree until the end of the block."""
    scheduler.claims.queues.drop(name)
    try:
        yield
    finally:
        scheduler.claims.queues.set(next(queue for queue in situation.queues if queue.name == name))


def _borrow(situation: Situation, scheduler: Scheduler, group: Group, pod: Pod) -> Way:
    """Whether its queue may use more, and whether there is anything to use."""
    queues = scheduler.claims.queues
    refused = queues.refusal(pod)
    if refused is None:
        return Way(BORROW, False, "its queue may have more, but no node has a free place for it")
    with _without_queue(scheduler, situation, queues.queue_of(pod)), scheduler.trial():
        free = _fits(scheduler, group)
    there = "there is a free place" if free else "there is no free place either"
    return Way(BORROW, False, f"{refused.message}; {there}")


def _is_reclaimed(scheduler: Scheduler, one: Eviction) -> bool:
    """Whether the pod is of another queue: such a pod is only stopped to give back what its queue borrowed."""
    queues = scheduler.claims.queues
    return queues.active and queues.queue_of(one.pod) != queues.queue_of(one.by)


def _reclaim(scheduler: Scheduler, pod: Pod, stopped: Stopping, victims: list[Eviction]) -> Way:
    if victims:
        return stopped.way(RECLAIM, True, "other queues give back what they have borrowed", victims)
    queues = scheduler.claims.queues
    status = queues.status(queues.queue_of(pod))
    left = {} if status is None else {name: most - status.used.get(name, 0) for name, most in status.deserved.items()}
    if not any(amount > 0 for amount in left.values()):
        return Way(RECLAIM, False, "its queue has what it is owed")
    owed = ", ".join(f"{name} {amount_in_queue(name, amount)}" for name, amount in left.items() if amount > 0)
    return Way(RECLAIM, False, f"its queue is owed {owed} more; no pod of a queue that borrows would make room")


def _preempt(pod: Pod, stopped: Stopping, victims: list[Eviction]) -> Way:
    if victims:
        return stopped.way(PREEMPT, True, "pods of a lower priority yield", victims)
    if not pod.preempts:
        return Way(PREEMPT, False, "its preemptionPolicy is Never")
    placed, others = stopped.at_highest_priority()
    if not placed:
        return Way(PREEMPT, False, "stopping running pods would not make room")
    if not others:
        return Way(PREEMPT, False, "at a higher priority it would be placed before other waiting pods")
    needed = max(one.pod.priority for one in others) + 1
    return stopped.way(PREEMPT, False, f"no pod yields to its priority {pod.priority}; at {needed} or more", others)


@dataclass(frozen=True, slots=True)
class Stopping:
    """What preemption does for one group, in plans of the whole situation."""

    situation: Situation
    options: EngineOptions
    group: Group

    def now(self) -> list[Eviction]:
        """Running pods that are stopped for the group where preemption is allowed; empty if it finds no place so.

        A pod that waits although preemption is on has been tried.
        """
        if self.options.yielding is not None:
            return []
        return self._decided(self.situation)[1]

    def at_highest_priority(self) -> tuple[bool, list[Eviction]]:
        """Whether the group would get a place if it outranked all pods; and the pods that are stopped for it."""
        pods = tuple(replace(pod, priority=HIGHEST_TRIED, preempts=True) for pod in self.group.pods)
        urgent = replace(self.group, pods=pods)
        others = tuple(one for one in self.situation.groups if one.name != self.group.name)
        decided, mine = self._decided(replace(self.situation, groups=(*others, urgent)))
        uids = {pod.uid for pod in pods}
        return any(one.placed for one in decided.decisions if one.uid in uids), mine

    def _decided(self, situation: Situation) -> tuple[Decided, list[Eviction]]:
        options = replace(self.options, yielding=self.options.yielding or YIELD_BY_PRIORITY)
        scheduler, _ = start(situation, options)
        decided = decide_all(scheduler, situation.groups, options.now)
        return decided, [one for one in decided.evictions if one.group == self.group.name]

    def way(self, kind: str, possible: bool, sentence: str, victims: list[Eviction]) -> Way:
        started = {held.pod.uid: held.started for held in self.situation.running}
        return Way(kind, possible, sentence, tuple(self._stopped(one, started) for one in victims))

    def _stopped(self, one: Eviction, started: Mapping[str, float]) -> StoppedPod:
        since, gpus = started.get(one.pod.uid, 0.0), gpus_of(one.pod)
        hours = gpus * max(0.0, self.options.now - since) / 3600 if since else None
        return StoppedPod(one.pod, one.node, gpus, hours if gpus else 0.0)
