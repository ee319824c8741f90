"""Groups that have arrived and are to be tried, in order: priority, age, name. A pod is in one group at a time.

Where many stand in line, namespaces of equal priority take turns, one group each: a namespace with ten thousand pods
delays the pod of another by one group, and not by ten thousand. Within a namespace the order stays.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

from dovetail.model.pod import Group

MANY = 8  # groups in line: namespaces take turns while there are more
RANK = 2  # leading parts of a group's order that decide before turns do: started gangs, priority

Line = list[tuple[Any, str]]  # a heap of (order, name); the group may have left or changed


class Arrivals:
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}  # by name
        self._name_of: dict[str, str] = {}  # pod uid -> name of its group
        self._lines: dict[Any, dict[str, Line]] = {}  # rank -> namespace, the one whose turn it is first -> its groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def name_of(self, uid: str) -> str:
        """The group that the pod is in; "" = none."""
        return self._name_of.get(uid, "")

    def add(self, group: Group) -> None:
        """The group takes the place of one of its name. Its pods must have left other groups."""
        before, order = self._groups.get(group.name), group.order
        self._groups[group.name] = group
        self._name_of.update((pod.uid, group.name) for pod in group.pods)
        if before is None or before.order != order:  # else its place in the line is still there
            namespace = group.title.partition("/")[0]
            line = self._lines.setdefault(order[:RANK], {}).setdefault(namespace, [])
            heapq.heappush(line, (order, group.name))

    def leave(self, uid: str) -> Group | None:
        """Take the pod's group out; returns its other pods, which the caller adds again."""
        group = self._groups.pop(self._name_of.pop(uid, ""), None)
        if group is None:
            return None
        rest = tuple(pod for pod in group.pods if pod.uid != uid)
        return replace(group, pods=rest) if rest else None

    def pop(self) -> Group | None:
        """Take out the group whose turn it is."""
        while self._lines:
            rank = min(self._lines)
            lines = self._lines[rank]
            namespace = self._next(lines)
            if namespace is None:
                del self._lines[rank]
                continue
            line = lines.pop(namespace)
            _, name = heapq.heappop(line)
            if line:
                lines[namespace] = line  # behind the others
            group = self._groups.pop(name)
            for pod in group.pods:
                self._name_of.pop(pod.uid, None)
            return group
        return None

    def _next(self, lines: dict[str, Line]) -> str | None:
        """The namespace whose first group comes next. Lines that turn out to be empty are dropped."""
        first: tuple[Any, str] | None = None
        for namespace, line in list(lines.items()):
            while line and not self._stands(*line[0]):
                heapq.heappop(line)
            if not line:
                del lines[namespace]
            elif len(self._groups) > MANY:
                return namespace
            elif first is None or line[0][0] < first[0]:
                first = (line[0][0], namespace)
        return first[1] if first is not None else None

    def _stands(self, order: Any, name: str) -> bool:
        group = self._groups.get(name)
        return group is not None and group.order == order
