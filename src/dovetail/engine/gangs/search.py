"""The bounded search: how many pods of each part go to each row, where placing part by part has failed.

Rows are taken in turn, and numbers of pods are chosen for each, so equal pods are never permuted and equal rows get
their numbers in one order only. Numbers that leave little unused of the scarcest resource come first. A branch ends as
soon as the remaining rows cannot hold what is missing. The budget is a number of steps, not of seconds, so that
decisions repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.engine.gangs.case import GangCase, Need, RuleView
from dovetail.engine.gangs.scopes import Scope
from dovetail.policies.rows import Ints

SEARCH_STEPS = 6_000  # choices for one row that are looked at for one decision: well below 0.1 s
MAX_SEARCH_ROWS = 400  # rows that are looked at, those with the most room first
MAX_CHOICES = 500  # combinations of pods on one row that are told apart
MAX_SEARCH_PARTS = 16  # kinds of pods; with more of them, nothing is searched
COLLECTED_IN_A_STEP = 16  # numbers of pods for one row that are written down for one step of the budget

Counts = tuple[int, ...]  # [part]


@dataclass(slots=True)
class SearchBudget:
    steps: int = SEARCH_STEPS

    def take(self) -> bool:
        """Use one step; False = none is left."""
        self.steps -= 1
        return self.steps >= 0


@dataclass(slots=True)
class _Limits:
    """Limits of a spread: domains that may get only so many pods, and domains that are still needed."""

    parts: list[int]
    of_row: list[int]  # [row of the search]
    left: dict[int, int]  # domain -> pods that it may get; without an entry, any number
    there: dict[int, int]  # domain -> pods there
    least: int
    coming: list[int]  # [row of the search]: domains of this row and later ones
    wanted: int  # pods that must be placed under it
    most_ahead: list[int]  # [row of the search]: pods that this row and later ones could take under it


class Search:
    """One search over the rows of a scope. `solutions` yields numbers by part and row."""

    def __init__(self, case: GangCase, need: Need, scope: Scope, budget: SearchBudget) -> None:
        self._case, self._need, self._budget = case, need, budget
        self._parts = range(len(case.parts))
        self._pods = [len(part.pods) for part in case.parts]
        self._levels = [spread.level.of_row for view in case.views for spread in view.spreads]
        room = np.array([np.where(scope[n], case.parts[n].room, 0) for n in self._parts])
        self.rows = self._chosen(room)
        self._takes: list[list[int]] = case.shared[1].tolist()
        free = case.shared[0][self.rows].reshape(len(self.rows), len(self._takes[0]))
        self._order = sorted(self._parts, key=lambda n: (*(-amount for amount in reversed(self._takes[n])), n))
        self._scarce = self._scarcest(free)
        rooms = np.minimum(room[:, self.rows].T, self._pods)
        facts = [(*rooms[at].tolist(), *free[at].tolist()) for at in range(len(self.rows))]
        self._choices = self._all_choices(facts)
        self._alike = [at > 0 and self._key(facts, at) == self._key(facts, at - 1) for at in range(len(facts))]
        self._rooms: list[list[int]] = rooms.tolist()
        self._ahead = _from_here_on(rooms)
        self._free_ahead = _from_here_on(free)
        self._limits = [self._limit(view, at) for view in case.views for at in range(len(view.spreads))]

    def _chosen(self, room: Ints) -> list[int]:
        """Rows with room, in an order in which equal rows are neighbours; those with the least room first."""
        rows = np.flatnonzero(room.any(axis=0))
        if len(rows) > MAX_SEARCH_ROWS:
            rows = rows[np.argsort(-room[:, rows].sum(axis=0), kind="stable")[:MAX_SEARCH_ROWS]]
        free = self._case.shared[0]
        keys = [
            (room[:, row].tolist(), free[row].tolist(), [int(of[row]) for of in self._levels], int(row)) for row in rows
        ]
        return [key[-1] for key in sorted(keys)]

    def _key(self, facts: Sequence[tuple[int, ...]], at: int) -> tuple[object, ...]:
        return (facts[at], [int(of[self.rows[at]]) for of in self._levels])

    def _scarcest(self, free: Ints) -> int:
        """The amount of which the gang needs the largest part of what is free; -1 = no amount is shared."""
        if not free.shape[1]:
            return -1
        asked = np.array(self._pods) @ self._case.shared[1]
        return int(np.argmax(asked / np.maximum(free.sum(axis=0), 1)))

    def _all_choices(self, facts: Sequence[tuple[int, ...]]) -> list[list[Counts]]:
        """[row]: numbers of pods that fit there. Equal rows share one list."""
        made: dict[tuple[int, ...], list[Counts]] = {}
        for fact in facts:
            if fact not in made and self._budget.steps <= 0:
                made[fact] = []
            elif fact not in made:
                found: list[Counts] = []
                self._collect(
                    list(fact[: len(self._pods)]), list(fact[len(self._pods) :]), [0] * len(self._pods), 0, found
                )
                made[fact] = sorted(found, key=self._preference)
                self._budget.steps -= 1 + len(found) * len(self._pods) // COLLECTED_IN_A_STEP
        return [made[fact] for fact in facts]

    def _preference(self, counts: Counts) -> tuple[int, ...]:
        used = sum(counts[n] * self._takes[n][self._scarce] for n in self._parts) if self._scarce >= 0 else 0
        return (-used, *(-counts[n] for n in self._order))

    def _collect(self, most: list[int], free: list[int], counts: list[int], depth: int, found: list[Counts]) -> None:
        if len(found) >= MAX_CHOICES:
            return
        if depth == len(self._order):
            found.append(tuple(counts))
            return
        part = self._order[depth]
        takes = self._takes[part]
        top = min([most[part], *(free[k] // take for k, take in enumerate(takes) if take > 0)])
        for number in range(top, -1, -1):
            counts[part] = number
            rest = [have - number * take for have, take in zip(free, takes, strict=True)] if number else free
            self._collect(most, rest, counts, depth + 1, found)
        counts[part] = 0

    def _limit(self, view: RuleView, at: int) -> _Limits:
        spread = view.spreads[at]
        of_row = [int(spread.level.of_row[row]) for row in self.rows]
        most = spread.rule.most_each
        left = {domain: most - int(spread.there[domain]) for domain in set(of_row)} if most else {}
        there = {int(domain): int(spread.there[domain]) for domain in np.flatnonzero(spread.there)}
        last = {domain: number for number, domain in enumerate(of_row)}
        coming = [sum(end >= number for end in last.values()) for number in range(len(of_row) + 1)]
        rooms = [sum(room[part] for part in view.parts) for room in self._rooms]
        most_here = [min(room, max(left.get(of_row[at], room), 0)) for at, room in enumerate(rooms)]
        ahead = [one[0] for one in _from_here_on(np.array(most_here, dtype=np.int64).reshape(-1, 1))]
        wanted = self._case.least_of(self._need, view.parts)
        return _Limits(view.parts, of_row, left, there, spread.rule.least_domains, coming, wanted, ahead)

    def solutions(self) -> Iterator[dict[int, Counts]]:
        """Numbers of pods by row, as long as the budget lasts."""
        placed = [0] * len(self._pods)
        chosen: list[Counts] = []
        stack = [0]  # by row: the position of the next choice
        while stack:
            at = len(stack) - 1
            number = self._next(at, stack[at], placed)
            if number < 0:
                stack.pop()
                if chosen:
                    self._book(at - 1, chosen.pop(), placed, -1)
                continue
            stack[at] = number + 1
            counts = self._choices[at][number]
            self._book(at, counts, placed, 1)
            if self._is_done(placed):
                yield {self.rows[n]: one for n, one in enumerate([*chosen, counts]) if any(one)}
            elif at + 1 < len(self.rows) and self._has_hope(at + 1, placed):
                chosen.append(counts)
                stack.append(number if self._alike[at + 1] else 0)
                continue
            self._book(at, counts, placed, -1)

    def _next(self, at: int, start: int, placed: Sequence[int]) -> int:
        """The position of the next choice for the row that is not too many; -1 = none, or the budget is used up."""
        choices = self._choices[at]
        for number in range(start, len(choices)):
            if not self._budget.take():
                return -1
            counts = choices[number]
            if any(placed[n] + counts[n] > self._pods[n] for n in self._parts):
                continue
            if all(self._is_within(limit, at, counts) for limit in self._limits):
                return number
        return -1

    def _is_within(self, limit: _Limits, at: int, counts: Counts) -> bool:
        left = limit.left.get(limit.of_row[at])
        return left is None or sum(counts[n] for n in limit.parts) <= max(left, 0)

    def _book(self, at: int, counts: Counts, placed: list[int], sign: int) -> None:
        for part, number in enumerate(counts):
            placed[part] += sign * number
        for limit in self._limits:
            number = sum(counts[part] for part in limit.parts)
            if number:
                domain = limit.of_row[at]
                limit.there[domain] = limit.there.get(domain, 0) + sign * number
                if domain in limit.left:
                    limit.left[domain] -= sign * number

    def _is_done(self, placed: Sequence[int]) -> bool:
        if not self._need.is_met(self._case.role_counts(placed)):
            return False
        return all(sum(n > 0 for n in limit.there.values()) >= limit.least for limit in self._limits)

    def _has_hope(self, at: int, placed: Sequence[int]) -> bool:
        """Whether the rows from `at` on could take what is missing."""
        ahead = self._ahead[at]
        most = [min(self._pods[n], placed[n] + ahead[n]) for n in self._parts]
        if not self._need.is_met(self._case.role_counts(most)) or not self._has_amounts(at, placed):
            return False
        return all(self._is_reachable(limit, at, placed) for limit in self._limits)

    def _is_reachable(self, limit: _Limits, at: int, placed: Sequence[int]) -> bool:
        """Whether the rows from `at` on have enough domains, and enough room under the limit."""
        if sum(n > 0 for n in limit.there.values()) + limit.coming[at] < limit.least:
            return False
        return sum(placed[part] for part in limit.parts) + limit.most_ahead[at] >= limit.wanted

    def _has_amounts(self, at: int, placed: Sequence[int]) -> bool:
        """Whether the rows from `at` on have what the missing members take at least."""
        missing = dict(self._need.of_role)
        least: dict[str, list[int]] = {}
        for n, part in enumerate(self._case.parts):
            missing[part.role] = missing.get(part.role, 0) - placed[n]
            known = least.get(part.role)
            least[part.role] = self._takes[n] if known is None else list(map(min, known, self._takes[n]))
        wanted = [(number, least[role]) for role, number in missing.items() if number > 0 and role in least]
        free = self._free_ahead[at]
        return all(sum(number * takes[k] for number, takes in wanted) <= have for k, have in enumerate(free))


def _from_here_on(lines: Ints) -> list[list[int]]:
    """[row]: sums over this row and all later ones; one line more than rows, of zeros."""
    sums = np.zeros((len(lines) + 1, lines.shape[1]), dtype=np.int64)
    sums[:-1] = np.cumsum(lines[::-1], axis=0)[::-1]
    found: list[list[int]] = sums.tolist()
    return found
