"""What happened (events, with their time) and what must be done about it (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.model.decision import Decision
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Quota, RunningPod
from dovetail.model.volumes import VolumeChoice, VolumeFact


@dataclass(frozen=True, slots=True)
class GroupArrived:
    """Pods wait to be placed together; a lone pod is a group of one."""

    at: float
    group: Group


@dataclass(frozen=True, slots=True)
class PodObserved:
    """A pod holds a node already, whoever placed it."""

    at: float
    running: RunningPod


@dataclass(frozen=True, slots=True)
class PodBound:
    """Our placement became true: reserved turns into allocated."""

    at: float
    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """Deleted, finished, or its binding failed: whatever it held is free."""

    at: float
    uid: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node is new or different."""

    at: float
    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    at: float
    name: str


@dataclass(frozen=True, slots=True)
class PodNominated:
    """Another scheduler's pod was promised a node, which is being cleared for it. No node = no longer."""

    at: float
    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """A namespace's labels, which pod affinity may select by; None = it is gone."""

    at: float
    name: str
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """A namespace's quota is new or different; None = it is gone."""

    at: float
    namespace: str
    name: str
    quota: Quota | None


@dataclass(frozen=True, slots=True)
class VolumesChanged:
    """Claims, volumes, storage classes or attach limits are new, different or gone."""

    at: float
    facts: tuple[VolumeFact, ...] = ()
    gone: tuple[VolumeFact, ...] = ()


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Reservations that expired by now are dropped."""

    at: float


Event = (
    GroupArrived
    | PodObserved
    | PodBound
    | PodGone
    | PodNominated
    | NodeChanged
    | NodeGone
    | NamespaceChanged
    | QuotaChanged
    | VolumesChanged
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class Bind:
    """Make this placement true; first what it needs of volumes, if anything."""

    pod: Pod
    decision: Decision
    volumes: tuple[VolumeChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Tell people that the pod stays pending, and why."""

    pod: Pod
    decision: Decision


@dataclass(frozen=True, slots=True)
class Warn:
    """Something is not as it should be, and nobody is stopped by it."""

    subject: str
    message: str


Effect = Bind | Wait | Warn
