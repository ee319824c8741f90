"""Objects of files that the doctor examines beside nodes and pods. What files leave out is not known to be absent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from dovetail.kube.doctor.gather import LISTED_KINDS, LISTED_ROLES, Gathered
from dovetail.kube.doctor.hami import COMPONENT, SCHEDULER
from dovetail.kube.doctor.installed import ConfigMapObject, EndpointSlice, HamiSchedulerPod, ResourceDefinition
from dovetail.kube.doctor.rights import NEEDED_RIGHTS, lacking
from dovetail.kube.files.documents import Document
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.kube.objects.queues import QUEUE_KINDS

EXAMINED_TYPES: dict[str, type[Any]] = {
    **{source.kind: source.type for source in (*LISTED_KINDS, *LISTED_ROLES)},
    "EndpointSlice": EndpointSlice,
    "Service": objects.Named,
    "CustomResourceDefinition": ResourceDefinition,
    "ConfigMap": ConfigMapObject,
    SCHEDULER: HamiSchedulerPod,
}


def _labels(document: Document) -> dict[str, Any]:
    meta = document.body.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    return labels if isinstance(labels, dict) else {}


def gathered(documents: Iterable[Document], account: tuple[str, str], problems: Problems) -> Gathered:
    """The objects by kind. An object that cannot be read is reported and left out."""
    found: dict[str, list[Any]] = defaultdict(list)
    for document in documents:
        queue = (document.group, document.kind) in QUEUE_KINDS
        kind = f"{document.kind}.{document.group}" if queue else document.kind
        if kind == "Pod" and _labels(document).get(COMPONENT) == SCHEDULER:
            kind = SCHEDULER
        if kind not in EXAMINED_TYPES:
            continue
        try:
            found[kind].append(msgspec.convert(objects.without_nulls(document.body), EXAMINED_TYPES[kind]))
        except (msgspec.ValidationError, RecursionError) as error:
            problems.warning(document.where, "", f"cannot be read: {printable(str(error), 200)}")
    kinds = {kind: tuple(items) for kind, items in found.items()}
    definitions = kinds.get("CustomResourceDefinition", ())
    served = {one.spec.group: frozenset(v.name for v in one.spec.versions if v.served) for one in definitions}
    return Gathered(kinds=kinds, served=served or None, missing=tuple(lacking(kinds, account, NEEDED_RIGHTS)))
