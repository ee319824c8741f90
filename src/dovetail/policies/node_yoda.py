"""Yoda: cards with high bandwidth, clock, cores, power and free memory, compared with the best of all candidates.

Written from a description of the project's behaviour; it has no licence. `yoda` mends its named mistakes: the clock is
compared with the highest clock, and a node counts by the mean of its cards. `yoda-as-written` keeps them: the clock is
compared with the highest bandwidth, and the cards of a node add up, so nodes with many cards win.
"""

from __future__ import annotations

from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_VENDOR,
    BANDWIDTH,
    CARD_MEMORY,
    CARD_MEMORY_LOAD,
    CARD_VENDOR,
    CARDS,
    CLOCK,
    CORES,
    FIRST_ASK,
    FREE_MEMORY,
    IN_USE,
    LAST_ASK,
    POWER,
    Floats,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

Maxima = tuple[int, int, int, int, int, int]  # bandwidth, clock, cores, power, free memory, memory
ALLOCATED_WEIGHT, FREE_WEIGHT, CARD_FREE_WEIGHT = 3, 2, 2


def free_memory(rows: Rows, i: int, d: int) -> int:
    """MiB of the card that are free as measured; without a measurement, that no pod asked for."""
    size, load = rows.card[i, d, CARD_MEMORY], rows.card_signal[i, d, CARD_MEMORY_LOAD]
    if load >= 0:
        return int(max(0, size - size * load // 1000))
    return int(max(0, size - rows.held[i, d, CARD_MEMORY]))


def counts(rows: Rows, i: int, wants: Wants, a: int, d: int) -> bool:
    """Whether the card could serve the ask by vendor, health and free memory."""
    enough = rows.free[i, d, FREE_MEMORY] >= memory_on(rows, wants, i, d, a)
    return bool(enough and rows.card[i, d, CARD_VENDOR] == wants.ask[a, ASK_VENDOR])


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """What does not depend on other nodes: memory that no pod asked for, and memory that is free."""
    total, free = 0, 0
    if wants.shape[s, FIRST_ASK] == wants.shape[s, LAST_ASK]:
        return 0.0
    for d in range(rows.fact[i, CARDS]):
        total += rows.card[i, d, CARD_MEMORY]
        free += free_memory(rows, i, d)
    if total == 0:
        return 0.0
    unasked = max(0, total - rows.sums[i, IN_USE + CARD_MEMORY])
    return float(ALLOCATED_WEIGHT * (100 * unasked // total) + FREE_WEIGHT * (100 * free // total))


def highest(rows: Rows, candidates: Ints, count: int, wants: Wants, a: int) -> Maxima:
    """The highest values over the cards of all candidates that could serve the ask; at least 1."""
    bandwidth, clock, cores, power, free, size = 1, 1, 1, 1, 1, 1
    for n in range(count):
        i = candidates[n]
        for d in range(rows.fact[i, CARDS]):
            if counts(rows, i, wants, a, d):
                spec = rows.spec[i, d]
                bandwidth, clock = max(bandwidth, spec[BANDWIDTH]), max(clock, spec[CLOCK])
                cores, power = max(cores, spec[CORES]), max(power, spec[POWER])
                free, size = max(free, free_memory(rows, i, d)), max(size, rows.card[i, d, CARD_MEMORY])
    return bandwidth, clock, cores, power, free, size


def card_points(rows: Rows, i: int, d: int, best: Maxima, clock_limit: int) -> int:
    """The sum of the card's values, each in per cent of the highest; free memory counts twice."""
    spec = rows.spec[i, d]
    points = 100 * spec[BANDWIDTH] // best[0] + 100 * spec[CLOCK] // clock_limit
    points += 100 * spec[CORES] // best[2] + 100 * spec[POWER] // best[3]
    points += CARD_FREE_WEIGHT * (100 * free_memory(rows, i, d) // best[4])
    return int(points + 100 * rows.card[i, d, CARD_MEMORY] // best[5])


def add_cards(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, points: Floats, as_written: bool) -> None:
    """Add the points of the cards: their mean, or as written their sum."""
    a = wants.shape[s, FIRST_ASK]
    if a == wants.shape[s, LAST_ASK]:
        return
    best = highest(rows, candidates, count, wants, a)
    clock_limit = best[0] if as_written else best[1]
    for n in range(count):
        total, cards = 0, 0
        for d in range(rows.fact[candidates[n], CARDS]):
            if counts(rows, candidates[n], wants, a, d):
                total += card_points(rows, candidates[n], d, best, clock_limit)
                cards += 1
        points[n] += float(total if as_written else total // max(1, cards))


def normalise(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats) -> None:
    add_cards(rows, candidates, count, wants, s, points, False)


def normalise_as_written(
    rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats
) -> None:
    add_cards(rows, candidates, count, wants, s, points, True)


POLICY = NodePolicy(
    "yoda",
    "Fast cards with much free memory first, compared with the best card of all nodes that fit.",
    score,
    normalise=normalise,
    reads_signals=True,
)
AS_WRITTEN = NodePolicy(
    "yoda-as-written",
    "As yoda, with the mistakes of the original: many cards and high clocks win.",
    score,
    normalise=normalise_as_written,
    reads_signals=True,
)
