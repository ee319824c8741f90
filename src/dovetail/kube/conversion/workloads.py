"""Pods that exist and pods that workloads still have to make.

Bound pods are running and hold what they have until they are gone, terminating ones included; finished ones nothing.
Replicas that exist are not made twice. New ones are called `<workload>-<ordinal>`, a DaemonSet's `<name>-<node>`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice

from dovetail.kube.conversion.admission import Admission
from dovetail.kube.conversion.assigned import has_record, without_finished_init
from dovetail.kube.conversion.groups import GroupName, named_group
from dovetail.kube.conversion.known_names import check_workload_names, names_of
from dovetail.kube.conversion.owners import NEWEST, Owners, controller, created, maker, owners
from dovetail.kube.conversion.records import account
from dovetail.kube.conversion.requests import Template, kinds_of, pod_from, renamed
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.custom_workloads import PodSet
from dovetail.kube.files.decode import CustomWorkload, Found, Objects
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.rules import Toleration

TERMINAL = ("Succeeded", "Failed")
MADE_BY_OPERATORS = ("Job", "StatefulSet", "Deployment", "ReplicaSet")  # which pods are then made by
VOLCANO_GROUP = "scheduling.volcano.sh"
MOST_REPLICAS = 100_000  # of one workload
MOST_PODS = 1_000_000

# pkg/controller/daemon/util/daemonset_util.go AddOrUpdateDaemonPodTolerations
DAEMON_TOLERATIONS = (
    Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute"),
    Toleration("node.kubernetes.io/unreachable", "Exists", effect="NoExecute"),
    Toleration("node.kubernetes.io/disk-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/memory-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/pid-pressure", "Exists", effect="NoSchedule"),
    Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod to be placed."""

    pod: Pod
    where: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that holds a node."""

    running: RunningPod
    where: str


@dataclass(slots=True)
class _Owned:
    """What exists of one workload."""

    active: int = 0  # neither finished nor going
    succeeded: int = 0
    nodes: set[str] = field(default_factory=set)  # where, for DaemonSets

    def count(self, pod: objects.Pod) -> None:
        if pod.status.phase in TERMINAL:
            self.succeeded += pod.status.phase == "Succeeded"
        elif not pod.metadata.deletion_timestamp:
            self.active += 1
            self.nodes.update(filter(None, (pod.spec.node_name, _daemon_target(pod.spec))))


@dataclass(slots=True)
class _Seen:
    """Names that the input has."""

    pods: defaultdict[str, set[str]]  # namespace -> of pods, with those that were made here
    groups: set[tuple[str, str]]  # (namespace, name) of PodGroups
    owned: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # namespace -> with an owner


@dataclass(slots=True)
class Expansion:
    """Everything there is to place and everything that runs."""

    pending: list[Pending] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)
    uids: set[str] = field(default_factory=set)
    pod_groups: list[Found] = field(default_factory=list)  # which controllers would make


@dataclass(frozen=True, slots=True)
class Context:
    """What reading a pod needs to know."""

    settings: Settings
    admission: Admission
    nodes: Sequence[Node]
    problems: Problems
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name -> labels

    def settings_for(self, source: objects.Pod | objects.PodTemplate, namespace: str) -> Settings:
        labels = (source.metadata.labels, self.namespaces.get(namespace, {}))
        if isinstance(source, objects.Pod) and _exists(source):
            return self.settings.under(*labels)
        return self.settings.before_admission(source.spec, *labels)


def expand(found: Objects, context: Context) -> Expansion:
    """Existing pods, then what each workload lacks."""
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
        if len(result.pending) > MOST_PODS:
            context.problems.error(item.where, "", f"more than {MOST_PODS} pods; this workload is left out")
            continue
        _missing(item, owned, names[item.namespace], result, context)
    for item in _without_children(found):
        _missing_of_custom(item, seen, result, context)
    return result


def _existing(item: Found, who: Owners, owned: defaultdict[str, _Owned], result: Expansion, context: Context) -> None:
    source: objects.Pod = item.value
    owner = who.of_pod(source.metadata, item.namespace)
    for each in dict.fromkeys((owner, maker(source.metadata, item.namespace))):
        owned[each].count(source)
    if source.status.phase in TERMINAL:
        return
    going = bool(source.metadata.deletion_timestamp)
    node = source.spec.node_name
    if node:
        result.bound.append(Bound(_running(item, owner, result.uids, context), item.where))
    elif going:
        context.problems.note(
            item.where, "metadata.deletionTimestamp", "is set and the pod was never placed; it is left out"
        )
    else:
        pod = _pod(item, source, "spec", context, context.problems)
        pod = _with_identity(pod, item, owner, result.uids, context)
        result.pending.append(Pending(pod, item.where))


def _daemon_target(spec: objects.PodSpec) -> str:
    """The DaemonSet controller pins its pods by an affinity to metadata.name."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    for term in affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ():
        for row in term.match_fields:
            if row.key == "metadata.name" and row.operator == "In" and len(row.values) == 1:
                return row.values[0]
    return ""


