"""Objects of a watch → the model's values, by conversion/reading.py; this module caches the results.

Pods of one template share its parts, and the engine recognises them by these. Reading a spec costs more than placing
the pod, and thousands of pods differ only in their names. So readings are cached by a digest of the spec's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from types import MappingProxyType

from dovetail.engine.ledger.remembered import most_for
from dovetail.kube.conversion.assigned import recorded_shares
from dovetail.kube.conversion.group_facts import GroupFacts, with_facts
from dovetail.kube.conversion.memberships import membership
from dovetail.kube.conversion.nodes import NodeReading, read_node
from dovetail.kube.conversion.owners import Owners, created
from dovetail.kube.conversion.plugins import (
    asks_whole_cards,
    assigned_by_plugin,
    assigned_trace,
    with_plugin_records,
    written_by_plugins,
)
from dovetail.kube.conversion.reading import (
    Held,
    Stay,
    asked_by,
    booked,
    first_held,
    identified,
    is_passed_over,
)
from dovetail.kube.conversion.records import CHANGED, trace_of
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.templates import Reading, TemplateDigests, encoded
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.live.bare import bare_running
from dovetail.kube.live.kept import Kept
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.decision import Share
from dovetail.model.node import Node
from dovetail.model.pod import Pod, Tolerance

MOST_TEMPLATES, MOST_TEMPLATE_BYTES = 20_000, 16 << 20  # of cached readings
NO_LABELS: Mapping[str, str] = MappingProxyType({})


GIVEN_OTHERS = "the device plugin says that it gave other whole cards than were bound; these are booked now"
NOT_GIVEN = "another client changed which cards the device plugin is said to have given; the booked cards stay booked"


class PodReader:
    """Reads pods with the settings of their scheduler name.

    Pods of other schedulers are read with the first settings.
    """

    def __init__(self, profiles: Mapping[str, Settings], nodes: tuple[tuple[str, str], ...] = ()) -> None:
        """`nodes` are labels that a node must have for pods to be placed on it."""
        self._profiles, self._pool = profiles, nodes
        self._default = replace(next(iter(profiles.values())), schedulers=frozenset(profiles))
        self.pods: Callable[[], int] = lambda: 0  # how many exist; the mirror sets it
        # by digest of what is read
        self._templates = Kept[Reading](MOST_TEMPLATE_BYTES, lambda: most_for(self.pods(), MOST_TEMPLATES))
        self._owners = Owners()
        self.tolerances: dict[str, Tolerance] = {}  # by PriorityClass; its mirror fills it
        self.nodes: Mapping[str, Node] = {}  # by name, likewise
        self.group_facts: dict[str, GroupFacts] = {}  # by key of a PodGroup, likewise
        self._digests = TemplateDigests(self._default.vendors)
        self._written_by_plugins = written_by_plugins(self._default.vendors)
        rows = self._default.vendors.rows
        self._given = frozenset(name for row in rows for name in (row.to_allocate, row.allocated) if name)

    @property
    def vendors(self) -> Vendors:
        return self._default.vendors

    @property
    def topology(self) -> tuple[str, ...]:
        return self._default.topology

    def is_ours(self, source: objects.Pod) -> bool:
        return source.spec.scheduler_name in self._profiles

    def pod(self, source: objects.Pod, namespace: Mapping[str, str] = NO_LABELS) -> Reading:
        """The pod as it would be placed. `namespace`: the labels of its namespace."""
        template = self._template(source, is_passed_over(source, namespace, self._default))
        where, problems = _where(source), Problems()
        pod = identified(template.pod, source, self._owners, where, problems, self.tolerances)
        if pod.group in self.group_facts:
            pod = with_facts(pod, self.group_facts)
        return Reading(pod, (*template.problems, *problems.found()))

    def gang_of(self, source: objects.Pod) -> str:
        """The key of the pod's gang; "" = it is in none."""
        key = membership(source.metadata, source.spec, source.metadata.namespace).group
        return (self.group_facts[key].together or key) if key in self.group_facts else key

    def running(
        self,
        source: objects.Pod,
        asked: Pod | None = None,
        before: Held | None = None,
        placed_itself: bool = False,
        namespace: Mapping[str, str] = NO_LABELS,
    ) -> tuple[Held, tuple[Problem, ...]]:
        """What the pod holds, given what it was known to request or to hold before (ADR 13, ADR 16).

        Its request stays, and so does its first legible record. A record is read together with the request. Errors in
        the spec of a running pod no longer matter.
        """
        annotations, vendors = source.metadata.annotations, self._default.vendors
        pod = self.pod(source, namespace).pod
        if asked is not None and asked.containers != pod.containers:
            pod = replace(asked, labels=pod.labels, leaving=pod.leaving, tolerance=pod.tolerance)
        if pod.refusal is not None:
            pod = replace(pod, refusal=None)
        problems, where = Problems(), _where(source)
        if before is None or not (before.final or before.record is not None):
            stay = Stay(asked is not None, placed_itself)
            held = first_held(pod, source, self._default, where, problems, stay)
            if before is not None and held.trace == before.trace:
                problems = Problems()  # they were reported before
            said = self._said(source)
            return held._replace(said=said, given=len(_whole(pod)) if said else 0), problems.found()
        trace = trace_of(annotations, vendors)
        held = before._replace(trace=trace)
        if trace not in (before.trace, before.origin):
            notes = with_plugin_records(pod, source.spec.node_name, annotations, vendors)
            recorded_shares(pod, notes, vendors, where, problems)  # log what is wrong with the record now
            message = "another client changed which cards the pod is said to have; what was bound stays booked"
            problems.warning(where, "metadata.annotations", message)
            held = held._replace(report=(CHANGED, message), changes=held.changes + 1)
        return booked(self._as_assigned(held, pod, source, problems), pod, source), problems.found()

    def _as_assigned(self, held: Held, pod: Pod, source: objects.Pod, problems: Problems) -> Held:
        """What the pod holds, where its plugin says now that it chose other whole cards.

        The owner of the pod can write the same. So it counts once for each container, and it is reported.
        """
        said, node = self._said(source), self.nodes.get(source.spec.node_name)
        if said in (0, held.said) or node is None:
            return held
        vendors, where = self._default.vendors, _where(source)
        notes = assigned_by_plugin(pod, node.name, source.metadata.annotations, vendors)
        given = recorded_shares(pod, notes, vendors, where, Problems()) if notes is not None else None
        held = held._replace(said=said)
        if given is not None and _cards(given) == _cards(held.record):
            return held._replace(given=held.given + 1)
        first = given is not None and held.given < len(_whole(pod))
        counts = first and _moves_whole_cards(held.record, given, pod, node)
        message = GIVEN_OTHERS if counts else NOT_GIVEN
        problems.warning(where, "metadata.annotations", message)
        held = held._replace(report=(CHANGED, message), changes=held.changes + 1)
        return held._replace(record=given, given=held.given + 1) if counts else held

    def _said(self, source: objects.Pod) -> int:
        """A digest of which cards the pod's plugin says it gave. Where records are sealed, that does not count."""
        return 0 if self._default.seals else assigned_trace(source.metadata.annotations, self._default.vendors)

    def bare(self, source: objects.Pod, asked: Pod | None) -> Held:
        """What a pod holds that `running` cannot read, as far as that can be found."""
        vendors = self._default.vendors
        running, trace = bare_running(source, asked, vendors), trace_of(source.metadata.annotations, vendors)
        said = self._said(source)
        given = len(_whole(running.pod)) if said else 0
        return Held(running, running.shares, trace, trace, said=said, given=given, proves=not self._default.seals)

    def claimed(self, source: objects.Pod) -> tuple[str, ...]:
        """Annotations in which a pod that was not placed claims cards."""
        annotations = source.metadata.annotations
        given = (key for key in annotations if key in self._given or key == SEAL or self._written_by_plugins(key))
        return tuple(sorted(key for key in given if annotations[key].strip()))

    def node(self, source: objects.Node) -> tuple[NodeReading, float, tuple[Problem, ...]]:
        """The node, its creation time in seconds since 1970, and what is wrong with it."""
        problems, name = Problems(), source.metadata.name
        found = Found(f"Node {name}", "Node", "", "", name, source)
        reading = read_node(found, self._default.vendors, problems)
        return reading, created(source.metadata, found.where, Problems()), problems.found()

    def gist(self, source: objects.Node) -> bytes:
        """A digest of everything that `node` reads. A heartbeat does not change it. Much faster than reading."""
        meta = source.metadata
        return blake2b(encoded((meta.labels, meta.annotations, source.spec, source.status)), digest_size=16).digest()

    def _template(self, source: objects.Pod, passed_over: bool) -> Reading:
        key = self._digests.digest(source, passed_over)
        known = self._templates.get(key)
        if known is None:
            known = self._read(source, passed_over)
            self._templates.put(key, known)
        return known

    def _read(self, source: objects.Pod, passed_over: bool) -> Reading:
        problems, settings = Problems(), self._profiles.get(source.spec.scheduler_name, self._default)
        pod = asked_by(source, passed_over, settings, _where(source), problems)
        if self._pool:
            rules = pod.node_rules
            pod = replace(pod, node_rules=replace(rules, selector=(*rules.selector, *self._pool)))
        return Reading(pod, problems.found())


def _where(source: objects.Pod) -> str:
    return f"Pod {source.metadata.namespace}/{source.metadata.name}"


def _whole(pod: Pod) -> frozenset[int]:
    """Numbers of the containers that ask for whole cards."""
    return frozenset(number for number, one in enumerate(pod.containers) if asks_whole_cards(one.asks))


def _cards(shares: Iterable[Share] | None) -> frozenset[tuple[int, str]]:
    return frozenset((share.container, share.uuid) for share in shares or ())


def _moves_whole_cards(before: Iterable[Share] | None, given: Iterable[Share] | None, pod: Pod, node: Node) -> bool:
    """Whether only whole cards differ, and the node has all of them."""
    whole, cards = _whole(pod), {device.uuid for device in node.devices}
    moved = _cards(before) ^ _cards(given)
    return all(number in whole for number, _ in moved) and all(uuid in cards for _, uuid in _cards(given))
