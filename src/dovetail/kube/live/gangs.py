"""Pods that name a PodGroup, gathered: the engine is offered all that wait, and how many run already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dovetail.kube import objects
from dovetail.kube.groups import GroupLink, group_link
from dovetail.model.pod import POD_GROUP, Group, Pod, Refusal
from dovetail.model.reason import Reason

KUBERNETES = "scheduling.k8s.io"  # the API group of Kubernetes' own PodGroups
LARGEST = 2**31
Name = tuple[str, str, str]  # API group, namespace, name


@dataclass(slots=True)
class _Members:
    waiting: dict[str, Pod] = field(default_factory=dict)  # by uid
    running: set[str] = field(default_factory=set)


class Gangs:
    """Who belongs together. A pod is placed alone where the PodGroup that a label names is not there, as peers do it;
    where its spec names one it waits for that, as with kube-scheduler."""

    def __init__(self) -> None:
        self._minimums: dict[Name, dict[str, int]] = {}  # by API version: an object may be served in several
        self._members: dict[Name, _Members] = {}
        self._gang_of: dict[str, Name] = {}  # pod uid -> what it names

    def note(self, pod: Pod, source: objects.Pod, waits: bool) -> None:
        self.forget(pod.uid)
        link = group_link(source.metadata, source.spec)
        if link is None:
            return
        name = _name(link, pod.namespace)
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
        minimum = self._minimum(name) if name is not None else 0
        if name is None or not minimum:
            return Group(pod.key, (_without_group(pod, name) if name is not None else pod,))
        members = self._members[name]
        pods = tuple(sorted(members.waiting.values(), key=lambda one: one.order))
        return Group(f"{POD_GROUP}{name[1]}/{name[2]}/{name[0]}", pods, minimum, len(members.running))

    def waiting(self, name: Name) -> list[str]:
        members = self._members.get(name)
        return list(members.waiting) if members is not None else []

    def set_groups(self, api_group: str, sources: Iterable[objects.PodGroup], version: str = "") -> list[Name]:
        """All there are of this API group in this version; returns those that changed."""
        sources = list(sources)
        there = {(api_group, source.metadata.namespace, source.metadata.name) for source in sources}
        lost = [name for name, said in self._minimums.items() if name[0] == api_group and version in said]
        gone = [name for name in lost if name not in there and self._set(name, version, 0)]
        return gone + [name for source in sources for name in self.set_group(api_group, source, version)]

    def set_group(self, api_group: str, source: objects.PodGroup, version: str = "") -> list[Name]:
        gang = source.spec.scheduling_policy.gang
        own = api_group == KUBERNETES
        minimum = (gang.min_count if gang is not None else 1) if own else source.spec.min_member
        name = (api_group, source.metadata.namespace, source.metadata.name)
        return [name] if self._set(name, version, min(max(minimum or 1, 1), LARGEST)) else []

    def drop_group(self, api_group: str, namespace: str, name: str, version: str = "") -> list[Name]:
        gone = (api_group, namespace, name)
        return [gone] if self._set(gone, version, 0) else []

    def _minimum(self, name: Name) -> int:
        """0: there is no such group."""
        return max(self._minimums.get(name, {}).values(), default=0)

    def _set(self, name: Name, version: str, minimum: int) -> bool:
        """Whether that is another minimum than before; 0: it is not there in this version."""
        before = self._minimum(name)
        said = {**self._minimums.pop(name, {}), version: minimum}
        if there := {each: count for each, count in said.items() if count}:
            self._minimums[name] = there
        return self._minimum(name) != before


def _without_group(pod: Pod, name: Name) -> Pod:
    """The pod as it is while its PodGroup is not there."""
    api_group, namespace, own = name
    if api_group != KUBERNETES or pod.refusal is not None:
        return pod
    text = f"PodGroup {namespace}/{own} ({api_group}) does not exist, or the API server does not serve PodGroups"
    return replace(pod, refusal=Refusal(Reason.GROUP_INCOMPLETE, text))


def _name(link: GroupLink, namespace: str) -> Name:
    return (link.api_group, namespace, link.name)
