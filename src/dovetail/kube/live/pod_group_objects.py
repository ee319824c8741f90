"""The PodGroups themselves, as they were last reported: their time-out, their age, and what their status says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.gang_terms import time_limit
from dovetail.kube.conversion.groups import NOUNS, GroupName
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import POD_GROUP_STATUS, QUEUE_NAME
from dovetail.kube.objects.gangs import GangObject

NODE_POOL_LABEL = "kai.scheduler/node-pool"
KEPT_LABELS = (NODE_POOL_LABEL,)


class PodGroupObject(NamedTuple):
    name: GroupName
    version: str  # API version under which it was reported
    source: objects.PodGroup  # only with what is read here
    too_large: bool = False  # its status is beyond the bound, and not kept

    @property
    def path(self) -> str:
        name = self.name
        return f"/apis/{name.api_group}/{self.version}/namespaces/{name.namespace}/podgroups/{name.name}"

    @property
    def created(self) -> float:
        """Seconds since 1970; 0 = not known."""
        return seconds_of(self.source.metadata.creation_timestamp) or 0.0

    @property
    def time_limit(self) -> float | None:
        """Seconds that bound members wait for the others; None = it does not say."""
        return time_limit(self.source.spec)


class PodGroupObjects:
    def __init__(self) -> None:
        self._objects: dict[str, PodGroupObject] = {}  # by GroupName.key

    def __iter__(self) -> Iterator[tuple[str, PodGroupObject]]:
        return iter(self._objects.items())

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> PodGroupObject | None:
        return self._objects.get(key)

    def hear(self, batch: Iterable[Event[GangObject]], api_group: str, version: str) -> None:
        """Note PodGroups. Workloads and JobSets have no status of a gang."""
        for event in batch if api_group not in NOUNS else ():
            if isinstance(event, Changed):
                self._note(event.object, api_group, version)
            elif isinstance(event, Deleted):
                self._drop(GroupName(api_group, event.ref.namespace, event.ref.name).key, version)
            elif isinstance(event, (Replaced, NotServed)):
                there = event.items if isinstance(event, Replaced) else []
                kept = {(one.metadata.namespace, one.metadata.name) for one in there}
                if isinstance(event, Replaced):
                    kept |= {(one.ref.namespace, one.ref.name) for one in event.unreadable}
                for key, known in list(self._objects.items()):
                    if known.name.api_group == api_group and (known.name.namespace, known.name.name) not in kept:
                        self._drop(key, version)
                for source in there:
                    self._note(source, api_group, version)

    def _note(self, source: GangObject, api_group: str, version: str) -> None:
        if not isinstance(source, objects.PodGroup):
            return
        name = GroupName(api_group, source.metadata.namespace, source.metadata.name)
        size = len(msgspec.json.encode((source.status, source.spec.min_resources)))
        self._objects[name.key] = PodGroupObject(name, version, *_kept(source, size > POD_GROUP_STATUS.most))

    def _drop(self, key: str, version: str) -> None:
        """Forget it, unless another version of its kind reported it."""
        if key in self._objects and self._objects[key].version == version:
            del self._objects[key]


def _kept(source: objects.PodGroup, too_large: bool) -> tuple[objects.PodGroup, bool]:
    """The PodGroup without what nothing here reads: thousands of them are kept."""
    meta = source.metadata
    labels = {name: meta.labels[name] for name in KEPT_LABELS if name in meta.labels}
    kept = objects.Meta(
        meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=labels,
        creation_timestamp=meta.creation_timestamp,
    )
    spec = objects.PodGroupSpec(
        min_resources={} if too_large else source.spec.min_resources,
        schedule_timeout_seconds=source.spec.schedule_timeout_seconds,
        queue=source.spec.queue[: QUEUE_NAME.most + 1],
    )
    return objects.PodGroup(kept, spec, None if too_large else source.status), too_large
