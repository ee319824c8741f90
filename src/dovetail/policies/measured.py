"""Measured load of a node and what a measurement does not show yet, for policies that read signals.

Parts are fractions: 1.0 = all of what the node has. A pod that came after the measurement, or shortly before it, is
added with what it is expected to use, as Trimaran's TargetLoadPacking does it.
"""

from __future__ import annotations

from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CPU_COLUMN,
    CPU_LOAD,
    EXPECTED_CPU,
    FIRST_ASK,
    IN_USE,
    LAST_ASK,
    NOT_MEASURED,
    SHOWN_CARD_MEMORY,
    SHOWN_COMPUTE,
    SHOWN_CPU,
    Rows,
    Wants,
)

UNKNOWN = -1.0  # nothing is measured
PER_MILLE = 1000.0


def cpu_with(rows: Rows, i: int, wants: Wants, s: int) -> float:
    """The part of the node's CPU in use once the pod runs there, or UNKNOWN."""
    cap = float(rows.cap[i, CPU_COLUMN])
    if rows.signal[i, CPU_LOAD] == NOT_MEASURED or cap == 0.0:
        return UNKNOWN
    return (
        float(rows.signal[i, CPU_LOAD]) / PER_MILLE + (unseen_cpu(rows, i) + float(wants.scored[s, EXPECTED_CPU])) / cap
    )


def unseen_cpu(rows: Rows, i: int) -> float:
    """CPU milli that pods will likely use which the measurement of the node does not show yet."""
    return float(max(0, rows.scored[i, EXPECTED_CPU] - rows.shown[i, SHOWN_CPU]))


def unseen_of_cards(rows: Rows, i: int, size: int) -> float:
    """Compute in milli, or memory in MiB, that pods ask for which the measurement of the node does not show yet."""
    shown = rows.shown[i, SHOWN_COMPUTE if size == COMPUTE else SHOWN_CARD_MEMORY]
    return float(max(0, rows.sums[i, IN_USE + size] - shown))


def mean_of_cards(rows: Rows, i: int, signal: int, size: int) -> float:
    """The mean of a signal over the node's measured cards, weighted by their size (COMPUTE or CARD_MEMORY)."""
    total, loaded = 0.0, 0.0
    for d in range(rows.fact[i, CARDS]):
        if rows.card_signal[i, d, signal] != NOT_MEASURED:
            total += float(rows.card[i, d, size])
            loaded += rows.card_signal[i, d, signal] / PER_MILLE * float(rows.card[i, d, size])
    return loaded / total if total > 0.0 else UNKNOWN


def asked_of_cards(rows: Rows, i: int, wants: Wants, s: int, size: int) -> float:
    """What the pod asks of the node's cards together: compute in milli, or memory in MiB of its first card."""
    asked = 0
    if rows.fact[i, CARDS] > 0:
        for a in range(wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]):
            each = wants.ask[a, ASK_COMPUTE] if size == COMPUTE else memory_on(rows, wants, i, 0, a)
            asked += wants.ask[a, ASK_COUNT] * each
    return float(asked)


def cards_with(rows: Rows, i: int, wants: Wants, s: int, signal: int, size: int) -> float:
    """The part of the node's cards in use once the pod runs there, by this signal, or UNKNOWN."""
    part, total = mean_of_cards(rows, i, signal, size), float(rows.sums[i, size])
    if part < 0.0 or total == 0.0:
        return UNKNOWN
    return part + (unseen_of_cards(rows, i, size) + asked_of_cards(rows, i, wants, s, size)) / total


assert (CARD_MEMORY, COMPUTE) == (1, 2)  # columns of `card` and of `sums`
