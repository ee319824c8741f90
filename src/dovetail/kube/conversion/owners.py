"""Who owns a pod in the end, and how old things are. Deployment → ReplicaSet → Pod is one owner: the Deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dovetail.kube.files.decode import Found, Objects
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable

HASH_LABEL = "pod-template-hash"
NEWEST = 253_402_300_799.0  # 9999-12-31: what has no creation time does not exist yet, so it comes last


@dataclass(frozen=True, slots=True)
class Owners:
    """Answers "Deployment/namespace/name" for a pod, from its references, its ReplicaSet and, failing that, names."""

    replica_sets: Mapping[tuple[str, str], Found] = field(default_factory=dict)  # (namespace, name) -> ReplicaSet

    def of_pod(self, meta: objects.Meta, namespace: str) -> str:
        reference = controller(meta)
        if reference is None or reference.kind == "Node":  # a static pod is owned by its node
            return ""
        if reference.kind != "ReplicaSet":
            return maker(meta, namespace)
        owner = self.replica_sets.get((namespace, reference.name))
        above = controller(owner.value.metadata) if owner is not None else None
        if above is not None:
            return f"{above.kind}/{namespace}/{above.name}"
        suffix = f"-{meta.labels.get(HASH_LABEL, '')}"
        if owner is None and len(suffix) > 1 and reference.name.endswith(suffix):
            return f"Deployment/{namespace}/{reference.name.removesuffix(suffix)}"
        return maker(meta, namespace)


def maker(meta: objects.Meta, namespace: str) -> str:
    """Who made the pod, whoever is above: "ReplicaSet/namespace/name", or "" where nobody did."""
    reference = controller(meta)
    return "" if reference is None else f"{reference.kind}/{namespace}/{reference.name}"


def owners(found: Objects) -> Owners:
    return Owners({(item.namespace, item.name): item for item in found.of("ReplicaSet")})


def controller(meta: objects.Meta) -> objects.OwnerReference | None:
    """The reference marked `controller`, or the only one there is."""
    for reference in meta.owner_references:
        if reference.controller:
            return reference
    return meta.owner_references[0] if len(meta.owner_references) == 1 else None


def created(meta: objects.Meta, where: str, problems: Problems) -> float:
    """Seconds since the epoch; NEWEST where nothing is said."""
    text = meta.creation_timestamp
    if not text:
        return NEWEST
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(moment.timestamp(), NEWEST)
    except (ValueError, OverflowError):
        message = f"{printable(text, 40)!r} is no time such as 2026-01-31T12:00:00Z; the object counts as the newest"
        problems.warning(where, "metadata.creationTimestamp", message)
        return NEWEST
