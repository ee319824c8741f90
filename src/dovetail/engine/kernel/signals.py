"""For policies that read measured load: rows with a new measurement are scored and checked again, like changed rows.

engine/kernel/build.py replaces functions of place.py and choose.py by these. For other policies a measurement changes
no score and costs nothing.
"""

from __future__ import annotations

from dovetail.engine.kernel.place import look_again, score_again
from dovetail.engine.kernel.state import Batch, State
from dovetail.policies.rows import CARD_LOAD, CARD_MEMORY_LOAD, Rows


def score_again_measured(state: State, batch: Batch, k: int, u: int, start: int) -> None:
    """Replaces `score_measured`."""
    score_again(state, batch, k, u, start, state.vectors.measured_older, state.vectors.measured)


def look_again_at_measured(state: State, batch: Batch, k: int, u: int, v: int, start: int) -> None:
    """Replaces `look_at_measured`."""
    look_again(state, batch, k, u, v, start, state.vectors.measured_older, state.vectors.measured)


def load_of(rows: Rows, i: int, d: int) -> tuple[int, int]:
    """Replaces `card_load`."""
    return rows.card_signal[i, d, CARD_LOAD], rows.card_signal[i, d, CARD_MEMORY_LOAD]
