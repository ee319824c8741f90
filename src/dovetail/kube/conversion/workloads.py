"""Pods that exist, and pods that workloads still have to create.

Bound pods are running, and hold their resources until they are gone, also while terminating. Finished pods hold
nothing. Replicas that exist are not created twice. New ones are named `<workload>-<ordinal>`, those of a DaemonSet
`<name>-<node>`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice

from dovetail.kube.conversion.file_pods import (
    BoundPod,
    Context,
    Pending,
    bound_pod,
    exists,
    is_left_out,
    made_pod,
    pending_pod,
    stored_pod,
)
from dovetail.kube.conversion.known_names import check_workload_names, names_of
from dovetail.kube.conversion.memberships import membership
from dovetail.kube.conversion.owners import NEWEST_CREATION, Owners, controller, maker, owners
from dovetail.kube.conversion.queue_names import named_queue, volcano
from dovetail.kube.conversion.reading import TERMINAL, identified, in_gang
from dovetail.kube.conversion.requests import renamed
from dovetail.kube.conversion.set_pods import of_job, of_set
from dovetail.kube.files.custom_workloads import PodSet
from dovetail.kube.files.decode import CustomWorkload, Found, Objects, convert
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import NetworkTopology, PodGroup, PodGroupSpec
from dovetail.kube.objects.problems import Problems
from dovetail.kube.objects.queues import VOLCANO_GROUP
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.rules import Toleration

MADE_BY_OPERATORS = ("Job", "StatefulSet", "Deployment", "ReplicaSet")  # these then create the pods
MOST_REPLICAS = 100_000  # of one workload
MOST_PENDING_PODS = 1_000_000

# pkg/controller/daemon/util/daemonset_util.go AddOrUpdateDaemonPodTolerations
DAEMON_TOLERATIONS = (
    Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute"),
    Toleration("node.kubernetes.io/unreachable", "Exists", effect="NoExecute"),
    Toleration("node.kubernetes.io/disk-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/memory-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/pid-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule"),
)


@dataclass(slots=True)
class _Owned:
    """The existing pods of one workload."""

    active: int = 0  # neither finished nor terminating
    succeeded: int = 0
    nodes: set[str] = field(default_factory=set)  # their nodes, for DaemonSets

    def count(self, pod: objects.Pod) -> None:
        if pod.status.phase in TERMINAL:
            self.succeeded += pod.status.phase == "Succeeded"
        elif not pod.metadata.deletion_timestamp:
            self.active += 1
            self.nodes.update(filter(None, (pod.spec.node_name, _daemon_target(pod.spec))))


@dataclass(slots=True)
class _Seen:
    """Names in the input."""

    pods: defaultdict[str, set[str]]  # namespace -> names of pods, including those created here
    groups: set[tuple[str, str]]  # (namespace, name) of PodGroups
    # Namespace -> pods with an owner.
    owned: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(slots=True)
class Expansion:
    """All pods to place, and all running pods."""

    pending: list[Pending] = field(default_factory=list)
    bound: list[BoundPod] = field(default_factory=list)
    uids: set[str] = field(default_factory=set)
    pod_groups: list[Found] = field(default_factory=list)  # those that controllers would create


def expand(found: Objects, context: Context) -> Expansion:
    """Existing pods, then the missing pods of each workload."""
    result = Expansion()
    owned: defaultdict[str, _Owned] = defaultdict(_Owned)  # "ReplicaSet/namespace/name", "Deployment/…" -> what exists
    names: defaultdict[str, set[str]] = defaultdict(set)  # namespace -> names of pods
    who = owners(found)
    seen = _Seen(names, {(item.namespace, item.name) for item in found.of("PodGroup")})
    for item in found.of("Pod"):
        names[item.namespace].add(item.name)
        if found.custom and controller(item.value.metadata) is not None:
            seen.owned[item.namespace].append(item.name)
        _existing(item, who, owned, result, context)
    for item in _expandable(found, context.problems):
        if len(result.pending) > MOST_PENDING_PODS:
            context.problems.error(item.where, "", f"more than {MOST_PENDING_PODS} pods; this workload is left out")
            continue
        _missing(item, owned, names[item.namespace], result, context)
    for item in _without_children(found):
        _missing_of_custom(item, seen, result, context)
    return result


def _existing(item: Found, who: Owners, owned: defaultdict[str, _Owned], result: Expansion, context: Context) -> None:
    given: objects.Pod = item.value
    for each in dict.fromkeys((who.of_pod(given.metadata, item.namespace), maker(given.metadata, item.namespace))):
        owned[each].count(given)
    if given.status.phase in TERMINAL:
        return
    if given.spec.node_name:
        result.bound.append(bound_pod(stored_pod(item, result.uids, context), who, item.where, context))
    elif is_left_out(item, context):
        return
    elif given.metadata.deletion_timestamp:
        context.problems.note(
            item.where, "metadata.deletionTimestamp", "is set and the pod was never placed; it is left out"
        )
    else:
        source = stored_pod(item, result.uids, context)
        asked, tolerances = pending_pod(item, source, context), context.admission.tolerances
        pod = identified(asked, source, who, item.where, context.problems, tolerances)
        result.pending.append(Pending(pod, item.where, given.status.nominated_node_name, exists(given)))


def _daemon_target(spec: objects.PodSpec) -> str:
    """The node of a DaemonSet's pod: its controller pins pods by an affinity to metadata.name."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    for term in affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ():
        for row in term.match_fields:
            if row.key == "metadata.name" and row.operator == "In" and len(row.values) == 1:
                return row.values[0]
    return ""


