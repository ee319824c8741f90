"""Preemption: find a place for a whole group on the ledger, and the pods that must yield for it.

Everything is tried in a transaction, which is undone: pods hold their places until they have ended. So the outcome is
known before any running pod is stopped, and only pods that must yield are stopped. The pods of a gang are placed one
after another, each with the victims that it needs; then every victim is given back that the whole gang does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from dovetail.engine.kernel.state import NONE, RESERVED
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.occupants import Occupants
from dovetail.engine.rights.placing import Flags, Placing
from dovetail.engine.rights.rows_in_turn import RowsInTurn
from dovetail.engine.rights.service import AttainedService
from dovetail.engine.rights.victims import Preemptor, Victim, Victims
from dovetail.model.checkpoint import StandingPlan
from dovetail.model.decision import Decision, Share
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import NO_RELATIONS
from dovetail.policies.orders import JobFacts

Fits = Callable[[Pod, str, tuple[Share, ...], bool], bool]
SPARED_SECONDS = 10.0  # a pod that the API server refused to stop is not asked again for this long


class PreemptionPlan(NamedTuple):
    decisions: Sequence[Decision]  # of the group's pods
    victims: tuple[Victim, ...]  # all of them are needed, the least important first


@dataclass(slots=True)
class _Needs:
    """How many members must still be placed: in all, and by role."""

    total: int
    of_role: dict[str, int]

    @classmethod
    def of(cls, group: Group) -> _Needs:
        roles = {role.name: max(0, role.minimum - role.running) for role in group.roles}
        return cls(max(0, group.needed, sum(roles.values()), 1 if group.minimum <= 1 else 0), roles)

    def ask_for(self, pod: Pod) -> bool:
        """Whether pods may be stopped for this one: the gang needs it, and no other role needs the place more."""
        return self.of_role.get(pod.role, 0) > 0 or self.total > sum(max(0, n) for n in self.of_role.values())

    def count(self, pod: Pod) -> None:
        self.total -= 1
        if pod.role in self.of_role:
            self.of_role[pod.role] -= 1

    @property
    def met(self) -> bool:
        return self.total <= 0 and all(number <= 0 for number in self.of_role.values())


@dataclass(slots=True)
class Preemption:
    """`fits` checks whether a pod could have a place with the ledger as it is."""

    placer: Placing
    occupants: Occupants
    service: AttainedService
    victims: Victims
    fits: Fits
    _plans: dict[str, StandingPlan] = field(default_factory=dict)  # group -> the plan whose victims are being stopped
    spared: dict[str, float] = field(default_factory=dict)  # UID -> the time until which the pod is not asked again

    @property
    def _ledger(self) -> Ledger:
        return self.placer.ledger

    def plan(self, group: Group, facts: JobFacts) -> PreemptionPlan | None:
        """The plan for a group. None: the group waits for pods that are ending, or stopping pods would not help."""
        if self.waits(group) or not all(pod.preempts for pod in group.pods):
            return None
        if not group.is_plain:
            return self._plan_in_domains(group, facts)
        if group.minimum > 1 and group.needed < 1:  # members beyond the minimum take free places only
            return None
        needed, placed, queues = group.needed, 0, self.placer.queues.active
        with self._ledger.transaction():
            if queues:
                self._look_ahead(group)
            turns = RowsInTurn(self.placer, self.occupants, self.victims, group, facts)
            if not turns.has_candidates:
                return None
            decisions: list[Decision] = []
            taken: list[Victim] = []
            for number, pod in enumerate(group.pods):
                decision = self.placer.place_lone(pod) if number or queues else None  # the first has just been tried
                if (decision is None or not decision.placed) and (needed < 1 or placed < needed):
                    decision = self._take(turns, Preemptor(group, facts, pod), taken)
                decisions.append(decision or self.placer.not_placed(pod))
                placed += decisions[-1].placed
            if not taken or placed < max(1, needed):
                return None
            victims = self._still_needed(group, decisions, taken)
        return PreemptionPlan(decisions, tuple(victims))

    # ---- gangs with roles or topology rules ---------------------------------------------------------------------

    def _plan_in_domains(self, group: Group, facts: JobFacts) -> PreemptionPlan | None:
        """The plan for a gang with roles or topology rules: first the domain, then the victims in it."""
        needs = _Needs.of(group)
        if (group.minimum > 1 and not needs.total) or any(pod.group != group.name for pod in group.pods):
            return None
        for rows in self.placer.domain_choices(group):
            with self._ledger.transaction():
                plan = self._plan_on(group, facts, rows, _Needs.of(group))
            if plan is not None:
                return plan
        return None

    def _plan_on(self, group: Group, facts: JobFacts, rows: Flags, needs: _Needs) -> PreemptionPlan | None:
        if self.placer.queues.active:
            self._look_ahead(group)
        turns = RowsInTurn(self.placer, self.occupants, self.victims, group, facts)
        if not turns.has_candidates:
            return None
        decisions: list[Decision] = []
        taken: list[Victim] = []
        for pod in group.pods:
            allowed = rows & self.placer.open_rows(group, pod)
            with self.placer.confined(allowed):
                decision: Decision | None = self.placer.place_lone(pod)
            if (decision is None or not decision.placed) and needs.ask_for(pod):
                decision = self._take(turns, Preemptor(group, facts, pod), taken, allowed)
            decisions.append(decision or self.placer.not_placed(pod))
            if decisions[-1].placed:
                needs.count(pod)
            if needs.total > len(group.pods) - len(decisions):
                return None  # too few pods are left
        if not taken or not needs.met or self.placer.broken_rule(group, decisions):
            return None
        return PreemptionPlan(decisions, tuple(self._still_needed(group, decisions, taken)))

    def _look_ahead(self, group: Group) -> None:
        """Book what is decided already: pods that were told to stop are gone, and promised places are taken.

        Otherwise a queue could claim what it is owed twice, and a queue that gives back would seem to hold too much.
        """
        self._ledger.release_all([uid for uid in self.service.stopping if uid in self._ledger.pods])
        self.placer.book_promised(group)

    def begin(self, group: Group, plan: PreemptionPlan) -> None:
        """Keep the plan: its victims are being stopped for the group."""
        victims = tuple(victim.held.pod.uid for victim in plan.victims)
        self._plans[group.name] = StandingPlan(group.name, tuple(plan.decisions), victims)
        for victim in plan.victims:
            self.occupants.keep(victim.held.pod.uid, may_stop=False)

    def forget(self, name: str) -> None:
        """Drop the plan: the group is placed, or gone."""
        self._plans.pop(name, None)

    def is_planned(self, name: str) -> bool:
        return name in self._plans

    def plans(self) -> tuple[StandingPlan, ...]:
        """The plans under way. Generations of the ledger are left out: another engine has others."""
        return tuple(
            structs.replace(plan, decisions=tuple(structs.replace(one, generation=0) for one in plan.decisions))
            for plan in self._plans.values()
        )

    def restore(self, plans: Iterable[StandingPlan]) -> None:
        """Take over plans that another engine has begun."""
        self._plans = {plan.group: plan for plan in plans}

    def refused(self, uid: str, now: float) -> list[str]:
        """The pod goes on. Returns the groups whose plans need it to end; they are dropped."""
        self.spared = {one: until for one, until in self.spared.items() if until > now}
        self.spared[uid] = now + SPARED_SECONDS
        self.occupants.keep(uid, may_stop=True)
        names = [n for n, plan in self._plans.items() if uid in plan.victims]
        for name in names:
            self.forget(name)
        return names

    def is_spared(self, uid: str) -> bool:
        return self.spared.get(uid, 0.0) > self.service.now

    def carry_out(self, group: Group) -> list[Decision] | None:
        """Reserve exactly the planned places for the group, after its victims have ended.

        None: they have not ended, or the places are gone, or no longer allowed.
        """
        plan = self._plans.get(group.name)
        if plan is None or self.waits(group):
            return None
        self.forget(group.name)
        planned = {decision.uid: decision for decision in plan.decisions}
        if planned.keys() != {pod.uid for pod in group.pods}:  # some pods were replaced
            return None
        wanted = [(pod, planned[pod.uid]) for pod in group.pods if planned[pod.uid].placed]
        if len(wanted) < group.needed:  # members have left since
            return None
        with self._ledger.transaction() as transaction:
            for pod, decision in wanted:
                node = str(decision.node)
                if node not in self._ledger.row_of or not self.placer.is_admitted(pod):
                    return None  # the node is gone, or other pods of its queue have come since
                if not self.fits(pod, node, decision.shares, False):
                    return None
                self._ledger.book_observed(pod, node, decision.shares, assumed=False, status=RESERVED)
            if not group.is_plain and self.placer.broken_rule(group, [planned[pod.uid] for pod in group.pods]):
                return None  # nodes have other labels now, or members run elsewhere
            transaction.commit()
        return [planned[pod.uid] for pod in group.pods]

    def waits(self, group: Group) -> bool:
        """Whether pods are ending whose places the group was promised, by its plan or by an earlier scheduler's."""
        plan = self._plans.get(group.name)
        if plan is not None:
            return any(uid in self.service.stopping for uid in plan.victims)
        return any(self._row_is_being_cleared(pod) for pod in group.pods)

    def _row_is_being_cleared(self, pod: Pod) -> bool:
        """Whether pods of a lower priority are ending on the node that the pod is nominated to.

        As in kube-scheduler (PodEligibleToPreemptOthers): a scheduler that has just started knows no plan.
        """
        row = self.placer.row_kept_for(pod.uid)
        if row == NONE:
            return False
        there = (self._ledger.pods.pod(uid) for uid in self.occupants.on_row.get(row, ()))
        return any(other.leaving and other.priority < pod.priority for other in there)

    def _take(
        self, turns: RowsInTurn, asking: Preemptor, taken: list[Victim], allowed: Flags | None = None
    ) -> Decision | None:
        """Place the pod on the best row, after stopping its pods there. Adds them to `taken`."""
        best = turns.best(asking, allowed)
        if best is None:
            return None
        self._ledger.release_all([victim.held.pod.uid for victim in best.victims])
        taken += best.victims
        return self.placer.place_on(asking.pod, best.row)

    # ---- giving back --------------------------------------------------------------------------------------------

    def _still_needed(self, group: Group, decisions: Sequence[Decision], taken: Sequence[Victim]) -> list[Victim]:
        """The victims without those that fit beside the whole group, the least important first.

        The victims of a lone pod are all needed. Members of one gang are given back together, or not at all.
        """
        if len(decisions) == 1:
            return list(taken)
        placed = [(pod, d) for pod, d in zip(group.pods, decisions, strict=True) if d.placed]
        needed: list[Victim] = []
        for unit in _units(reversed(taken)):
            if not self._give_back(unit, placed):
                needed += unit
        order = {victim.held.pod.uid: number for number, victim in enumerate(taken)}
        return sorted(needed, key=lambda victim: order[victim.held.pod.uid])

    def _give_back(self, unit: Sequence[Victim], placed: Sequence[tuple[Pod, Decision]]) -> bool:
        """Book the pods again in their places, if they and the group's pods fit together; returns whether they do."""
        with self._ledger.transaction() as transaction:
            for held, _, _, shares in unit:
                if not self.fits(held.pod, held.node, shares, True):
                    return False
                self._ledger.book_observed(held.pod, held.node, shares, assumed=False)
            concerned = [one for one in placed if any(_concerns(*one, victim) for victim in unit)]
            if not all(self._stands(*one) for one in concerned):
                return False
            transaction.commit()
        return True

    def _stands(self, pod: Pod, decision: Decision) -> bool:
        with self._ledger.transaction():
            self._ledger.release(pod.uid)
            return self.fits(pod, str(decision.node), decision.shares, False)


def _concerns(pod: Pod, decision: Decision, victim: Victim) -> bool:
    """Whether the running pod could prevent this placement: on the same node, or by rules between pods."""
    related = pod.relations is not NO_RELATIONS or victim.held.pod.relations is not NO_RELATIONS
    return related or decision.node == victim.held.node


def _units(victims: Iterable[Victim]) -> list[list[Victim]]:
    """The victims one by one; those of one gang together."""
    units: dict[str, list[Victim]] = {}
    for victim in victims:
        pod = victim.held.pod
        units.setdefault(pod.group or pod.uid, []).append(victim)
    return list(units.values())
