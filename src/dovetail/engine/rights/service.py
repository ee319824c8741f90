"""The GPU time of each job, and how often it was stopped. A witness of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.checkpoint import JobTime, ServiceState
from dovetail.model.pod import Group, Pod, tenant_of
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.orders import JobFacts

MAX_FAILED_GROUPS = 100_000  # waiting groups whose last try is remembered
MAX_STOPPED_JOBS = 10_000  # stopped jobs that are kept until they come back


def job_of(pod: Pod) -> str:
    """The name of the pod's group."""
    return pod.group or pod.key


def gpus_of(pod: Pod) -> float:
    """GPUs that the pod asks for.

    A part of a card counts by its compute; without a compute request it counts as a card.
    """
    asks = (ask for container in pod.containers for ask in container.asks)
    return sum(ask.count * (ask.compute_milli or WHOLE_CARD) for ask in asks) / WHOLE_CARD


def facts_of(group: Group) -> JobFacts:
    """What is known of a waiting group without counting GPU time."""
    pods = group.pods
    created, priority = min(pod.created for pod in pods), max(pod.priority for pod in pods)
    return JobFacts(created, priority, tenant_of(pods[0]), length=group.length)


@dataclass(slots=True)
class _Account:
    service: float = 0.0  # GPU-seconds until `since`
    since: float = 0.0
    gpus: float = 0.0
    pods: int = 0
    stops: int = 0


class AttainedService:
    """Counts from `attend` on: runs that do not call it have no cost."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._accounts: dict[str, _Account] = {}  # job -> its GPU time and stops
        self.stopping: dict[str, str] = {}  # UID of a pod that was told to stop and has not ended -> its job
        self._failed: dict[str, float] = {}  # waiting group -> when it last found no place, the oldest first
        self.share_of: Callable[[Pod], float] = lambda pod: 0.0  # the dominant share of the pod's queue
        self._stopped: dict[str, None] = {}  # jobs that hold nothing because they were stopped, oldest first
        self.attends = False
        self.now = 0.0

    def attend(self) -> None:
        if not self.attends:
            self.attends = True
            self._ledger.witnesses.append(self)
            self._ledger.attend(self, True)
            for uid in self._ledger.pods:
                self.came(self._ledger.pods.pod(uid), 0)

    def came(self, pod: Pod, row: int) -> None:
        account = self._settled(job_of(pod))
        account.gpus += gpus_of(pod)
        account.pods += 1

    def left(self, pod: Pod, row: int) -> None:
        account = self._settled(job_of(pod))
        account.gpus -= gpus_of(pod)
        account.pods -= 1
        if account.pods == 0:
            account.gpus = 0.0  # no remainder of a sum of fractions

    def clear(self, reserved: Collection[str]) -> None:
        """Drop all pods until they are booked again. The time of each job stays."""
        for job, account in self._accounts.items():
            self._settled(job)
            account.gpus, account.pods = 0.0, 0

    def stop(self, pod: Pod) -> None:
        """Count a stop: the scheduler takes the pod's place.

        Pods of one job that are stopped together count as one stop.
        """
        job = job_of(pod)
        if self.attends and job not in self.stopping.values():
            self._settled(job).stops += 1
        self.stopping[pod.uid] = job

    def gone(self, pod: Pod) -> None:
        """Count the end of a pod.

        The account of a stopped job is kept until it comes back; other accounts are dropped.
        """
        job = job_of(pod)
        stopped = self.stopping.pop(pod.uid, None) is not None
        if job not in self._accounts or self._accounts[job].pods:
            return
        self._stopped.pop(job, None)
        if stopped:
            self._stopped[job] = None
        else:
            del self._accounts[job]
        while len(self._stopped) > MAX_STOPPED_JOBS:
            oldest = next(iter(self._stopped))
            del self._stopped[oldest]
            if self._accounts[oldest].pods == 0:
                del self._accounts[oldest]

    def of(self, group: Group) -> JobFacts:
        account = self._account(group.name)
        return replace(
            facts_of(group),
            service=account.service,
            gpus=account.gpus,
            stops=account.stops,
            failed=self._failed.get(group.name),
            queue_share=self.share_of(group.pods[0]),
        )

    def fail(self, name: str) -> None:
        """Note that the group found no place now."""
        if self.attends:
            self._failed.pop(name, None)
            self._failed[name] = self.now
            if len(self._failed) > MAX_FAILED_GROUPS:
                del self._failed[next(iter(self._failed))]

    def succeed(self, name: str) -> None:
        """Drop the note: the group has its place, or is gone."""
        self._failed.pop(name, None)

    def of_held(self, pod: Pod) -> JobFacts:
        account = self._account(job_of(pod))
        return JobFacts(pod.created, pod.priority, tenant_of(pod), account.service, account.gpus, account.stops)

    def state(self) -> ServiceState | None:
        """The time of all jobs; None = it is not counted."""
        if not self.attends:
            return None
        jobs = (JobTime(job, a.service, a.since, a.gpus, a.pods, a.stops) for job, a in self._accounts.items())
        return ServiceState(tuple(jobs), tuple(self._failed.items()), tuple(self._stopped))

    def begin_again(self) -> None:
        """Count all time until now, and drop the accounts that only trials have made."""
        for job in list(self._accounts):
            if not self._settled(job).pods and job not in self._stopped:
                del self._accounts[job]

    def restore(self, state: ServiceState) -> None:
        """Take this instead of what was counted here."""
        self._accounts = {
            one.job: _Account(one.service, one.since, one.gpus, one.pods, one.stops) for one in state.jobs
        }
        self._failed, self._stopped = dict(state.failed), dict.fromkeys(state.stopped)

    def _account(self, job: str) -> _Account:
        return self._settled(job) if job in self._accounts else _Account()

    def _settled(self, job: str) -> _Account:
        account = self._accounts.get(job)
        if account is None:
            account = self._accounts[job] = _Account(since=self.now)
        account.service += account.gpus * (self.now - account.since)
        account.since = self.now
        return account
