"""Preemption: a place for a whole group, found on the ledger, and the pods that must yield for it.

All candidates are released in a transaction, the group is placed with all rules, and every candidate that still fits
beside it is given back, the one that costs most first. The transaction is undone: pods hold their places until they
have ended. So the outcome is known before any running pod is disturbed, and no pod is stopped that need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.service import Service
from dovetail.model.decision import Decision, Share
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import ALONE
from dovetail.policies.yielding import Held, Yielding

Place = Callable[[Group, float], Sequence[Decision]]
Fits = Callable[[Pod, str, tuple[Share, ...], bool], bool]


class Plan(NamedTuple):
    decisions: Sequence[Decision]  # of the group's pods
    victims: tuple[Held, ...]  # all of them are needed, the cheapest first


class Preemption:
    """`place` decides a group and books it; `fits` says whether a pod could have this place as the ledger stands."""

    def __init__(self, policy: Yielding, ledger: Ledger, service: Service, place: Place, fits: Fits) -> None:
        self.policy = policy
        self._ledger, self._service, self._place, self._fits = ledger, service, place, fits
        self._plans: dict[str, Plan] = {}  # group -> what was begun for it

    def plan(self, group: Group, at: float) -> Plan | None:
        """None: the group waits for pods that are ending already, or no pods that may yield would help."""
        if self._waits(group):
            return None
        candidates = self._candidates(group)
        if not candidates:
            return None
        with self._ledger.transaction():
            shares = {held.pod.uid: self._ledger.held_shares(held.pod.uid) for held in candidates}
            self._ledger.release_all(list(shares))
            decisions = self._place(group, at)
            if sum(decision.placed for decision in decisions) < max(1, group.needed):
                return None
            placed = [(pod, d) for pod, d in zip(group.pods, decisions, strict=True) if d.placed]
            victims = [held for held in reversed(candidates) if not self._give_back(held, shares[held.pod.uid], placed)]
        return Plan(decisions, tuple(reversed(victims)))

    def begin(self, group: Group, plan: Plan) -> None:
        """The victims are being stopped for the group."""
        self._plans[group.name] = plan

    def forget(self, name: str) -> None:
        """The group is placed, or gone."""
        self._plans.pop(name, None)

    def carry_out(self, group: Group) -> list[Decision] | None:
        """Reserve for the group exactly the places that were planned, once its victims have ended. None: they have not
        ended, or the places are gone, or no longer allowed."""
        plan = self._plans.get(group.name)
        if plan is None or self._waits(group):
            return None
        self.forget(group.name)
        planned = {decision.uid: decision for decision in plan.decisions}
        if planned.keys() != {pod.uid for pod in group.pods}:  # some of the pods are others by now
            return None
        wanted = [(pod, planned[pod.uid]) for pod in group.pods if planned[pod.uid].placed]
        with self._ledger.transaction() as transaction:
            for pod, decision in wanted:
                node = str(decision.node)
                if node not in self._ledger.row_of or not self._fits(pod, node, decision.shares, False):
                    return None
                self._ledger.reserve(pod, node, decision.shares)
            transaction.commit()
        return [planned[pod.uid] for pod in group.pods]

    def _waits(self, group: Group) -> bool:
        plan = self._plans.get(group.name)
        return plan is not None and any(held.pod.uid in self._service.stopping for held in plan.victims)

    def _candidates(self, group: Group) -> list[Held]:
        """Pods that may yield, the cheapest first. Reservations and pods that are ending are not among them."""
        facts, found = self._service.of(group), []
        for uid in self._ledger.pods:
            if uid in self._service.stopping or self._ledger.is_reserved(uid):
                continue
            pod = self._ledger.pods.pod(uid)
            if pod.leaving or pod.group == group.name:
                continue
            held = Held(pod, self._ledger.node_of(uid), self._service.of_held(pod))
            cost = self.policy.cost(held, group, facts)
            if cost is not None:
                found.append((cost, pod.order, uid, held))
        return [held for _, _, _, held in sorted(found, key=lambda one: one[:3])]

    def _give_back(self, held: Held, shares: tuple[Share, ...], placed: Sequence[tuple[Pod, Decision]]) -> bool:
        """Book the pod again where it is, if it and the group's pods can be there together."""
        if not self._fits(held.pod, held.node, shares, True):
            return False
        self._ledger.book_observed(held.pod, held.node, shares, assumed=False)
        if all(self._stands(pod, decision) for pod, decision in placed if self._concerns(pod, decision, held)):
            return True
        self._ledger.release(held.pod.uid)
        return False

    @staticmethod
    def _concerns(pod: Pod, decision: Decision, held: Held) -> bool:
        """Whether the running pod could be in the way of this placement: on the same node, or by rules between pods."""
        related = pod.relations is not ALONE or held.pod.relations is not ALONE
        return related or decision.node == held.node

    def _stands(self, pod: Pod, decision: Decision) -> bool:
        with self._ledger.transaction():
            self._ledger.release(pod.uid)
            return self._fits(pod, str(decision.node), decision.shares, False)
