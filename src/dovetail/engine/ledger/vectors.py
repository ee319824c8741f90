"""Storage for kept scores and candidates, by key; the least recently used are dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from dovetail.engine.kernel.state import BLOCK, INACTIVE, NONE, Vectors
from dovetail.engine.ledger.intern import MOST_HARDWARE

BUDGET = 192 * 2**20  # bytes
MAX_VECTORS = 2048
FIRST_VECTORS = 512  # memory that is not written costs nothing; copying to a larger array touches all of it again


class VectorRoom:
    """Gives out vector numbers. Number 0 is never given out."""

    def __init__(self, rows: int) -> None:
        self._slots: OrderedDict[Hashable, int] = OrderedDict()
        self.epoch = 0  # grows whenever everything kept is forgotten
        self.resize(rows)

    def resize(self, rows: int) -> None:
        """Make room for more rows; everything kept is forgotten."""
        rows = -(-rows // BLOCK) * BLOCK
        self.epoch += 1
        self._slots.clear()
        self.limit = max(8, min(MAX_VECTORS, BUDGET // (rows * 10)))
        self.arrays = _arrays(min(FIRST_VECTORS, self.limit), rows)

    def slot(self, key: Hashable) -> int:
        """The vector of this key: its own, or that of the least recently used key."""
        slot = self._slots.get(key)
        if slot is not None:
            self._slots.move_to_end(key)
            return slot
        if len(self._slots) + 1 < self.limit:
            slot = len(self._slots) + 1
            if slot >= len(self.arrays.seen):
                self._add_room()
        else:
            _, slot = self._slots.popitem(last=False)
        self._slots[key] = slot
        self.arrays.seen[slot] = self.arrays.scored[slot] = NONE
        return slot

    def clear(self) -> None:
        """Give out all vectors again: the numbers in their keys have changed."""
        self._slots.clear()
        self.forget()

    def forget(self) -> None:
        """Drop all kept values: everything is scored again."""
        self.epoch += 1
        self.arrays.seen[:] = self.arrays.scored[:] = NONE

    def reset(self, slot: int) -> None:
        """Drop what is kept in one vector."""
        self.arrays.seen[slot] = self.arrays.scored[slot] = NONE

    def _add_room(self) -> None:
        old = self.arrays
        count, rows = len(old.seen), old.score.shape[1]
        new = _arrays(min(2 * count, self.limit), rows)
        new.score[:count], new.scored[:count], new.refused[:count] = old.score, old.scored, old.refused
        new.best[:count], new.high[:count], new.seen[:count] = old.best, old.high, old.seen
        new.leader[:count], new.most[:count] = old.leader, old.most
        new.tally[:count], new.tallied[:count] = old.tally, old.tallied
        new.stamp[:], new.older[:], new.newer[:] = old.stamp, old.older, old.newer
        new.measured[:] = old.measured
        new.measured_older[:], new.measured_newer[:] = old.measured_older, old.measured_newer
        self.arrays = new


def _arrays(count: int, rows: int) -> Vectors:
    blocks = rows // BLOCK
    quarters = -(-blocks // BLOCK)
    return Vectors(
        score=np.empty((count, rows)),  # written before it is read, like the following arrays
        scored=np.full(count, NONE, dtype=np.int64),
        refused=np.empty((count, rows), dtype=np.uint8),
        best=np.empty((count, blocks), dtype=np.int64),
        high=np.empty((count, blocks)),
        leader=np.empty((count, quarters), dtype=np.int64),
        most=np.empty((count, quarters)),
        seen=np.full(count, NONE, dtype=np.int64),
        tally=np.empty((count, INACTIVE + 1), dtype=np.int64),
        tallied=np.zeros(count, dtype=np.int64),
        stamp=np.full(rows, NONE, dtype=np.int64),
        older=np.full(rows + 1, rows, dtype=np.int64),
        newer=np.full(rows + 1, rows, dtype=np.int64),
        measured=np.full(rows, NONE, dtype=np.int64),
        measured_older=np.full(rows + 1, rows, dtype=np.int64),
        measured_newer=np.full(rows + 1, rows, dtype=np.int64),
        spoilt=np.zeros(rows, dtype=np.int64),
        stale=np.zeros(quarters, dtype=np.int64),
        example=np.zeros(MOST_HARDWARE, dtype=np.int64),
        candidates=np.zeros(rows, dtype=np.int64),
        points=np.zeros(rows),
    )
