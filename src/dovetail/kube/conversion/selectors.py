"""Which pods Services and controllers select, for default spreading: the same functions for files and watches.

These types are separate: of thousands of ReplicaSets only name, selector and replicas are decoded.
"""

from __future__ import annotations

import msgspec

from dovetail.kube.conversion.relations import object_selector
from dovetail.kube.conversion.rules import RuleError
from dovetail.kube.files.decode import Objects
from dovetail.kube.objects import core as objects
from dovetail.model.relations import Selector
from dovetail.whatif.situation import Selecting

SERVICE, REPLICA_SET = "Service", "ReplicaSet"
# A plan creates a Deployment's pods directly, so the Deployment is their direct owner.
CONTROLLERS = ("ReplicationController", REPLICA_SET, "StatefulSet", "Deployment")


class NameAndNamespace(objects.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class ControllerSpec(objects.Struct, frozen=True):
    selector: objects.LabelSelector | None = None
    replicas: int | None = None


class Controller(objects.Struct, frozen=True):
    """A ReplicaSet or StatefulSet."""

    metadata: NameAndNamespace
    spec: ControllerSpec = ControllerSpec()


class LabelledSpec(objects.Struct, frozen=True):
    selector: objects.Texts = msgspec.field(default_factory=dict)


class Labelled(objects.Struct, frozen=True):
    """A Service or ReplicationController: its selector is a map of labels."""

    metadata: NameAndNamespace
    spec: LabelledSpec = LabelledSpec()


def selector_of(kind: str, source: Controller | Labelled | objects.Service | objects.Workload) -> Selector | None:
    """The selector of its pods. None: it selects none, or its selector cannot be read.

    A ReplicaSet of 0 replicas has no pods to spread: so nothing is kept of a Deployment's past revisions.
    """
    if kind == REPLICA_SET and isinstance(source, (Controller, objects.Workload)) and source.spec.replicas == 0:
        return None
    given = source.spec.selector
    if isinstance(given, dict):
        return Selector(tuple(sorted(given.items()))) if given else None
    try:
        return object_selector(given, "spec.selector")
    except RuleError:  # only a file can contain such a selector: the API server refuses it
        return None


def selecting(found: Objects) -> tuple[Selecting, ...]:
    """All objects of the input that select pods, by kind, namespace and name."""
    items = [item for kind in (SERVICE, *CONTROLLERS) for item in found.of(kind)]
    read = ((item, selector_of(item.kind, item.value)) for item in sorted(items, key=lambda one: one.key))
    return tuple(
        Selecting(item.kind, item.namespace, item.name, selector) for item, selector in read if selector is not None
    )
