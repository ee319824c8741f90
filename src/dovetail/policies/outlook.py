"""The expected workload as tables for joint policies: FGD's typical workload in closed form.

For a node with `c` CPU left, `f` idle cards and `left[g]` milli on card g, a typical pod can use

    Σ_g left[g] · share(kind, c, left[g])  +  1000 · f · whole(kind, c, f)

of what is idle there. `share` counts the typical pods that ask for a part of a card that fits `left[g]`. `whole` counts
those that ask for up to `f` whole cards. Both count only pods that need at most `c` CPU and accept the kind. The rest
is fragments (Weng et al., USENIX ATC 2023). The sums over pods are two tables of counts, so the arithmetic is exact.
All values are integers; divide by `total` pods and 1000 milli to get GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import Ints
from dovetail.policies.typical import TypicalPod
from dovetail.policies.values import GPU, card_values, cpu_factors, prices

# Header of the tables.
TOTAL, KINDS, STEPS, LEVELS, MOST_CARDS = range(5)
STEPS_AT, LEVEL_AT, SHARE_AT, WHOLE_AT, POINTS_AT, VALUE_AT, FACTOR_AT, KEEP_AT, PRICE_AT = range(5, 14)
HEADER = 16
KEEP_WHOLE = 0.06  # the value of an idle card for pods that want whole ones, beyond its own value


def tables(typical: Sequence[TypicalPod], kinds: int, most_cards: int, capacity: Sequence[int] | None = None) -> Ints:
    """The tables of a typical workload, for a cluster with `kinds` kinds of card and at most `most_cards` per node.

    With the capacity of each kind, in milli, also the tables of policies/values.py.
    """
    steps = sorted({pod.cpu for pod in typical if pod.cards > 0})
    levels = sorted({milli for pod in typical for _, milli in pod.parts if milli < WHOLE_CARD})
    share = np.zeros((kinds, len(steps) + 1, len(levels) + 1), dtype=np.int64)
    whole = np.zeros((kinds, len(steps) + 1, most_cards + 1), dtype=np.int64)
    for pod in typical:
        for kind, milli in pod.parts:
            step = steps.index(pod.cpu) + 1
            if milli < WHOLE_CARD:
                share[kind, step:, levels.index(milli) + 1 :] += pod.times
            elif pod.cards <= most_cards:
                whole[kind, step:, pod.cards :] += pod.times
    level_of = np.searchsorted(np.array(levels, dtype=np.int64), np.arange(WHOLE_CARD + 1), side="right")
    total = sum(pod.times for pod in typical)
    parts = [np.array(steps, dtype=np.int64), level_of, share.ravel(), whole.ravel(), thresholds(total)]
    if capacity is not None:
        keep = np.rint(KEEP_WHOLE * GPU * np.arange(most_cards + 1) * whole / max(1, total))
        parts += [card_values(typical, kinds).ravel(), cpu_factors(typical, kinds).ravel()]
        parts += [keep.ravel(), prices(typical, capacity)]
    starts = HEADER + np.cumsum([0, *(len(part) for part in parts)])
    header = np.zeros(HEADER, dtype=np.int64)
    header[TOTAL] = total
    header[KINDS], header[STEPS], header[LEVELS], header[MOST_CARDS] = kinds, len(steps), len(levels), most_cards
    header[STEPS_AT : STEPS_AT + len(parts)] = starts[:-1]
    return np.concatenate([header, *parts]).astype(np.int64)


def thresholds(total: int) -> Ints:
    """[p]: the least gain, in milli times the number of pods, that gives p of FGD's ⌊100 · sigmoid(gain)⌋ points."""
    unit = 1000 * max(1, total)
    found = []
    for p in range(101):
        low, high = -64 * unit, 64 * unit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if int(100.0 / (1.0 + exp(-middle / unit))) >= p else (middle, high)
        found.append(high)
    return np.array(found, dtype=np.int64)


def how_many(outlook: Ints, start: int, count: int, amount: int) -> int:
    """How many of `count` rising numbers from `start` are at most `amount`.

    Halving without branches: a branch that the processor predicts wrongly costs more than a load.
    """
    at = start
    while count > 0:
        half = (count + 1) >> 1
        at += half * (outlook[at + half - 1] <= amount)
        count -= half
    return int(at - start)


def step_of(outlook: Ints, cpu: int) -> int:
    """The number of CPU steps that are at most `cpu`."""
    return how_many(outlook, outlook[STEPS_AT], outlook[STEPS], cpu)


def points_of(outlook: Ints, gain: int) -> int:
    """FGD's points for a gain, 0 to 100."""
    return max(0, how_many(outlook, outlook[POINTS_AT], int(np.int64(101)), gain) - 1)


def share_line(outlook: Ints, kind: int, step: int) -> int:
    """Position of the counts of parts of a card, for `usable_part`."""
    return int(outlook[SHARE_AT] + (kind * (outlook[STEPS] + 1) + step) * (outlook[LEVELS] + 1))


def whole_line(outlook: Ints, kind: int, step: int) -> int:
    return int(outlook[WHOLE_AT] + (kind * (outlook[STEPS] + 1) + step) * (outlook[MOST_CARDS] + 1))


def usable_part(outlook: Ints, line: int, left: int) -> int:
    """What typical pods can use of a card with `left` milli, times the number of pods."""
    return int(left * outlook[line + outlook[outlook[LEVEL_AT] + left]])


def usable_whole(outlook: Ints, line: int, idle: int) -> int:
    """What typical pods can use of `idle` idle cards, times the number of pods."""
    return int(WHOLE_CARD * idle * outlook[line + idle])


def usable(outlook: Ints, kind: int, cpu: int, left: Ints, cards: int) -> int:
    """What typical pods can use of a node, in milli times the number of pods."""
    step = step_of(outlook, cpu)
    line, idle, total = share_line(outlook, kind, step), 0, 0
    for d in range(cards):
        if left[d] > 0:
            total += usable_part(outlook, line, left[d])
            if left[d] == WHOLE_CARD:
                idle += 1
    return total + usable_whole(outlook, whole_line(outlook, kind, step), idle)