def _with_identity(pod: Pod, item: Found, owner: str, uids: set[str], context: Context) -> Pod:
    """Uid, owner, group and age. Everything that is held is held by a uid, so no two pods may share one."""
    meta: objects.Meta = item.value.metadata
    uid = meta.uid or pod.uid
    if uid in uids:
        context.problems.warning(
            item.where, "metadata.uid", "is also another pod's; namespace and name are used instead"
        )
        uid = pod.uid
    uids.add(uid)
    made_by, group = maker(meta, item.namespace), named_group(meta, item.value.spec, item.namespace)
    age = created(meta, item.where, context.problems)
    return replace(pod, uid=uid, owner=owner, maker=made_by, group=group, created=age)


def _running(item: Found, owner: str, uids: set[str], context: Context) -> RunningPod:
    source: objects.Pod = item.value
    quiet = Problems()  # what is noted of a pod that runs already helps nobody; what is wrong is worth a warning
    pod = _pod(item, source, "spec", context, quiet)
    for problem in quiet.found():
        if problem.severity == "error":
            message = f"{problem.message}; the pod runs, and what could be read of it is counted"
            context.problems.warning(problem.where, problem.field, message)
    pod = replace(_with_identity(pod, item, owner, uids, context), refusal=None)
    settings, annotations, node = context.settings, source.metadata.annotations, source.spec.node_name
    ours, where = source.spec.scheduler_name in settings.schedulers, item.where
    found = account(pod, node, annotations, settings.vendors, settings.seals, where, context.problems, ours)
    shares = found.shares
    if shares is not None:
        shares = without_finished_init(shares, kinds_of(source.spec), source)
    return RunningPod(pod, node, shares, found.trust)


def _pod(
    item: Found, source: objects.Pod | objects.PodTemplate, path: str, context: Context, problems: Problems
) -> Pod:
    settings = context.settings_for(source, item.namespace)
    if isinstance(source, objects.Pod) and source.spec.node_name and _has_record(source, context):
        settings = context.settings  # it was admitted, whatever its labels ask of HAMi's webhook by now
    if isinstance(source, objects.Pod) and _exists(source):
        admitted = context.admission.with_priority(source.spec, item.where, problems)
    else:
        admitted = context.admission.admit(source.spec, item.namespace, settings.vendors, item.where, problems)
    status = source.status if isinstance(source, objects.Pod) else None
    template = Template(item.where, path, item.namespace, item.name, source.metadata, admitted)
    template = replace(template, exists=False) if status is None else replace(template, status=status)
    return pod_from(template, settings, problems)


def _has_record(source: objects.Pod, context: Context) -> bool:
    return has_record(source.metadata.annotations, context.settings.vendors)


def _exists(source: objects.Pod) -> bool:
    """Read from a cluster, where every pod has a uid, or running somewhere; else it is still to be made."""
    return bool(source.metadata.uid or source.spec.node_name)


def _expandable(found: Objects, problems: Problems) -> Iterator[Found]:
    """Workloads that make pods themselves, in a fixed order; those that cannot choose other names first."""
    deployments = {(item.namespace, item.name) for item in found.of("Deployment")}
    for kind in ("StatefulSet", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "Job"):
        for item in sorted(found.of(kind), key=lambda item: (item.namespace, item.name)):
            above = controller(item.value.metadata)
            if above is not None and above.kind == "Deployment" and (item.namespace, above.name) in deployments:
                continue  # the Deployment speaks for it
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
    if wanted <= 0:
        return
    pod = _pod(item, template, "spec.template.spec", context, context.problems)
    made_by = f"{item.kind}/{item.namespace}/{item.name}"
    group = named_group(template.metadata, template.spec, item.namespace)
    pod = replace(pod, owner=owner, maker=made_by, group=group, created=NEWEST)
    names_known = names_of(context.settings.vendors)
    check_workload_names(item.kind, workload.metadata, template.metadata, names_known, item.where, context.problems)
    if item.kind == "DaemonSet":
        pods: Iterable[Pod] = _daemons(item.name, pod, exists, context.nodes)
    else:
        start = max(workload.spec.ordinals.start, 0) if item.kind == "StatefulSet" else 0
        pods = (renamed(pod, name) for name in _names(item, start, wanted, names))
    for made in pods:
        while made.name in names:  # only a DaemonSet's: its names are not chosen among the free ones
            made = renamed(made, f"{made.name}-0")
        names.add(made.name)
        result.pending.append(Pending(made, item.where))


