"""What the kernel decided, many at once: decisions become values when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, starmap
from typing import overload

from dovetail.model.decision import Decision, Share
from dovetail.model.reason import Reason
from dovetail.policies.rows import Ints

Names = tuple[str, tuple[str, ...]]  # a node and its cards' UUIDs


class Decisions(Sequence[Decision]):
    """A sequence of decisions over the kernel's own output. Nothing in it changes afterwards."""

    __slots__ = ("_cards", "_generation", "_names", "_reasons", "_taken", "uids")

    def __init__(
        self,
        uids: Sequence[str],
        names: Sequence[Names | None],
        reasons: Ints,
        cards: Sequence[int],
        taken: Ints,
        generation: int,
    ) -> None:
        self.uids, self._names, self._reasons = uids, names, reasons
        self._cards, self._taken, self._generation = cards, taken, generation

    def __len__(self) -> int:
        return len(self.uids)

    def __iter__(self) -> Iterator[Decision]:
        ends = list(accumulate(self._cards))
        starts = [0, *ends[:-1]]
        return starmap(self._make, zip(range(len(self)), starts, ends, strict=True))

    @overload
    def __getitem__(self, n: int) -> Decision: ...
    @overload
    def __getitem__(self, n: slice) -> list[Decision]: ...
    def __getitem__(self, n: int | slice) -> Decision | list[Decision]:
        if isinstance(n, slice):
            return list(self)[n]
        n = range(len(self))[n]
        start = sum(self._cards[:n])
        return self._make(n, start, start + self._cards[n])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def placed_uids(self) -> list[str]:
        """The pods that found a place, without making a value of each decision."""
        return [uid for uid, names in zip(self.uids, self._names, strict=True) if names is not None]

    def _make(self, n: int, start: int, end: int) -> Decision:
        names = self._names[n]
        if names is None:
            return Decision(self.uids[n], None, (), Reason(int(self._reasons[n])), self._generation)
        name, uuids = names
        shares = tuple([Share(at, uuids[card], mib, milli) for at, card, mib, milli in self._taken[start:end].tolist()])
        return Decision(self.uids[n], name, shares, Reason.OK, self._generation)
