"""What the live scheduler knows of one pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from dovetail.kube.conversion.reading import Held
from dovetail.model.pod import Pod, RunningPod


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
    claimed: tuple[str, ...] = ()  # annotations in which the unplaced pod claims cards
    stamp: str = ""  # the epoch annotation on it
    doubt: int = 0  # number of the lease check that must show that we lead before the pod is bound

    @property
    def unverified(self) -> bool:
        """Whether its record fails its check."""
        return self.held is not None and bool(self.held.doubt)

    @property
    def running(self) -> RunningPod | None:
        return self.held.running if self.held is not None else None
