"""Groups that have arrived and are to be tried, in the queue's order. A pod is in one group at a time.

When many groups are queued, namespaces of equal priority take turns, one group each. So a namespace with ten thousand
pods delays another namespace's pod by one group, not by ten thousand. Within a namespace the order stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dovetail.model.pod import Group

MANY = 32  # queued groups above which namespaces take turns
RANK = 2  # leading parts of a group's order that decide before turns do: started gangs, priority

Line = list[tuple[Any, str]]  # a heap of (order, name); the group may have left or changed


class Arrivals:
    def __init__(self, order: Callable[[Group], tuple[Any, ...]] = attrgetter("order")) -> None:
        self._order = order
        self._orders: dict[str, tuple[Any, ...]] = {}  # by name: the group's position in its line
        self._groups: dict[str, Group] = {}  # by name
        self._name_of: dict[str, str] = {}  # pod uid -> name of its group
        self._lines: dict[Any, dict[str, Line]] = {}  # rank -> namespace, next turn first -> its groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def name_of(self, uid: str) -> str:
        """The name of the group that the pod is in; "" = none."""
        return self._name_of.get(uid, "")

    def add(self, group: Group) -> None:
        """Add the group; it replaces one of its name. Its pods must have left other groups."""
        before, order = self._orders.get(group.name), self._order(group)
        self._groups[group.name] = group
        self._name_of.update((pod.uid, group.name) for pod in group.pods)
        self._orders[group.name] = order
        if before != order:  # else its entry in the line is still valid
            line = self._lines.setdefault(order[:RANK], {}).setdefault(group.namespace, [])
            heapq.heappush(line, (order, group.name))

    def leave(self, uid: str) -> Group | None:
        """Take the pod's group out; returns its other pods, which the caller adds again."""
        group = self._groups.pop(self._name_of.pop(uid, ""), None)
        if group is None:
            return None
        del self._orders[group.name]
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
                lines[namespace] = line  # move it behind the others
            return self._take_out(name)
        return None

    def take(self, uid: str) -> Group | None:
        """Take out the group that the pod is in, before its turn."""
        name = self.name_of(uid)
        return self._take_out(name) if name in self._groups else None

    def _take_out(self, name: str) -> Group:
        group = self._groups.pop(name)
        del self._orders[name]
        for pod in group.pods:
            self._name_of.pop(pod.uid, None)
        return group

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

    def _stands(self, order: tuple[Any, ...], name: str) -> bool:
        return name in self._orders and self._orders[name] == order
