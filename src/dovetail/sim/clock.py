"""When running jobs end. An end can be moved or cancelled: a job's speed changes, or the job is stopped."""

from __future__ import annotations

from heapq import heappop, heappush

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
