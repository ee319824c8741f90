"""The pods that must be stopped on one row for one pod, found by trying on the ledger.

As kube-scheduler does it (framework/plugins/defaultpreemption, SelectVictimsOnNode): pods are given back in the order
of their importance, those that a disruption budget protects first, as long as the pod still fits. Here cards are tried
with the node, and a gang that would fall below its minimum is stopped as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.budgets import Budgets
from dovetail.engine.rights.members import Members
from dovetail.engine.rights.occupants import UNKNOWN_TIMES, Occupants
from dovetail.engine.rights.placing import Placing
from dovetail.engine.rights.service import AttainedService, gpus_of
from dovetail.model.decision import Share
from dovetail.model.pod import Group, Pod
from dovetail.policies.orders import JobFacts
from dovetail.policies.rows import CARDS, SLOTS
from dovetail.policies.yielding import Candidate, Cost, Right, Yielding, is_young, oldest_last, tolerates

LOWEST_PRIORITY = -(2**31)


class Victim(NamedTuple):
    """A pod that must be stopped."""

    held: Candidate
    right: Right
    breaks_budget: bool
    shares: tuple[Share, ...]  # what it holds


class RowPlan(NamedTuple):
    """A row that takes the pod once these victims have ended. `key`: the smallest is the best."""

    row: int
    victims: tuple[Victim, ...]
    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The group that wants a place, and one of its pods."""

    group: Group
    facts: JobFacts
    pod: Pod


class _Possible(NamedTuple):
    importance: tuple[Any, ...]  # the highest is given back first
    held: Candidate
    shares: tuple[Share, ...]


