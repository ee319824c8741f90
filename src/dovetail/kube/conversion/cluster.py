"""Documents → everything that a plan needs: nodes, running pods, pending pods, quotas, and problems of the input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from dovetail.kube.conversion.admission import admission
from dovetail.kube.conversion.alignment import alignments
from dovetail.kube.conversion.budgets import budgets_of
from dovetail.kube.conversion.file_gangs import gangs_of
from dovetail.kube.conversion.file_pods import BoundPod, Context, Pending
from dovetail.kube.conversion.group_facts import NO_FACTS, facts_of, with_facts
from dovetail.kube.conversion.groups import WORKLOADS, GroupName, Standing
from dovetail.kube.conversion.hyper_nodes import HyperNodes, labelled
from dovetail.kube.conversion.nodes import MOST_POOL_NODES, NodeReading, nodes_from_pool, read_node
from dovetail.kube.conversion.queue_tree import as_tree
from dovetail.kube.conversion.queues import queue_from
from dovetail.kube.conversion.quotas import quota_from
from dovetail.kube.conversion.selectors import selecting
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.settling import joined, refuses_new_pods, settled_nodes
from dovetail.kube.conversion.templates import SharedRequests
from dovetail.kube.conversion.topologies import CONFIGURED, HYPER_NODE_TOPOLOGY, levels_of, present, topology_name
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.conversion.volumes import volume_facts
from dovetail.kube.conversion.workloads import Expansion, expand
from dovetail.kube.files.decode import Found, NotPlaced, Objects, decode
from dovetail.kube.files.documents import Document
from dovetail.kube.objects.problems import InputError, Problem, Problems, printable
from dovetail.model.device import only_substring_matches, type_matches
from dovetail.model.node import Alignment, Node
from dovetail.model.pod import Quota, RunningPod
from dovetail.model.rights import Queue
from dovetail.model.volumes import Claim, VolumeFact
from dovetail.whatif.situation import Situation

__all__ = ["ClusterInput", "InputError", "Problem", "Problems", "Settings", "load"]


TEMPLATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"})


@dataclass(frozen=True, slots=True)
class ClusterInput(Situation):
    """The situation that the input describes, and what is wrong with the input."""

    problems: tuple[Problem, ...] = ()
    # Kind -> number of its objects, of kinds that do not matter here.
    ignored: Mapping[str, int] = field(default_factory=dict)
    not_placed: tuple[NotPlaced, ...] = ()  # objects whose pods are not in the groups, by kind, namespace, name
    sources: tuple[str, ...] = ()  # files that contained objects


def load(
    documents: Iterable[Document], settings: Settings, problems: Problems | None = None, everything: bool = False
) -> ClusterInput:
    """Read the whole input. Raises InputError with all problems where the input is structurally wrong.

    `everything`: the input is complete, so that a claim or a PodGroup which is not in it does not exist.
    """
    problems, documents = Problems() if problems is None else problems, tuple(documents)
    found = decode(documents, problems)
    read = _nodes(found, settings.vendors, problems)
    problems.stop_if_fatal()
    context = _context(found, read.all, settings, problems)
    namespaces = context.namespaces
    expansion = _with_facts(expand(found, context), found)
    problems.stop_if_fatal()
    nodes = read.settled(expansion.bound, problems)
    running, strays = _by_known_nodes(expansion.bound, nodes, problems)
    volumes = volume_facts(found, problems)
    pending = expansion.pending if everything else _with_known_claims(expansion.pending, volumes, problems)
    held = [item.running.pod for item in expansion.bound]
    standing = Standing.LISTED if everything else Standing.GIVEN
    gangs = gangs_of(pending, held, _gang_objects(found, expansion), problems, settings.unknown_group, standing)
    _warn_of_substrings(pending, nodes, settings.vendors, problems)
    _warn_of_fallbacks(pending, settings, problems)
    return ClusterInput(
        nodes=nodes,
        running=running,
        strays=strays,
        groups=gangs.groups,
        quotas=_quotas(found, pending, settings.vendors, problems),
        queues=_queues(found, settings, problems),
        volumes=volumes,
        nominated=tuple((item.pod, item.nominated) for item in pending if item.nominated),
        namespaces=tuple((name, namespaces[name].metadata.labels) for name in sorted(namespaces)),
        selecting=selecting(found),
        budgets=budgets_of(found, held, (item.pod for item in pending), problems),
        gangs=gangs.minimums,
        gang_rules=gangs.rules,
        topologies=_topologies(found, read, settings, problems),
        problems=problems.found(),
        ignored=found.ignored,
        not_placed=found.not_placed,
        sources=tuple(dict.fromkeys(document.place.rpartition("#")[0] for document in documents)),
    )


def _context(found: Objects, nodes: Sequence[Node], settings: Settings, problems: Problems) -> Context:
    namespaces = {item.name: item.value for item in found.of("Namespace")}
    admitted = admission(found, nodes, problems)
    return Context(settings, admitted, nodes, problems, SharedRequests(settings), namespaces)


def _with_known_claims(pending: Sequence[Pending], volumes: Sequence[VolumeFact], problems: Problems) -> list[Pending]:
    """The pods without claims that are not in the input, with a note: a manifest is seldom given with its claims."""
    known = {fact.key for fact in volumes if isinstance(fact, Claim)}
    result = []
    for waiting in pending:
        pod = waiting.pod
        missing = [name for name in pod.relations.claims if f"{pod.namespace}/{name}" not in known]
        if missing:
            said = ", ".join(printable(name) for name in missing[:5])
            message = (
                f"PersistentVolumeClaim {said} is not in the input; the pod is placed as if it had none. Add it with -f"
            )
            problems.warning(waiting.where, "spec.volumes", message)
            claims = tuple(name for name in pod.relations.claims if name not in missing)
            pod = replace(pod, relations=replace(pod.relations, claims=claims))
            waiting = replace(waiting, pod=pod)
        result.append(waiting)
    return result


def _quotas(found: Objects, pending: Iterable[Pending], vendors: Vendors, problems: Problems) -> tuple[Quota, ...]:
    """Quotas by namespace and name. Pods that exist were admitted, and are included in Kubernetes' own counts."""
    waiting: defaultdict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)  # namespace -> uid -> use
    for item in pending:
        if item.exists:
            waiting[item.pod.namespace][item.pod.uid] = item.pod.quota_use
    quotas = (quota_from(item, vendors, problems) for item in found.of("ResourceQuota"))
    counting = (replace(quota, waiting=waiting[quota.namespace]) for quota in quotas)
    return tuple(sorted(counting, key=lambda quota: (quota.namespace, quota.name)))


