"""Fragmentation gradient descent: the node and the card where typical pods lose least (Weng et al., USENIX ATC 2023).

Score = ⌊100 · sigmoid(fragments before − after, in GPUs)⌋: steps of about 40 milli. So ties are common, and the order
of nodes packs. A node with several kinds of card is scored by the kind of its first card.
"""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import milli_on
from dovetail.policies.idle import cpu_left
from dovetail.policies.outlook import (
    POINTS_AT,
    TOTAL,
    points_of,
    share_line,
    step_of,
    usable,
    usable_part,
    usable_whole,
    whole_line,
)
from dovetail.policies.rows import ASK_COUNT, CARD_KIND, CARDS, CPU_COLUMN, Ints, NodePolicy, Rows, Wants


def worth(rows: Rows, i: int) -> float:
    """What typical pods can use of the node as it is."""
    cards = rows.fact[i, CARDS]
    if cards == 0:
        return 0.0
    return float(usable(rows.outlook, rows.card[i, 0, CARD_KIND], cpu_left(rows, i), rows.left[i], cards))


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    outlook, cards = rows.outlook, rows.fact[i, CARDS]
    if cards == 0:
        return 50.0  # no gain and no loss
    total, kind = outlook[TOTAL], rows.card[i, 0, CARD_KIND]
    step = step_of(outlook, cpu_left(rows, i) - wants.need[s, CPU_COLUMN])
    share, whole = share_line(outlook, kind, step), whole_line(outlook, kind, step)
    idle, gain = 0, -int(worth)
    for d in range(cards):  # after the pod takes its CPU, before it takes its cards
        gain += usable_part(outlook, share, left[d])
        idle += left[d] == WHOLE_CARD
    if a < 0:
        return float(points_of(outlook, gain + usable_whole(outlook, whole, idle)))
    need = milli_on(rows, wants, i, fitting[0], a)
    gain += wants.ask[a, ASK_COUNT] * need * total
    if wants.ask[a, ASK_COUNT] > 1:
        for n in range(wants.ask[a, ASK_COUNT]):
            d = fitting[n]
            chosen[n] = d
            gain += change(outlook, share, left[d], need)
            idle -= left[d] == WHOLE_CARD
        return float(points_of(outlook, gain + usable_whole(outlook, whole, idle)))
    busy, fresh = usable_whole(outlook, whole, idle), usable_whole(outlook, whole, max(0, idle - 1))
    best = gain + change(outlook, share, left[fitting[0]], need) + (fresh if left[fitting[0]] == WHOLE_CARD else busy)
    for n in range(1, fits):
        d = fitting[n]
        if left[d] != left[fitting[n - 1]]:
            best = max(best, gain + change(outlook, share, left[d], need) + (fresh if left[d] == WHOLE_CARD else busy))
    points = points_of(outlook, best)
    for n in range(fits):  # among cards with equal points, the first
        d = fitting[n]
        now = gain + change(outlook, share, left[d], need) + (fresh if left[d] == WHOLE_CARD else busy)
        if now >= outlook[outlook[POINTS_AT] + points]:
            chosen[0] = d
            break
    return float(points)


def change(outlook: Ints, share: int, left: int, need: int) -> int:
    """The change of what typical pods can use of a card if `need` is taken."""
    return usable_part(outlook, share, max(0, left - need)) - usable_part(outlook, share, left)


POLICY = NodePolicy(
    "fgd", "Node and card where typical pods lose least to fragments (FGD, ATC 2023).", offer=offer, worth=worth
)
