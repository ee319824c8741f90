"""API objects → the model's values. Pods made from one template share its parts, which the engine knows them by.

Reading a spec costs more than placing the pod, and thousands of pods differ only in their names: what a spec says is
kept by the spec's own bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from dovetail.kube import objects
from dovetail.kube.assigned import shares_asked_for, without_finished_init
from dovetail.kube.decode import Found
from dovetail.kube.live.binding import BIND_TIME, NODE, PHASE, TIME
from dovetail.kube.nodes import node_from
from dovetail.kube.owners import Owners, created
from dovetail.kube.problems import Problem, Problems
from dovetail.kube.requests import Template, pod_from
from dovetail.kube.resize import UNRESIZED
from dovetail.kube.settings import WEBHOOK, Settings
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod

TERMINAL = ("Succeeded", "Failed")
MOST_TEMPLATES = 50_000
ANNOTATIONS = ("dovetail.dev/", "hami.io/")  # beside those of the vendors' domains, what may change a request
EPOCH = "dovetail.dev/epoch"  # stamped on pods by whoever takes over (fencing.py); asks for nothing


class Reading(NamedTuple):
    """A value and what is wrong with its source."""

    pod: Pod
    problems: tuple[Problem, ...]


class Reader:
    """Knows how each scheduler name of ours reads pods; others' pods are read like the first one's."""

    def __init__(self, profiles: Mapping[str, Settings]) -> None:
        self._profiles = profiles
        self._default = next(iter(profiles.values()))
        self._templates: dict[bytes, Reading] = {}
        self._owners = Owners()
        self._encode = msgspec.msgpack.Encoder().encode
        domains = {row.count.partition("/")[0] + "/" for row in self._default.vendors.rows if "/" in row.count}
        self._prefixes = (*ANNOTATIONS, *sorted(domains))
        rows = self._default.vendors.rows
        self._given = frozenset(name for row in rows for name in (row.to_allocate, row.allocated) if name)
        self._no_matter = frozenset((EPOCH, NODE, TIME, PHASE, BIND_TIME, *self._given))  # given, not asked for

    def is_ours(self, source: objects.Pod) -> bool:
        return source.spec.scheduler_name in self._profiles

    def pod(self, source: objects.Pod) -> Reading:
        """The pod as it would be placed."""
        template = self._template(source)
        meta, problems = source.metadata, Problems()
        where = f"Pod {meta.namespace}/{meta.name}"
        pod = replace(
            template.pod,
            name=meta.name,
            uid=meta.uid,
            owner=self._owners.of_pod(meta, meta.namespace),
            created=created(meta, where, problems),
            labels=_own_labels(meta.labels),
            leaving=bool(meta.deletion_timestamp),
        )
        return Reading(pod, (*template.problems, *problems.found()))

    def running(self, source: objects.Pod) -> tuple[RunningPod, tuple[Problem, ...]]:
        """The pod and the cards it holds. What is wrong with the spec of a pod that runs is nobody's concern."""
        pod = self.pod(source).pod
        if pod.refusal is not None:
            pod = replace(pod, refusal=None)
        problems, where = Problems(), f"Pod {source.metadata.namespace}/{source.metadata.name}"
        shares = shares_asked_for(pod, source.metadata.annotations, self._default.vendors, where, problems)
        if shares is not None:
            shares = without_finished_init(shares, [container.kind for container in pod.containers], source)
        return RunningPod(pod, source.spec.node_name, shares), problems.found()

    def claimed(self, source: objects.Pod) -> tuple[str, ...]:
        """Annotations by which a pod that nobody has placed says which cards it has."""
        annotations = source.metadata.annotations
        return tuple(sorted(key for key in annotations if key in self._given and annotations[key].strip()))

    def node(self, source: objects.Node) -> tuple[Node, tuple[Problem, ...]]:
        problems, name = Problems(), source.metadata.name
        found = Found(f"Node {name}", "Node", "", "", name, source)
        return node_from(found, self._default.vendors, problems), problems.found()

    def gist(self, source: objects.Node) -> bytes:
        """Changes with whatever `node` reads: a heartbeat does not change it. Much faster than reading."""
        meta = source.metadata
        return blake2b(
            self._encode((meta.labels, meta.annotations, source.spec, source.status)), digest_size=16
        ).digest()

    def _template(self, source: objects.Pod) -> Reading:
        key = self._key(source)
        known = self._templates.get(key)
        if known is None:
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.clear()
            known = self._templates[key] = self._read(source)
        return known

    def _key(self, source: objects.Pod) -> bytes:
        """Everything that decides what the pod asks for, and nothing that tells replicas apart."""
        spec, meta = source.spec, source.metadata
        claims = [volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral]
        return self._encode(
            (
                msgspec.structs.replace(spec, node_name="", volumes=claims),
                sorted((key, value) for key, value in meta.annotations.items() if self._matters(key)),
                meta.namespace,
                meta.name if any(volume.ephemeral for volume in claims) else "",
                [(key, meta.labels.get(key)) for key in (WEBHOOK, *_labels_used(spec))],
                _resized(source.status),
            )
        )

    def _matters(self, annotation: str) -> bool:
        return annotation.startswith(self._prefixes) and annotation not in self._no_matter

    def _read(self, source: objects.Pod) -> Reading:
        problems, meta = Problems(), source.metadata
        spec = msgspec.structs.replace(source.spec, node_name="")  # where it is, not where it must be
        settings = self._profiles.get(source.spec.scheduler_name, self._default).under(meta.labels)
        where, status = f"Pod {meta.namespace}/{meta.name}", _resized(source.status)
        template = Template(where, "spec", meta.namespace, meta.name, meta, spec, status)
        return Reading(pod_from(template, settings, problems), problems.found())


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