def _queues(found: Objects, settings: Settings, problems: Problems) -> tuple[Queue, ...]:
    """ElasticQuotas and Queues of all projects, and the queues of the configuration, by name."""
    where = {queue.name: f"queue {queue.name} of the configuration" for queue in settings.queues}
    read = list(settings.queues)
    for item in (*found.of("ElasticQuota"), *found.of("Queue")):
        queue = queue_from(item, settings.vendors, problems)
        if queue is None:
            continue
        if queue.name in where:
            problems.error(item.where, "metadata.name", f"is also the name of {where[queue.name]}; rename one")
            continue
        where[queue.name] = item.where
        read.append(queue)
    queues, wrong = as_tree(read)
    for one in wrong:
        problems.error(where[one.queue], one.field, one.message)
    return tuple(queues[name] for name in sorted(queues))


def _gang_objects(found: Objects, expansion: Expansion) -> tuple[Found, ...]:
    """The objects that describe gangs, and those that controllers would create."""
    workloads = (replace(item, group=WORKLOADS) for item in found.of("Workload"))
    job_sets = (replace(item, value=item.value.gang) for item in found.custom if item.value.gang is not None)
    return (*found.of("PodGroup"), *expansion.pod_groups, *workloads, *job_sets)


def _with_facts(expansion: Expansion, found: Objects) -> Expansion:
    """Pods with the queue of their PodGroup, if they name none, and in the group of all gangs that start together."""
    items = (*found.of("PodGroup"), *expansion.pod_groups)
    named = ((GroupName(item.group, item.namespace, item.name), item.value) for item in items)
    facts = {name.key: one for name, value in named if (one := facts_of(name, value)) != NO_FACTS}
    if not facts:
        return expansion
    pending = [replace(item, pod=with_facts(item.pod, facts)) for item in expansion.pending]
    bound = [replace(item, held=item.held.with_pod(with_facts(item.running.pod, facts))) for item in expansion.bound]
    return replace(expansion, pending=pending, bound=bound)


