"""The top-level owner of a pod, and creation times. Deployment → ReplicaSet → Pod has one owner: the Deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.files.decode import Found, Objects
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import OWNER_NAME
from dovetail.kube.objects.problems import Problems, printable

HASH_LABEL = "pod-template-hash"
# An object without a creation time does not exist yet, so it comes last.
NEWEST_CREATION = 253_402_300_799.0  # 9999-12-31


@dataclass(frozen=True, slots=True)
class Owners:
    """Finds the owner of a pod, "Deployment/namespace/name": from its references, its ReplicaSet, or names."""

    replica_sets: Mapping[tuple[str, str], Found] = field(default_factory=dict)  # (namespace, name) -> ReplicaSet

    def of_pod(self, meta: objects.Meta, namespace: str) -> str:
        reference = controller(meta)
        if reference is None or reference.kind == "Node":  # the owner of a static pod is its node
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
    """The direct owner of the pod, "ReplicaSet/namespace/name"; "" = it has none."""
    reference = controller(meta)
    return "" if reference is None else f"{reference.kind}/{namespace}/{reference.name}"


def owners(found: Objects) -> Owners:
    return Owners({(item.namespace, item.name): item for item in found.of("ReplicaSet")})


def controller(meta: objects.Meta) -> objects.OwnerReference | None:
    """The reference marked `controller`, or the only one there is; None if it is beyond the bound."""
    given = meta.owner_references
    found = next((one for one in given if one.controller), given[0] if len(given) == 1 else None)
    return None if found is None or len(found.kind) + len(found.name) > OWNER_NAME.most else found


def created(meta: objects.Meta, where: str, problems: Problems) -> float:
    """Creation time in seconds since 1970; NEWEST_CREATION if it is not stated."""
    text = meta.creation_timestamp
    if not text:
        return NEWEST_CREATION
    moment = seconds_of(text)
    if moment is None:
        message = f"{printable(text, 40)!r} is no time such as 2026-01-31T12:00:00Z; the object counts as the newest"
        problems.warning(where, "metadata.creationTimestamp", message)
        return NEWEST_CREATION
    return min(moment, NEWEST_CREATION)
