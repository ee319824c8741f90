"""What the live scheduler knows of one pod."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from dovetail.kube.conversion.reading import Held
from dovetail.kube.objects import core as objects
from dovetail.model.pod import Pod, RunningPod, Tolerance


class Stand(Enum):
    """The state of a pod for this scheduler."""

    WAITS = auto()  # ours, to be placed; perhaps with a nominated node
    HOLDS = auto()  # it has a node
    PROMISED = auto()  # another scheduler's pod, with a nominated node
    LEFT = auto()  # ours, in a namespace that is being deleted: not to be placed


@dataclass(slots=True)
class Known:
    """What is known of a pod."""

    key: str  # namespace/name
    stand: Stand
    version: str  # resourceVersion: the precondition of a write
    pod: Pod
    held: Held | None = None  # of a pod that has a node
    node: str = ""  # nominated node
    condition: tuple[str, str] = ("", "")  # PodScheduled=False: reason, message
    again: bool = False  # its next report counts as new
    rests: bool = False  # but only after `recall`, unless the pod itself changes
    runs: bool = False  # its phase is Running
    ends: bool = False  # it has a deletionTimestamp
    claimed: tuple[str, ...] = ()  # annotations in which the unplaced pod claims cards
    stamp: str = ""  # the epoch annotation on it
    priority_class: str = ""  # of a pod that has a node
    doubt: int = 0  # number of the lease check that must show that we lead before the pod is bound

    def tolerates(self, tolerance: Tolerance | None) -> None:
        """Note what the PriorityClass of a pod that has a node says now."""
        self.pod = replace(self.pod, tolerance=tolerance)
        if self.held is not None:
            running = replace(self.held.running, pod=self.pod)
            self.held = self.held._replace(running=running)

    @property
    def unverified(self) -> bool:
        """Whether its record fails its check."""
        return self.held is not None and bool(self.held.doubt)

    @property
    def running(self) -> RunningPod | None:
        return self.held.running if self.held is not None else None


def condition_of(source: objects.Pod) -> tuple[str, str]:
    """The pod's own PodScheduled condition: reason and message."""
    for condition in source.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""
