"""The scheduler's rights, applied to its ledger: which group is next, which pods yield, which jobs may run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, assert_never

from dovetail.engine.disciplines import BACKFILL, DISCIPLINES
from dovetail.engine.kept_places import AS_IT_ENDS, KeptPlaces
from dovetail.engine.placer import Placer
from dovetail.engine.queue import WaitingRoom, can_be_placed
from dovetail.engine.recheck import refusal
from dovetail.engine.rights.budgets import Budgets
from dovetail.engine.rights.helpless import SEARCH_AGAIN, Helpless
from dovetail.engine.rights.members import Members
from dovetail.engine.rights.occupants import Occupants, Times
from dovetail.engine.rights.preemption import Preemption
from dovetail.engine.rights.rounds import REASON, Rounds
from dovetail.engine.rights.service import AttainedService, facts_of
from dovetail.engine.rights.victims import Preemptor, Victim, Victims
from dovetail.model.checkpoint import EngineState, ToldToStop
from dovetail.model.decision import Decision, Share
from dovetail.model.events import (
    BudgetChanged,
    Effect,
    Evict,
    EvictionRefused,
    GangChanged,
    QueueChanged,
    TopologyChanged,
    Wait,
)
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason
from dovetail.policies.orders import BY_PRIORITY, QueueOrder
from dovetail.policies.rounds import Round
from dovetail.policies.yielding import Right, Yielding


class ClaimsScheduler(Protocol):
    """What the claims need of the scheduler."""

    placer: Placer

    def trial(self) -> AbstractContextManager[None]: ...

    @property
    def waiting(self) -> WaitingRoom: ...

    def retry_all(self, at: float) -> tuple[Effect, ...]: ...

    def offer(self, at: float, keys: Sequence[Hashable]) -> tuple[Effect, ...]: ...


@dataclass(frozen=True, slots=True)
class Rights:
    """One choice from each table (docs/adr/0018)."""

    queue: str = BACKFILL  # a discipline of engine/disciplines.py
    order: QueueOrder = BY_PRIORITY
    yielding: Yielding | None = None  # None = no running pod is stopped
    rounds: Round | None = None  # None = there are no rounds
    schedulers: frozenset[str] | None = None  # only pods with these scheduler names are stopped; None = all pods
    minimum_run: float = 0.0  # seconds that a pod runs before it may be stopped
    keep_after: float | None = None  # seconds of waiting until places are kept for the first group; None = never

    def __post_init__(self) -> None:
        if self.queue not in DISCIPLINES:
            raise ValueError(f"queue {self.queue!r}: there is {', '.join(DISCIPLINES)}")
        if self.rounds is not None and self.queue != BACKFILL:
            raise ValueError(f"rounds need the queue {BACKFILL!r}: a job without a turn would block a {self.queue} one")


DEFAULT_RIGHTS = Rights()


class Claims:
    """Orders groups and makes room for them. With the default rights nothing is counted, and `Group.order` decides."""

    def __init__(self, rights: Rights, scheduler: ClaimsScheduler, members: Members) -> None:
        self._scheduler, self._placer = scheduler, scheduler.placer
        self._ledger = ledger = self._placer.ledger
        self.service = AttainedService(ledger)
        self.budgets, self.queues = Budgets(), self._placer.queues
        self._minimums: dict[str, int] = {}  # gang -> how many members it needs
        self._role_minimums: dict[str, dict[str, int]] = {}  # gang -> the same by role, where it has roles
        self._order = rights.order
        self._rounds: Rounds | None = None
        self._preemption: Preemption | None = None
        self.helpless = Helpless(ledger, lambda: self.queues.demand)
        self._heard: tuple[Hashable, float] = ((), -inf)  # what queues used and asked for at the last `owed`, and when
        if (
            rights.order.reads_service
            or rights.rounds is not None
            or (rights.yielding and rights.yielding.reads_service)
        ):
            self.service.attend()
        if rights.yielding is not None:
            self._preemption = self._prepared(rights, rights.yielding, members)
        if rights.rounds is not None:
            self._rounds = Rounds(rights.rounds, ledger, self.service)
        self.sorts_again = rights.order.changes  # keys of groups may change while they wait
        self._kept: KeptPlaces | None = None
        if rights.keep_after is not None:
            self._kept = KeptPlaces(self._placer, self._drain(rights, members), rights.keep_after)
        # Whether there is nothing to count, and no group to hold back.
        self.plain = not (self.service.attends or self.sorts_again or self._preemption or self._kept)

    def _drain(self, rights: Rights, members: Members) -> Preemption:
        """The search for places that are kept for a group until the pods there have ended."""
        occupants = Occupants(self._ledger, None)
        victims = Victims(
            self._placer.single, occupants, members, {}, Budgets(), self.service, AS_IT_ENDS, 0.0, lambda uid: False
        )
        return Preemption(self._placer.single, occupants, self.service, victims, self._fits)

    def _prepared(self, rights: Rights, policy: Yielding, members: Members) -> Preemption:
        occupants = Occupants(self._ledger, rights.schedulers)
        victims = Victims(
            self._placer.single,
            occupants,
            members,
            self._minimums,
            self.budgets,
            self.service,
            policy,
            rights.minimum_run,
            lambda uid: preemption.is_spared(uid),
            self._role_minimums,
        )
        preemption = Preemption(self._placer.single, occupants, self.service, victims, self._fits)
        self._placer.nominated.outranks = self._outranks
        return preemption

    def _outranks(self, nominated: Pod, pod: Pod) -> bool:
        """Whether a nominated pod keeps its place against a pod: pods of other queues take it by reclaim only."""
        if not self.queues.active or self.queues.queue_of(nominated) == self.queues.queue_of(pod):
            return nominated.priority >= pod.priority
        return self.queues.right(nominated, pod) is not Right.RECLAIM

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
        preemption = self._preemption
        if preemption is None or not self.may_run(group) or not can_be_placed(group):
            return []
        if self.helpless.is_known(group, self.service.now):
            return []
        facts = self.service.of(group) if self.service.attends else facts_of(group)
        with self._scheduler.trial():
            plan = preemption.plan(group, facts)
        if plan is None:
            if not preemption.waits(group):
                self.helpless.note(group, self.service.now)
            return []
        for pod, decision in zip(group.pods, plan.decisions, strict=True):
            if decision.node is not None:
                self._placer.nominated.promise(pod, decision.node, decision.shares)
        preemption.begin(group, plan)
        self.helpless.forget(group.name)
        return [self._yields(victim, group) for victim in plan.victims]

    def victims_on(self, group: Group, pod: Pod, row: int) -> tuple[Victim, ...]:
        """The pods that would be stopped on this row for a pod of the group, with the ledger as it is.

        Empty: no pod may be stopped, or that would not help.
        """
        preemption = self._preemption
        if preemption is None or not pod.preempts:
            return ()
        facts = self.service.of(group) if self.service.attends else facts_of(group)
        fits = self._placer.single.fit_of(pod, row)
        with self._scheduler.trial():
            plan = preemption.victims.on_row(Preemptor(group, facts, pod), row, fits)
        return plan.victims if plan is not None else ()

    def _yields(self, victim: Victim, group: Group) -> Evict:
        pod = victim.held.pod
        reason = self._preemption.victims.policy.reason if self._preemption is not None else ""
        if victim.right is Right.RECLAIM:
            reason = (
                f"its queue {self.queues.queue_of(pod)} has borrowed what {self.queues.queue_of(group.pods[0])} is owed"
            )
        self.service.stop(pod)
        return Evict(pod, self._ledger.node_of(pod.uid), group.name, reason, group.pods[0], victim.breaks_budget)

    def keep_places(self, at: float, waiting: WaitingRoom) -> list[Effect]:
        """Keep places for the first group of the queue if it has waited long enough."""
        if self._kept is None:
            return []
        with self._scheduler.trial():
            promised = self._kept.look(at, waiting, self.may_run)
        return [Wait(pod, self._placer.single.not_placed(pod), self.nominated_to(pod)) for pod in promised]

    @property
    def kept_for(self) -> str:
        """The group for which places are kept; "" = none."""
        return self._kept.group if self._kept is not None else ""

    def owed(self, at: float) -> list[str]:
        """Groups for which no eviction helped and whose queue is owed more, after a change of what queues ask for.

        What a queue deserves depends on what all queues ask for. So a search may succeed although no node has changed.
        Of each queue the first group, or all at most once in a while if searches are limited.
        """
        waiting, limited = self._scheduler.waiting, self.helpless.limited
        if not self.queues.active or not self.helpless.names or (limited and at < self._heard[1] + SEARCH_AGAIN):
            return []
        before, self._heard = self._heard[0], (self.queues.standing(), at)
        if self._heard[0] == before:
            return []
        groups = [group for name in self.helpless.names if (group := waiting.find(name)) is not None]
        by_queue: dict[str, list[Group]] = {}
        for group in groups:
            by_queue.setdefault(self.queues.queue_of(group.pods[0]), []).append(group)
        owed = [of_queue for name, of_queue in by_queue.items() if self.queues.is_owed(name)]
        return [group.name for of_queue in owed for group in (of_queue if limited else of_queue[:1])]

    def why_no_eviction(self, group: Group) -> Reason:
        """Why no pod is stopped for a waiting group; OK = pods are being stopped, or nothing was searched yet."""
        if self._preemption is None or self._preemption.is_planned(group.name):
            return Reason.OK
        never = not all(pod.preempts for pod in group.pods)
        return Reason.NO_VICTIMS if never or group.name in self.helpless.names else Reason.OK

    def nominated_to(self, pod: Pod) -> str:
        """The node on which pods are being stopped for the pod, or that is kept for it; "" = none."""
        if self._preemption is None and self._kept is None:
            return ""
        promise = self._placer.nominated.promised.get(pod.uid)
        return promise.node if promise is not None else ""

    def placed(self, uid: str, times: Times) -> None:
        """Note when a pod got its node and when it started."""
        if self._preemption is not None:
            self._preemption.occupants.note(uid, times)

    def state(self) -> dict[str, Any]:
        """The fields of EngineState about claims: who is being stopped for whom, and what is known of running pods."""
        preemption, kept = self._preemption, self._kept
        times = preemption.occupants.times.items() if preemption is not None else ()
        return {
            "times": tuple((uid, known.placed, known.started) for uid, known in times),
            "spared": tuple(preemption.spared.items()) if preemption is not None else (),
            "plans": preemption.plans() if preemption is not None else (),
            "stopping": tuple(self._stopping()),
            "kept_for": self.kept_for,
            "kept": kept.pods if kept is not None else (),
            "service": self.service.state(),
            "helpless": tuple(name for name in self.helpless.names if name in self._scheduler.waiting),
        }

    def _stopping(self) -> Iterator[ToldToStop]:
        preemption = self._preemption
        for uid, job in self.service.stopping.items():
            yield ToldToStop(uid, job, preemption is None or not preemption.occupants.is_kept(uid))

    def restore(self, state: EngineState) -> None:
        """Take in what another engine knew (`state`)."""
        self.helpless.begin_again(state.helpless)
        self.service.stopping.update((one.uid, one.job) for one in state.stopping)
        if state.service is not None:
            self.service.restore(state.service)
        if self._preemption is not None:
            self._preemption.spared.update(state.spared)
            self._preemption.restore(state.plans)
            self._preemption.occupants.restore({uid: Times(*times) for uid, *times in state.times})
            for one in state.stopping:
                self._preemption.occupants.keep(one.uid, one.may_stop)
        if self._kept is not None:
            self._kept.restore(state.kept_for, state.kept)

    def begin_again(self, helpless: Iterable[str]) -> None:
        """Forget which searches have failed, but not for which groups (`helpless`)."""
        self.helpless.begin_again(helpless)
        self._heard = ((), -inf)
        self.service.begin_again()
        if self._kept is not None:
            self._kept.begin_again()
        if self._preemption is not None:
            self._preemption.occupants.begin_again()

    def planned(self, group: Group) -> Sequence[Decision] | None:
        """Reserve the places that other pods have left for the group; None = there are none."""
        if self._preemption is None or not can_be_placed(group):
            return None
        return self._preemption.carry_out(group)

    def withdrawn(self, name: str) -> None:
        """Drop the plan for a waiting group: one of its pods is gone."""
        if self._preemption is not None:
            self._preemption.forget(name)
            self.helpless.forget(name)

    def begin_round(self, waiting: Iterable[Group]) -> list[Evict] | None:
        """Decide which jobs may run until the next round; returns the pods to stop. None = there are no rounds."""
        if self._rounds is None:
            return None
        return [self._stop(pod, "", REASON) for pod in self._rounds.begin(waiting) if not self._ends(pod.uid)]

    def happened(
        self, event: BudgetChanged | QueueChanged | GangChanged | EvictionRefused | TopologyChanged
    ) -> tuple[Effect, ...]:
        """Take in what limits groups, and which running pods may be stopped."""
        match event:
            case BudgetChanged(_, namespace, name, budget):
                self.budgets.set(budget) if budget is not None else self.budgets.drop(namespace, name)
            case GangChanged(_, name, minimum, roles):
                self._minimums[name], self._role_minimums[name] = minimum, {one.name: one.minimum for one in roles}
                if not minimum or not roles:
                    del self._role_minimums[name]
                if not minimum:
                    del self._minimums[name]
            case EvictionRefused(at, uid):
                return self._goes_on(at, uid)
            case QueueChanged(at, name, queue):
                self.queues.set(queue) if queue is not None else self.queues.drop(name)
                return self._scheduler.retry_all(at)
            case TopologyChanged(at, name, levels):
                self._placer.gangs.topologies.set(name, levels)
                return self._scheduler.retry_all(at)
            case _:
                assert_never(event)
        return ()

    def _goes_on(self, at: float, uid: str) -> tuple[Effect, ...]:
        """A pod was not stopped: groups that were promised its place look for another one."""
        self.service.stopping.pop(uid, None)
        effects: list[Effect] = []
        for name in self._preemption.refused(uid, at) if self._preemption is not None else ():
            group = self._scheduler.waiting.find(name)
            for pod in group.pods if group is not None else ():
                self._placer.nominated.forget(pod.uid)
            if group is not None:
                effects += self._scheduler.offer(at, [self._scheduler.waiting.key_of(name)])
        return tuple(effects)

    def gone(self, pods: Iterable[Pod]) -> None:
        """Count pods that have ended and hold nothing any more."""
        for pod in pods:
            self.service.gone(pod)
            if self._preemption is not None:
                self._preemption.occupants.forget(pod.uid)

    def _ends(self, uid: str) -> bool:
        """Whether the pod was told to stop, or is not bound yet."""
        return uid in self.service.stopping or self._ledger.is_reserved(uid)

    def _stop(self, pod: Pod, by: str, reason: str) -> Evict:
        self.service.stop(pod)
        return Evict(pod, self._ledger.node_of(pod.uid), by, reason)

    def _fits(self, pod: Pod, node: str, shares: tuple[Share, ...], runs: bool) -> bool:
        """Whether the pod could have this place with the ledger as it is. `runs`: it has had the place until now."""
        return refusal(self._placer, pod, self._ledger.row_of[node], shares, runs) is Reason.OK