@dataclass(slots=True)
class Victims:
    """Everything that decides who may be stopped."""

    placer: Placing
    occupants: Occupants
    members: Members
    minimums: Mapping[str, int]  # gang -> how many members it needs
    budgets: Budgets
    service: AttainedService
    policy: Yielding
    minimum_run: float  # seconds
    is_spared: Callable[[str], bool]  # by UID: the API server refused to stop it
    role_minimums: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # gang -> the same by role

    @property
    def _ledger(self) -> Ledger:
        return self.placer.ledger

    def on_row(self, asking: Preemptor, row: int, fits: Callable[[], bool]) -> RowPlan | None:
        """The victims on this row; None = stopping pods there does not help. The ledger is as before afterwards.

        `fits`: whether the row can take the pod with the ledger as it is.
        """
        possible = self._possible(asking, row)
        if not possible:
            return None
        plan = self._tried(asking, row, possible, fits)
        if plan is None or not 1 < len(plan.victims) < len(possible):  # no other order gives fewer victims
            return plan
        other = self._by_cards(possible) if asking.pod.wants_devices else possible
        second = self._tried(asking, row, other, fits) if other != possible else None
        return plan if second is None or plan.key <= second.key else second

    def permitted(self, held: Candidate, asking: Preemptor) -> Right:
        """By which right the pod may be stopped now, with what its queue holds now."""
        right = self.placer.queues.right(held.pod, asking.pod) if self.placer.queues.active else Right.RANK
        if right is Right.NONE or is_young(held, self.minimum_run, self.service.now):
            return Right.NONE
        if right is Right.RANK and self._cost(held, asking) is None:
            return Right.NONE
        return right

    def candidate(self, uid: str) -> Candidate:
        pod, times = self._ledger.pods.pod(uid), self.occupants.times.get(uid, UNKNOWN_TIMES)
        facts = (
            self.service.of_held(pod) if self.service.attends else JobFacts(pod.created, pod.priority, pod.namespace)
        )
        return Candidate(pod, self._ledger.node_of(uid), facts, times.placed, times.started)

    def _possible(self, asking: Preemptor, row: int) -> list[_Possible]:
        """Pods on the row that may be stopped for the group, most important first."""
        found = []
        for uid in self.occupants.on_row.get(row, ()):
            if not self._may_be_asked(uid, asking):
                continue
            held = self.candidate(uid)
            if self.permitted(held, asking) is Right.NONE or not self._gang_permits(held.pod, asking):
                continue
            found.append(held)
        if not found:
            return []
        ranked = sorted(found, key=lambda held: self._importance(held, asking), reverse=True)
        broken = self.budgets.broken_by(one.pod for one in ranked) if len(self.budgets) else frozenset()
        possible = [self._as_possible(held, held.pod.uid in broken, asking) for held in ranked]
        return sorted(possible, key=lambda one: one.importance, reverse=True)

    def _as_possible(self, held: Candidate, protected: bool, asking: Preemptor) -> _Possible:
        shares = self._ledger.held_shares(held.pod.uid)
        return _Possible((protected, *self._importance(held, asking)), held, shares)

    def _may_be_asked(self, uid: str, asking: Preemptor) -> bool:
        if uid in self.service.stopping or not self.occupants.may_stop(uid) or self.is_spared(uid):
            return False
        pod = self._ledger.pods.pod(uid)
        return pod.group != asking.group.name or not pod.group

    def _importance(self, held: Candidate, asking: Preemptor) -> tuple[Any, ...]:
        """Rank, then members of gangs without surplus, then the policy's cost, then age."""
        cost = self._cost(held, asking) or ()
        return (self.policy.rank(held.pod), self._surplus(held.pod) == 0, cost, oldest_last(held), held.pod.uid)

    def _cost(self, held: Candidate, asking: Preemptor) -> Cost | None:
        if tolerates(held, asking.facts.priority, self.service.now):
            return None
        return self.policy.cost(held, asking.group, asking.facts)

    # ---- gangs --------------------------------------------------------------------------------------------------

    def _surplus(self, pod: Pod) -> int:
        """How many members the pod's gang can lose; -1 = the pod is in no gang."""
        minimum = self.minimums.get(pod.group, 0) if pod.group else 0
        if minimum <= 1:
            return -1
        surplus, of_role = self._holding(pod.group) - minimum, self.role_minimums.get(pod.group, {})
        if pod.role in of_role:
            surplus = min(surplus, self._holding_role(pod.group, pod.role) - of_role[pod.role])
        return max(0, surplus)

    def _holding(self, gang: str) -> int:
        """Members that hold a place and were not told to stop."""
        ending = sum(uid in self.service.stopping for uid in self.occupants.of_group.get(gang, ()))
        return self.members.holding(gang) - ending

    def _holding_role(self, gang: str, role: str) -> int:
        """The same for the members of one role."""
        places = self.members.places(gang).items()
        return sum(place.role == role and uid not in self.service.stopping for uid, place in places)

    def _is_broken(self, gang: str) -> bool:
        """Whether the gang, or one of its roles, holds fewer places than it needs."""
        minimum = self.minimums.get(gang, 0)
        if minimum <= 1:
            return False
        roles = self.role_minimums.get(gang, {}).items()
        return self._holding(gang) < minimum or any(self._holding_role(gang, role) < least for role, least in roles)

    def _gang_permits(self, pod: Pod, asking: Preemptor) -> bool:
        """Whether the pod can go without its gang, or all of its gang may be stopped."""
        if self._surplus(pod) != 0:
            return True
        return all(self._may_go(uid, asking) for uid in self.occupants.of_group.get(pod.group, ()) if uid != pod.uid)

    def _may_go(self, uid: str, asking: Preemptor) -> bool:
        """Whether a member may be stopped with its gang. One that is ending already needs no permission."""
        pod = self._ledger.pods.pod(uid)
        if pod.leaving or uid in self.service.stopping:
            return True
        return self._may_be_asked(uid, asking) and self.permitted(self.candidate(uid), asking) is not Right.NONE

    def _with_gangs(self, asking: Preemptor, victims: list[_Possible]) -> list[_Possible] | None:
        """The victims and the rest of every gang that falls below its minimum; None = a gang may not be stopped.

        The victims are released already; the rest is released here.
        """
        found = list(victims)
        for name in dict.fromkeys(one.held.pod.group for one in victims if one.held.pod.group):
            if not self._is_broken(name):
                continue
            rest = [uid for uid in self.occupants.of_group.get(name, ()) if uid not in self.service.stopping]
            rest = [uid for uid in rest if not self._ledger.pods.pod(uid).leaving]
            if not all(self._may_go(uid, asking) for uid in rest):
                return None
            found += [self._as_possible(self.candidate(uid), False, asking) for uid in rest]
            self._ledger.release_all(rest)
        return found

    # ---- trying -------------------------------------------------------------------------------------------------

    @staticmethod
    def _by_cards(possible: Sequence[_Possible]) -> list[_Possible]:
        """Another order in which pods are given back: at equal rank, the cards with the fewest pods are freed."""
        crowd = Counter(uuid for one in possible for uuid in {share.uuid for share in one.shares})

        def kept_first(one: _Possible) -> tuple[Any, ...]:
            cards = [(crowd[share.uuid], share.uuid) for share in one.shares]
            return (*one.importance[:2], max(cards, default=(0, "")), one.importance)

        return sorted(possible, key=kept_first, reverse=True)

    def _tried(
        self, asking: Preemptor, row: int, order: Sequence[_Possible], fits: Callable[[], bool]
    ) -> RowPlan | None:
        """Release from the end of the order until the pod fits, then give back from its beginning."""
        stepwise = not self.placer.restricts(asking.pod)  # without rules about other pods, less is enough
        with self._ledger.transaction():
            released: list[tuple[_Possible, Right]] = []
            room = False
            for one in reversed(order):
                right = self.permitted(one.held, asking)
                if right is Right.NONE:  # its queue has given back what it had borrowed
                    continue
                self._ledger.release(one.held.pod.uid)
                released.append((one, right))
                if stepwise and (room := fits()):
                    break
            if not room and (stepwise or not fits()):
                return None
            rights = {one.held.pod.uid: right for one, right in released}
            needed = self._not_given_back([one for one, _ in reversed(released)], fits, room)
            victims = self._with_gangs(asking, needed)
            if not victims:
                return None
            return self._plan(row, victims, rights, asking.pod)

    def _not_given_back(
        self, released: Sequence[_Possible], fits: Callable[[], bool], first_is_needed: bool
    ) -> list[_Possible]:
        needed = []
        for number, one in enumerate(released):
            if number or not first_is_needed:
                self._ledger.book_observed(one.held.pod, one.held.node, one.shares, assumed=False)
                if fits():
                    continue
                self._ledger.release(one.held.pod.uid)
            needed.append(one)
        return needed

    def _plan(self, row: int, victims: Sequence[_Possible], rights: Mapping[str, Right], pod: Pod) -> RowPlan:
        """The plan with kube-scheduler's criteria (pickOneNodeForPreemption).

        For pods with cards, before the age of the victims: the fewest cards stopped, and the most cards left idle.
        """
        held = [one.held for one in victims]
        broken = {one.held.pod.uid for one in victims if one.importance[0]}
        ranks = [self.policy.rank(one.pod) for one in held]
        highest, total = max(ranks), sum(ranks) - LOWEST_PRIORITY * len(ranks)
        starts = [one.started or inf for one, rank in zip(held, ranks, strict=True) if rank == highest]
        rows = self._ledger.rows
        cards = (0.0, 0)
        if pod.wants_devices:
            idle = int((rows.held[row, : rows.fact[row, CARDS], SLOTS] == 0).sum())
            cards = (sum(gpus_of(one.pod) for one in held), -idle)
        key = (len(broken), highest, total, len(held), *cards, -min(starts), int(self._ledger.state().rows.rank[row]))
        last_first = sorted(victims, key=lambda one: one.importance)
        made = [
            Victim(one.held, rights.get(one.held.pod.uid, Right.RANK), one.held.pod.uid in broken, one.shares)
            for one in last_first
        ]
        return RowPlan(row, tuple(made), key)
