"""API objects → the model's values. Pods made from one template share its parts, which the engine knows them by.

Reading a spec costs more than placing the pod, and thousands of pods differ only in their names: what a spec says is
kept by the spec's own bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.assigned import has_record, recorded_shares, without_finished_init
from dovetail.kube.conversion.bounded import pod_labels
from dovetail.kube.conversion.groups import named_group
from dovetail.kube.conversion.known_names import names_of
from dovetail.kube.conversion.nodes import NodeReading, read_node
from dovetail.kube.conversion.owners import Owners, created, maker
from dovetail.kube.conversion.records import CHANGED, UNVERIFIED, Account, account, trace_of
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.resize import UNRESIZED
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.settings import IGNORE, WEBHOOK, Settings
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.live.bare import bare_running
from dovetail.kube.live.binding import BIND_TIME, BOUND_BY, NODE, PHASE, TIME
from dovetail.kube.live.kept import Kept
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, RunningPod

TERMINAL = ("Succeeded", "Failed")
MOST_TEMPLATE_BYTES = 32 << 20  # of the specs and annotations whose readings are kept
ANNOTATIONS = ("dovetail.dev/", "hami.io/")  # beside those of the vendors' domains, what may change a request
RESTORED = "another client changed which cards the pod is said to have; the cards of its seal stay booked"
EPOCH = "dovetail.dev/epoch"  # stamped on pods by whoever takes over (fencing.py); asks for nothing


class Reading(NamedTuple):
    """A value and what is wrong with its source."""

    pod: Pod
    problems: tuple[Problem, ...]


class Held(NamedTuple):
    """What a running pod holds."""

    running: RunningPod  # as it is booked: without the shares of finished init containers
    record: tuple[Share, ...] | None  # its cards; None = no record says which
    trace: int = 0  # of the record's text as it is now
    origin: int = 0  # of its text when it was first believed
    final: bool = False  # nothing that is written later counts
    doubt: str = ""  # why its record is not believed
    report: tuple[str, str] = ("", "")  # an event that its owner should see: reason and text; sent once a pod
    proves: bool = True  # its record shows which node has a card; where records are sealed, only sealed ones do

    @property
    def recorded(self) -> frozenset[str]:
        """UUIDs of the cards that the record names."""
        return frozenset(share.uuid for share in self.record or ())


class Reader:
    """Knows how each scheduler name of ours reads pods; others' pods are read like the first one's."""

    def __init__(self, profiles: Mapping[str, Settings], nodes: tuple[tuple[str, str], ...] = ()) -> None:
        """`nodes` are labels that every node must have on which a pod is placed."""
        self._profiles, self._pool = profiles, nodes
        self._default = next(iter(profiles.values()))
        self._templates = Kept[Reading](MOST_TEMPLATE_BYTES)  # by digest of what is read
        self._owners = Owners()
        self._encode = msgspec.msgpack.Encoder().encode
        domains = {row.count.partition("/")[0] + "/" for row in self._default.vendors.rows if "/" in row.count}
        self._prefixes = (*ANNOTATIONS, *sorted(domains))
        self._names = names_of(self._default.vendors)
        self._may_be_a_slip = lru_cache(maxsize=4_096)(self._names.may_be_a_slip)  # the same names come again and again
        rows = self._default.vendors.rows
        self._given = frozenset(name for row in rows for name in (row.to_allocate, row.allocated) if name)
        self._no_matter = frozenset(
            (EPOCH, BOUND_BY, SEAL, NODE, TIME, PHASE, BIND_TIME, *self._given)
        )  # given, not asked for

    @property
    def vendors(self) -> Vendors:
        return self._default.vendors

    def is_ours(self, source: objects.Pod) -> bool:
        return source.spec.scheduler_name in self._profiles

    def pod(self, source: objects.Pod, admitted: bool = False) -> Reading:
        """The pod as it would be placed. `admitted`: it was, whatever its labels ask of HAMi's webhook by now."""
        template = self._template(source, admitted)
        meta, problems = source.metadata, Problems()
        where = f"Pod {meta.namespace}/{meta.name}"
        pod = replace(
            template.pod,
            name=meta.name,
            uid=meta.uid,
            owner=self._owners.of_pod(meta, meta.namespace),
            maker=maker(meta, meta.namespace) if template.pod.profile.default_spread else "",
            created=created(meta, where, problems),
            group=named_group(meta, source.spec, meta.namespace),
            labels=_own_labels(meta.labels),
            leaving=bool(meta.deletion_timestamp),
        )
        return Reading(pod, (*template.problems, *problems.found()))

    def running(
        self, source: objects.Pod, asked: Pod | None = None, before: Held | None = None, placed_itself: bool = False
    ) -> tuple[Held, tuple[Problem, ...]]:
        """What the pod holds, if it was known to ask for, or to hold, this before (ADR 13, ADR 16).

        What it asks for stays, and so does its first legible record; a record is read in the light of what it asks
        for. What is wrong with the spec of a pod that runs no longer matters.
        """
        annotations, vendors = source.metadata.annotations, self._default.vendors
        ignored = source.metadata.labels.get(WEBHOOK) == IGNORE
        pod = self.pod(source, admitted=ignored and has_record(annotations, vendors)).pod
        if asked is not None and asked.containers != pod.containers:
            pod = replace(asked, labels=pod.labels, leaving=pod.leaving)
        if pod.refusal is not None:
            pod = replace(pod, refusal=None)
        problems, where = Problems(), f"Pod {source.metadata.namespace}/{source.metadata.name}"
        trace = trace_of(annotations, vendors)
        if before is None or not (before.final or before.record is not None):
            held = self._first(source, pod, trace, problems, asked is not None, placed_itself)
            if before is not None and trace == before.trace:
                problems = Problems()  # they are known
        else:
            held = before._replace(trace=trace)
            if trace not in (before.trace, before.origin):
                recorded_shares(pod, annotations, vendors, where, problems)  # what is wrong with it now is logged
                message = "another client changed which cards the pod is said to have; what was bound stays booked"
                problems.warning(where, "metadata.annotations", message)
                held = held._replace(report=(CHANGED, message))
        kinds = [container.kind for container in pod.containers]
        shares = None if held.record is None else without_finished_init(held.record, kinds, source)
        running = RunningPod(pod, source.spec.node_name, shares, held.running.trust)
        return held._replace(running=running), problems.found()

    def bare(self, source: objects.Pod, asked: Pod | None) -> Held:
        """What a pod holds that `running` cannot read, as far as it can be told."""
        vendors = self._default.vendors
        running, trace = bare_running(source, asked, vendors), trace_of(source.metadata.annotations, vendors)
        return Held(running, running.shares, trace, trace, proves=not self._default.seals)

    def _first(
        self, source: objects.Pod, pod: Pod, trace: int, problems: Problems, waited: bool, placed_itself: bool
    ) -> Held:
        """What the pod's record is worth. `waited`: we saw the pod before it had a node, and bound it ourselves."""
        ours, node, seals = self.is_ours(source), source.spec.node_name, self._default.seals
        where, notes = f"Pod {source.metadata.namespace}/{source.metadata.name}", source.metadata.annotations
        found = account(pod, node, notes, self._default.vendors, seals, where, problems, ours, placed_itself)
        final = found.sealed or bool(found.doubt) or (waited and ours)
        running = RunningPod(pod, node, found.shares, found.trust)
        proves = found.sealed or not seals
        return Held(running, found.shares, trace, trace, final, found.doubt, _report(found), proves)

    def claimed(self, source: objects.Pod) -> tuple[str, ...]:
        """Annotations by which a pod that nobody has placed says which cards it has."""
        annotations = source.metadata.annotations
        given = (key for key in annotations if key in self._given or key == SEAL)
        return tuple(sorted(key for key in given if annotations[key].strip()))

    def node(self, source: objects.Node) -> tuple[NodeReading, float, tuple[Problem, ...]]:
        """The node, when it was created in seconds since the epoch, and what is wrong with it."""
        problems, name = Problems(), source.metadata.name
        found = Found(f"Node {name}", "Node", "", "", name, source)
        reading = read_node(found, self._default.vendors, problems)
        return reading, created(source.metadata, found.where, Problems()), problems.found()

    def gist(self, source: objects.Node) -> bytes:
        """Changes with whatever `node` reads: a heartbeat does not change it. Much faster than reading."""
        meta = source.metadata
        return blake2b(
            self._encode((meta.labels, meta.annotations, source.spec, source.status)), digest_size=16
        ).digest()

    def _template(self, source: objects.Pod, admitted: bool) -> Reading:
        whole = self._key(source, admitted)
        key = blake2b(whole, digest_size=20).digest()
        known = self._templates.get(key)
        if known is None:
            known = self._read(source, admitted)
            self._templates.put(key, known, len(whole))
        return known

    def _key(self, source: objects.Pod, admitted: bool) -> bytes:
        """Everything that decides what the pod asks for, and nothing that tells replicas apart."""
        spec, meta = source.spec, source.metadata
        claims = [volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral]
        return self._encode(
            (
                msgspec.structs.replace(spec, node_name="", volumes=claims),
                sorted((key, value) for key, value in meta.annotations.items() if self._matters(key)),
                self._doubtful_names(meta),
                meta.namespace,
                meta.name if any(volume.ephemeral for volume in claims) else "",
                [(key, meta.labels.get(key)) for key in (WEBHOOK, *_labels_used(spec))],
                admitted,
                _resized(source.status),
            )
        )

    def _doubtful_names(self, meta: objects.Meta) -> list[str]:
        """Names that the reader may complain of, though they change no request."""
        slips, not_for_labels = self._may_be_a_slip, self._names.not_for_labels
        odd = [key for key in meta.annotations if slips(key) and not self._matters(key)]
        return odd + [key for key in meta.labels if slips(key) or key in not_for_labels]

    def _matters(self, annotation: str) -> bool:
        return annotation.startswith(self._prefixes) and annotation not in self._no_matter

    def _read(self, source: objects.Pod, admitted: bool) -> Reading:
        problems, meta = Problems(), source.metadata
        spec = msgspec.structs.replace(source.spec, node_name="")  # where it is, not where it must be
        settings = self._profiles.get(source.spec.scheduler_name, self._default)
        settings = settings if admitted else settings.under(meta.labels)
        where, status = f"Pod {meta.namespace}/{meta.name}", _resized(source.status)
        template = Template(where, "spec", meta.namespace, meta.name, meta, spec, status)
        pod = pod_from(template, settings, problems)
        if self._pool:
            rules = pod.node_rules
            pod = replace(pod, node_rules=replace(rules, selector=(*rules.selector, *self._pool)))
        return Reading(pod, problems.found())


