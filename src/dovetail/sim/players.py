"""The jobs of a trace as groups for the engine, and the jobs that do not fit the empty cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from dovetail.engine.scheduler import Scheduler
from dovetail.model.order import natural
from dovetail.model.pod import Group, Pod
from dovetail.sim import cast
from dovetail.sim.profiles import profile_of
from dovetail.sim.racks import rule_of
from dovetail.sim.trace import Trace, TraceError


class Players:
    """The trace's jobs as groups for the engine."""

    def __init__(
        self, trace: Trace, policy: str, named: bool = False, queue_of: Mapping[str, str] | None = None
    ) -> None:
        """`named`: the engine is told what it needs for rights.

        The pods of a gang carry the name of their group, by which the engine counts what a job holds; a pod carries the
        queue of its tenant (`queue_of`), and a group the length of its job.
        """
        self.jobs, self._named, self._queue_of = trace.jobs, named, queue_of or {}
        self._templates, kinds = cast.cast(trace.jobs, profile_of(policy))
        self.kinds: list[int] = kinds.tolist()
        self.job_of = {uid: n for n, job in enumerate(self.jobs) for uid in cast.uids(job)}
        if len(self.job_of) != sum(job.pods for job in self.jobs):
            raise TraceError(f"{trace.name}: names of jobs, or of pods of gangs (JOB.0, JOB.1, …), are not distinct")
        self._gangs: dict[str, list[int]] = {}  # name of a gang -> its jobs
        for n, job in enumerate(self.jobs):
            if job.gang:
                self._gangs.setdefault(job.gang, []).append(n)
        for name, jobs in self._gangs.items():
            if len({self.jobs[n].arrival for n in jobs}) > 1:
                raise TraceError(f"{trace.name}: the jobs of gang {name!r} must have the same arrival")

    def together(self, n: int) -> list[int]:
        """The jobs that arrive, start and stop with this one: the roles of its gang, or itself."""
        return self._gangs[self.jobs[n].gang] if self.jobs[n].gang else [n]

    @cached_property
    def job_named(self) -> dict[str, int]:
        """Group.name -> job."""
        return {self.group(n).name: n for n in range(len(self.jobs))}

    def _pods(self, n: int) -> list[Pod]:
        job, template = self.jobs[n], self._templates[self.kinds[n]]
        return [replace(template, name=uid, uid=uid, created=job.arrival) for uid in cast.uids(job)]

    def group(self, n: int, roles: Collection[int] | None = None) -> Group:
        """The group of a job, with the other roles of its gang; `roles`: with these of them only."""
        job = self.jobs[n]
        if job.gang:
            jobs = [one for one in self.together(n) if roles is None or one in roles]
            group = cast.gang_of([(self.jobs[one], self._pods(one)) for one in jobs])
        else:
            group = cast.group_of(job, self._pods(n))
        if not self._named:
            return group
        of_gang, queue = group.name if len(group.pods) > 1 else "", self._queue_of.get(job.tenant, "")
        named = tuple(replace(pod, group=of_gang or pod.group, queue=queue) for pod in group.pods)
        return replace(group, pods=named, length=job.duration)

    def gangs(self) -> Iterator[Group]:
        """The jobs of several pods."""
        return (
            self.group(n) for n, job in enumerate(self.jobs) if n == self.together(n)[0] and (job.pods > 1 or job.gang)
        )

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
    fits: dict[object, bool] = {}
    found: set[int] = set()
    for n, job in enumerate(players.jobs):
        key: object = job.gang or (players.kinds[n], job.pods, rule_of(job))
        if key not in fits:
            decisions = empty.place((players.group(n),))
            fits[key] = all(decision.placed for decision in decisions)
            empty.ledger.release_all([decision.uid for decision in decisions])
        if not fits[key]:
            found.add(n)
    return found
