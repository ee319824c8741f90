"""The rows of the shortlist, checked one after another until the search budget is used up.

The budget is a number of rows, not of seconds, so that decisions repeat.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.engine.kernel.state import ALLOCATED, NONE, POD_STATE
from dovetail.engine.rights.occupants import Occupants
from dovetail.engine.rights.placing import Flags, Placing
from dovetail.engine.rights.shortlist import shortlist
from dovetail.engine.rights.victims import Preemptor, RowPlan, Victims
from dovetail.model.pod import Group, Pod
from dovetail.policies.orders import JobFacts
from dovetail.policies.rows import Ints

ALL_ROWS = 100  # up to this many possible rows all are checked, as kube-scheduler does (minCandidateNodesAbsolute)
FOUND_ROWS = 8  # of more rows, so many plans are compared
FOUND_ROWS_GANG = 64  # the same, over all members of a gang
FAILED_ROWS = 200  # rows checked in vain before the search ends


class RowsInTurn:
    """The search for one group. Members with equal requests continue where the member before them ended."""

    def __init__(self, placer: Placing, occupants: Occupants, victims: Victims, group: Group, facts: JobFacts) -> None:
        self._placer, self._occupants, self._victims = placer, occupants, victims
        self._members = len(group.pods)
        self._slots = self._candidates(group, facts)
        self._rows: dict[tuple[object, ...], list[int]] = {}  # request -> rows that were not left out yet

    @property
    def has_candidates(self) -> bool:
        return len(self._slots) > 0

    def best(self, asking: Preemptor, allowed: Flags | None = None) -> RowPlan | None:
        """The best of the rows that are checked; None = none of them helps. `allowed`: only these rows."""
        pod = asking.pod
        signature = self._placer.requests.signature(pod)
        key = (signature.shape, signature.mask, pod.priority, pod.queue)
        if key not in self._rows:
            self._rows[key] = self._listed(pod, signature.shape)
        rows = self._rows[key]
        if allowed is not None:
            rows = [row for row in rows if allowed[row]]
        found, failed = self._search(asking, rows)
        self._rows[key] = [row for row in self._rows[key] if row not in failed]
        return found

    def _search(self, asking: Preemptor, rows: list[int]) -> tuple[RowPlan | None, set[int]]:
        most = len(rows) if len(rows) <= ALL_ROWS else FOUND_ROWS
        if self._members > 1:
            most = min(most, max(1, FOUND_ROWS_GANG // self._members))
        best: RowPlan | None = None
        failed: set[int] = set()
        found = 0
        for row in rows:
            plan = self._victims.on_row(asking, row, self._placer.fit_of(asking.pod, row))
            if plan is None:
                failed.add(row)
                if len(failed) >= FAILED_ROWS:
                    break
                continue
            found += 1
            if best is None or plan.key < best.key:
                best = plan
            if found >= most:
                break
        return best, failed

    def _candidates(self, group: Group, facts: JobFacts) -> Ints:
        below: Callable[[JobFacts], int] | None = self._victims.policy.below
        limit = below(facts) if below is not None else None
        queues, owed = self._placer.queues, []
        if queues.active:
            examples = self._occupants.examples()
            owed = [number for number, pod in examples if queues.may_owe(pod, group.pods[0])]
        if limit is not None and not owed and self._occupants.lowest_priority >= limit:
            return np.zeros(0, dtype=np.int64)
        return self._occupants.candidates(limit, owed)

    def _listed(self, pod: Pod, shape: int) -> list[int]:
        ledger = self._placer.ledger
        slots = self._slots[ledger.book.pod[self._slots, POD_STATE] == ALLOCATED]  # victims of earlier members are gone
        rows = shortlist(ledger, self._occupants, slots, shape, self._placer.static_refusals(pod))
        kept = self._placer.row_kept_for(pod.uid)
        listed: list[int] = rows.tolist()
        if kept != NONE and kept in listed:  # pods may be ending there for it
            listed.remove(kept)
            listed.insert(0, kept)
        return listed
