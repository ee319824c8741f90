"""PodGroups: which one a pod names, how many members it needs, and the message while it does not exist.

Kinds and labels: scheduler-plugins Coscheduling and its older variant (Koordinator), Kubernetes' own, Volcano's. Files
and the live scheduler share every definition here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import GANG_MEMBERS
from dovetail.kube.objects.problems import printable
from dovetail.model.pod import POD_GROUP
from dovetail.model.visible import visible_lines

KUBERNETES = "scheduling.k8s.io"  # the API group of Kubernetes' own PodGroups
LABELS = {
    "scheduling.x-k8s.io/pod-group": "scheduling.x-k8s.io",
    "pod-group.scheduling.sigs.k8s.io": "scheduling.sigs.k8s.io",
}
VOLCANO = "scheduling.k8s.io/group-name"
FIELDS = {  # API group -> the field in which a pod names a PodGroup of it
    KUBERNETES: "spec.schedulingGroup.podGroupName",
    **{api_group: f"metadata.labels.{label}" for label, api_group in LABELS.items()},
    "scheduling.volcano.sh": f"metadata.annotations.{VOLCANO}",
}
LONGEST_GROUP_NAME = 253  # of a PodGroup: a name cut to one character more matches none


class GroupName(NamedTuple):
    """One PodGroup. Two with the same name and different API groups are two gangs."""

    api_group: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The name of the model's group."""
        return f"{POD_GROUP}{self.namespace}/{self.name}@{self.api_group}"

    def __str__(self) -> str:
        return f"PodGroup {self.namespace}/{printable(self.name)} ({self.api_group})"


class Standing(Enum):
    """What is known of the PodGroups of one API group."""

    GIVEN = auto()  # from files: a PodGroup that is not among them was not given
    LISTED = auto()  # all of them are known: one that is not among them does not exist
    BEHIND = auto()  # possibly older than the pods
    NOT_SERVED = auto()  # the API server has no such kind


def named_group(meta: objects.Meta, spec: objects.PodSpec, namespace: str) -> str:
    """The key of the PodGroup that a pod names; "" = none.

    Kubernetes' own field goes first (KEP-4671), then labels, then Volcano's annotation.
    """
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return GroupName(KUBERNETES, namespace, spec.scheduling_group.pod_group_name).key
    for label, api_group in LABELS.items():
        if meta.labels.get(label):
            return GroupName(api_group, namespace, meta.labels[label]).key
    if meta.annotations.get(VOLCANO):
        name = visible_lines(meta.annotations[VOLCANO])[: LONGEST_GROUP_NAME + 1]
        return GroupName("scheduling.volcano.sh", namespace, name).key
    return ""


def group_name(key: str) -> GroupName:
    """The inverse of `GroupName.key`."""
    title, _, api_group = key.removeprefix(POD_GROUP).rpartition("@")
    namespace, _, name = title.partition("/")
    return GroupName(api_group, namespace, name)


def minimum_of(api_group: str, spec: objects.PodGroupSpec) -> tuple[int, str, str]:
    """How many members must be placed together; the field with this number, and what is wrong with it ("" = nothing).

    Kubernetes' own PodGroups have a policy: `gang` with a minimum, or `basic` without one.
    """
    gang = spec.scheduling_policy.gang
    field = "spec.minMember"
    said = spec.min_member
    if api_group == KUBERNETES:
        field, said = "spec.schedulingPolicy.gang.minCount", gang.min_count if gang is not None else 1
    if said is not None and said < 0:
        return 1, field, f"{said} is no number of pods; 1 is used"
    return max(said or 1, 1), field, ""


def too_many_members(name: GroupName, minimum: int) -> str:
    """Why pods of a gang with a minimum above the bound are not placed; "" = it is within the bound."""
    if minimum <= GANG_MEMBERS.most:
        return ""
    field = "spec.schedulingPolicy.gang.minCount" if name.api_group == KUBERNETES else "spec.minMember"
    return f"{name}: {field}: {GANG_MEMBERS.exceeded(minimum)}"


def why_unknown(name: GroupName, standing: Standing, others: tuple[str, ...] = ()) -> str:
    """What is missing, for a pod that names this group. `others`: API groups that have a PodGroup of this name."""
    named_by = _named_by(name.api_group)
    if standing is Standing.BEHIND:
        return f"{name}: the watch of PodGroups is behind that of pods; deciding when it has caught up"
    if standing is Standing.NOT_SERVED:
        return f"the API server does not serve {name.api_group} PodGroups; install the CRD or remove the {named_by}"
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
