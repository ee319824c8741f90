"""Objects of a cluster → documents with only the fields that Dovetail reads, for snapshots and for commands on a live
cluster.

The types of kube/objects say what is kept. A field that they do not have is not in the document: env, args and commands
of containers, the data of a Secret. Annotations are kept if their name is one that we read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.kube.conversion import volumes
from dovetail.kube.conversion.alignment import ALIGNMENT_KEY
from dovetail.kube.conversion.groups import KAI_POD_GROUP
from dovetail.kube.conversion.known_names import OUR_OTHERS, names_of
from dovetail.kube.conversion.memberships import (
    JOB_NAMES,
    JOB_SET_NAME,
    JOB_SET_ROLE,
    KAI_SUB_GROUP,
    KOORDINATOR_NAMES,
    LWS_GROUP,
    LWS_NAME,
    LWS_SIZE,
    LWS_WORKER,
    VOLCANO_TASK,
)
from dovetail.kube.conversion.plugins import written_by_plugins
from dovetail.kube.conversion.preemption import MINIMUM_PRIORITY, TOLERATION_SECONDS
from dovetail.kube.conversion.queue_names import QUEUE_KEYS
from dovetail.kube.conversion.queues import QUOTA_NAMESPACES, SHARED_WEIGHT, TOTAL_RESOURCE
from dovetail.kube.conversion.reading import NODE_LABEL
from dovetail.kube.conversion.register import DEVICE_CORDON
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.settled import HANDSHAKE
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects.core import LabelSelector, Meta, Struct, Texts

Json = dict[str, Any]
MEMBERSHIP_NAMES = (
    *(KAI_POD_GROUP, KAI_SUB_GROUP, VOLCANO_TASK, *KOORDINATOR_NAMES, *JOB_NAMES, JOB_SET_NAME, JOB_SET_ROLE),
    *(LWS_NAME, LWS_GROUP, LWS_WORKER, LWS_SIZE),
)
VOLUME_NAMES = (
    *(volumes.BETA_CLASS, volumes.DEFAULT_CLASS, volumes.BIND_COMPLETED, volumes.BOUND_BY_CONTROLLER),
    volumes.SELECTED_NODE,
)


class SelectingSpec(Struct, frozen=True):
    selector: LabelSelector | None = None
    replicas: int | None = None


class SelectingController(Struct, frozen=True):
    """A ReplicaSet or StatefulSet without its template: whose pods it selects, and who owns it."""

    metadata: Meta
    spec: SelectingSpec = SelectingSpec()


class SelectingByLabelsSpec(Struct, frozen=True):
    selector: Texts = {}  # noqa: RUF012


class SelectingByLabels(Struct, frozen=True):
    """A ReplicationController without its template."""

    metadata: Meta
    spec: SelectingByLabelsSpec = SelectingByLabelsSpec()


@lru_cache(maxsize=8)
def annotations_read(vendors: Vendors) -> Callable[[str], bool]:
    """Whether an annotation of this name is read, on any kind of object."""
    names = names_of(vendors)
    queues = (key.key for key in QUEUE_KEYS if key.place == "annotations")
    others = (ALIGNMENT_KEY, DEVICE_CORDON, HANDSHAKE, NODE_LABEL, SEAL, MINIMUM_PRIORITY, TOLERATION_SECONDS)
    quotas = (SHARED_WEIGHT, QUOTA_NAMESPACES, TOTAL_RESOURCE)
    cards = (key for row in vendors.rows for key in (row.register, row.score, *row.pod_keys) if key)
    read = frozenset((*names.annotations, *OUR_OTHERS, *queues, *others, *quotas, *cards))
    read |= {*MEMBERSHIP_NAMES, *VOLUME_NAMES}
    by_plugin = written_by_plugins(vendors)
    return lambda name: name in read or by_plugin(name)


def reduced(api_version: str, kind: str, source: Any, vendors: Vendors) -> Json:
    """The document of an object that was read with a type of kube/objects."""
    found: Json = msgspec.to_builtins(source)
    body: Json = {"apiVersion": api_version, "kind": kind, **found}
    _reduce_metadata(body.get("metadata"), annotations_read(vendors))
    _OWN.get(kind, _nothing)(body)
    return body


def _reduce_metadata(meta: Any, is_read: Callable[[str], bool]) -> None:
    if not isinstance(meta, dict):
        return
    meta.pop("resourceVersion", None)
    notes = {name: text for name, text in meta.pop("annotations", {}).items() if is_read(name)}
    if notes:
        meta["annotations"] = notes


def _nothing(_body: Json) -> None:
    """The type of the kind keeps no field with values of free text."""


def _reduce_pod(body: Json) -> None:
    spec, status = body.get("spec", {}), body.get("status", {})
    for one in spec.get("volumes", ()):
        if "ephemeral" in one:  # a claim of its own exists for it
            one["ephemeral"] = {"volumeClaimTemplate": {}}
    for place in ("schedulingGates", "resourceClaims"):
        if place in spec:
            spec[place] = _names(spec[place])
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.get("resources", {})
        if "claims" in resources:
            resources["claims"] = _names(resources["claims"])
    status.pop("message", None)
    for condition in status.get("conditions", ()):
        if condition.get("type") != "PodScheduled":
            condition.pop("message", None)


def _reduce_node(body: Json) -> None:
    for condition in body.get("status", {}).get("conditions", ()):
        condition.pop("message", None)


def _names(given: Any) -> list[Json]:
    """The names of a list of named objects, without their other fields."""
    return [{"name": str(one.get("name", ""))} if isinstance(one, Mapping) else {} for one in given]


def _reduce_budget(body: Json) -> None:
    status = body.get("status", {})
    if "disruptedPods" in status:
        status["disruptedPods"] = dict.fromkeys(status["disruptedPods"], "")


def _reduce_quota(body: Json) -> None:
    if body.get("spec", {}).get("scopeSelector") is not None:
        body["spec"]["scopeSelector"] = {}


def _reduce_pod_group(body: Json) -> None:
    body.pop("status", None)


def _reduce_job_set(body: Json) -> None:
    for job in body.get("spec", {}).get("replicatedJobs", ()):
        if "dependsOn" in job:
            job["dependsOn"] = _names(job["dependsOn"])


_OWN: dict[str, Callable[[Json], None]] = {
    "Pod": _reduce_pod,
    "Node": _reduce_node,
    "PodDisruptionBudget": _reduce_budget,
    "ResourceQuota": _reduce_quota,
    "PodGroup": _reduce_pod_group,
    "JobSet": _reduce_job_set,
}
