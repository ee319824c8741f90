"""What is known of one pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from dovetail.kube.conversion.reading import Held
from dovetail.model.pod import Pod, RunningPod


class Stand(Enum):
    """Where a pod stands."""

    WAITS = auto()  # ours, to be placed; perhaps with a nominated node
    HOLDS = auto()  # it has a node
    PROMISED = auto()  # another scheduler's, with a nominated node
    LEFT = auto()  # ours, in a namespace that is being deleted: not to be placed


@dataclass(slots=True)
class Known:
    """What we know of a pod that matters."""

    key: str  # namespace/name
    stand: Stand
    version: str  # resourceVersion: the precondition of a write
    pod: Pod
    held: Held | None = None  # of a pod that has a node
    node: str = ""  # nominated
    condition: tuple[str, str] = ("", "")  # PodScheduled=False: reason, message
    again: bool = False  # whatever is heard of it next is news
    rests: bool = False  # but not before it is recalled, unless it changes itself
    claimed: tuple[str, ...] = ()  # annotations by which it says, unplaced, which cards it has
    stamp: str = ""  # the epoch annotation on it
    doubt: int = 0  # the look at the lease that must show that we lead before it is bound

    @property
    def unverified(self) -> bool:
        """Its record fails its check."""
        return self.held is not None and bool(self.held.doubt)

    @property
    def running(self) -> RunningPod | None:
        return self.held.running if self.held is not None else None
