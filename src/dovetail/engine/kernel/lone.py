"""Replacements for calls that place lone pods with at most one ask, outside any transaction.

Nearly every call is like this, and needs half of the code. The rest is compiled only when it is needed.
"""

from __future__ import annotations

from dovetail.engine.kernel.fit import node_shortage
from dovetail.engine.kernel.state import NONE, Scratch, State
from dovetail.policies.rows import Ints, Rows, Wants


def remember_nothing(state: State, slot: int) -> None:
    """Replaces `remember`: nothing will be rolled back."""


def roll_nothing_back(state: State, start: int) -> None:
    """Replaces `roll_back`: a lone pod is placed or not."""


def choose_never(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Replaces `choose_one_by_one`: there is one ask, and the policy chooses its cards."""
    return NONE


def shortage(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Replaces `node_refusal`, for pods without an ask: no cards to check."""
    return node_shortage(rows, wants, i, s)
