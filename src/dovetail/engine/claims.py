"""The scheduler's rights, applied to its ledger: which group is next, which pods yield, which jobs may run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from dovetail.engine.disciplines import BACKFILL, DISCIPLINES
from dovetail.engine.queue import can_be_placed
from dovetail.engine.recheck import Trying, refusal
from dovetail.engine.rights.preemption import Preemption
from dovetail.engine.rights.rounds import REASON, Rounds
from dovetail.engine.rights.service import AttainedService
from dovetail.model.decision import Decision, Share
from dovetail.model.events import Evict
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason
from dovetail.policies.orders import BY_PRIORITY, QueueOrder
from dovetail.policies.rounds import Round
from dovetail.policies.yielding import Yielding


@dataclass(frozen=True, slots=True)
class Rights:
    """One choice from each table (docs/adr/0018)."""

    queue: str = BACKFILL  # a discipline of engine/disciplines.py
    order: QueueOrder = BY_PRIORITY
    yielding: Yielding | None = None  # None = no running pod is stopped
    rounds: Round | None = None  # None = there are no rounds

    def __post_init__(self) -> None:
        if self.queue not in DISCIPLINES:
            raise ValueError(f"queue {self.queue!r}: there is {', '.join(DISCIPLINES)}")
        if self.rounds is not None and self.queue != BACKFILL:
            raise ValueError(f"rounds need the queue {BACKFILL!r}: a job without a turn would block a {self.queue} one")


DEFAULT_RIGHTS = Rights()


class Claims:
    """Orders groups and makes room for them. With the default rights nothing is counted, and `Group.order` decides."""

    def __init__(self, rights: Rights, scheduler: Trying) -> None:
        self._scheduler, self._placer = scheduler, scheduler.placer
        self._ledger = ledger = self._placer.ledger
        self.service = AttainedService(ledger)
        self._order = rights.order
        self._rounds: Rounds | None = None
        self._preemption: Preemption | None = None
        if rights.order.reads_service or rights.yielding is not None or rights.rounds is not None:
            self.service.attend()
        if rights.yielding is not None:
            self._preemption = Preemption(rights.yielding, ledger, self.service, self._place, self._fits)
        if rights.rounds is not None:
            self._rounds = Rounds(rights.rounds, ledger, self.service)
        self.sorts_again = rights.order.changes  # keys of groups may change while they wait
        self.plain = not (self.service.attends or self.sorts_again)  # nothing to count, and no group to hold back

    def order_of(self, group: Group) -> tuple[Any, ...]:
        """The group's place in the queue: the smallest is tried first."""
        if self._order is BY_PRIORITY and self._rounds is None:
            return group.order
        turn: float | None = 0 if self._rounds is None else self._rounds.place_of(group.name)
        key = self._order.key(group, self.service.of(group))
        return (not group.started, inf if turn is None else turn, *key, *group.order[1:])

    def may_run(self, group: Group) -> bool:
        return self._rounds is None or self._rounds.place_of(group.name) is not None

    def make_room(self, group: Group) -> list[Evict]:
        """Stop pods that yield to the group, which found no place, and keep their places for it until they end."""
        if self._preemption is None or not self.may_run(group) or not can_be_placed(group):
            return []
        with self._scheduler.trial():
            plan = self._preemption.plan(group)
        if plan is None:
            return []
        for pod, decision in zip(group.pods, plan.decisions, strict=True):
            if decision.node is not None:
                self._placer.nominated.promise(pod, decision.node, decision.shares)
        self._preemption.begin(group, plan)
        return [self._stop(held.pod, group.name, self._preemption.policy.reason) for held in plan.victims]

    def planned(self, group: Group) -> Sequence[Decision] | None:
        """Reserve the places that other pods have left for the group; None = there are none."""
        if self._preemption is None or not can_be_placed(group):
            return None
        return self._preemption.carry_out(group)

    def withdrawn(self, name: str) -> None:
        """Drop the plan for a waiting group: one of its pods is gone."""
        if self._preemption is not None:
            self._preemption.forget(name)

    def begin_round(self, waiting: Iterable[Group]) -> list[Evict] | None:
        """Decide which jobs may run until the next round; returns the pods to stop. None = there are no rounds."""
        if self._rounds is None:
            return None
        return [self._stop(pod, "", REASON) for pod in self._rounds.begin(waiting) if not self._ends(pod.uid)]

    def gone(self, pods: Iterable[Pod]) -> None:
        """Count pods that have ended and hold nothing any more."""
        for pod in pods:
            self.service.gone(pod)

    def _ends(self, uid: str) -> bool:
        """Whether the pod was told to stop, or is not bound yet."""
        return uid in self.service.stopping or self._ledger.is_reserved(uid)

    def _stop(self, pod: Pod, by: str, reason: str) -> Evict:
        self.service.stop(pod)
        return Evict(pod, self._ledger.node_of(pod.uid), by, reason)

    def _place(self, group: Group) -> Sequence[Decision]:
        return self._placer.place_all((group,))

    def _fits(self, pod: Pod, node: str, shares: tuple[Share, ...], runs: bool) -> bool:
        """Whether the pod could have this place with the ledger as it is. `runs`: it has had the place until now."""
        return refusal(self._placer, pod, self._ledger.row_of[node], shares, runs) is Reason.OK
