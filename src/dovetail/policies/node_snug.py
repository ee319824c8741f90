"""Dovetail's own joint policy: what is left keeps the most value for typical pods.

Value comes from whole cards, from parts that fit together, and from the CPU beside them. A node's worth is the sum of
its cards' values (policies/values.py: what the best mix of typical parts can make of what is left). It is reduced if
the CPU beside them is short, and increased for idle cards that pods with whole cards need. A pod goes to the node where
that sum loses least beyond what the pod takes. It pays more for kinds of card that other pods need exclusively, and for
using an idle node. Scores have steps of about 12 milli; among equal nodes the first wins. A node with several kinds of
card is scored by the kind of its first card.
"""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import milli_on
from dovetail.policies.idle import cpu_left
from dovetail.policies.outlook import FACTOR_AT, KEEP_AT, MOST_CARDS, PRICE_AT, STEPS, VALUE_AT, step_of
from dovetail.policies.rows import ASK_COUNT, CARD_KIND, CARDS, CPU_COLUMN, Ints, NodePolicy, Rows, Wants
from dovetail.policies.values import CPU_STEP, CPU_STEPS, GPU

OPENING = 2_500  # millionths of a GPU, for each card of an idle node
STEP = 12_000  # smaller differences, in millionths of a GPU, do not count
MOST_CPU = 10**9  # milli; more makes no difference, and products stay within 64 bits


def with_cpu(outlook: Ints, kind: int, value: int, cpu: int) -> int:
    """The value of the cards with this much CPU beside them."""
    if value <= 0:
        return 0
    step = max(0, min(cpu, MOST_CPU)) * (GPU // CPU_STEP) // value
    return int(value * outlook[outlook[FACTOR_AT] + kind * CPU_STEPS + min(step, CPU_STEPS - 1)]) >> 16


def keep_line(outlook: Ints, kind: int, cpu: int) -> int:
    """Position of the values of idle cards for pods that want whole ones."""
    step = step_of(outlook, cpu)
    return int(outlook[KEEP_AT] + (kind * (outlook[STEPS] + 1) + step) * (outlook[MOST_CARDS] + 1))


def worth(rows: Rows, i: int) -> float:
    outlook, cards = rows.outlook, rows.fact[i, CARDS]
    if cards == 0:
        return 0.0
    kind, cpu = rows.card[i, 0, CARD_KIND], cpu_left(rows, i)
    line = outlook[VALUE_AT] + kind * (WHOLE_CARD + 1)
    idle, value = 0, 0
    for d in range(cards):
        value += outlook[line + rows.left[i, d]]
        idle += rows.left[i, d] == WHOLE_CARD
    return float(with_cpu(outlook, kind, value, cpu) + outlook[keep_line(outlook, kind, cpu) + idle])


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    outlook, cards = rows.outlook, rows.fact[i, CARDS]
    if cards == 0:
        return 0.0
    kind, cpu = rows.card[i, 0, CARD_KIND], cpu_left(rows, i) - wants.need[s, CPU_COLUMN]
    line, keep = outlook[VALUE_AT] + kind * (WHOLE_CARD + 1), keep_line(outlook, kind, cpu)
    idle, value = 0, 0
    for d in range(cards):
        value += outlook[line + left[d]]
        idle += left[d] == WHOLE_CARD
    rest = -int(worth)
    if a < 0:
        return float((with_cpu(outlook, kind, value, cpu) + outlook[keep + idle] + rest) // STEP)
    need = milli_on(rows, wants, i, fitting[0], a)
    rest += (WHOLE_CARD - outlook[outlook[PRICE_AT] + kind]) * wants.ask[a, ASK_COUNT] * need
    if idle == cards:
        rest -= OPENING * cards
    if wants.ask[a, ASK_COUNT] > 1:
        for n in range(wants.ask[a, ASK_COUNT]):
            d = fitting[n]
            chosen[n] = d
            value += outlook[line + max(0, left[d] - need)] - outlook[line + left[d]]
            idle -= left[d] == WHOLE_CARD
        return float((with_cpu(outlook, kind, value, cpu) + outlook[keep + idle] + rest) // STEP)
    best, tightest = 0, WHOLE_CARD + 1
    for n in range(fits):
        now = left[fitting[n]]
        if n > 0 and now == left[fitting[n - 1]]:
            continue
        after = value + outlook[line + max(0, now - need)] - outlook[line + now]
        points = (with_cpu(outlook, kind, after, cpu) + outlook[keep + idle - (now == WHOLE_CARD)] + rest) // STEP
        if tightest > WHOLE_CARD or points > best or (points == best and now < tightest):
            best, tightest = points, now
            chosen[0] = fitting[n]
    return float(best)


POLICY = NodePolicy(
    "snug",
    "Node and card so that what is left stays worth most to typical pods (ours).",
    offer=offer,
    worth=worth,
    reads_values=True,
)
