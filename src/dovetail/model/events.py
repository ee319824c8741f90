"""Events (what happened, with the time) and effects (what must be done): two per decision, hence msgspec."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.model.decision import Decision
from dovetail.model.gang import Role
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Quota, RunningPod
from dovetail.model.relations import Selector
from dovetail.model.rights import Budget, Queue
from dovetail.model.signals import NodeSignals
from dovetail.model.volumes import VolumeChoice, VolumeFact


class GroupArrived(msgspec.Struct, frozen=True):
    """Pods wait to be placed together; a lone pod is a group of one."""

    at: float
    group: Group


class PodObserved(msgspec.Struct, frozen=True):
    """A pod holds a node already, placed by any scheduler."""

    at: float
    running: RunningPod


class PodBound(msgspec.Struct, frozen=True):
    """A placement of ours was bound: reserved becomes allocated."""

    at: float
    uid: str


class PodGone(msgspec.Struct, frozen=True):
    """The pod was deleted, has finished, or its binding failed: what it held is free."""

    at: float
    uid: str


class PodsGone(msgspec.Struct, frozen=True):
    """Several pods are gone at one moment: all are released before waiting pods are tried."""

    at: float
    uids: tuple[str, ...]


class NodeChanged(msgspec.Struct, frozen=True):
    """A node is new or different."""

    at: float
    node: Node


class NodeGone(msgspec.Struct, frozen=True):
    at: float
    name: str


class SignalsMeasured(msgspec.Struct, frozen=True):
    """The load of a node and its cards was measured. It is not kept for a node that does not exist."""

    at: float
    node: str
    signals: NodeSignals


class TopologyChanged(msgspec.Struct, frozen=True):
    """A topology is new or different: node labels, from the widest level to the narrowest. No levels = it is gone."""

    at: float
    name: str
    levels: tuple[str, ...]


class PodNominated(msgspec.Struct, frozen=True):
    """A pod was nominated to a node, where other pods are being stopped for it. No node = it no longer is."""

    at: float
    pod: Pod
    node: str


class NamespaceChanged(msgspec.Struct, frozen=True):
    """A namespace's labels, which pod affinity may select by; None = it is gone."""

    at: float
    name: str
    labels: Mapping[str, str] | None


class QuotaChanged(msgspec.Struct, frozen=True):
    """A namespace's quota is new or different; None = it is gone."""

    at: float
    namespace: str
    name: str
    quota: Quota | None


class SelectorChanged(msgspec.Struct, frozen=True):
    """The pods that a Service or a controller selects, for default spreading; None = it is gone or selects none."""

    at: float
    kind: str  # Service, ReplicaSet, StatefulSet, ReplicationController; a Deployment in plans
    namespace: str
    name: str
    selector: Selector | None


class VolumesChanged(msgspec.Struct, frozen=True):
    """Claims, volumes, storage classes or attach limits are new, different or gone."""

    at: float
    facts: tuple[VolumeFact, ...] = ()
    gone: tuple[VolumeFact, ...] = ()


class BudgetChanged(msgspec.Struct, frozen=True):
    """A disruption budget is new or different; None = it is gone."""

    at: float
    namespace: str
    name: str
    budget: Budget | None


class QueueChanged(msgspec.Struct, frozen=True):
    """A queue is new or different; None = it is gone."""

    at: float
    name: str
    queue: Queue | None


class GangChanged(msgspec.Struct, frozen=True):
    """How many members a gang needs, for members that run already; 0 = the gang does not exist any more."""

    at: float
    name: str  # Group.name
    minimum: int
    roles: tuple[Role, ...] = ()  # with minimums of their own


class EvictionRefused(msgspec.Struct, frozen=True):
    """A pod that was to be stopped goes on: the API server refused, for instance for a disruption budget."""

    at: float
    uid: str
    message: str


class RoundBegins(msgspec.Struct, frozen=True):
    """The policy for rounds, if there is one, names the jobs that may run until the next round."""

    at: float


Event = (
    GroupArrived
    | PodObserved
    | PodBound
    | PodGone
    | PodsGone
    | PodNominated
    | NodeChanged
    | NodeGone
    | SignalsMeasured
    | TopologyChanged
    | NamespaceChanged
    | QuotaChanged
    | SelectorChanged
    | VolumesChanged
    | BudgetChanged
    | QueueChanged
    | GangChanged
    | EvictionRefused
    | RoundBegins
)


class Bind(msgspec.Struct, frozen=True):
    """Bind the pod to the node; first bind or create the volumes that it needs, if any."""

    pod: Pod
    decision: Decision
    volumes: tuple[VolumeChoice, ...] = ()


class Wait(msgspec.Struct, frozen=True):
    """Report that the pod stays pending, and why."""

    pod: Pod
    decision: Decision
    nominated: str = ""  # the node on which pods are being stopped for it


class Warn(msgspec.Struct, frozen=True):
    """Report a problem that stops no pod."""

    subject: str
    message: str


class Evict(msgspec.Struct, frozen=True):
    """Stop a running pod, as its place is needed. The pod holds its place until `PodGone` says that it has ended."""

    pod: Pod
    node: str
    by: str  # the group that gets the place (Group.name); "" = a round took it
    reason: str  # for users
    preemptor: Pod | None = None  # the pod, or the first pod of the gang, that gets the place
    breaks_budget: bool = False  # a disruption budget forbids it, and there was no other way


class Move(msgspec.Struct, frozen=True):
    """Stop a running pod and start it again in another place, which is reserved for it."""

    pod: Pod
    decision: Decision


class Resize(msgspec.Struct, frozen=True):
    """Let a running group go on with this number of pods."""

    group: str  # Group.name
    pods: int
    reason: str  # for users


Effect = Bind | Wait | Warn | Evict | Move | Resize