def _expandable(found: Objects, problems: Problems) -> Iterator[Found]:
    """Workloads that create pods directly, in a fixed order; those that cannot choose other names first."""
    deployments = {(item.namespace, item.name) for item in found.of("Deployment")}
    for kind in ("StatefulSet", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "Job"):
        for item in sorted(found.of(kind), key=lambda item: (item.namespace, item.name)):
            above = controller(item.value.metadata)
            if above is not None and above.kind == "Deployment" and (item.namespace, above.name) in deployments:
                continue  # its Deployment is used instead
            if item.value.spec.template is None and item.value.metadata.uid:
                continue  # of a snapshot: its controller has created its pods
            if item.value.spec.template is None:
                problems.fatal(item.where, "spec.template", "is missing; a workload needs a pod template")
                continue
            yield item


def _missing(
    item: Found,
    owned: defaultdict[str, _Owned],
    names: set[str],
    result: Expansion,
    context: Context,
) -> None:
    workload: objects.Workload = item.value
    template = workload.spec.template
    assert template is not None
    owner = f"{item.kind}/{item.namespace}/{item.name}"
    above = controller(workload.metadata)
    if item.kind == "ReplicaSet" and above is not None:
        owner = f"{above.kind}/{item.namespace}/{above.name}"
    exists = owned[f"{item.kind}/{item.namespace}/{item.name}"]  # its own pods, not those of its siblings
    wanted = 1 if item.kind == "DaemonSet" else _wanted(item, exists, names, context.problems)
    if wanted <= 0 or is_left_out(item, context):
        return
    pod = made_pod(item, template, "spec.template.spec", context)
    made_by = f"{item.kind}/{item.namespace}/{item.name}"
    meta = of_job(template.metadata, item.name) if item.kind == "Job" else template.metadata
    beside = context.problems.below("spec.template.")
    pod = in_gang(pod, membership(meta, template.spec, item.namespace), item.where, beside)
    queue = named_queue(template.metadata)
    pod = replace(pod, owner=owner, maker=made_by, queue=queue, created=NEWEST_CREATION)
    names_known = names_of(context.settings.vendors)
    check_workload_names(item.kind, workload.metadata, template.metadata, names_known, item.where, context.problems)
    if item.kind == "DaemonSet":
        pods: Iterable[Pod] = _daemons(item.name, pod, exists, context.nodes)
    else:
        start = max(workload.spec.ordinals.start, 0) if item.kind == "StatefulSet" else 0
        pods = (renamed(pod, name) for name in _names(item, start, wanted, names))
    for made in pods:
        while made.name in names:  # only for a DaemonSet: its names are not chosen among the free ones
            made = renamed(made, f"{made.name}-0")
        names.add(made.name)
        result.pending.append(Pending(made, item.where))


def _without_children(found: Objects) -> list[Found]:
    """Operators' objects in a fixed order, except those whose own Jobs, StatefulSets and so on are in the input."""
    parents = set()
    for item in (*found.custom, *(item for kind in MADE_BY_OPERATORS for item in found.of(kind))):
        above = controller(item.value.metadata)
        if above is not None:
            parents.add((above.kind, item.namespace, above.name))
    rest = [item for item in found.custom if (item.kind, item.namespace, item.name) not in parents]
    return sorted(rest, key=lambda item: (item.namespace, item.kind, item.group, item.name))


def _missing_of_custom(item: Found, seen: _Seen, result: Expansion, context: Context) -> None:
    workload: CustomWorkload = item.value
    made, problems = workload.made, context.problems
    if made.rests:
        problems.note(item.where, made.rests, f"the {item.kind} makes no pods at present")
        return
    if is_left_out(item, context):
        return
    names, exists = seen.pods[item.namespace], seen.owned[item.namespace]
    gang = _gang_of(item, seen, result, problems)
    for one, template, wanted in zip(made.sets, workload.templates, _left(item.name, made.sets, exists), strict=True):
        if not wanted:
            continue
        if len(result.pending) + wanted > MOST_PENDING_PODS:
            problems.error(item.where, one.path, f"more than {MOST_PENDING_PODS} pods; these are left out")
            continue
        pod = made_pod(item, template, one.spec_path, context)
        owner = f"{item.kind}/{item.namespace}/{item.name}"
        queue = named_queue(template.metadata) or (volcano(made.queue) if made.queue else "")
        pod = replace(pod, owner=owner, maker=owner, queue=queue, created=NEWEST_CREATION)
        stem = f"{item.name}-{one.stem}" if one.stem else item.name
        free = (name for name in (f"{stem}-{ordinal}" for ordinal in count()) if name not in names)
        beside = problems.below(one.spec_path.removesuffix("spec"))
        for number, name in enumerate(islice(free, wanted), one.count - wanted):
            names.add(name)
            meta = of_set(template.metadata, item, one, number, gang)
            place = membership(meta, template.spec, item.namespace)
            result.pending.append(Pending(renamed(in_gang(pod, place, item.where, beside), name), item.where))
        names_known = names_of(context.settings.vendors)
        check_workload_names(item.kind, workload.metadata, template.metadata, names_known, item.where, problems)


