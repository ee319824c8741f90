"""Placing gangs with roles or topology rules: all that is needed, or nothing.

For each combination of domains that could hold the gang (scopes.py), pods are placed part by part (greedy.py); where
this fails, a bounded search chooses the numbers of pods by row (search.py). Everything is tried in transactions of the
ledger, and a placement is committed only if it keeps every rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from dovetail.engine.gangs.capacity import RowCapacity
from dovetail.engine.gangs.case import CaseMaker, GangCase, Need
from dovetail.engine.gangs.confined import Confined, PlacesAlone
from dovetail.engine.gangs.greedy import Attempt, hardest_first, place_counts, place_in_parts, place_surplus
from dovetail.engine.gangs.nearest import NearestDomain, nearest_domain
from dovetail.engine.gangs.scopes import Scope, by_domain, scopes
from dovetail.engine.gangs.search import MAX_SEARCH_PARTS, Search, SearchBudget
from dovetail.engine.gangs.topologies import NO_DOMAIN_HERE, Topologies
from dovetail.engine.kernel.state import NONE
from dovetail.engine.rights.members import Members
from dovetail.engine.rules.node_columns import Flags
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason

MAX_SCOPES = 48  # combinations of domains that are tried for one decision
MAX_SCOPES_OF_MANY_PARTS = 1  # the same for gangs of many kinds of pods: each try takes as long as its pods alone
MAX_BARE_SCOPES = 8  # the same without preferred levels
MAX_DOMAINS_TAKEN = 8  # domains in which victims are searched for one gang
MAX_REALISED = 4  # results of one search that are tried on the ledger


def is_incomplete(group: Group) -> bool:
    """Whether pods of the gang are missing that its minimums count."""
    if group.members < group.minimum or not group.roles:
        return group.members < group.minimum
    counts: dict[str, int] = {}
    for pod in group.pods:
        counts[pod.role] = counts.get(pod.role, 0) + 1
    return any(counts.get(role.name, 0) + role.running < role.minimum for role in group.roles)


class GangPlacer:
    is_incomplete = staticmethod(is_incomplete)

    def __init__(self, placer: PlacesAlone, members: Members) -> None:
        self._placer, self._ledger, self.members = placer, placer.ledger, members
        self.topologies = Topologies(placer.related.neighbours.facts)
        self.capacity = RowCapacity(placer.ledger)
        self._maker = CaseMaker(placer.requests.signature, self.capacity.room, self.topologies.level)
        self._confined = Confined(placer)
        self.searched = 0  # steps of the search used by the last decision

    def place(self, group: Group) -> Sequence[Decision]:
        """Decide a gang: at least what it needs, or nothing. One decision per pod."""
        if is_incomplete(group):
            return [self._refused(pod.uid, Reason.GROUP_INCOMPLETE) for pod in group.pods]
        case, budget = self.case(group), SearchBudget()
        found = None
        for need in (case.whole,) if case.need.total == case.whole.total else (case.whole, case.need):
            found = self._place(case, need, budget) if case.parts else None
            if found is not None:
                break
        self.searched = SearchBudget().steps - max(budget.steps, 0)
        return found if found is not None else self._not_placed(case)

    def case(self, group: Group) -> GangCase:
        """The gang as numbers, with the ledger as it is."""
        case = self._maker.make(group, self.members.elsewhere(group), len(self._ledger.nodes))
        if len(case.parts) > 1 or any(view.spreads for view in case.views):
            case.shared = self.capacity.shared([part.signature for part in case.parts], case.size)
        else:
            case.shared = (np.zeros((case.size, 0), np.int64), np.zeros((len(case.parts), 0), np.int64))
        return case

    def _place(self, case: GangCase, need: Need, budget: SearchBudget) -> Sequence[Decision] | None:
        order = hardest_first(case)
        many = len(order) > MAX_SEARCH_PARTS
        orders = [order] if len(order) == 1 or many else [order, list(range(len(order)))]
        for scope in islice(self._scopes(case, need), MAX_SCOPES_OF_MANY_PARTS if many else None):
            for one in dict.fromkeys(map(tuple, orders)):
                if (found := self._in_parts(case, need, scope, one)) is not None:
                    return found
            if (found := self._searched(case, need, scope, budget)) is not None:
                return found
        return None

    def _scopes(self, case: GangCase, need: Need) -> Iterator[Scope]:
        """The combinations of domains to try; at last some that ignore preferred levels."""
        yield from islice(scopes(case, need), MAX_SCOPES)
        if any(view.preferred is not None for view in case.views):
            bare = [replace(view, preferred=None) for view in case.views]
            yield from islice(scopes(replace(case, views=bare), need), MAX_BARE_SCOPES)

    def _in_parts(self, case: GangCase, need: Need, scope: Scope, order: Sequence[int]) -> Sequence[Decision] | None:
        with self._ledger.transaction() as transaction:
            attempt = Attempt.start(case, scope, self._confined)
            if place_in_parts(attempt, need, order):
                found = self._finished(attempt, need, order)
                if found is not None:
                    transaction.commit()
                    return found
        return None

    def _searched(self, case: GangCase, need: Need, scope: Scope, budget: SearchBudget) -> Sequence[Decision] | None:
        """Try what the search finds; for pods that share cards, its numbers may not fit."""
        simple = len(case.parts) == 1 and not any(view.spreads for view in case.views)
        if budget.steps <= 0 or not need.total or simple or len(case.parts) > MAX_SEARCH_PARTS:
            return None
        search, order = Search(case, need, scope, budget), hardest_first(case)
        for counts in islice(search.solutions(), MAX_REALISED):
            for one in dict.fromkeys((tuple(order), tuple(reversed(order)))):
                with self._ledger.transaction() as transaction:
                    attempt = Attempt.start(case, scope, self._confined)
                    if place_counts(attempt, need, counts, one):
                        found = self._finished(attempt, need, order)
                        if found is not None:
                            transaction.commit()
                            return found
        return None

    def _finished(self, attempt: Attempt, need: Need, order: Sequence[int]) -> Sequence[Decision] | None:
        """The decisions of an attempt that has what it needs, with the surplus; None = a rule would be broken."""
        case = attempt.case
        if need is not case.whole:
            place_surplus(attempt, order, self._wider(case, attempt))
        if case.broken(attempt.rows) or not (attempt.rows >= 0).any():
            return None
        if len(attempt.decisions) == 1 and len(attempt.decisions[0][0]) == len(case.group.pods):
            return attempt.decisions[0][1]  # as arrays
        return self._in_order(case, attempt)

    def _wider(self, case: GangCase, attempt: Attempt) -> Scope:
        """The rows that the rules allow to further pods, with those that are placed."""
        wider = [part.room > 0 for part in case.parts]
        for view in case.views:
            mine = attempt.rows[[pod for number in view.parts for pod in case.parts[number].pods]]
            rows = view.open_rows(case.size)
            if view.required is not None and (mine >= 0).any():
                rows &= view.required.of_row == view.required.of_row[mine[mine >= 0][0]]
            for number in view.parts:
                wider[number] &= rows
        return wider

    def _in_order(self, case: GangCase, attempt: Attempt) -> list[Decision]:
        found: dict[int, Decision] = {}
        for positions, decisions in attempt.decisions:
            for position, decision in zip(positions, decisions, strict=True):
                if decision.placed or position not in found:
                    found[position] = decision
        pods = case.group.pods
        return [found.get(n) or self._left_out(case.group, n) for n in range(len(pods))]

    def _left_out(self, group: Group, number: int) -> Decision:
        pod = group.pods[number]
        return self._refused(pod.uid, Reason.GROUP_NOT_PLACED if pod.refusal is None else pod.refusal.reason)

    def _not_placed(self, case: GangCase) -> list[Decision]:
        reason = self.why_not(case)
        return [
            self._refused(pod.uid, reason if pod.refusal is None else pod.refusal.reason) for pod in case.group.pods
        ]

    def why_not(self, case: GangCase) -> Reason:
        """Why no place was found: the domains, if all rows together could hold what the gang needs."""
        every = list(range(len(case.parts)))
        rooms = np.array([[part.room.sum()] for part in case.parts]).reshape(len(every), 1)
        if not every or not case.could_hold(case.need, every, rooms).all():
            return Reason.GROUP_NOT_PLACED
        if not case.need.total and case.views:  # each pod waits for itself
            return Reason.OTHER_DOMAIN
        if any(view.required is not None for view in case.views):
            return Reason.NO_DOMAIN
        return Reason.DOMAINS_TOO_FEW if any(view.spreads for view in case.views) else Reason.GROUP_NOT_PLACED

    # ---- for explanations ---------------------------------------------------------------------------------------

    def gather(self, group: Group) -> tuple[NearestDomain | None, Flags, list[Pod]]:
        """Place as many pods as fit in the nearest domain; returns it, its rows, and the pods that found no place.

        For a trial: the minimums of the gang are not kept.
        """
        case = self.case(group)
        found, rows = nearest_domain(case)
        scope = [part.room > 0 for part in case.parts]
        for view in case.views:
            for number in view.parts:
                scope[number] &= view.open_rows(case.size)
        scope = [allowed & rows for allowed in scope]
        attempt = Attempt.start(case, scope, self._confined)
        place_surplus(attempt, hardest_first(case), scope)
        left = sorted(number for waiting in attempt.waiting for number in waiting)
        return found, rows, [group.pods[number] for number in left]

    # ---- for preemption -----------------------------------------------------------------------------------------

    def domain_choices(self, group: Group) -> Iterator[Flags]:
        """Rows of one required domain after another: the home of running members, else those with the most room.

        Rules of roles are not chosen here; `open_rows` keeps every pod within them.
        """
        case = self.case(group)
        view = next((view for view in case.views if len(view.parts) == len(case.parts)), None)
        if view is None or view.required is None or view.home != NO_DOMAIN_HERE:
            yield np.ones(case.size, dtype=np.bool_)
            return
        level = view.required
        room = by_domain(level, np.array([part.room for part in case.parts])).sum(axis=0)
        nodes = np.bincount(level.of_row, minlength=level.size)
        there = np.flatnonzero(nodes[1:] > 0) + 1
        order = np.lexsort((level.place[there], -nodes[there], -room[there]))
        for domain in there[order][:MAX_DOMAINS_TAKEN].tolist():
            yield level.of_row == domain

    def open_rows(self, group: Group, pod: Pod) -> Flags:
        """[row]: whether the rules allow this pod there, with all members that hold a place now.

        While a spread lacks domains, only new domains are open.
        """
        places = list(self.members.places(group.name).values())
        rows: Flags = np.ones(len(self._ledger.nodes), dtype=np.bool_)
        for view in self._maker.views_of(group, pod.role, places):
            rows &= view.open_rows(len(rows))
            for spread in view.spreads:
                if np.count_nonzero(spread.there) < spread.rule.least_domains:
                    rows &= spread.there[spread.level.of_row] == 0
        return rows

    def broken_rule(self, group: Group, decisions: Sequence[Decision]) -> str:
        """The rule that these decisions break, with the members that run elsewhere; "" = none."""
        nodes = self._ledger.row_of
        rows = [NONE if decision.node is None else nodes[decision.node] for decision in decisions]
        return self.case(group).broken(np.array(rows, dtype=np.int64))

    def _refused(self, uid: str, reason: Reason) -> Decision:
        return Decision(uid, None, (), reason, self._ledger.generation)
