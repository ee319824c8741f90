"""Decisions of one kernel call: each becomes a value only when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.holders import shares_of
from dovetail.model.decision import Decision
from dovetail.model.reason import Reason
from dovetail.policies.rows import Ints

Names = tuple[str, tuple[str, ...]]  # a node and its cards' UUIDs


class Decisions(Sequence[Decision]):
    """A sequence of decisions over the kernel's output. Nothing in it changes afterwards."""

    __slots__ = ("generation", "names", "reasons", "rows", "starts", "taken", "uids")

    def __init__(
        self,
        uids: Sequence[str],
        rows: Ints,
        names: Sequence[Names],
        reasons: Ints,
        starts: Ints,
        taken: Ints,
        generation: int,
    ) -> None:
        self.uids, self.rows, self.reasons = uids, rows, reasons  # rows: NONE if the pod stays pending
        self.taken, self.starts = taken, starts  # cards of pod n from taken[starts[n]] on
        self.names, self.generation = names, generation  # names by row

    def __len__(self) -> int:
        return len(self.uids)

    def __iter__(self) -> Iterator[Decision]:
        return map(self._make, range(len(self)))

    @overload
    def __getitem__(self, n: int) -> Decision: ...
    @overload
    def __getitem__(self, n: slice) -> list[Decision]: ...
    def __getitem__(self, n: int | slice) -> Decision | list[Decision]:
        if isinstance(n, slice):
            return [self._make(at) for at in range(len(self))[n]]
        return self._make(range(len(self))[n])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def placed_uids(self) -> list[str]:
        """The UIDs of placed pods, without a value for each decision."""
        return [uid for uid, placed in zip(self.uids, (self.rows != NONE).tolist(), strict=True) if placed]

    def cards(self, n: int) -> Ints:
        """The lines of `taken` for pod n."""
        following = self.starts[n + 1] if n + 1 < len(self.starts) else len(self.taken)
        return self.taken[self.starts[n] : following]

    def _make(self, n: int) -> Decision:
        row = self.rows.item(n)
        if row == NONE:
            return Decision(self.uids[n], None, (), Reason(self.reasons.item(n)), self.generation)
        name, uuids = self.names[row]
        return Decision(self.uids[n], name, shares_of(uuids, self.cards(n)), Reason.OK, self.generation)


def joined(parts: Sequence[Sequence[Decision]]) -> Sequence[Decision]:
    """All decisions in one sequence; as arrays if all parts are arrays.

    Nodes keep their rows, so the names of the last part are valid for all.
    """
    filled = [part for part in parts if part]
    if len(filled) == 1:
        return filled[0]
    whole = [part for part in filled if isinstance(part, Decisions)]
    if not whole or len(whole) < len(filled):
        return [decision for part in filled for decision in part]
    offsets = np.cumsum([0, *(len(part.taken) for part in whole[:-1])])
    return Decisions(
        [uid for part in whole for uid in part.uids],
        np.concatenate([part.rows for part in whole]),
        whole[-1].names,
        np.concatenate([part.reasons for part in whole]),
        np.concatenate([part.starts + offset for part, offset in zip(whole, offsets, strict=True)]),
        np.concatenate([part.taken for part in whole]),
        whole[-1].generation,
    )
