"""Turns what the API server reports of volumes into facts for the engine, and wakes tasks that wait for a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.volumes import volume_fact
from dovetail.kube.files.decode import Found
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.kube.objects.volumes import STORAGE_GROUP, VOLUME_KINDS
from dovetail.model.volumes import Claim, Volume, VolumeFact

PATHS = {  # kind -> path on which its objects of all namespaces are listed and watched
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
TYPES: dict[str, type[Any]] = {kind: known for (_, kind), known in VOLUME_KINDS.items()}


class VolumeNews(NamedTuple):
    """What has changed."""

    facts: tuple[VolumeFact, ...]
    gone: tuple[VolumeFact, ...]


class VolumeMirror:
    """Facts about volumes as last reported."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, VolumeFact]] = {kind: {} for kind in PATHS}  # kind -> "namespace/name" -> fact
        self._listeners: set[asyncio.Future[None]] = set()
        self.faults: list[Fault] = []  # objects that could not be read; the code that reports them empties the list
        self.problems: list[Problem] = []  # not reported yet; emptied likewise

    def hear(self, kind: str, batch: Iterable[Event[Any]]) -> VolumeNews:
        """Take in one batch of the reflector of that kind."""
        facts: list[VolumeFact] = []
        gone: list[VolumeFact] = []
        for event in batch:
            if isinstance(event, Changed):
                self._heard(kind, event.object, facts)
            elif isinstance(event, Deleted):
                self._drop(kind, f"{event.ref.namespace}/{event.ref.name}", gone)
            elif isinstance(event, Replaced):
                there = {f"{one.metadata.namespace}/{one.metadata.name}" for one in event.items}
                there |= {f"{one.ref.namespace}/{one.ref.name}" for one in event.unreadable}
                for key in [key for key in self._facts[kind] if key not in there]:
                    self._drop(kind, key, gone)
                for source in event.items:
                    self._heard(kind, source, facts)
        if facts or gone:
            self.notify()
        return VolumeNews(tuple(facts), tuple(gone))

    def claim(self, key: str) -> Claim | None:
        found = self._facts["PersistentVolumeClaim"].get(key)
        return found if isinstance(found, Claim) else None

    def volume(self, name: str) -> Volume | None:
        found = self._facts["PersistentVolume"].get(f"/{name}")
        return found if isinstance(found, Volume) else None

    async def changed(self) -> None:
        """Wait for the next change, or the next `notify`."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.add(listener)
        try:
            await listener
        finally:
            self._listeners.discard(listener)

    def notify(self) -> None:
        """Wake waiting tasks: something else that they check has changed, a pod or a node is gone."""
        for listener in self._listeners:
            if not listener.done():
                listener.set_result(None)

    def _heard(self, kind: str, source: Any, facts: list[VolumeFact]) -> None:
        """As `_set`; an object that cannot be read keeps its previous form."""
        try:
            self._set(kind, source, facts)
        except Exception as error:
            meta = source.metadata
            self.faults.append(Fault(kind, f"{meta.namespace}/{meta.name}".removeprefix("/"), error))

    def _set(self, kind: str, source: Any, facts: list[VolumeFact]) -> None:
        meta, problems = source.metadata, Problems()
        key = f"{meta.namespace}/{meta.name}"
        where = f"{kind} {key.removeprefix('/')}"
        fact = volume_fact(Found(where, kind, _group(kind), meta.namespace, meta.name, source), problems)
        self.problems += problems.found()
        if fact is not None and self._facts[kind].get(key) != fact:
            self._facts[kind][key] = fact
            facts.append(fact)

    def _drop(self, kind: str, key: str, gone: list[VolumeFact]) -> None:
        fact = self._facts[kind].pop(key, None)
        if fact is not None:
            gone.append(fact)


def _group(kind: str) -> str:
    return "" if kind.startswith("PersistentVolume") else STORAGE_GROUP
