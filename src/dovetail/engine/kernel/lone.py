"""What a call need not be able to do when it places lone pods, with one ask at the most, outside any transaction.

That is nearly every call, and half the code: compiling it can wait until somebody needs the rest.
"""

from __future__ import annotations

from dovetail.engine.kernel.fit import node_shortage
from dovetail.engine.kernel.state import NONE, Scratch, State
from dovetail.policies.rows import Ints, Rows, Wants


def remember_nothing(state: State, slot: int) -> None:
    """In the place of `remember`: nothing will be rolled back."""


def roll_nothing_back(state: State, start: int) -> None:
    """In the place of `roll_back`: a lone pod is placed or not."""


def choose_never(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """In the place of `choose_one_by_one`: there is one ask, which the policy chooses for."""
    return NONE


def shortage(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """In the place of `node_refusal`, for pods without an ask: cards are no matter."""
    return node_shortage(rows, wants, i, s)
