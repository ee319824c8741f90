"""Measured load by row. Knows what was measured and where it is written, not who measures or who reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dovetail.engine.kernel.book import touch_measured
from dovetail.engine.ledger.storage import Storage
from dovetail.model.signals import NodeSignals
from dovetail.policies.rows import NOT_MEASURED

ColumnsOf = Callable[[int], Mapping[str, int]]  # row -> UUID -> column

MOST_LOAD = 10**6  # per mille: policies may multiply and add without a look at what was sent


class SignalRows:
    """The last measurement of each node that is there. A node that is gone has none, nor has one that comes back; the
    same holds for a card."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[int, NodeSignals] = {}  # row -> its last measurement
        self._before: list[tuple[int, NodeSignals | None]] = []  # while a transaction is open: (row, what was known)

    def of(self, row: int) -> NodeSignals | None:
        return self._known.get(row)

    def measure(self, row: int, signals: NodeSignals, columns: Mapping[str, int], undoable: bool) -> None:
        """Keep a measurement, unless a later one is known. The row moves where it says something new."""
        known = self._known.get(row)
        if known is not None and signals.measured_at < known.measured_at:
            return
        if undoable:
            self._before.append((row, known))
        self._put(row, signals, columns)

    def write(self, row: int, active: bool, columns_of: ColumnsOf) -> None:
        """The row is written anew, perhaps with other cards in other columns, and moves for that reason."""
        known = self._known.get(row)
        if known is not None:  # else its arrays say so already
            self._lay_out(row, known if active else None, columns_of(row))

    def forget(self, row: int) -> None:
        """The row is taken away."""
        self._known.pop(row, None)

    def watch(self, depth: int, columns_of: ColumnsOf) -> Callable[[], None]:
        """A transaction starts, the `depth`-th of those that are open: returns how to undo what is measured in it."""
        if depth == 1:
            self._before.clear()
        mark = len(self._before)

        def undo() -> None:
            while len(self._before) > mark:
                row, known = self._before.pop()
                if row in self._known:  # else the node left meanwhile, and nothing is known of it
                    self._put(row, known, columns_of(row))

        return undo

    def _put(self, row: int, signals: NodeSignals | None, columns: Mapping[str, int]) -> None:
        rows = self._storage.rows
        before = rows.signal[row].tobytes(), rows.card_signal[row].tobytes()
        self._lay_out(row, signals, columns)
        if before != (rows.signal[row].tobytes(), rows.card_signal[row].tobytes()):
            touch_measured(self._storage.state(), row)

    def _lay_out(self, row: int, signals: NodeSignals | None, columns: Mapping[str, int]) -> None:
        """Write the arrays, and keep what they are made of: nothing of cards that the row does not have."""
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
