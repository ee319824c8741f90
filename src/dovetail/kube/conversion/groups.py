"""The names of gangs, and the message while the object that describes one does not exist.

Kinds: PodGroups of scheduler-plugins, Koordinator, Volcano, KAI and Kubernetes; groups of a Kubernetes 1.35 Workload;
JobSets; groups of a LeaderWorkerSet; gangs by our annotations. Files and the live scheduler share all definitions here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from dovetail.kube.conversion.queue_names import DEFAULT_VOLCANO_QUEUE, kai, volcano
from dovetail.kube.objects.bounds import GANG_MEMBERS, QUEUE_NAME
from dovetail.kube.objects.gangs import JOB_SET_GROUP, PodGroupSpec
from dovetail.kube.objects.gangs import KUBERNETES as KUBERNETES
from dovetail.kube.objects.problems import printable
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, SCHEDULER_PLUGINS, VOLCANO_GROUP
from dovetail.model.pod import POD_GROUP

LABELS = {
    "scheduling.x-k8s.io/pod-group": SCHEDULER_PLUGINS,
    "pod-group.scheduling.sigs.k8s.io": KOORDINATOR,
}
VOLCANO = "scheduling.k8s.io/group-name"
KAI_POD_GROUP = "pod-group-name"
OWN_GANG = "dovetail.dev/gang"
# Not API groups: they tell kinds of gangs apart whose objects have one API group, or which have no object.
WORKLOADS, OWN_GANGS, LEADER_WORKER_SETS = "workloads.scheduling.k8s.io", "dovetail.dev", "leaderworkerset.x-k8s.io"
KOORDINATOR_NAME = "gang.scheduling.koordinator.sh/name"
FIELDS = {  # API group -> the field in which a pod names a gang of it
    KUBERNETES: "spec.schedulingGroup.podGroupName",
    **{api_group: f"metadata.labels.{label}" for label, api_group in LABELS.items()},
    VOLCANO_GROUP: f"metadata.annotations.{VOLCANO}",
    KAI_GROUP: f"metadata.annotations.{KAI_POD_GROUP}",
    WORKLOADS: "spec.workloadRef",
    JOB_SET_GROUP: f"metadata.annotations.{OWN_GANG}",
    LEADER_WORKER_SETS: f"metadata.annotations.{OWN_GANG}",
    OWN_GANGS: f"metadata.annotations.{OWN_GANG}",
}
NOUNS = {WORKLOADS: "Workload", JOB_SET_GROUP: "JobSet"}  # of the object; others are PodGroups
# The signs between gangs that start together (Koordinator only), and behind a namespace that differs.
TOGETHER, ELSEWHERE = "+", ":"


class GroupName(NamedTuple):
    """One gang. Two with the same name and different API groups are two gangs."""

    api_group: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The name of the model's group."""
        return f"{POD_GROUP}{self.namespace}/{self.name}@{self.api_group}"

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def parts(self) -> tuple[GroupName, ...]:
        """The gangs that start together under this name; one that starts by itself is its own part."""
        if self.api_group != KOORDINATOR or TOGETHER not in self.name:
            return (self,)
        split = (part.rpartition(ELSEWHERE) for part in self.name.split(TOGETHER))
        return tuple(GroupName(self.api_group, namespace or self.namespace, name) for namespace, _, name in split)

    @property
    def described_by(self) -> GroupName:
        """The name of the object that describes it: replicas of a group in a Workload share one."""
        if self.api_group != WORKLOADS:
            return self
        return self._replace(name="/".join(self.name.split("/")[:2]))

    def __str__(self) -> str:
        name = f"{self.namespace}/{printable(self.name)}"
        if self.api_group == WORKLOADS:
            workload, _, group = name.rpartition("/")
            return f"the group {group} of Workload {workload}"
        if self.api_group in (OWN_GANGS, LEADER_WORKER_SETS):
            return f"gang {name}"
        return f"{NOUNS.get(self.api_group, 'PodGroup')} {name} ({self.api_group})"


def not_together(text: str) -> str:
    """A name that a tenant wrote, as that of one gang: the sign between gangs is an escape in it."""
    return text.replace(TOGETHER, f"\\x{ord(TOGETHER):x}")


def together(names: Iterable[GroupName]) -> GroupName:
    """The name of gangs that start together, whatever their order."""
    ordered = sorted(set(names))
    first = ordered[0]
    parts = (one.name if one.namespace == first.namespace else one.namespace + ELSEWHERE + one.name for one in ordered)
    return first._replace(name=TOGETHER.join(parts))


class Standing(Enum):
    """What is known of the objects of one kind."""

    GIVEN = auto()  # from files: a PodGroup that is not among them was not given
    LISTED = auto()  # all of them are known: one that is not among them does not exist
    BEHIND = auto()  # possibly older than the pods
    NOT_SERVED = auto()  # the API server has no such kind


def group_name(key: str) -> GroupName:
    """The inverse of `GroupName.key`."""
    title, _, api_group = key.removeprefix(POD_GROUP).rpartition("@")
    namespace, _, name = title.partition("/")
    return GroupName(api_group, namespace, name)


def queue_of(api_group: str, spec: PodGroupSpec) -> str:
    """The queue of the group's pods that name none themselves (Queue.name); "" = none."""
    if api_group == VOLCANO_GROUP:
        return volcano((spec.queue or DEFAULT_VOLCANO_QUEUE)[: QUEUE_NAME.most + 1])
    return kai(spec.queue[: QUEUE_NAME.most + 1]) if api_group == KAI_GROUP and spec.queue else ""


def too_many_members(name: GroupName, minimum: int) -> str:
    """Why pods of a gang with a minimum above the bound are not placed; "" = it is within the bound."""
    if minimum <= GANG_MEMBERS.most:
        return ""
    field = {KUBERNETES: "spec.schedulingPolicy.gang.minCount", OWN_GANGS: f"{OWN_GANG}-size"}
    return f"{name}: {field.get(name.api_group, 'spec.minMember')}: {GANG_MEMBERS.exceeded(minimum)}"


def why_unknown(name: GroupName, standing: Standing, others: tuple[str, ...] = ()) -> str:
    """What is missing, for a pod that names this gang. `others`: API groups that have a gang of this name."""
    named_by, noun = _named_by(name.api_group), NOUNS.get(name.api_group, "PodGroup")
    if standing is Standing.BEHIND:
        return f"{name}: the watch of {noun}s is behind that of pods; deciding when it has caught up"
    if standing is Standing.NOT_SERVED:
        served = KUBERNETES if name.api_group == WORKLOADS else name.api_group
        return f"the API server does not serve {served} {noun}s; install the CRD or remove the {named_by}"
    if name.api_group in (OWN_GANGS, LEADER_WORKER_SETS):
        return f"{name}: no pod of it says how many start together; write {OWN_GANG}-size beside {OWN_GANG}"
    lacks, cure = "does not exist", "create it"
    if standing is Standing.GIVEN:
        lacks, cure = "is not in the input", "add it with -f"
    hint = f" (there is one of {', '.join(others)}, which the {_named_by(others[0])} names)" if others else ""
    return f"{name} {lacks}{hint}; {cure} or remove the {named_by}"


def _named_by(api_group: str) -> str:
    """How a pod names the group: `label scheduling.x-k8s.io/pod-group`."""
    field = FIELDS[api_group]
    for place, what in (("metadata.labels.", "label "), ("metadata.annotations.", "annotation ")):
        if field.startswith(place):
            return what + field.removeprefix(place)
    return f"field {field}"