def _without_children(found: Objects) -> list[Found]:
    """Operators' objects, in a fixed order, but for those whose own Jobs, StatefulSets and so on are in the input."""
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
    names, exists = seen.pods[item.namespace], seen.owned[item.namespace]
    gang = _gang_of(item, seen, result)
    for one, template, wanted in zip(made.sets, workload.templates, _left(item.name, made.sets, exists), strict=True):
        if not wanted:
            continue
        if len(result.pending) + wanted > MOST_PODS:
            problems.error(item.where, one.path, f"more than {MOST_PODS} pods; these are left out")
            continue
        pod = _pod(item, template, one.spec_path, context, problems)
        owner = f"{item.kind}/{item.namespace}/{item.name}"
        group = named_group(template.metadata, template.spec, item.namespace) or gang
        pod = replace(pod, owner=owner, maker=owner, group=group, created=NEWEST)
        stem = f"{item.name}-{one.stem}" if one.stem else item.name
        free = (name for name in (f"{stem}-{ordinal}" for ordinal in count()) if name not in names)
        for name in list(islice(free, wanted)):
            names.add(name)
            result.pending.append(Pending(renamed(pod, name), item.where))
        names_known = names_of(context.settings.vendors)
        check_workload_names(item.kind, workload.metadata, template.metadata, names_known, item.where, problems)


def _left(name: str, sets: Sequence[PodSet], exists: Sequence[str]) -> list[int]:
    """Of each set how many pods are not there yet: by their names first, what is left over in the order of the sets."""
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


def _gang_of(item: Found, seen: _Seen, result: Expansion) -> str:
    """The key of the PodGroup that the object's controller makes, where it makes one; added to what there is."""
    workload: CustomWorkload = item.value
    minimum, uid = workload.made.minimum, workload.metadata.uid
    if minimum is None:
        return ""
    name = f"{item.name}-{uid}" if uid else item.name
    if (item.namespace, name) not in seen.groups:
        group = objects.PodGroup(workload.metadata, objects.PodGroupSpec(min_member=minimum))
        result.pod_groups.append(Found(item.where, "PodGroup", VOLCANO_GROUP, item.namespace, name, group))
    return GroupName(VOLCANO_GROUP, item.namespace, name).key


def _names(item: Found, start: int, wanted: int, taken: set[str]) -> list[str]:
    """The lowest ordinals nobody has. A StatefulSet's are its identity, so one that exists is never replaced."""
    free = (name for name in (f"{item.name}-{ordinal}" for ordinal in count(start)) if name not in taken)
    return list(islice(free, wanted))


def _wanted(item: Found, exists: _Owned, names: set[str], problems: Problems) -> int:
    """How many pods the controller would still make."""
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
    """Pods that may run at once: never more than completions are left (pkg/controller/job/job_controller.go)."""
    job: objects.Workload = item.value
    completions = job.spec.completions
    succeeded = max(exists.succeeded, job.status.succeeded)
    if completions is None:  # a work queue: once one succeeded no more are started
        return exists.active if succeeded else parallelism
    return min(parallelism, max(completions - succeeded, 0)) if completions >= 0 else completions


def _daemons(name: str, pod: Pod, exists: _Owned, nodes: Sequence[Node]) -> Iterator[Pod]:
    tolerations = tuple(dict.fromkeys((*pod.node_rules.tolerations, *DAEMON_TOLERATIONS)))
    rules = replace(pod.node_rules, tolerations=tolerations)
    for node in nodes:
        own = replace(rules, node_name=rules.node_name or node.name)
        if node.name not in exists.nodes and own.refusal(node.static) is Reason.OK:
            yield replace(renamed(pod, f"{name}-{node.name}"), node_rules=own)
