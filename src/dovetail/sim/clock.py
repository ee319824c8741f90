"""When running jobs end, and when rounds begin.

The end of a job moves if its speed changes, and is cancelled if the job is stopped.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil

NEVER = float("inf")


class Departures:
    """The ends of running jobs: a heap with lazy deletion. An entry counts only if it is the job's latest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []  # (when, job)
        self._at: dict[int, float] = {}  # job -> its current end

    def set(self, job: int, at: float) -> None:
        """Set the end of the job and replace an earlier one. NEVER: the job has no end for now."""
        if at == NEVER:
            self.cancel(job)
        else:
            self._at[job] = at
            heappush(self._heap, (at, job))

    def cancel(self, job: int) -> None:
        self._at.pop(job, None)

    def next_at(self) -> float:
        """The time at which the next job ends; NEVER if no job ends."""
        heap = self._heap
        while heap:
            at, job = heap[0]
            if self._at.get(job) == at:
                return at
            heappop(heap)
        return NEVER

    def take(self, at: float) -> list[int]:
        """Remove and return the jobs that end at `next_at()`, in the order of the trace."""
        heap, due, together = self._heap, self._at, list[int]()
        while heap and heap[0][0] == at:
            job = heappop(heap)[1]
            if due.get(job) == at:
                del due[job]
                together.append(job)
        return together


class RoundClock:
    """Rounds begin every `seconds` after `begin`.

    With 0 seconds, a round begins after each moment at which jobs arrived or ended. A round comes after all other
    events of its moment.
    """

    def __init__(self, seconds: float, begin: float) -> None:
        self._seconds, self._begin, self._count = seconds, begin, 1
        self.at = begin + seconds if seconds else NEVER  # when the next one begins
        self._last_resort = False

    def changed(self, now: float) -> None:
        """Note that a job arrived or ended."""
        self._last_resort = False
        if self._seconds == 0:
            self.at = now

    def begun(self) -> None:
        self._go_to(self._count + 1)

    def skip_to(self, at: float) -> None:
        """Skip the rounds before `at`: no job runs or waits until then."""
        if self._seconds and at != NEVER:
            self._go_to(max(self._count, ceil((at - self._begin) / self._seconds)))

    def is_last_resort(self) -> bool:
        """True at the first call after a job arrived or ended, else False.

        Used when only rounds can happen: one round is tried, so that rounds alone do not go on forever.
        """
        tried, self._last_resort = self._last_resort, True
        return not tried

    def _go_to(self, count: int) -> None:
        self._count = count
        self.at = self._begin + count * self._seconds if self._seconds else NEVER
