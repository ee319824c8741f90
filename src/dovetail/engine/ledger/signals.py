"""Measured load by row: the last measurements, their place in the arrays, and what they do not show yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from dovetail.engine.kernel.book import touch_measured
from dovetail.engine.ledger.storage import Storage
from dovetail.model.signals import MAX_NETWORK_KBIT, NodeSignals
from dovetail.policies.rows import (
    CARD_LOADS,
    CARD_MEMORY,
    COMPUTE,
    EXPECTED_CPU,
    IN_USE,
    LOADS,
    NETWORK_LOADS,
    NOT_MEASURED,
)

ColumnsOf = Callable[[int], Mapping[str, int]]  # row -> UUID -> column
Shown = tuple[int, int, int]  # as `rows.shown`

SORTS = (LOADS, CARD_LOADS, NETWORK_LOADS)
MOST_LOAD = 10**6  # per mille: policies may multiply and add without overflow
WINDOW = 60.0  # seconds: a pod that came so late before a measurement is not shown by it (Trimaran's metrics window)
MAX_KEPT_TIMES = 64  # measurements of a node within the window whose expectations are kept


class Measured(NamedTuple):
    """What is known of a row: its last measurement, and what its pods were expected to use at earlier ones."""

    signals: NodeSignals
    expected: tuple[tuple[float, Shown], ...]  # (measured at, what pods on the row were expected to use), by time


class SignalRows:
    """The last measurement of each active node. A node or card that is gone has none, also after it comes back."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[int, Measured] = {}  # by row
        self._sorts: dict[int, int] = {}  # row -> the sorts of measurement that it has, as bits
        self._rows = dict.fromkeys(SORTS, 0)  # sort of measurement -> number of rows that have it
        self.sorts = 0  # the sorts of measurement that some row has, as bits
        self._before: list[tuple[int, Measured | None]] = []  # while a transaction is open: (row, what was known)

    def of(self, row: int) -> NodeSignals | None:
        known = self._known.get(row)
        return None if known is None else known.signals

    def measure(self, row: int, signals: NodeSignals, columns: Mapping[str, int], undoable: bool) -> None:
        """Keep a measurement, unless a later one is known. The row is marked as changed if the values are new."""
        known = self._known.get(row)
        if known is not None and signals.measured_at < known.signals.measured_at:
            return
        if undoable:
            self._before.append((row, known))
        earlier = () if known is None else known.expected
        now = (signals.measured_at, self._expected(row))
        self._put(row, Measured(signals, _within_window(earlier, now)), columns)

    def all(self) -> Iterator[tuple[int, Measured]]:
        """(row, what is known of it)."""
        yield from self._known.items()

    def restore(self, row: int, known: Measured, columns: Mapping[str, int]) -> None:
        """Take over what another ledger knew of the row."""
        self._put(row, known, columns)

    def write(self, row: int, active: bool, columns_of: ColumnsOf) -> None:
        """Write the measurement again after the row was written, perhaps with other cards in other columns."""
        known = self._known.get(row)
        if known is not None:  # else the arrays are already empty
            self._lay_out(row, known if active else None, columns_of(row))

    def forget(self, row: int) -> None:
        """Forget the measurement of a row that is removed."""
        self._known.pop(row, None)
        self._count(row, 0)

    def watch(self, depth: int, columns_of: ColumnsOf) -> Callable[[], None]:
        """Called when a transaction starts, the `depth`-th open one.

        Returns a function that undoes its measurements.
        """
        if depth == 1:
            self._before.clear()
        mark = len(self._before)

        def undo() -> None:
            while len(self._before) > mark:
                row, known = self._before.pop()
                if row in self._known:  # else the node left meanwhile, and its measurement is forgotten
                    self._put(row, known, columns_of(row))

        return undo

    def _expected(self, row: int) -> Shown:
        """What the pods of the row are expected to use now."""
        rows = self._storage.rows
        sums = rows.sums[row]
        return int(rows.scored[row, EXPECTED_CPU]), int(sums[IN_USE + COMPUTE]), int(sums[IN_USE + CARD_MEMORY])

    def _put(self, row: int, known: Measured | None, columns: Mapping[str, int]) -> None:
        rows = self._storage.rows
        arrays = (rows.signal, rows.card_signal, rows.shown)
        before = [array[row].tobytes() for array in arrays]
        self._lay_out(row, known, columns)
        if before != [array[row].tobytes() for array in arrays]:
            touch_measured(self._storage.vectors.arrays, self._storage.heads, row)

    def _lay_out(self, row: int, known: Measured | None, columns: Mapping[str, int]) -> None:
        """Write the arrays and keep the measurement, without cards that the row does not have."""
        rows = self._storage.rows
        rows.signal[row] = rows.card_signal[row] = NOT_MEASURED
        rows.shown[row] = 0
        if known is None:
            self.forget(row)
            return
        signals = known.signals
        cards = {card.uuid: card for card in signals.cards if card.uuid in columns}
        self._known[row] = known._replace(signals=msgspec.structs.replace(signals, cards=tuple(cards.values())))
        rows.signal[row] = node_values(signals)
        rows.shown[row] = known.expected[0][1]
        for uuid, card in cards.items():
            values = (card.compute, card.memory, card.compute_deviation, card.memory_deviation)
            rows.card_signal[row, columns[uuid]] = [bounded(value) for value in values]
        self._count(row, sorts_of(self._known[row].signals))

    def _count(self, row: int, sorts: int) -> None:
        """Note which sorts of measurement the row has now."""
        before = self._sorts.pop(row, 0)
        if sorts:
            self._sorts[row] = sorts
        for sort in SORTS:
            self._rows[sort] += bool(sorts & sort) - bool(before & sort)
        self.sorts = sum(sort for sort, rows in self._rows.items() if rows)


def sorts_of(signals: NodeSignals) -> int:
    """The sorts of measurement that these signals have, as bits."""
    loads = signals.cpu is not None or signals.memory is not None
    cards = any(card.compute is not None or card.memory is not None for card in signals.cards)
    network = signals.network_kbit is not None and bool(signals.network_capacity_kbit)
    return LOADS * loads | CARD_LOADS * cards | NETWORK_LOADS * network


def node_values(signals: NodeSignals) -> list[int]:
    """A measurement as a row of `rows.signal`."""
    loads = (signals.cpu, signals.cpu_deviation, signals.memory, signals.memory_deviation, signals.disk)
    network = (signals.network_kbit, signals.network_capacity_kbit)
    return [bounded(value) for value in loads] + [bounded(value, MAX_NETWORK_KBIT) for value in network]


def bounded(value: int | None, most: int = MOST_LOAD) -> int:
    return NOT_MEASURED if value is None else max(0, min(value, most))


def _within_window(
    earlier: tuple[tuple[float, Shown], ...], now: tuple[float, Shown]
) -> tuple[tuple[float, Shown], ...]:
    """The expectations to keep: from the last one that is older than the window on. The first is what `now` shows."""
    kept = (*earlier, now)
    while len(kept) > 1 and (kept[1][0] <= now[0] - WINDOW or len(kept) > MAX_KEPT_TIMES):
        kept = kept[1:]
    return kept
