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
from dovetail.policies.yielding import Held, Yielding

Place = Callable[[Group, float], Sequence[Decision]]
Fits = Callable[[Pod, str, tuple[Share, ...]], bool]


class Plan(NamedTuple):
    decisions: Sequence[Decision]  # of the group's pods
    victims: tuple[Held, ...]  # all of them are needed, the cheapest first


class Preemption:
    """`place` decides a group and books it; `fits` says whether a pod could have this place as the ledger stands."""

    def __init__(self, policy: Yielding, ledger: Ledger, service: Service, place: Place, fits: Fits) -> None:
        self.policy = policy
        self._ledger, self._service, self._place, self._fits = ledger, service, place, fits
        self._yielding: dict[str, frozenset[str]] = {}  # group -> UIDs of the pods that yield to it

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
            victims = [held for held in reversed(candidates) if not self._give_back(held, shares[held.pod.uid])]
        return Plan(decisions, tuple(reversed(victims)))

    def begin(self, group: Group, victims: Sequence[Held]) -> None:
        """The victims are being stopped for the group."""
        stopping = self._service.stopping
        self._yielding = {name: uids for name, uids in self._yielding.items() if not uids.isdisjoint(stopping)}
        self._yielding[group.name] = frozenset(held.pod.uid for held in victims)

    def _waits(self, group: Group) -> bool:
        return not self._yielding.get(group.name, frozenset()).isdisjoint(self._service.stopping)

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

    def _give_back(self, held: Held, shares: tuple[Share, ...]) -> bool:
        if not self._fits(held.pod, held.node, shares):
            return False
        self._ledger.book_observed(held.pod, held.node, shares, assumed=False)
        return True