class _Nodes(NamedTuple):
    """Nodes, each read separately."""

    found: Mapping[str, tuple[Found, NodeReading]]  # Node objects
    all: tuple[Node, ...]  # with those of pools, by name
    hyper_nodes: HyperNodes

    def settled(self, bound: Sequence[BoundPod], problems: Problems) -> tuple[Node, ...]:
        """The nodes, checked against each other and against the cards that pods hold."""
        oldest_first = sorted(self.found.values(), key=lambda each: joined(each[0].value))
        nodes = settled_nodes((reading for _, reading in oldest_first), (item.held for item in bound))
        for name, node in nodes.items():
            item, reading = self.found[name]
            if node.unsettled and node.unsettled != reading.node.unsettled:
                problems.warning(item.where, "metadata.annotations", refuses_new_pods(node))
        return tuple(nodes.get(node.name, node) for node in self.all)


def _nodes(found: Objects, vendors: Vendors, problems: Problems) -> _Nodes:
    nodes: dict[str, Node] = {}
    origin: dict[str, str] = {}  # node -> where it is defined
    hyper_nodes = _hyper_nodes(found, problems)
    read = {}
    for item in found.of("Node"):
        reading = read_node(item, vendors, problems)
        read[item.name] = (item, reading._replace(node=labelled(reading.node, hyper_nodes)))
    batches: list[tuple[str, Sequence[Node]]] = [(item.where, (reading.node,)) for item, reading in read.values()]
    total = len(batches)
    for item in found.of("Cluster"):
        for number, pool in enumerate(item.value.nodes):
            total += max(pool.count or 1, 1)
            if total > 2 * MOST_POOL_NODES:
                problems.fatal(item.where, f"nodes[{number}].count", f"more than {2 * MOST_POOL_NODES} nodes in all")
                break
            batches.append((item.where, nodes_from_pool(pool, f"nodes[{number}]", item.where, vendors, problems)))
    for where, batch in batches:
        for node in batch:
            if node.name in nodes:
                message = f"node {printable(node.name)} is also defined by {origin[node.name]}; keep one"
                problems.fatal(where, "metadata.name", message)
            nodes[node.name] = labelled(node, hyper_nodes)
            origin[node.name] = where
    return _aligned(_Nodes(read, tuple(nodes[name] for name in sorted(nodes)), hyper_nodes), found)


def _aligned(nodes: _Nodes, found: Objects) -> _Nodes:
    """The nodes with the alignment of their NodeResourceTopology, if they do not state one themselves."""
    by_node = alignments(found.of("NodeResourceTopology"))
    if not by_node:
        return nodes

    def aligned(node: Node) -> Node:
        stated = node.alignment is not Alignment.NONE
        return node if stated else replace(node, alignment=by_node.get(node.name, Alignment.NONE))

    read = {name: (item, one._replace(node=aligned(one.node))) for name, (item, one) in nodes.found.items()}
    return nodes._replace(found=read, all=tuple(map(aligned, nodes.all)))


