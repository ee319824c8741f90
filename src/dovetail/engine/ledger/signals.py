"""Measured load by row: the last measurements, and their place in the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dovetail.engine.kernel.book import touch_measured
from dovetail.engine.ledger.storage import Storage
from dovetail.model.signals import NodeSignals
from dovetail.policies.rows import NOT_MEASURED

ColumnsOf = Callable[[int], Mapping[str, int]]  # row -> UUID -> column

MOST_LOAD = 10**6  # per mille: policies may multiply and add without overflow


class SignalRows:
    """The last measurement of each active node. A node or card that is gone has none, also after it comes back."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[int, NodeSignals] = {}  # row -> its last measurement
        self._before: list[tuple[int, NodeSignals | None]] = []  # while a transaction is open: (row, what was known)

    def of(self, row: int) -> NodeSignals | None:
        return self._known.get(row)

    def measure(self, row: int, signals: NodeSignals, columns: Mapping[str, int], undoable: bool) -> None:
        """Keep a measurement, unless a later one is known. The row is marked as changed if the values are new."""
        known = self._known.get(row)
        if known is not None and signals.measured_at < known.measured_at:
            return
        if undoable:
            self._before.append((row, known))
        self._put(row, signals, columns)

    def write(self, row: int, active: bool, columns_of: ColumnsOf) -> None:
        """Write the measurement again after the row was written, perhaps with other cards in other columns."""
        known = self._known.get(row)
        if known is not None:  # else the arrays are already empty
            self._lay_out(row, known if active else None, columns_of(row))

    def forget(self, row: int) -> None:
        """Forget the measurement of a row that is removed."""
        self._known.pop(row, None)

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

    def _put(self, row: int, signals: NodeSignals | None, columns: Mapping[str, int]) -> None:
        rows = self._storage.rows
        before = rows.signal[row].tobytes(), rows.card_signal[row].tobytes()
        self._lay_out(row, signals, columns)
        if before != (rows.signal[row].tobytes(), rows.card_signal[row].tobytes()):
            touch_measured(self._storage.state(), row)

    def _lay_out(self, row: int, signals: NodeSignals | None, columns: Mapping[str, int]) -> None:
        """Write the arrays and keep the measurement, without cards that the row does not have."""
        rows = self._storage.rows
        rows.signal[row] = rows.card_signal[row] = NOT_MEASURED
        if signals is None:
            self._known.pop(row, None)
            return
        cards = {card.uuid: card for card in signals.cards if card.uuid in columns}
        self._known[row] = msgspec.structs.replace(signals, cards=tuple(cards.values()))
        measured = (signals.cpu, signals.cpu_deviation, signals.memory, signals.memory_deviation)
        rows.signal[row] = [_bounded(value) for value in measured]
        for uuid, card in cards.items():
            rows.card_signal[row, columns[uuid]] = _bounded(card.compute), _bounded(card.memory)


def _bounded(value: int | None) -> int:
    return NOT_MEASURED if value is None else max(0, min(value, MOST_LOAD))
