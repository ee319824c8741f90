"""Fragmentation gradient descent: the node and the card where typical pods lose least (Weng et al., USENIX ATC 2023).

Score = ⌊100 · sigmoid(fragments before − after, in GPUs)⌋: steps of about 40 milli, so that ties are common and the
order of nodes packs. Nodes with cards of several kinds are judged by the kind of their first card.
"""

from __future__ import annotations

from math import exp

from dovetail.policies.cards import WHOLE, milli_on
from dovetail.policies.outlook import (
    TOTAL,
    share_line,
    step_of,
    usable,
    usable_part,
    usable_whole,
    whole_line,
)
from dovetail.policies.rows import ASK_COUNT, CARDS, CPU, KIND, Ints, NodePolicy, Rows, Wants


def points(gain: int, total: int) -> float:
    """`gain` is in milli times the number of typical pods."""
    return float(int(100.0 / (1.0 + exp(-gain / (1000.0 * max(1, total))))))


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, fitting: Ints, fits: int, chosen: Ints
) -> float:
    outlook, cards = rows.outlook, rows.fact[i, CARDS]
    if cards == 0:
        return points(0, 1)
    total, kind, cpu = outlook[TOTAL], rows.card[i, 0, KIND], rows.cap[i, CPU] - rows.used[i, CPU]
    step = step_of(outlook, cpu - wants.need[s, CPU])
    share, whole = share_line(outlook, kind, step), whole_line(outlook, kind, step)
    idle, parts = 0, 0  # with the pod's CPU gone and its cards still there
    for d in range(cards):
        parts += usable_part(outlook, share, left[d])
        idle += left[d] == WHOLE
    gain = parts - usable(outlook, kind, cpu, left, cards)
    if a < 0:
        return points(gain + usable_whole(outlook, whole, idle), total)
    if wants.ask[a, ASK_COUNT] > 1:
        for n in range(wants.ask[a, ASK_COUNT]):
            d = fitting[n]
            chosen[n] = d
            need = milli_on(rows, wants, i, d, a)
            gain += need * total + usable_part(outlook, share, left[d] - need) - usable_part(outlook, share, left[d])
            idle -= left[d] == WHOLE
        return points(gain + usable_whole(outlook, whole, idle), total)
    all_idle, one_less = usable_whole(outlook, whole, idle), usable_whole(outlook, whole, max(0, idle - 1))
    best, high = 0, -1.0
    for n in range(fits):
        d = fitting[n]
        need = milli_on(rows, wants, i, d, a)
        change = need * total + usable_part(outlook, share, left[d] - need) - usable_part(outlook, share, left[d])
        change += one_less if left[d] == WHOLE else all_idle
        if high < 0 or change > best:
            best = change
            if points(gain + change, total) > high:
                high, chosen[0] = points(gain + change, total), d
    return high


POLICY = NodePolicy("fgd", "Node and card where typical pods lose least to fragments (FGD, ATC 2023).", offer=offer)