def _left(name: str, sets: Sequence[PodSet], exists: Sequence[str]) -> list[int]:
    """For each set, how many pods are missing.

    Existing pods are matched by name first, the others in the order of the sets.
    """
    own = [pod for pod in exists if pod.startswith(f"{name}-")]
    result = []
    for one in sets:
        prefix = f"{name}-{one.stem}-"
        others = [pod for pod in own if not (one.stem and pod.startswith(prefix))]
        result.append(max(one.count - (len(own) - len(others)), 0))
        own = others
    left_over = len(own)
    for number, wanted in enumerate(result):
        result[number] = max(wanted - left_over, 0)
        left_over -= wanted - result[number]
    return result


def _gang_of(item: Found, seen: _Seen, result: Expansion, problems: Problems) -> str:
    """The name of the PodGroup that the object's controller creates, if it does; it is added to the result."""
    workload: CustomWorkload = item.value
    minimum, uid = workload.made.minimum, workload.metadata.uid
    if minimum is None:
        return ""
    name = f"{item.name}-{uid}" if uid else item.name
    if (item.namespace, name) not in seen.groups:
        topology = convert(
            workload.made.network_topology, NetworkTopology, item.where, problems, "spec.networkTopology"
        )
        tasks = dict(workload.made.tasks)
        spec = PodGroupSpec(min_member=minimum, min_task_member=tasks, network_topology=topology)
        group = PodGroup(workload.metadata, spec)
        result.pod_groups.append(Found(item.where, "PodGroup", VOLCANO_GROUP, item.namespace, name, group))
    return name


def _names(item: Found, start: int, wanted: int, taken: set[str]) -> list[str]:
    """Names with the lowest free ordinals.

    A StatefulSet's ordinals are identities, so an existing one is never replaced.
    """
    free = (name for name in (f"{item.name}-{ordinal}" for ordinal in count(start)) if name not in taken)
    return list(islice(free, wanted))


def _wanted(item: Found, exists: _Owned, names: set[str], problems: Problems) -> int:
    """How many pods the controller would still create."""
    spec: objects.WorkloadSpec = item.value.spec
    path = "spec.parallelism" if item.kind == "Job" else "spec.replicas"
    given = spec.parallelism if item.kind == "Job" else spec.replicas
    total = 1 if given is None else given
    if item.kind == "Job":
        if any(c.type in ("Complete", "Failed") and c.status == "True" for c in item.value.status.conditions):
            return 0
        total = _job_total(item, exists, total)
    if not 0 <= total <= MOST_REPLICAS:
        problems.error(item.where, path, f"{total} is not between 0 and {MOST_REPLICAS}; the workload is left out")
        return 0
    if spec.suspend and item.kind == "Job":
        problems.note(item.where, "spec.suspend", "the Job is suspended; it makes no pods")
        return 0
    if spec.paused and item.kind == "Deployment":
        problems.note(item.where, "spec.paused", "the Deployment is paused; it makes no new pods")
        return 0
    if item.kind == "StatefulSet":
        start = max(spec.ordinals.start, 0)
        return sum(f"{item.name}-{ordinal}" not in names for ordinal in range(start, start + total))
    return total - exists.active


def _job_total(item: Found, exists: _Owned, parallelism: int) -> int:
    """Pods that may run at once: at most the remaining completions (pkg/controller/job/job_controller.go)."""
    job: objects.Workload = item.value
    completions = job.spec.completions
    succeeded = max(exists.succeeded, job.status.succeeded)
    if completions is None:  # a work queue: after the first success no more pods are started
        return exists.active if succeeded else parallelism
    return min(parallelism, max(completions - succeeded, 0)) if completions >= 0 else completions


def _daemons(name: str, pod: Pod, exists: _Owned, nodes: Sequence[Node]) -> Iterator[Pod]:
    tolerations = tuple(dict.fromkeys((*pod.node_rules.tolerations, *DAEMON_TOLERATIONS)))
    rules = replace(pod.node_rules, tolerations=tolerations)
    for node in nodes:
        own = replace(rules, node_name=rules.node_name or node.name)
        if node.name not in exists.nodes and own.refusal(node.static) is Reason.OK:
            yield replace(renamed(pod, f"{name}-{node.name}"), node_rules=own)
