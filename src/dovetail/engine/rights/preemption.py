"""Preemption: find a place for a whole group on the ledger, and the pods that must yield for it.

In a transaction, all candidates are released and the group is placed with all rules. Then every candidate that still
fits is booked again, the most expensive first. The transaction is undone: pods hold their places until they have ended.
So the outcome is known before any running pod is stopped, and only pods that must yield are stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail.engine.kernel.state import RESERVED
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.service import AttainedService
from dovetail.model.decision import Decision, Share
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import NO_RELATIONS
from dovetail.policies.yielding import Candidate, Yielding

Place = Callable[[Group], Sequence[Decision]]
Fits = Callable[[Pod, str, tuple[Share, ...], bool], bool]


class PreemptionPlan(NamedTuple):
    decisions: Sequence[Decision]  # of the group's pods
    victims: tuple[Candidate, ...]  # all of them are needed, cheapest first


class Preemption:
    """`place` decides a group and books it; `fits` checks whether a pod could have a place with the ledger as it is."""

    def __init__(self, policy: Yielding, ledger: Ledger, service: AttainedService, place: Place, fits: Fits) -> None:
        self.policy = policy
        self._ledger, self._service, self._place, self._fits = ledger, service, place, fits
        self._plans: dict[str, PreemptionPlan] = {}  # group -> the plan whose victims are being stopped

    def plan(self, group: Group) -> PreemptionPlan | None:
        """The plan for a group. None: the group waits for pods that are ending, or stopping pods would not help."""
        if self._waits(group):
            return None
        candidates = self._candidates(group)
        if not candidates:
            return None
        with self._ledger.transaction():
            shares = {held.pod.uid: self._ledger.held_shares(held.pod.uid) for held in candidates}
            self._ledger.release_all(list(shares))
            decisions = self._place(group)
            if sum(decision.placed for decision in decisions) < max(1, group.needed):
                return None
            placed = [(pod, d) for pod, d in zip(group.pods, decisions, strict=True) if d.placed]
            victims = [held for held in reversed(candidates) if not self._give_back(held, shares[held.pod.uid], placed)]
        return PreemptionPlan(decisions, tuple(reversed(victims)))

    def begin(self, group: Group, plan: PreemptionPlan) -> None:
        """Keep the plan: its victims are being stopped for the group."""
        self._plans[group.name] = plan

    def forget(self, name: str) -> None:
        """Drop the plan: the group is placed, or gone."""
        self._plans.pop(name, None)

    def carry_out(self, group: Group) -> list[Decision] | None:
        """Reserve exactly the planned places for the group, after its victims have ended.

        None: they have not ended, or the places are gone, or no longer allowed.
        """
        plan = self._plans.get(group.name)
        if plan is None or self._waits(group):
            return None
        self.forget(group.name)
        planned = {decision.uid: decision for decision in plan.decisions}
        if planned.keys() != {pod.uid for pod in group.pods}:  # some pods were replaced
            return None
        wanted = [(pod, planned[pod.uid]) for pod in group.pods if planned[pod.uid].placed]
        with self._ledger.transaction() as transaction:
            for pod, decision in wanted:
                node = str(decision.node)
                if node not in self._ledger.row_of or not self._fits(pod, node, decision.shares, False):
                    return None
                self._ledger.book_observed(pod, node, decision.shares, assumed=False, status=RESERVED)
            transaction.commit()
        return [planned[pod.uid] for pod in group.pods]

    def _waits(self, group: Group) -> bool:
        plan = self._plans.get(group.name)
        return plan is not None and any(held.pod.uid in self._service.stopping for held in plan.victims)

    def _candidates(self, group: Group) -> list[Candidate]:
        """Pods that may yield, cheapest first, without reservations and pods that are ending."""
        facts, found = self._service.of(group), []
        for uid in self._ledger.pods:
            if uid in self._service.stopping or self._ledger.is_reserved(uid):
                continue
            pod = self._ledger.pods.pod(uid)
            if pod.leaving or pod.group == group.name:
                continue
            held = Candidate(pod, self._ledger.node_of(uid), self._service.of_held(pod))
            cost = self.policy.cost(held, group, facts)
            if cost is not None:
                found.append((cost, pod.order, uid, held))
        return [held for _, _, _, held in sorted(found, key=lambda one: one[:3])]

    def _give_back(self, held: Candidate, shares: tuple[Share, ...], placed: Sequence[tuple[Pod, Decision]]) -> bool:
        """Book the pod again in its place, if it and the group's pods fit together; returns whether they do."""
        if not self._fits(held.pod, held.node, shares, True):
            return False
        self._ledger.book_observed(held.pod, held.node, shares, assumed=False)
        if all(self._stands(pod, decision) for pod, decision in placed if self._concerns(pod, decision, held)):
            return True
        self._ledger.release(held.pod.uid)
        return False

    @staticmethod
    def _concerns(pod: Pod, decision: Decision, held: Candidate) -> bool:
        """Whether the running pod could prevent this placement: on the same node, or by rules between pods."""
        related = pod.relations is not NO_RELATIONS or held.pod.relations is not NO_RELATIONS
        return related or decision.node == held.node

    def _stands(self, pod: Pod, decision: Decision) -> bool:
        with self._ledger.transaction():
            self._ledger.release(pod.uid)
            return self._fits(pod, str(decision.node), decision.shares, False)
