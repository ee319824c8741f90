"""Groups that wait, found by name, by pod, and by what they ask for: a change wakes only those it could help."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dovetail.model.pod import Group

ALWAYS = None  # the key of groups that any change might help: gangs, pods under a quota


class Place(NamedTuple):
    """A group in a line. Orders are total, so two groups are never compared."""

    order: tuple[Any, ...]
    group: Group


class WaitingRoom:
    def __init__(self) -> None:
        self._places: dict[str, tuple[Hashable, Place]] = {}  # name -> (key, place in that line)
        self._lines: dict[Hashable, list[Place]] = {}  # what a lone pod asks for -> those who ask, in order
        self._name_of: dict[str, str] = {}  # pod uid -> group name
        self.version = 0  # changes with the set of requests that somebody waits for

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Group]:
        return (place.group for _, place in self._places.values())

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def add(self, group: Group, key: Hashable) -> None:
        self.remove(group.name)
        place = Place(group.order, group)
        self._places[group.name] = (key, place)
        if key not in self._lines:
            self._lines[key] = []
            self.version += 1
        insort(self._lines[key], place)
        for pod in group.pods:
            self._name_of[pod.uid] = group.name

    def remove(self, name: str) -> None:
        if name not in self._places:
            return
        key, place = self._places.pop(name)
        line = self._lines[key]
        del line[bisect_left(line, place)]
        if not line:
            del self._lines[key]
            self.version += 1
        for pod in place.group.pods:
            self._name_of.pop(pod.uid, None)

    def drop_pod(self, uid: str, runs: int = 0) -> Group | None:
        """The pod is gone, or it runs (1). What is left of its group waits on, and may have become easier to place."""
        name = self._name_of.get(uid)
        if name is None:
            return None
        key, (_, group) = self._places[name]
        rest = tuple(pod for pod in group.pods if pod.uid != uid)
        self.remove(name)
        if not rest:
            return None
        smaller = replace(group, pods=rest, running=group.running + runs)
        self.add(smaller, key)
        return smaller

    def requests(self) -> list[Hashable]:
        return list(self._lines)

    def line(self, key: Hashable) -> list[Place]:
        """Those who ask for this, in order, as they stand now."""
        return list(self._lines[key])

    def first(self, key: Hashable) -> Group:
        return self._lines[key][0].group
