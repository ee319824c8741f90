"""Snapshots with other names: of namespaces, pods, and everything else in namespaces, and other values of their labels.

Every name is replaced everywhere by the same new one, and new names have the order of the old ones, so that a plan of
the anonymous snapshot places the same pods in the same order. Names of nodes, GPU models, classes and resources, and
the keys of labels, stay.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dovetail.kube.files.decode import WITHOUT_NAMESPACE
from dovetail.kube.files.documents import Document
from dovetail.model.order import numbered

Json = dict[str, Any]
SEAL = "dovetail.dev/seal"  # it holds for the old names only
# Labels and annotations about scheduling: their values name groups and queues, or are numbers and words that we read.
READ_BY_US = re.compile(
    r"(dovetail\.dev|hami\.io|[a-z.]*\.?x-k8s\.io|scheduling\.k8s\.io|scheduling\.sigs\.k8s\.io|[a-z.]*volcano\.sh"
    r"|[a-z.]*koordinator\.sh|kai\.scheduler|batch\.kubernetes\.io|jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io"
    r"|run\.ai|runai)/.*|pod-group(-name|\.scheduling\.sigs\.k8s\.io)|job-name"
)
IMAGE_KEYS = ("image", "reference")  # of containers, and of volumes that are images
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_TOKEN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def anonymized(documents: Sequence[Document]) -> tuple[Document, ...]:
    """The documents under new names, by kind, namespace and name."""
    names = _NewNames(documents)
    changed = [dataclasses.replace(one, body=_body(copy.deepcopy(one.body), one.kind, names)) for one in documents]
    return tuple(sorted(changed, key=lambda one: (one.group, one.kind, _namespace(one.body), one.name)))


class _NewNames:
    """Old name -> new name."""

    def __init__(self, documents: Sequence[Document]) -> None:
        namespaces: set[str] = set()
        pods: dict[str, set[str]] = {}
        others: set[str] = set()
        values: set[str] = set()
        for one in documents:
            meta = one.body.get("metadata", {})
            namespaces.add(one.name if one.kind == "Namespace" else _namespace(one.body))
            others.update(owner["name"] for owner in meta.get("ownerReferences", ()) if owner.get("kind") != "Node")
            if one.kind == "Pod":
                pods.setdefault(_namespace(one.body), set()).add(one.name)
            elif one.kind not in WITHOUT_NAMESPACE:
                others.add(one.name)
            if one.kind in ("Pod", "Namespace"):
                labels = meta.get("labels", {})
                values.update(value for key, value in labels.items() if not READ_BY_US.fullmatch(key))
        namespaces.discard("")
        self.namespaces = numbered("ns", namespaces)
        self.pods = {where: numbered("pod", found) for where, found in pods.items()}
        every_pod = {name for found in pods.values() for name in found}
        self.others = numbered("object", others - every_pod)
        self.values = numbered("value", values)
        self.images = numbered("image", {_image_name(image) for one in documents for image in _images(one.body)})
        self.claims = {  # (namespace, name) -> new name, of claims that pods own
            (_namespace(one.body), one.name): _ephemeral(one.name, _namespace(one.body), owner["name"], self)
            for one in documents
            if one.kind == "PersistentVolumeClaim"
            for owner in one.body.get("metadata", {}).get("ownerReferences", ())[:1]
            if owner.get("kind") == "Pod"
        }

    def claim(self, namespace: str, name: str) -> str:
        return self.claims.get((namespace, name)) or self.others.get(name, name)

    def pod(self, namespace: str, name: str) -> str:
        return self.pods.get(namespace, {}).get(name) or self.others.get(name, name)

    def tokens(self, text: str) -> str:
        """The text with the names in it replaced: `["team-a", "team-b"]`, `team-a/gang`."""
        return _TOKEN.sub(lambda match: self.others.get(match[0]) or self.namespaces.get(match[0], match[0]), text)

    def label(self, key: str, value: str) -> str:
        if key == NAMESPACE_LABEL:
            return self.namespaces.get(value, value)
        return self.tokens(value) if READ_BY_US.fullmatch(key) else self.values.get(value, value)


def _namespace(body: Json) -> str:
    found = body.get("metadata", {}).get("namespace", "")
    return found if isinstance(found, str) else ""


def _body(body: Json, kind: str, names: _NewNames) -> Json:
    where = _namespace(body)
    _metadata(body.get("metadata", {}), kind, names)
    for part in _parts(body):
        _selectors(part, names)
        _rename_images(part, names)
        if isinstance(part.get("namespaces"), list):
            part["namespaces"] = [names.namespaces.get(one, one) for one in part["namespaces"]]
    spec = body.get("spec", {})
    if kind in _RENAME:
        _RENAME[kind](spec, where, names)
    status = body.get("status", {})
    for condition in status.get("conditions", ()):
        condition.pop("message", None)
    if kind == "Pod":
        _rename_containers(spec, status)
    return body


def _rename_containers(spec: Json, status: Json) -> None:
    new: dict[str, str] = {}
    for place in ("initContainers", "containers"):
        for container in spec.get(place, ()):
            name = new.setdefault(container.get("name", ""), f"container-{len(new)}")
            container["name"] = name
    for place in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(place, ()):
            one["name"] = new.get(one.get("name", ""), "")


def _metadata(meta: Json, kind: str, names: _NewNames) -> None:
    where, name = meta.get("namespace", ""), meta.get("name", "")
    owners = meta.get("ownerReferences", ())
    meta.pop("generateName", None)
    if kind == "Namespace":
        meta["name"] = names.namespaces.get(name, name)
    elif kind == "Pod":
        meta["name"] = names.pod(where, name)
    elif kind == "PersistentVolumeClaim":
        meta["name"] = names.claim(where, name)
    elif kind not in WITHOUT_NAMESPACE:
        meta["name"] = names.others.get(name, name)
    for owner in owners:
        owner["name"] = names.pod(where, owner["name"]) if owner.get("kind") == "Pod" else names.tokens(owner["name"])
    if where:
        meta["namespace"] = names.namespaces.get(where, where)
    if kind in ("Pod", "Namespace", "ElasticQuota", "PodGroup"):
        meta["labels"] = {key: names.label(key, value) for key, value in meta.get("labels", {}).items()}
    notes = meta.get("annotations", {})
    notes.pop(SEAL, None)
    if kind not in WITHOUT_NAMESPACE:
        for key in [key for key in notes if READ_BY_US.fullmatch(key)]:
            notes[key] = notes[key] if "devices" in key else names.tokens(notes[key])


def _ephemeral(claim: str, where: str, pod: str, names: _NewNames) -> str:
    """The claim of an ephemeral volume is called POD-VOLUME."""
    return f"{names.pod(where, pod)}{claim.removeprefix(pod)}"


def _parts(body: Any) -> Iterator[Json]:
    """Every mapping in the object."""
    left = [body]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part


def _images(body: Json) -> Iterator[str]:
    """The images of containers, and those that a node has."""
    for part in _parts(body):
        yield from (part[key] for key in IMAGE_KEYS if isinstance(part.get(key), str))
        names = part.get("names")
        yield from names if isinstance(names, list) else ()


def _image_name(image: str) -> str:
    """The image without tag and digest."""
    name = image.partition("@")[0]
    stem, colon, tag = name.rpartition(":")
    return stem if colon and "/" not in tag else name


def _rename_images(part: Json, names: _NewNames) -> None:
    def new(image: str) -> str:
        old = _image_name(image)
        return f"{names.images.get(old, old)}{image[len(old) :]}"

    for key in IMAGE_KEYS:
        if isinstance(part.get(key), str):
            part[key] = new(part[key])
    if isinstance(part.get("names"), list):
        part["names"] = [new(one) for one in part["names"]]


def _selectors(part: Json, names: _NewNames) -> None:
    labels = part.get("matchLabels")
    if isinstance(labels, dict):
        part["matchLabels"] = {key: names.label(key, value) for key, value in labels.items()}
    for selector in ("labelSelector", "namespaceSelector", "selector"):
        found = part.get(selector)
        for row in found.get("matchExpressions", ()) if isinstance(found, dict) else ():
            row["values"] = [names.label(row.get("key", ""), value) for value in row.get("values", ())]


def _pod_spec(spec: Json, where: str, names: _NewNames) -> None:
    for volume in spec.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim")
        if claim:
            claim["claimName"] = names.claim(where, claim.get("claimName", ""))
    for key, field in (("schedulingGroup", "podGroupName"), ("workloadRef", "name")):
        if spec.get(key):
            spec[key][field] = names.tokens(spec[key].get(field, ""))


def _volume_spec(spec: Json, where: str, names: _NewNames) -> None:
    claim = spec.get("claimRef")
    if claim:
        old = claim.get("namespace", "")
        claim["namespace"] = names.namespaces.get(old, old)
        claim["name"] = names.claim(old, claim.get("name", ""))


def _service_spec(spec: Json, where: str, names: _NewNames) -> None:
    selector = spec.get("selector")
    if isinstance(selector, dict) and not {"matchLabels", "matchExpressions"} & set(selector):
        spec["selector"] = {key: names.label(key, value) for key, value in selector.items()}


_RENAME: Mapping[str, Callable[[Json, str, _NewNames], None]] = {
    "Pod": _pod_spec,
    "PersistentVolume": _volume_spec,
    "Service": _service_spec,
    "ReplicationController": _service_spec,
}