def _hyper_nodes(found: Objects, problems: Problems) -> HyperNodes:
    where = {item.value.metadata.name: item.where for item in found.of("HyperNode")}

    def wrong(name: str, field: str, message: str) -> None:
        problems.error(where[name], field, message)

    return HyperNodes((item.value for item in found.of("HyperNode")), wrong)


def _topologies(
    found: Objects, nodes: _Nodes, settings: Settings, problems: Problems
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Name and levels of each topology, by name."""
    configured = present(settings.topology, (node.labels for node in nodes.all))
    given = {CONFIGURED: configured, HYPER_NODE_TOPOLOGY: nodes.hyper_nodes.levels}
    for item in found.of("Topology"):
        given[topology_name(item.group, item.name)] = levels_of(item.value, partial(problems.error, item.where))
    return tuple((name, given[name]) for name in sorted(given) if given[name])


def _by_known_nodes(
    bound: Sequence[BoundPod], nodes: Sequence[Node], problems: Problems
) -> tuple[tuple[RunningPod, ...], tuple[RunningPod, ...]]:
    """Pods on nodes of the input, and those on other nodes; each by node, namespace and name."""
    known = {node.name for node in nodes}
    for item in bound:
        if item.running.node not in known:
            missing = f"node {printable(item.running.node)} is not in the input"
            problems.warning(item.where, "spec.nodeName", f"{missing}; the pod counts in quotas and gangs only")
    ordered = sorted((item.running for item in bound), key=lambda one: (one.node, one.pod.namespace, one.pod.name))
    return tuple(one for one in ordered if one.node in known), tuple(one for one in ordered if one.node not in known)


def _warn_of_fallbacks(pending: Iterable[Pending], settings: Settings, problems: Problems) -> None:
    """Warn once of each policy that needs measured load: files have none, so that another policy decides."""
    warned: set[str] = set()
    for waiting in pending:
        name = waiting.pod.profile.node
        if name in settings.fallbacks and name not in warned:
            warned.add(name)
            instead = f"{settings.fallbacks[name]} places the pods that use it"
            problems.warning(
                waiting.where, "", f"node policy {name} needs measured load, and files have none; {instead}"
            )


def _warn_of_substrings(
    pending: Iterable[Pending], nodes: Sequence[Node], vendors: Vendors, problems: Problems
) -> None:
    """Warn where HAMi matches more types than we do.

    HAMi matches types as substrings (`H20` also accepts an H200); we match whole tokens.
    """
    models: dict[str, set[str]] = {}  # vendor -> models in the cluster
    for node in nodes:
        for device in node.devices:
            models.setdefault(device.vendor, set()).add(device.model)
    checked: set[tuple[str, str, str]] = set()
    for waiting in pending:
        for rules in waiting.pod.device_rules:
            row = vendors.by_word[rules.vendor]
            for key, wanted in ((row.use_type, rules.use_types), (row.nouse_type, rules.nouse_types)):
                for text in wanted:
                    if (waiting.where, key, text) in checked:
                        continue
                    checked.add((waiting.where, key, text))
                    have = models.get(rules.vendor, set())
                    field = f"{_above(waiting.where)}metadata.annotations.{key}"
                    _warn_of_type(text, have, waiting.where, field, problems)


def _above(where: str) -> str:
    """The text in front of a pod's metadata in the object that was read: `file#2 Deployment default/web`."""
    return "spec.template." if where.split(" ")[-2:][0] in TEMPLATED else ""


def _warn_of_type(text: str, models: set[str], where: str, field_name: str, problems: Problems) -> None:
    by_part = sorted(model for model in models if only_substring_matches(model, text))
    said = printable(text, 60)
    if by_part:
        message = f"{said!r} matches whole words only, so not {printable(', '.join(by_part))}; HAMi would take it"
        problems.warning(where, field_name, message)
    elif models and not any(type_matches(model, text) for model in models):
        message = f"{said!r} matches no card of the cluster, which has {printable(', '.join(sorted(models)))}"
        problems.warning(where, field_name, message)
