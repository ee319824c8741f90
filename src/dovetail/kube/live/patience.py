"""Owners whose pods kubelet refuses repeatedly after they were bound: each next pod waits longer.

kubelet refuses a pod that does not fit after all, for example because another scheduler bound a pod first. Its owner
creates a new pod at once. Without a pause, this cycle would run as fast as the API server can.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.kube.objects import core as objects

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 300.0  # seconds
FORGET_AFTER_SECONDS = 600.0  # seconds without a refusal after which the record is dropped
FREE_REFUSALS = 1  # refusals without a pause: races happen
# Reasons of pods that ran and were ended by their node. With any other reason of kubelet, it never started the pod.
ENDED = ("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "DeadlineExceeded", "Preempting")


def is_refusal(status: objects.PodStatus) -> bool:
    """Whether the pod failed before anything ran. A failing container is not a refusal."""
    ran = any(one.state.terminated is not None for one in (*status.container_statuses, *status.init_container_statuses))
    return status.phase == "Failed" and bool(status.reason) and status.reason not in ENDED and not ran


@dataclass(slots=True)
class _RefusalRecord:
    refusals: int
    at: float
    message: str


class Patience:
    def __init__(self) -> None:
        self._of: dict[str, _RefusalRecord] = {}  # owner -> its record

    def refused(self, owner: str, at: float, message: str) -> float:
        """Note one more refusal; returns how many seconds the owner's next pod will wait."""
        record = self._of.get(owner)
        count = record.refusals + 1 if record is not None and at - record.at < FORGET_AFTER_SECONDS else 1
        self._of[owner] = _RefusalRecord(count, at, message)
        if len(self._of) > 10_000:
            self._of = {key: value for key, value in self._of.items() if at - value.at < FORGET_AFTER_SECONDS}
        return self.wait(owner, at)

    def wait(self, owner: str, at: float) -> float:
        """Seconds that a new pod of this owner has to wait from now on."""
        record = self._of.get(owner)
        if record is None or not owner or at - record.at >= FORGET_AFTER_SECONDS or record.refusals <= FREE_REFUSALS:
            return 0.0
        pause = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (record.refusals - FREE_REFUSALS - 1))
        return max(0.0, record.at + pause - at)

    def why(self, owner: str) -> str:
        record = self._of.get(owner)
        return (
            f"{record.refusals} pods of {owner} were refused after they were bound: {record.message}" if record else ""
        )
