"""Objects of a watch → the model's values, by conversion/reading.py; this module caches the results.

Pods of one template share its parts, and the engine recognises them by these. Reading a spec costs more than placing
the pod, and thousands of pods differ only in their names. So readings are cached by a digest of the spec's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.assigned import recorded_shares
from dovetail.kube.conversion.known_names import names_of
from dovetail.kube.conversion.nodes import NodeReading, read_node
from dovetail.kube.conversion.owners import Owners, created
from dovetail.kube.conversion.reading import (
    NODE_LABEL,
    Held,
    Stay,
    asked_by,
    booked,
    first_held,
    identified,
    is_passed_over,
)
from dovetail.kube.conversion.records import CHANGED, trace_of
from dovetail.kube.conversion.resize import resized
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.live.bare import bare_running
from dovetail.kube.live.binding import ASSIGNED_TIME, BIND_TIME, BOUND_BY, PHASE
from dovetail.kube.live.kept import Kept
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.pod import Pod

MOST_TEMPLATE_BYTES = 32 << 20  # size of the specs and annotations whose readings are cached
# Annotations that may change a request, beside those in the vendors' domains.
ANNOTATIONS = ("dovetail.dev/", "hami.io/")
NO_LABELS: Mapping[str, str] = MappingProxyType({})
EPOCH = "dovetail.dev/epoch"  # written on pods by a new leader (fencing.py); not a request


class Reading(NamedTuple):
    """A value, and what is wrong with its source."""

    pod: Pod
    problems: tuple[Problem, ...]


class PodReader:
    """Reads pods with the settings of their scheduler name.

    Pods of other schedulers are read with the first settings.
    """

    def __init__(self, profiles: Mapping[str, Settings], nodes: tuple[tuple[str, str], ...] = ()) -> None:
        """`nodes` are labels that a node must have for pods to be placed on it."""
        self._profiles, self._pool = profiles, nodes
        self._default = replace(next(iter(profiles.values())), schedulers=frozenset(profiles))
        self._templates = Kept[Reading](MOST_TEMPLATE_BYTES)  # by digest of what is read
        self._owners = Owners()
        self._encode = msgspec.msgpack.Encoder().encode
        domains = {row.count.partition("/")[0] + "/" for row in self._default.vendors.rows if "/" in row.count}
        self._prefixes = (*ANNOTATIONS, *sorted(domains))
        self._names = names_of(self._default.vendors)
        # The same names are checked again and again.
        self._may_be_a_slip = lru_cache(maxsize=4_096)(self._names.may_be_a_slip)
        rows = self._default.vendors.rows
        self._given = frozenset(name for row in rows for name in (row.to_allocate, row.allocated) if name)
        self._no_matter = frozenset(
            (EPOCH, BOUND_BY, SEAL, NODE_LABEL, ASSIGNED_TIME, PHASE, BIND_TIME, *self._given)
        )  # results of scheduling, not requests

    @property
    def vendors(self) -> Vendors:
        return self._default.vendors

    def is_ours(self, source: objects.Pod) -> bool:
        return source.spec.scheduler_name in self._profiles

    def pod(self, source: objects.Pod, namespace: Mapping[str, str] = NO_LABELS) -> Reading:
        """The pod as it would be placed. `namespace`: the labels of its namespace."""
        template = self._template(source, is_passed_over(source, namespace, self._default))
        where, problems = _where(source), Problems()
        pod = identified(template.pod, source, self._owners, where, problems)
        return Reading(pod, (*template.problems, *problems.found()))

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
            pod = replace(asked, labels=pod.labels, leaving=pod.leaving)
        if pod.refusal is not None:
            pod = replace(pod, refusal=None)
        problems, where = Problems(), _where(source)
        if before is None or not (before.final or before.record is not None):
            stay = Stay(asked is not None, placed_itself)
            held = first_held(pod, source, self._default, where, problems, stay)
            if before is not None and held.trace == before.trace:
                problems = Problems()  # they were reported before
            return held, problems.found()
        trace = trace_of(annotations, vendors)
        held = before._replace(trace=trace)
        if trace not in (before.trace, before.origin):
            recorded_shares(pod, annotations, vendors, where, problems)  # log what is wrong with the record now
            message = "another client changed which cards the pod is said to have; what was bound stays booked"
            problems.warning(where, "metadata.annotations", message)
            held = held._replace(report=(CHANGED, message))
        return booked(held, pod, source), problems.found()

    def bare(self, source: objects.Pod, asked: Pod | None) -> Held:
        """What a pod holds that `running` cannot read, as far as that can be found."""
        vendors = self._default.vendors
        running, trace = bare_running(source, asked, vendors), trace_of(source.metadata.annotations, vendors)
        return Held(running, running.shares, trace, trace, proves=not self._default.seals)

    def claimed(self, source: objects.Pod) -> tuple[str, ...]:
        """Annotations in which a pod that was not placed claims cards."""
        annotations = source.metadata.annotations
        given = (key for key in annotations if key in self._given or key == SEAL)
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
        return blake2b(
            self._encode((meta.labels, meta.annotations, source.spec, source.status)), digest_size=16
        ).digest()

    def _template(self, source: objects.Pod, passed_over: bool) -> Reading:
        whole = self._key(source, passed_over)
        key = blake2b(whole, digest_size=20).digest()
        known = self._templates.get(key)
        if known is None:
            known = self._read(source, passed_over)
            self._templates.put(key, known, len(whole))
        return known

    def _key(self, source: objects.Pod, passed_over: bool) -> bytes:
        """A digest of everything that decides the pod's request, and of nothing that differs between replicas."""
        spec, meta = source.spec, source.metadata
        claims = [volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral]
        return self._encode(
            (
                msgspec.structs.replace(spec, node_name="", volumes=claims),
                sorted((key, value) for key, value in meta.annotations.items() if self._matters(key)),
                self._doubtful_names(meta),
                meta.namespace,
                meta.name if any(volume.ephemeral for volume in claims) else "",
                [(key, meta.labels.get(key)) for key in _labels_used(spec)],
                passed_over,
                resized(source.status),
            )
        )

    def _doubtful_names(self, meta: objects.Meta) -> list[str]:
        """Names that may cause a warning, although they do not change the request."""
        slips, not_for_labels = self._may_be_a_slip, self._names.not_for_labels
        odd = [key for key in meta.annotations if slips(key) and not self._matters(key)]
        return odd + [key for key in meta.labels if slips(key) or key in not_for_labels]

    def _matters(self, annotation: str) -> bool:
        return annotation.startswith(self._prefixes) and annotation not in self._no_matter

    def _read(self, source: objects.Pod, passed_over: bool) -> Reading:
        problems, settings = Problems(), self._profiles.get(source.spec.scheduler_name, self._default)
        pod = asked_by(source, passed_over, settings, _where(source), problems)
        if self._pool:
            rules = pod.node_rules
            pod = replace(pod, node_rules=replace(rules, selector=(*rules.selector, *self._pool)))
        return Reading(pod, problems.found())


def _where(source: objects.Pod) -> str:
    return f"Pod {source.metadata.namespace}/{source.metadata.name}"


def _labels_used(spec: objects.PodSpec) -> list[str]:
    """The pod's own labels whose values its inter-pod rules use (matchLabelKeys)."""
    keys = {key for row in spec.topology_spread_constraints for key in row.match_label_keys}
    if spec.affinity is not None:
        for part in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
            for term in (*part.required, *(each.pod_affinity_term for each in part.preferred)) if part else ():
                keys.update(term.match_label_keys, term.mismatch_label_keys)
    return sorted(keys)
