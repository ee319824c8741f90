"""The names of the jobs' pods. They must be unique: the engine identifies the pods of a trace by name only."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.sim.trace import Job, TraceError

COPY = "-copy-"


def pod_names(job: Job, called: str | None = None) -> list[str]:
    """The names of the job's pods. `called` replaces the job's name."""
    name = job.name if called is None else called
    return [name] if job.pods == 1 else [f"{name}.{n}" for n in range(job.pods)]


def check_pod_names(jobs: Sequence[Job], where: object) -> None:
    """Raise TraceError if two pods have the same name.

    Job names differ, so only a pod of a gang and a job of one pod can have the same name.
    """
    singles = {job.name for job in jobs if job.pods == 1}
    for gang in jobs:
        if gang.pods > 1 and (twice := singles.intersection(pod_names(gang))):
            name = min(twice)
            raise TraceError(
                f"{where}: job {name!r} is called like a pod of job {gang.name!r}, whose {gang.pods:,} pods are "
                f"{gang.name}.0, {gang.name}.1, …; rename one of the two"
            )


class CopyNames:
    """Names for copies: NAME-copy-2, NAME-copy-3, …; numbers that a job of the trace already uses are skipped."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._taken = {name for job in jobs if COPY in job.name for name in pod_names(job)}
        self._last: dict[str, int] = {}  # job -> number of its latest copy

    def next(self, job: Job) -> str:
        """The next name for a copy of the job.

        Two copies never have the same name: the job's name stands before the last `-copy-`, a number after it.
        """
        number = self._last.get(job.name, 1) + 1
        while not self._taken.isdisjoint(pod_names(job, f"{job.name}{COPY}{number}")):
            number += 1
        self._last[job.name] = number
        return f"{job.name}{COPY}{number}"
