"""What is known of jobs: the GPU time that each has had, and how often it was stopped. A witness of the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.device import WHOLE_COMPUTE
from dovetail.model.pod import Group, Pod, tenant_of
from dovetail.policies.orders import JobFacts

MAX_STOPPED_JOBS = 10_000  # stopped jobs that are remembered until they come back


def job_of(pod: Pod) -> str:
    """The name of the group that the pod is in."""
    return pod.group or pod.key


def gpus_of(pod: Pod) -> float:
    """GPUs that the pod asks for. A part of a card counts by its compute; where no compute is asked for, as a card."""
    asks = (ask for container in pod.containers for ask in container.asks)
    return sum(ask.count * (ask.compute_milli or WHOLE_COMPUTE) for ask in asks) / WHOLE_COMPUTE


@dataclass(slots=True)
class _Account:
    service: float = 0.0  # GPU-seconds until `since`
    since: float = 0.0
    gpus: float = 0.0
    pods: int = 0
    stops: int = 0


class Service:
    """Counts from the moment on that somebody asks (`attend`): runs that do not ask pay nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._accounts: dict[str, _Account] = {}  # job -> what it has had
        self.stopping: dict[str, str] = {}  # UID of a pod that was told to stop and has not ended -> its job
        self._stopped: dict[str, None] = {}  # jobs that hold nothing because they were stopped, the oldest first
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
            account.gpus = 0.0  # no rest of a sum of fractions

    def stop(self, pod: Pod) -> None:
        """The scheduler takes the pod's place away. Pods of a job that are stopped together are one stop."""
        job = job_of(pod)
        if job not in self.stopping.values():
            self._settled(job).stops += 1
        self.stopping[pod.uid] = job

    def gone(self, pod: Pod) -> None:
        """The pod has ended. The account of a stopped job is kept until it comes back; any other account is dropped."""
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
        pods = group.pods
        account = self._account(group.name)
        return JobFacts(
            min(pod.created for pod in pods),
            max(pod.priority for pod in pods),
            tenant_of(pods[0]),
            account.service,
            account.gpus,
            account.stops,
            group.length,
        )

    def of_held(self, pod: Pod) -> JobFacts:
        account = self._account(job_of(pod))
        return JobFacts(pod.created, pod.priority, tenant_of(pod), account.service, account.gpus, account.stops)

    def _account(self, job: str) -> _Account:
        return self._settled(job) if job in self._accounts else _Account()

    def _settled(self, job: str) -> _Account:
        account = self._accounts.get(job)
        if account is None:
            account = self._accounts[job] = _Account(since=self.now)
        account.service += account.gpus * (self.now - account.since)
        account.since = self.now
        return account