def _report(found: Account) -> tuple[str, str]:
    """The event that the pod's owner should see, if any."""
    if found.doubt:
        return UNVERIFIED, found.doubt
    return (CHANGED, RESTORED) if found.changed else ("", "")


def _labels_used(spec: objects.PodSpec) -> list[str]:
    """Of the pod's own labels those whose values its rules about other pods take over (matchLabelKeys)."""
    keys = {key for row in spec.topology_spread_constraints for key in row.match_label_keys}
    if spec.affinity is not None:
        for part in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
            for term in (*part.required, *(each.pod_affinity_term for each in part.preferred)) if part else ():
                keys.update(term.match_label_keys, term.mismatch_label_keys)
    return sorted(keys)


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """Without the one that binding adds: it says nothing new, and a pod that is bound is still the same pod."""
    labels = pod_labels(labels)
    return {key: value for key, value in labels.items() if key != NODE} if NODE in labels else labels


def _resized(status: objects.PodStatus) -> objects.PodStatus:
    """What kubelet has given the containers, and nothing else: equal for replicas, as long as nobody resizes one."""
    given = [_given(one) for one in status.container_statuses if one.resources is not None]
    given_init = [_given(one) for one in status.init_container_statuses if one.resources is not None]
    if not given and not given_init and status.resources is None:
        return UNRESIZED
    return objects.PodStatus(
        conditions=[one for one in status.conditions if one.type == "PodResizePending"],
        container_statuses=given,
        init_container_statuses=given_init,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )


def _given(status: objects.ContainerStatus) -> objects.ContainerStatus:
    resources, promised = status.resources, status.allocated_resources
    return objects.ContainerStatus(status.name, resources=resources, allocated_resources=promised)
