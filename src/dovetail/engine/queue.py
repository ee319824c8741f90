"""Groups that wait, found by name, by pod, and by what they ask for: a change wakes only those it could help."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from dovetail.model.pod import Group

ALWAYS = None  # the key of groups that any change might help: gangs, pods under a quota


class WaitingRoom:
    def __init__(self) -> None:
        self._groups: dict[str, tuple[Group, Hashable]] = {}  # name -> (group, key)
        self._by_key: dict[Hashable, dict[str, Group]] = {}  # what a lone pod asks for -> groups by name
        self._name_of: dict[str, str] = {}  # pod uid -> group name

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return (group for group, _ in self._groups.values())

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def add(self, group: Group, key: Hashable) -> None:
        self.remove(group.name)
        self._groups[group.name] = (group, key)
        self._by_key.setdefault(key, {})[group.name] = group
        for pod in group.pods:
            self._name_of[pod.uid] = group.name

    def remove(self, name: str) -> None:
        group, key = self._groups.pop(name, (None, None))
        if group is not None:
            del self._by_key[key][name]
            if not self._by_key[key]:
                del self._by_key[key]
            for pod in group.pods:
                self._name_of.pop(pod.uid, None)

    def drop_pod(self, uid: str, runs: int = 0) -> Group | None:
        """The pod is gone, or it runs (1). What is left of its group waits on, and may have become easier to place."""
        name = self._name_of.get(uid)
        if name is None:
            return None
        group, key = self._groups[name]
        rest = tuple(pod for pod in group.pods if pod.uid != uid)
        self.remove(name)
        if not rest:
            return None
        smaller = replace(group, pods=rest, running=group.running + runs)
        self.add(smaller, key)
        return smaller

    def requests(self) -> list[Hashable]:
        return list(self._by_key)

    def asking(self, key: Hashable) -> list[Group]:
        return list(self._by_key.get(key, {}).values())
