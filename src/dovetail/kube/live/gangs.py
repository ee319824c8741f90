"""Pods that name a PodGroup, gathered: the engine is offered all that wait, and how many run already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dovetail.kube import objects
from dovetail.kube.groups import GroupLink, group_link
from dovetail.model.pod import POD_GROUP, Group, Pod

Name = tuple[str, str, str]  # API group, namespace, name


@dataclass(slots=True)
class _Members:
    waiting: dict[str, Pod] = field(default_factory=dict)  # by uid
    running: set[str] = field(default_factory=set)


class Gangs:
    """Who belongs together. A pod whose PodGroup does not exist, or is not served, waits alone."""

    def __init__(self) -> None:
        self._minimums: dict[Name, int] = {}
        self._members: dict[Name, _Members] = {}
        self._gang_of: dict[str, Name] = {}  # pod uid -> what it names

    def note(self, pod: Pod, source: objects.Pod, waits: bool) -> None:
        link = group_link(source.metadata, source.spec)
        if link is None:
            return
        name = _name(link, pod.namespace)
        self.forget(pod.uid)
        self._gang_of[pod.uid] = name
        members = self._members.setdefault(name, _Members())
        if waits:
            members.waiting[pod.uid] = pod
        else:
            members.running.add(pod.uid)

    def forget(self, uid: str) -> None:
        name = self._gang_of.pop(uid, None)
        if name is None:
            return
        members = self._members[name]
        members.waiting.pop(uid, None)
        members.running.discard(uid)
        if not members.waiting and not members.running:
            del self._members[name]

    def group(self, pod: Pod) -> Group:
        """The pod alone, or with all that wait with it."""
        name = self._gang_of.get(pod.uid)
        minimum = self._minimums.get(name) if name is not None else None
        if name is None or minimum is None:
            return Group(pod.key, (pod,))
        members = self._members[name]
        pods = tuple(sorted(members.waiting.values(), key=lambda one: one.order))
        return Group(f"{POD_GROUP}{name[1]}/{name[2]}", pods, minimum, len(members.running))

    def waiting(self, name: Name) -> list[str]:
        members = self._members.get(name)
        return list(members.waiting) if members is not None else []

    def set_groups(self, api_group: str, sources: Iterable[objects.PodGroup]) -> list[Name]:
        """All there are of this API group; returns those that changed."""
        sources = list(sources)
        there = {(api_group, source.metadata.namespace, source.metadata.name) for source in sources}
        gone = [name for name in self._minimums if name[0] == api_group and name not in there]
        for name in gone:
            del self._minimums[name]
        return gone + [name for source in sources for name in self.set_group(api_group, source)]

    def set_group(self, api_group: str, source: objects.PodGroup) -> list[Name]:
        gang = source.spec.scheduling_policy.gang
        own = api_group == "scheduling.k8s.io"
        minimum = (gang.min_count if gang is not None else 1) if own else source.spec.min_member
        name = (api_group, source.metadata.namespace, source.metadata.name)
        wanted = min(max(minimum or 1, 1), 2**31)
        if self._minimums.get(name) == wanted:
            return []
        self._minimums[name] = wanted
        return [name]

    def drop_group(self, api_group: str, namespace: str, name: str) -> list[Name]:
        gone = (api_group, namespace, name)
        return [gone] if self._minimums.pop(gone, None) is not None else []


def _name(link: GroupLink, namespace: str) -> Name:
    return (link.api_group, namespace, link.name)
