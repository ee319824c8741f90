"""Placing a gang part by part on the rows of a scope: the policy chooses the nodes.

Members that spread the gang over enough domains come first, then what the gang needs, the largest requests first, and
then the surplus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.engine.gangs.case import GangCase, Need, SpreadView
from dovetail.engine.gangs.confined import Confined, Limit
from dovetail.engine.gangs.scopes import Scope
from dovetail.engine.gangs.search import Counts
from dovetail.engine.kernel.state import NONE
from dovetail.engine.rules.node_columns import Flags
from dovetail.model.decision import Decision
from dovetail.policies.rows import Ints


@dataclass(slots=True)
class Attempt:
    """One attempt on one scope, inside a transaction of the ledger."""

    case: GangCase
    scope: Scope
    confined: Confined
    rows: Ints  # [pod of the group]: NONE = not placed
    decisions: list[tuple[list[int], Sequence[Decision]]] = field(default_factory=list)  # positions, their decisions
    limits: list[tuple[frozenset[int], Limit]] = field(default_factory=list)  # parts, what their domains may get
    waiting: list[list[int]] = field(default_factory=list)  # [part]: positions of pods without a place

    @classmethod
    def start(cls, case: GangCase, scope: Scope, confined: Confined) -> Attempt:
        rows = np.full(len(case.group.pods), NONE, dtype=np.int64)
        made = cls(case, scope, confined, rows, waiting=[list(part.pods) for part in case.parts])
        for view in case.views:
            for spread in view.spreads:
                if spread.rule.most_each:
                    left = spread.rule.most_each - spread.there
                    made.limits.append((frozenset(view.parts), Limit(spread.level.of_row, left)))
        return made

    def place(self, part: int, count: int, within: Flags | None = None, limits: Sequence[Limit] = ()) -> int:
        """Place up to `count` pods of the part; returns how many were placed."""
        some = self.waiting[part][:count]
        if not some:
            return 0
        rows = self.scope[part] if within is None else self.scope[part] & within
        if not rows.any():
            return 0
        applied = [*limits, *(limit for parts, limit in self.limits if part in parts)]
        made = self.confined.fill([self.case.group.pods[n] for n in some], rows, applied)
        placed = made.rows != NONE
        self.rows[some] = made.rows
        self.waiting[part] = [n for n, there in zip(some, placed.tolist(), strict=True) if not there] + self.waiting[
            part
        ][count:]
        self.decisions.append((some, made.decisions))
        return int(np.count_nonzero(placed))

    def counts(self) -> list[int]:
        """[part]: pods placed so far."""
        return [len(part.pods) - len(waiting) for part, waiting in zip(self.case.parts, self.waiting, strict=True)]

    def is_met(self, need: Need) -> bool:
        return need.is_met(self.case.role_counts(self.counts())) and not self.case.broken(self.rows)


def place_in_parts(attempt: Attempt, need: Need, order: Sequence[int]) -> bool:
    """Place what is needed, part by part in this order; returns whether all of it found a place."""
    case = attempt.case
    for view in case.views:
        for spread in view.spreads:
            if spread.rule.least_domains > 1:
                _open_domains(attempt, spread, [part for part in order if part in view.parts])
    missing = dict(need.of_role)
    for part in order:
        missing[case.parts[part].role] = missing.get(case.parts[part].role, 0) - attempt.counts()[part]
    for part in order:
        role = case.parts[part].role
        if missing.get(role, 0) > 0:
            missing[role] -= attempt.place(part, missing[role])
            if missing[role] > 0 and len(case.parts) == 1:
                return False
    for part in order:
        short = need.total - sum(attempt.counts())
        if short > 0:
            attempt.place(part, short)
    return attempt.is_met(need) if need.total else True


def place_surplus(attempt: Attempt, order: Sequence[int], wider: Scope) -> None:
    """Place further pods where there is room: beside the others first, then in the wider scope."""
    for part in order:
        attempt.place(part, len(attempt.waiting[part]))
    attempt.scope = wider
    for part in order:
        attempt.place(part, len(attempt.waiting[part]))


def place_counts(attempt: Attempt, need: Need, counts: Mapping[int, Counts], order: Sequence[int]) -> bool:
    """Place these numbers of pods on these rows; returns whether all found a place."""
    size = attempt.case.size
    every_row = np.arange(size)
    for part in order:
        left = np.zeros(size, dtype=np.int64)
        for row, numbers in counts.items():
            left[row] = numbers[part]
        total = int(left.sum())
        if attempt.place(part, total, left > 0, [Limit(every_row, left)]) < total:
            return False
    return attempt.is_met(need)


def _open_domains(attempt: Attempt, spread: SpreadView, parts: Sequence[int]) -> None:
    """Place one pod in each of as many new domains as the spread still needs."""
    level = spread.level
    used = spread.there > 0
    placed = attempt.rows[attempt.rows != NONE]
    used[level.of_row[placed]] = True
    missing = spread.rule.least_domains - int(np.count_nonzero(used[1:]))
    once = Limit(level.of_row, np.where(used, 0, 1))
    for part in parts:
        if missing > 0:
            missing -= attempt.place(part, missing, None, [once])


def hardest_first(case: GangCase) -> list[int]:
    """Parts whose pods ask for most come first: cards, then the node's resources."""
    takes = case.shared[1]
    return sorted(range(len(case.parts)), key=lambda n: (*(-amount for amount in takes[n][::-1].tolist()), n))
