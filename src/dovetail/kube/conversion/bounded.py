"""Compares pods and nodes with the table of bounds before they are read: what exceeds a bound is named and cut.

A pod that exceeds a bound is refused. It may run nevertheless, because another scheduler or its creator chose the node;
then the rest of it is booked. So only the fields that exceed a bound are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.kube.conversion.policies import DEVICE_POLICY_KEYS, NODE_POLICY_KEYS, WEIGHTS_KEY
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects import bounds
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import Bound
from dovetail.kube.objects.problems import Problems
from dovetail.model.node import BASE_RESOURCES
from dovetail.model.visible import visible_lines

T = TypeVar("T")


class Excess(NamedTuple):
    """A bound that an object exceeds."""

    field: str
    bound: Bound
    number: int

    def __str__(self) -> str:
        return self.bound.exceeded(self.number)


class Part(NamedTuple):
    """A part of a pod spec that has a bound, and how to cut it."""

    bound: Bound
    field: str  # below the spec
    counted: Callable[[objects.PodSpec], int]
    cut: Mapping[str, Any]


def _terms(spec: objects.PodSpec) -> int:
    given = spec.affinity
    if given is None:
        return 0
    count = 0
    if given.node_affinity is not None:
        required = given.node_affinity.required
        count += len(given.node_affinity.preferred)
        count += len(required.node_selector_terms) if required is not None else 0
    return count + sum(1 for _ in _pod_terms(given))


def _pod_terms(given: objects.Affinity) -> Iterator[objects.PodAffinityTerm]:
    for part in (given.pod_affinity, given.pod_anti_affinity):
        if part is not None:
            yield from part.required
            yield from (row.pod_affinity_term for row in part.preferred)


def _values(spec: objects.PodSpec) -> int:
    """The number of keys, values and namespaces in rules: each is compared or kept."""
    total = 0
    for row in spec.topology_spread_constraints:
        total += 1 + len(row.match_label_keys) + _selector(row.label_selector)
    given = spec.affinity
    if given is None:
        return total
    for term in _pod_terms(given):
        total += 1 + len(term.namespaces) + len(term.match_label_keys) + len(term.mismatch_label_keys)
        total += _selector(term.label_selector) + _selector(term.namespace_selector)
    if given.node_affinity is not None:
        required = given.node_affinity.required
        terms = [row.preference for row in given.node_affinity.preferred]
        terms += required.node_selector_terms if required is not None else []
        total += sum(_requirements(term.match_expressions) + _requirements(term.match_fields) for term in terms)
    return total


def _selector(given: objects.LabelSelector | None) -> int:
    return 0 if given is None else 2 * len(given.match_labels) + _requirements(given.match_expressions)


def _requirements(given: Iterable[objects.Requirement]) -> int:
    return sum(1 + len(row.values) for row in given)


def _claims(spec: objects.PodSpec) -> int:
    return sum(1 for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral is not None)


def _ports(spec: objects.PodSpec) -> int:
    return sum(len(container.ports) for container in (*spec.init_containers, *spec.containers))


PARTS = (
    Part(bounds.NODE_SELECTOR, "nodeSelector", lambda spec: len(spec.node_selector), {"node_selector": {}}),
    Part(bounds.TOLERATIONS, "tolerations", lambda spec: len(spec.tolerations), {"tolerations": []}),
    Part(bounds.AFFINITY_TERMS, "affinity", _terms, {"affinity": None}),
    Part(
        bounds.SPREAD_CONSTRAINTS,
        "topologySpreadConstraints",
        lambda spec: len(spec.topology_spread_constraints),
        {"topology_spread_constraints": []},
    ),
    Part(bounds.SELECTOR_VALUES, "affinity", _values, {"affinity": None, "topology_spread_constraints": []}),
    Part(bounds.VOLUMES, "volumes", lambda spec: len(spec.volumes), {"volumes": []}),
    Part(bounds.CLAIMS, "volumes", _claims, {"volumes": []}),
)


def bounded_spec(spec: objects.PodSpec, path: str, vendors: Vendors) -> tuple[objects.PodSpec, list[Excess]]:
    """The spec within all bounds, and the bounds that it exceeds."""
    found = []
    names = _resource_names(spec)
    if len(names) > bounds.RESOURCES_PER_POD.most:  # first, because admission adds a toleration for each
        found.append(Excess(f"{path}.containers", bounds.RESOURCES_PER_POD, len(names)))
        spec = _with_resources(spec, frozenset(_first(names, bounds.RESOURCES_PER_POD, vendors)))
    for part in PARTS:
        count = part.counted(spec)
        if count > part.bound.most:
            found.append(Excess(f"{path}.{part.field}", part.bound, count))
            spec = msgspec.structs.replace(spec, **part.cut)
    count = len(spec.containers) + len(spec.init_containers)
    if count > bounds.CONTAINERS.most:
        found.append(Excess(f"{path}.containers", bounds.CONTAINERS, count))
        kept = spec.containers[: bounds.CONTAINERS.most]
        starting = spec.init_containers[: bounds.CONTAINERS.most - len(kept)]
        spec = msgspec.structs.replace(spec, containers=kept, init_containers=starting)
    if (count := _ports(spec)) > bounds.PORTS.most:
        found.append(Excess(f"{path}.containers", bounds.PORTS, count))
        spec = _each_container(spec, lambda one: msgspec.structs.replace(one, ports=[]))
    return spec, found


def _each_container(spec: objects.PodSpec, change: Callable[[objects.Container], objects.Container]) -> objects.PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=[change(one) for one in spec.containers],
        init_containers=[change(one) for one in spec.init_containers],
    )


def _resource_names(spec: objects.PodSpec) -> dict[str, None]:
    names: dict[str, None] = {}
    for container in (*spec.init_containers, *spec.containers):
        names.update(dict.fromkeys(container.resources.requests))
        names.update(dict.fromkeys(container.resources.limits))
    if spec.resources is not None:
        names.update(dict.fromkeys((*spec.resources.requests, *spec.resources.limits)))
    names.update(dict.fromkeys(spec.overhead))
    return names


def _first(names: Iterable[str], bound: Bound, vendors: Vendors) -> Sequence[str]:
    """As many names as the bound allows: resources of every node and counts of cards before the others."""
    known = {*BASE_RESOURCES, *vendors.by_count, *vendors.share_names}
    return sorted(names, key=lambda name: name not in known)[: bound.most]


def _with_resources(spec: objects.PodSpec, kept: frozenset[str]) -> objects.PodSpec:
    def among(given: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in given.items() if name in kept}

    def smaller(given: objects.Resources) -> objects.Resources:
        return msgspec.structs.replace(given, requests=among(given.requests), limits=among(given.limits))

    spec = _each_container(spec, lambda one: msgspec.structs.replace(one, resources=smaller(one.resources)))
    whole = None if spec.resources is None else smaller(spec.resources)
    return msgspec.structs.replace(spec, resources=whole, overhead=among(spec.overhead))


def readable(meta: objects.Meta) -> objects.Meta:
    """The metadata with control characters in annotations escaped; the API server refuses them everywhere else.

    The values are printed in tables, conditions and logs. Files are cleaned as a whole (files/visible_bodies.py).
    """
    if all(text.isprintable() for text in meta.annotations.values()):
        return meta
    notes = {name: visible_lines(text) for name, text in meta.annotations.items()}
    return msgspec.structs.replace(meta, annotations=notes)


def bounded_meta(meta: objects.Meta, path: str, vendors: Vendors) -> tuple[objects.Meta, list[Excess]]:
    """A pod's labels, and the annotations that state its request. `path`: the path in front of `metadata`."""
    found = []
    for name, text in meta.annotations.items():
        if len(text) > bounds.REQUEST_ANNOTATION.most and _is_request(name, vendors):
            found.append(Excess(f"{path}metadata.annotations.{name}", bounds.REQUEST_ANNOTATION, len(text)))
    if found:
        kept = {name: text for name, text in meta.annotations.items() if len(text) <= bounds.REQUEST_ANNOTATION.most}
        meta = msgspec.structs.replace(meta, annotations=kept)
    found += beyond_template(meta, path)
    return msgspec.structs.replace(meta, labels=pod_labels(meta.labels)), found


