"""The jobs of a trace as groups for the engine, and the jobs that do not fit the empty cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from dovetail.engine.scheduler import Scheduler
from dovetail.model.order import natural
from dovetail.model.pod import Group
from dovetail.sim import cast
from dovetail.sim.profiles import profile_of
from dovetail.sim.trace import Trace, TraceError


class Players:
    """The trace's jobs as groups for the engine."""

    def __init__(self, trace: Trace, policy: str, named: bool = False) -> None:
        """`named`: the pods of a gang carry the name of their group. The engine uses it to count what a job holds."""
        self.jobs, self._named = trace.jobs, named
        self._templates, kinds = cast.cast(trace.jobs, profile_of(policy))
        self.kinds: list[int] = kinds.tolist()
        self.job_of = {uid: n for n, job in enumerate(self.jobs) for uid in cast.uids(job)}
        if len(self.job_of) != sum(job.pods for job in self.jobs):
            raise TraceError(f"{trace.name}: names of jobs, or of pods of gangs (JOB.0, JOB.1, …), are not distinct")

    @cached_property
    def job_named(self) -> dict[str, int]:
        """Group.name -> job."""
        return {self.group(n).name: n for n in range(len(self.jobs))}

    def group(self, n: int) -> Group:
        job, template = self.jobs[n], self._templates[self.kinds[n]]
        pods = [replace(template, name=uid, uid=uid, created=job.arrival) for uid in cast.uids(job)]
        group = cast.group_of(job, pods)
        if not self._named or job.pods == 1:
            return group
        return replace(group, pods=tuple(replace(pod, group=group.name) for pod in pods))

    def more_pods(self, n: int, uids: Collection[str], running: int) -> Group:
        """A group of these pods for a job that already runs. Each may be placed without the others."""
        group = self.group(n)
        return replace(group, pods=tuple(pod for pod in group.pods if pod.uid in uids), minimum=1, running=running)

    def by_arrival(self) -> list[int]:
        """Indices of the jobs by arrival.

        Jobs that arrive together come in queue order, not in the order of the trace.
        """

        def key(n: int) -> tuple[object, ...]:
            job = self.jobs[n]
            return (job.arrival, -job.priority, natural(job.name))

        return sorted(range(len(self.jobs)), key=key)


def hopeless(players: Players, empty: Scheduler) -> set[int]:
    """Jobs that do not fit even the empty cluster. The engine is asked once for each distinct request."""
    fits: dict[tuple[int, int], bool] = {}
    for n, job in enumerate(players.jobs):
        key = (players.kinds[n], job.pods)
        if key not in fits:
            decisions = empty.place((players.group(n),))
            fits[key] = all(decision.placed for decision in decisions)
            empty.ledger.release_all([decision.uid for decision in decisions])
    return {n for n, job in enumerate(players.jobs) if not fits[players.kinds[n], job.pods]}
