"""Cards that are in use first, then idle cards of busy nodes, then idle nodes (as in the FGD paper)."""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import milli_on
from dovetail.policies.rows import ASK_COUNT, CARDS, FIRST_ASK, LAST_ASK, Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    first, cards = wants.shape[s, FIRST_ASK], rows.fact[i, CARDS]
    if first == wants.shape[s, LAST_ASK] or cards == 0:
        return 0.0
    need, idle, tightest = milli_on(rows, wants, i, 0, first), 0, WHOLE_CARD
    in_use = 0  # cards in use with room for the pod
    for d in range(cards):
        left = rows.left[i, d]
        if left == WHOLE_CARD:
            idle += 1
        elif left >= need:
            in_use += 1
            tightest = min(tightest, left)
    if idle == cards:
        return float(max(33 - cards, cards))
    count = wants.ask[first, ASK_COUNT]
    if count > in_use:
        return float(max(50 - (count - in_use), 33))
    return float(max(100 - tightest * 100 // WHOLE_CARD // 10, 50))


POLICY = NodePolicy("gpu-packing", "Cards in use first, then idle cards of busy nodes, then idle nodes.", score)
