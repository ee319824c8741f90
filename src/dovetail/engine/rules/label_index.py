"""Rows by label: for rules about all nodes at once, such as where a volume can be used.

A label is indexed at its first use, and again after a node changed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.node_rows import NodeRows
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.policies.rows import Ints

Terms = tuple[AffinityTerm, ...]
MAX_KEPT_MATCHES = 1_000  # answers


class LabelRows:
    """Rows in ascending order. They include rows of nodes that are gone: other rules refuse those."""

    def __init__(self, places: NodeRows) -> None:
        self._places = places
        self._seen = (-1, -1)
        self._values: dict[str, dict[str, Ints]] = {}  # label -> value -> rows
        self._rows: dict[Terms, Ints] = {}

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes whenever an answer may change."""
        return (self._places.written, len(self._places.nodes))

    def __len__(self) -> int:
        return len(self._places.nodes)

    def row(self, node: str) -> int:
        """The node's row, or NONE."""
        return self._places.row_of.get(node, NONE)

    def everywhere(self) -> Ints:
        return np.arange(len(self), dtype=np.int64)

    def matching(self, terms: Terms | None) -> Ints:
        """Rows whose labels match any of the terms; None matches all.

        As CheckNodeAffinity: fields of a term are ignored, and an empty term matches nothing.
        """
        if terms is None:
            return self.everywhere()
        if self._seen != self.stamp or len(self._rows) >= MAX_KEPT_MATCHES:
            self._values, self._rows, self._seen = {}, {}, self.stamp
        known = self._rows.get(terms)
        if known is None:
            known = self._rows[terms] = _any([self._term(term) for term in terms if term.expressions or term.fields])
        return known

    def _term(self, term: AffinityTerm) -> Ints:
        rows: Ints | None = None
        for requirement in term.expressions:
            found = self._requirement(requirement)
            rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
        return self.everywhere() if rows is None else rows

    def _requirement(self, row: Requirement) -> Ints:
        having = self._having(row.key)
        if row.operator == "In":
            return _any([having[value] for value in row.values if value in having])
        found = [rows for value, rows in having.items() if row.matches({row.key: value})]
        if row.matches({}):
            found.append(np.setdiff1d(self.everywhere(), _any(having.values()), assume_unique=True))
        return _any(found)

    def _having(self, label: str) -> dict[str, Ints]:
        known = self._values.get(label)
        if known is None:
            rows: dict[str, list[int]] = {}
            for row, node in enumerate(self._places.nodes):
                value = node.labels.get(label)
                if value is not None:
                    rows.setdefault(value, []).append(row)
            known = self._values[label] = {value: np.array(found, dtype=np.int64) for value, found in rows.items()}
        return known


def _any(parts: Iterable[Ints]) -> Ints:
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
