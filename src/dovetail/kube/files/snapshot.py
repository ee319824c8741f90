"""Snapshots: a cluster's objects in one file, as a List of JSON whose first item says that the rest is a whole cluster.

One object is on each line, in the order of kind, namespace and name, so that two snapshots can be compared with diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.kube.files.decode import WITHOUT_NAMESPACE
from dovetail.kube.files.documents import Document
from dovetail.kube.objects.problems import Problems

API_VERSION, KIND = "dovetail.dev/v1", "Snapshot"


class SnapshotMarker(msgspec.Struct, rename="camel", frozen=True):
    """The first item of a snapshot."""

    taken: str  # "2026-11-18T20:00:00Z"
    complete: bool = True  # what is not in it does not exist, for kinds for whose objects pods wait
    not_readable: list[str] = msgspec.field(default_factory=list)  # resources that the caller had no right to list
    schedulers: list[str] = msgspec.field(default_factory=list)  # spec.schedulerName of pods that Dovetail schedules
    anonymous: bool = False

    @property
    def time(self) -> float:
        return datetime.fromisoformat(self.taken).timestamp()


def second_of(now: float) -> str:
    """The time as a marker writes it."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class MarkedDocuments:
    """Documents, and what the snapshots among them say."""

    documents: tuple[Document, ...]
    markers: tuple[SnapshotMarker, ...] = ()


def encode(marker: SnapshotMarker, documents: Iterable[Document]) -> Iterator[bytes]:
    """The text of the file, line by line."""
    first = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "cluster"}, **msgspec.to_builtins(marker)}
    yield b'{"apiVersion": "v1", "kind": "List", "items": [\n'
    yield _line(first)
    for document in documents:
        yield b",\n" + _line(document.body)
    yield b"\n]}\n"


def _line(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body, order="deterministic")


def marked(documents: Sequence[Document], problems: Problems) -> MarkedDocuments:
    """The documents without markers; those of a snapshot are reduced, and count where no other file has the object.

    What is in other files is new: its Deployments replace the cluster's, as `kubectl apply` would do.
    """
    found: dict[str, SnapshotMarker] = {}  # source -> its marker
    for document in documents:
        if (document.kind, document.api_version) == (KIND, API_VERSION):
            try:
                found[_source(document)] = read = msgspec.convert(document.body, SnapshotMarker)
                _ = read.time
            except (msgspec.ValidationError, ValueError) as error:
                problems.fatal(
                    document.where, "", f"is no snapshot of ours: {error}; take one with `dovetail snapshot`"
                )
    if not found:
        return MarkedDocuments(tuple(documents))
    rest = [document for document in documents if document.kind != KIND or document.api_version != API_VERSION]
    taken, given = [], []
    for one in rest:
        if _source(one) in found:
            taken.append(Document(one.place, one.kind, one.api_version, one.body, reduced=True))
        else:
            given.append(one)
    return MarkedDocuments(together(taken, given), tuple(found.values()))


def together(cluster: Iterable[Document], given: Sequence[Document]) -> tuple[Document, ...]:
    """All documents. Of an object in both, the given one counts, except a pod or a node, which exists already."""
    if not given:
        return tuple(cluster)
    new = {_key(one) for one in given if one.kind not in ("Pod", "Node") and one.name}
    kept = [one for one in cluster if _key(one) not in new]
    there = {_key(one) for one in kept}
    return (*kept, *(one for one in given if _key(one) not in there or not one.name))


def _key(document: Document) -> tuple[str, str, str, str]:
    meta = document.body.get("metadata")
    namespace = meta.get("namespace") if isinstance(meta, dict) else None
    where = "" if document.kind in WITHOUT_NAMESPACE else namespace if isinstance(namespace, str) else "default"
    return document.group, document.kind, where, document.name


def _source(document: Document) -> str:
    return document.place.rpartition("#")[0]
