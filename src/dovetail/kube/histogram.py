"""A histogram with fixed buckets, as Prometheus has them. Recording a value takes a fraction of a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate


class Histogram:
    """Counts of values by bucket. `bounds`: the upper bounds of the buckets, ascending; one more has no bound."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.sum = bounds, 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def cumulative(self) -> list[int]:
        """By bucket: values that are not above its bound. The last one is the number of all values."""
        return list(accumulate(self._counts))
