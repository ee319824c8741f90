"""Random numbers from a seed, the same on every machine and with every version of numpy.

Only the raw 64-bit numbers of numpy's PCG64 are used: numpy promises not to change them, but may change its
distributions. Math libraries differ in the last bit, so exp and log are computed here with sums and products only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

import numpy as np

from dovetail.sim.trace import TraceError

LN_2 = 0.6931471805599453
_BATCH = 4096  # raw numbers taken from numpy at once
Item = TypeVar("Item")


class Chance:
    """A stream of random draws."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise TraceError(f"seed {seed} is negative; take a whole number from 0")
        self._raw = _raw_numbers(seed)

    def uniform(self) -> float:
        """A uniform draw: at least 0, below 1."""
        return (next(self._raw) >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """A whole number from 0 to count − 1. The bias of the product is below count / 2⁶⁴."""
        return next(self._raw) * count >> 64

    def happens(self, probability: float) -> bool:
        return self.uniform() < probability

    def permutation(self, count: int) -> list[int]:
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order

    def exponential(self, mean: float) -> float:
        return -mean * log(1.0 - self.uniform())

    def normal(self) -> float:
        """A normal draw with mean 0 and deviation 1: Marsaglia's polar method, which drops the second of each pair."""
        while True:
            x, y = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            square = x * x + y * y
            if 0 < square < 1:
                return x * math.sqrt(-2 * log(square) / square)

    def lognormal(self, median: float, sigma: float) -> float:
        return median * exp(sigma * self.normal())


def _raw_numbers(seed: int) -> Iterator[int]:
    bits = np.random.PCG64(seed)
    while True:
        yield from bits.random_raw(_BATCH).tolist()


class Weighted(Generic[Item]):
    """Items to draw from, each with its weight."""

    def __init__(self, items: Sequence[tuple[Item, float]]) -> None:
        self.items = tuple(item for item, _ in items)
        self._sums = tuple(accumulate(weight for _, weight in items))

    def draw(self, chance: Chance) -> Item:
        at = bisect_right(self._sums, chance.uniform() * self._sums[-1])
        return self.items[min(at, len(self.items) - 1)]


def log(x: float) -> float:
    """Natural logarithm of a positive number: twice the series of atanh((m − 1) / (m + 1)) for the mantissa m."""
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    t = (mantissa - 1) / (mantissa + 1)
    square, power, total = t * t, t, 0.0
    for odd in range(1, 27, 2):  # |t| ≤ 0.172: the 14th term would be below 2⁻⁶⁰
        total += power / odd
        power *= square
    return 2 * total + exponent * LN_2


def exp(x: float) -> float:
    """e to the power x: 2ᵏ times the Taylor series of the rest, which is below 0.35. Valid for |x| up to 700."""
    k = round(x / LN_2)
    rest = x - k * LN_2
    term = total = 1.0
    for n in range(1, 17):
        term *= rest / n
        total += term
    return math.ldexp(total, k)
