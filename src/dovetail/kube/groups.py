"""PodGroups → the model's groups: the unit that is placed all or not at all. A lone pod is a group of one.

Kinds and labels: scheduler-plugins Coscheduling and its older twin (Koordinator), Kubernetes' own, Volcano's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from dovetail.kube import objects
from dovetail.kube.decode import Found
from dovetail.kube.problems import Problems, printable
from dovetail.model.pod import POD_GROUP, Group, Pod


class GroupLink(NamedTuple):
    """Which PodGroup a pod names, of which API group, and where it says so."""

    name: str
    api_group: str
    field: str


LABELS = {
    "scheduling.x-k8s.io/pod-group": "scheduling.x-k8s.io",
    "pod-group.scheduling.sigs.k8s.io": "scheduling.sigs.k8s.io",
}
VOLCANO = "scheduling.k8s.io/group-name"


def group_link(meta: objects.Meta, spec: objects.PodSpec) -> GroupLink | None:
    """Kubernetes' own field first (kubernetes.md §5.4), then labels, then Volcano's annotation."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return GroupLink(spec.scheduling_group.pod_group_name, "scheduling.k8s.io", "spec.schedulingGroup.podGroupName")
    for label, api_group in LABELS.items():
        if meta.labels.get(label):
            return GroupLink(meta.labels[label], api_group, f"metadata.labels.{label}")
    if meta.annotations.get(VOLCANO):
        return GroupLink(meta.annotations[VOLCANO], "scheduling.volcano.sh", f"metadata.annotations.{VOLCANO}")
    return None


class Waiting(Protocol):
    @property
    def pod(self) -> Pod: ...
    @property
    def link(self) -> GroupLink | None: ...
    @property
    def where(self) -> str: ...


def groups_of(
    pending: Sequence[Waiting],
    running: Iterable[tuple[str, GroupLink | None]],
    pod_groups: Iterable[Found],
    problems: Problems,
) -> tuple[Group, ...]:
    """Groups in the order in which they are served. `running`: (namespace, link) of each pod that holds a node."""
    minimums = _minimums(pod_groups, problems)
    members: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
    groups: list[Group] = []
    for waiting in pending:
        pod, link = waiting.pod, waiting.link
        if link is not None and (pod.namespace, link.name) not in minimums:
            message = f"PodGroup {printable(link.name)} is not in the input; the pod is placed on its own"
            problems.warning(waiting.where, link.field, message)
            link = None
        if link is None:
            groups.append(Group(pod.key, (pod,)))
        else:
            members[pod.namespace, link.name].append(replace(pod, group=f"{pod.namespace}/{link.name}"))
    held: defaultdict[tuple[str, str], int] = defaultdict(int)
    for namespace, link in running:
        if link is not None:
            held[namespace, link.name] += 1
    for (namespace, name), pods in members.items():
        minimum = _minimum(minimums[namespace, name], pods, pending)
        ordered = tuple(sorted(pods, key=lambda pod: pod.order))
        groups.append(Group(f"{POD_GROUP}{namespace}/{name}", ordered, minimum, held[namespace, name]))
    return tuple(sorted(groups, key=lambda group: group.order))


def _minimums(pod_groups: Iterable[Found], problems: Problems) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """(namespace, name) -> API group -> how many pods have to be there together."""
    result: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for item in pod_groups:
        spec: objects.PodGroupSpec = item.value.spec
        gang = spec.scheduling_policy.gang
        core = item.group == "scheduling.k8s.io"
        minimum = (gang.min_count if gang is not None else 1) if core else spec.min_member
        field = "spec.schedulingPolicy.gang.minCount" if core else "spec.minMember"
        if minimum is not None and not 0 <= minimum < 2**31:
            problems.error(item.where, field, f"{minimum} is no number of pods; 1 is used")
            minimum = 1
        known = result[item.namespace, item.name]
        if known and item.group not in known:
            message = f"is also a PodGroup of {', '.join(known)}; pods may mean either"
            problems.warning(item.where, "metadata.name", message)
        known[item.group] = max(minimum or 1, 1)
    return result


def _minimum(known: Mapping[str, int], pods: Sequence[Pod], pending: Sequence[Waiting]) -> int:
    """Of the API group by which the pods name it; of several kinds of one name otherwise the strictest."""
    if len(known) == 1:
        return next(iter(known.values()))
    keys = {pod.key for pod in pods}
    named = {w.link.api_group for w in pending if w.link is not None and w.pod.key in keys} & set(known)
    return max(known[api_group] for api_group in (named or known))