def beyond_template(meta: objects.Meta, path: str = "") -> list[Excess]:
    """The bounds that labels and owners exceed. These differ between pods of one template."""
    found = []
    if len(meta.labels) > bounds.LABELS_PER_POD.most:
        found.append(Excess(f"{path}metadata.labels", bounds.LABELS_PER_POD, len(meta.labels)))
    longest = max((len(one.kind) + len(one.name) for one in meta.owner_references), default=0)
    if longest > bounds.OWNER_NAME.most:
        found.append(Excess(f"{path}metadata.ownerReferences", bounds.OWNER_NAME, longest))
    return found


def _is_request(annotation: str, vendors: Vendors) -> bool:
    if annotation in (*NODE_POLICY_KEYS, *DEVICE_POLICY_KEYS, WEIGHTS_KEY):
        return True
    rows = vendors.concerned((annotation,))
    return any(annotation not in (row.allocated, row.to_allocate) for row in rows)


def pod_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels of a pod, at most as many as are read."""
    if len(labels) <= bounds.LABELS_PER_POD.most:
        return labels
    return dict(list(labels.items())[: bounds.LABELS_PER_POD.most])


def listed(annotations: Mapping[str, str], name: str, bound: Bound) -> tuple[tuple[str, ...], list[Excess]]:
    """The distinct entries of a comma-separated list, at most as many as are read; and the bounds exceeded."""
    text = annotations.get(name, "") if name else ""
    if not text:
        return (), []
    entries = tuple(dict.fromkeys(part for part in (part.strip() for part in text.split(",")) if part))
    field, found = f"metadata.annotations.{name}", []
    if len(entries) > bound.most:
        found.append(Excess(field, bound, len(entries)))
        entries = entries[: bound.most]
    longest = max(map(len, entries), default=0)
    if longest > bounds.CARD_NAME.most:
        found.append(Excess(field, bounds.CARD_NAME, longest))
        entries = tuple(entry for entry in entries if len(entry) <= bounds.CARD_NAME.most)
    return entries, found


def bounded_node(source: objects.Node, where: str, vendors: Vendors, problems: Problems) -> objects.Node:
    """The node within all bounds; each cut is a warning. A node whose taints are cut takes no new pods."""
    meta, spec, status = readable(source.metadata), source.spec, source.status
    named = sum(len(image.names) for image in status.images)
    offered = status.allocatable if status.allocatable is not None else status.capacity or {}
    for field, bound, count in (
        ("metadata.labels", bounds.LABELS_PER_NODE, len(meta.labels)),
        ("spec.taints", bounds.TAINTS, len(spec.taints)),
        ("status.allocatable", bounds.RESOURCES_PER_NODE, len(offered)),
        ("status.images", bounds.IMAGES, named),
    ):
        if count <= bound.most:
            continue
        problems.warning(where, field, f"{bound.exceeded(count)}; {bound.beyond.removesuffix(', with a warning')}")
        if bound is bounds.LABELS_PER_NODE:
            meta = msgspec.structs.replace(meta, labels=dict(list(meta.labels.items())[: bound.most]))
        elif bound is bounds.TAINTS:
            spec = msgspec.structs.replace(spec, taints=spec.taints[: bound.most], unschedulable=True)
        elif bound is bounds.IMAGES:
            status = msgspec.structs.replace(status, images=list(_images(status.images, bound.most)))
        else:
            kept = {name: offered[name] for name in _first(offered, bound, vendors)}
            status = msgspec.structs.replace(status, allocatable=kept, capacity=None)
    return msgspec.structs.replace(source, metadata=meta, spec=spec, status=status)


def _images(images: Iterable[objects.ContainerImage], most: int) -> Iterator[objects.ContainerImage]:
    """The first images whose names are at most so many in total."""
    for image in images:
        most -= len(image.names)
        if most < 0:
            return
        yield image
