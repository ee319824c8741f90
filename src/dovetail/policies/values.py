"""The value of idle parts of a cluster for typical pods: the tables of `snug`.

All values are in millionths of a GPU. Three questions, each answered by a table:

* What is the value of a card with this much left? The best mix of typical parts decides. It is the dual of the
  cutting-stock problem "cut cards into the parts that are asked for". An entropy term smooths it, so that patterns that
  are nearly as good count nearly as much. A remainder that no pod asks for has little value, however large it is.
* What part of that value can be used with this much CPU per GPU? Pods that need more CPU than is left beside the GPU
  lose the missing share of it.
* What do cards of this kind cost other pods? The more of the demand accepts no other kind, the more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import Ints
from dovetail.policies.typical import TypicalPod

GPU = 1_000_000
CUTS = 100  # a card is cut into hundredths
SMOOTHNESS = 0.006
ROUNDS = 400
SETTLED = 1e-7
SPEED = 0.7
CPU_STEP = 100  # milli CPU per GPU
CPU_STEPS = 513
ONE = 1 << 16  # the usable part, in fixed point
CPU_WEIGHT = 0.25  # how much of a pod's GPU is lost if its CPU is missing
PRICE, MOST_PRESSURE, PRICE_POWER = 0.2, 1.5, 3


def card_values(typical: Sequence[TypicalPod], kinds: int) -> Ints:
    """[kind, milli left]: the value of a card. A pod counts also on kinds that it does not accept."""
    lines = []
    for kind in range(kinds):
        demand: dict[int, float] = {}
        for pod in typical:
            milli = dict(pod.parts).get(kind, max((m for _, m in pod.parts), default=WHOLE_CARD))
            if pod.cards == 1 and milli < WHOLE_CARD:
                size = -(-milli * CUTS // WHOLE_CARD)
                demand[size] = demand.get(size, 0.0) + pod.times
        lines.append(_worth_of(tuple(sorted(demand.items()))))
    return np.array(lines, dtype=np.int64).reshape(kinds, WHOLE_CARD + 1)


@lru_cache(maxsize=128)  # 8 kB each
def _worth_of(demand: tuple[tuple[int, float], ...]) -> Ints:
    """[milli left]: the value of a card if parts of these sizes, in hundredths, are asked for so many times.

    Cached: it takes 10 to 100 ms, and the tables are made again whenever a node or its cards change. Without the cache,
    a live scheduler with a joint policy stopped for seconds while nodes joined.
    """
    values = _cut([size for size, _ in demand], [times for _, times in demand])
    worth = np.array([round(GPU * values[left * CUTS // WHOLE_CARD]) for left in range(WHOLE_CARD + 1)])
    worth.setflags(write=False)
    return worth


def _cut(sizes: Sequence[int], times: Sequence[float]) -> Sequence[float]:
    """[hundredths left]: the value, 0 to 1.

    The prices of the sizes are changed until the number of cut parts meets the demand. A pattern is cut exp((sum of its
    prices − 1) / smoothness) times.
    """
    if not sizes:
        return [left / CUTS for left in range(CUTS + 1)]
    size = np.array(sizes)
    demand = np.array(times) * CUTS / float(np.dot(size, times))  # for one card's worth of demand
    which = np.repeat(np.arange(len(size)), CUTS // size)  # pairs: the k-th piece of a size on a card
    piece = np.concatenate([np.arange(1, CUTS // one + 1) for one in sizes])
    rest = CUTS - piece * size[which]
    price = size / CUTS
    for _ in range(ROUNDS):
        weight = np.exp(price / SMOOTHNESS)
        ways = np.cumsum(_patterns(sizes, weight))
        share = weight[which] ** piece * ways[rest] * np.exp(-1 / SMOOTHNESS)
        cut = np.bincount(which, share)
        slope = np.bincount(which, (2 * piece - 1) * share)
        change = SPEED * np.minimum(1, cut / slope) * SMOOTHNESS * np.log(demand / np.maximum(cut, 1e-300))
        moved = np.clip(price + change, 0, 2)
        settled = float(np.abs(moved - price).max()) < SETTLED
        price = moved
        if settled:
            break
    ways = np.cumsum(_patterns(sizes, np.exp(price / SMOOTHNESS)))
    worth: list[float] = (np.log(ways) / np.log(ways[-1])).tolist()
    return worth


def _patterns(
    sizes: Sequence[int], weight: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """[hundredths]: the weights of all ways to fill exactly this much.

    A list, not an array: the steps depend on each other, and array slices take up to four times as long. The live
    scheduler does nothing else while this runs for `snug`.
    """
    ways = [1.0] + [0.0] * CUTS
    for size, factor in zip(sizes, weight.tolist(), strict=True):
        for left in range(size, CUTS + 1):
            ways[left] += factor * ways[left - size]
    return np.array(ways)


def cpu_factors(typical: Sequence[TypicalPod], kinds: int) -> Ints:
    """[kind, steps of CPU per GPU]: the part of the GPUs that typical pods can use."""
    factors = np.full((kinds, CPU_STEPS), ONE, dtype=np.int64)
    steps = np.arange(CPU_STEPS) * CPU_STEP / WHOLE_CARD
    for kind in range(kinds):
        demand = [
            (pod.times * pod.cards * m, pod.cards * m, pod.cpu) for pod in typical for k, m in pod.parts if k == kind
        ]
        total = sum(weight for weight, _, _ in demand)
        if total:
            used = sum(
                weight / total * (np.minimum(1, steps * milli / cpu) if cpu else 1.0) for weight, milli, cpu in demand
            )
            factors[kind] = np.rint(ONE * (1 - CPU_WEIGHT * (1 - used)))
    return factors


def prices(typical: Sequence[TypicalPod], capacity: Sequence[int]) -> Ints:
    """[kind]: the price in thousandths of what a pod takes. `capacity` is in milli of GPU."""
    everything, there = sum(capacity), {kind for kind, milli in enumerate(capacity) if milli}
    pressure = np.zeros(len(capacity))
    demand = sum(pod.times * pod.cards * max(milli for _, milli in pod.parts) for pod in typical if pod.parts)
    for pod in typical:
        accepted = [kind for kind, _ in pod.parts if kind in there]
        if accepted and len(accepted) < len(there):
            asked = pod.times * pod.cards * max(milli for _, milli in pod.parts)
            pressure[accepted] += asked / demand * everything / sum(capacity[kind] for kind in accepted)
    return np.rint(1000 * PRICE * np.minimum(pressure, MOST_PRESSURE) ** PRICE_POWER).astype(np.int64)
