"""The daily rhythm of generated workloads: how many jobs arrive at which hour."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

HOUR, DAY = 3_600, 86_400
# By hour from midnight on, in tenths above or below the mean; they add up to 0.
HOURLY = (-5, -7, -9, -10, -10, -9, -7, -4, 0, 4, 7, 8, 6, 7, 9, 10, 9, 6, 3, 0, -1, -2, -2, -3)


class Rhythm:
    """Turns uniform draws into arrival times, with more arrivals by day than by night. The trace begins at midnight.

    Given the number of arrivals, a Poisson process is a set of uniform draws. A varying rate stretches or compresses
    the time axis of these draws.
    """

    def __init__(self, strength: float) -> None:
        self._rates = tuple(1 + strength * tenths / 10 for tenths in HOURLY)
        self._sums = (0.0, *accumulate(rate * HOUR for rate in self._rates))

    def amount(self, seconds: float) -> float:
        """The expected amount of arrivals until `seconds`. Unit: seconds at the mean rate."""
        days, rest = divmod(seconds, DAY)
        hour = min(int(rest // HOUR), 23)
        return days * self._sums[-1] + self._sums[hour] + (rest - hour * HOUR) * self._rates[hour]

    def moment(self, amount: float) -> float:
        """The time in seconds at which `amount` is reached: the inverse of `amount`."""
        days, rest = divmod(amount, self._sums[-1])
        hour = min(bisect_right(self._sums, rest) - 1, 23)
        within = (rest - self._sums[hour]) / self._rates[hour] if self._rates[hour] else 0.0
        return days * DAY + hour * HOUR + within
