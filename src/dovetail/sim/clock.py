"""When running jobs end, and when rounds begin. An end can be moved or cancelled: a job's speed changes, or the job
is stopped."""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil

NEVER = float("inf")


class Departures:
    """A heap with lazy deletion: an entry counts only if it is the job's latest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []  # (when, job)
        self._at: dict[int, float] = {}  # job -> when it ends as things stand

    def set(self, job: int, at: float) -> None:
        """The job ends then, whatever was set before; NEVER = not as things stand."""
        if at == NEVER:
            self.cancel(job)
        else:
            self._at[job] = at
            heappush(self._heap, (at, job))

    def cancel(self, job: int) -> None:
        self._at.pop(job, None)

    def next_at(self) -> float:
        """When the next job ends; NEVER where none does."""
        heap = self._heap
        while heap:
            at, job = heap[0]
            if self._at.get(job) == at:
                return at
            heappop(heap)
        return NEVER

    def take(self, at: float) -> list[int]:
        """The jobs that end at `next_at()`, in the order of the trace. They are no longer due afterwards."""
        heap, due, together = self._heap, self._at, list[int]()
        while heap and heap[0][0] == at:
            job = heappop(heap)[1]
            if due.get(job) == at:
                del due[job]
                together.append(job)
        return together


class RoundClock:
    """Rounds begin every so many seconds after `begin`; 0 = at every moment at which jobs arrived or ended, after
    that. A round comes after all else that happens at its moment."""

    def __init__(self, seconds: float, begin: float) -> None:
        self._seconds, self._begin, self._count = seconds, begin, 1
        self.at = begin + seconds if seconds else NEVER  # when the next one begins
        self._last_resort = False

    def changed(self, now: float) -> None:
        """A job arrived or ended."""
        self._last_resort = False
        if self._seconds == 0:
            self.at = now

    def begun(self) -> None:
        self._go_to(self._count + 1)

    def skip_to(self, at: float) -> None:
        """No job runs or waits before then."""
        if self._seconds and at != NEVER:
            self._go_to(max(self._count, ceil((at - self._begin) / self._seconds)))

    def is_last_resort(self) -> bool:
        """True once, until a job arrives or ends. Where nothing but rounds can happen, one is tried and no more."""
        tried, self._last_resort = self._last_resort, True
        return not tried

    def _go_to(self, count: int) -> None:
        self._count = count
        self.at = self._begin + count * self._seconds if self._seconds else NEVER
