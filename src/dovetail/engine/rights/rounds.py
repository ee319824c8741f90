"""Rounds: the jobs that may run until the next round, and the running pods that must stop for that."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.service import AttainedService, gpus_of, job_of
from dovetail.model.pod import Group, Pod
from dovetail.policies.orders import JobFacts
from dovetail.policies.rounds import JobStanding, Round

REASON = "its job may not run in this round"


class Rounds:
    """The jobs that may run. Before the first round, every job may run."""

    def __init__(self, policy: Round, ledger: Ledger, service: AttainedService) -> None:
        self._policy, self._ledger, self._service = policy, ledger, service
        self._entitled: dict[str, int] | None = None  # job -> its place among the jobs that may run

    def begin(self, waiting: Iterable[Group]) -> list[Pod]:
        """Decide which jobs may run; returns the pods of running jobs that may not, in the order of the queue."""
        pods = [self._ledger.pods.pod(uid) for uid in self._ledger.pods]
        running = {job_of(pod): pod for pod in pods if gpus_of(pod)}
        held = [
            JobStanding(job, facts.gpus, True, facts)
            for job, pod in running.items()
            if (facts := self._service.of_held(pod))
        ]
        asking = [_waiting(group, self._service.of(group)) for group in waiting if group.name not in running]
        jobs = sorted((*held, *asking), key=lambda standing: standing.job)
        entitled = self._policy.entitle(jobs, self._gpus())
        self._entitled = {job: place for place, job in enumerate(entitled)}
        return sorted(
            (pod for pod in pods if job_of(pod) in running and job_of(pod) not in self._entitled), key=lambda p: p.order
        )

    def place_of(self, job: str) -> int | None:
        """The job's place among the jobs that may run; None = it may not run."""
        return 0 if self._entitled is None else self._entitled.get(job)

    def _gpus(self) -> float:
        rows = range(len(self._ledger.nodes))
        return float(sum(len(self._ledger.devices(row)) for row in rows if self._ledger.is_active(row)))


def _waiting(group: Group, facts: JobFacts) -> JobStanding:
    return JobStanding(group.name, sum(gpus_of(pod) for pod in group.pods), False, facts)
