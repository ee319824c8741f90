"""Waiting groups, found by name, by pod, and by request: a change wakes only the groups that it could help."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from dovetail.model.decision import Decision
from dovetail.model.pod import Group

ALWAYS = None  # the key of groups that any change could help: gangs, pods under a quota
IN_ORDER = "in order"  # the one line of a strict queue


class Place(NamedTuple):
    """A group in a line. No two orders are equal, so two groups are never compared."""

    order: tuple[Any, ...]
    group: Group


class QueueDemand(Protocol):
    """Counts what waiting groups ask for; engine/rights/queues.py implements it."""

    active: bool

    def asks(self, group: Group) -> None: ...

    def withdraws(self, group: Group) -> None: ...


class WaitingRoom:
    """The waiting groups. `order` gives a group's place in the queue: a total order, constant until `sort_again`."""

    def __init__(
        self, order: Callable[[Group], tuple[Any, ...]] = attrgetter("order"), demand: QueueDemand | None = None
    ) -> None:
        self.order_of = order
        self._demand = demand
        self._places: dict[str, tuple[Hashable, Place]] = {}  # name -> (key, place in that line)
        self._lines: dict[Hashable, list[Place]] = {}  # request of a lone pod -> the groups that wait for it, in order
        self._name_of: dict[str, str] = {}  # pod uid -> group name
        self.version = 0  # changes with the set of requests that groups wait for

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Group]:
        return (place.group for _, place in self._places.values())

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def add(self, group: Group, key: Hashable) -> None:
        self.remove(group.name)
        place = Place(self.order_of(group), group)
        self._places[group.name] = (key, place)
        if key not in self._lines:
            self._lines[key] = []
            self.version += 1
        insort(self._lines[key], place)
        for pod in group.pods:
            self._name_of[pod.uid] = group.name
        if self._demand is not None and self._demand.active:
            self._demand.asks(group)

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
        if self._demand is not None and self._demand.active:
            self._demand.withdraws(place.group)

    def sort_again(self) -> None:
        """Sort all lines again: the orders of groups may have changed while they waited."""
        for name, (key, place) in self._places.items():
            self._places[name] = (key, Place(self.order_of(place.group), place.group))
        for key in self._lines:
            self._lines[key] = []
        for key, place in self._places.values():
            self._lines[key].append(place)
        for line in self._lines.values():
            line.sort()

    def first_ones(self, count: int) -> list[Group]:
        """Of each line the first group that room could help; of these the first ones in the order of the queue."""
        fronts = [place for line in self._lines.values() for place in _helped(line)]
        return [place.group for place in nsmallest(count, fronts)]

    def key_of(self, name: str) -> Hashable:
        """The key of the line in which the group waits; ALWAYS if the group does not wait."""
        return self._places[name][0] if name in self._places else ALWAYS

    def find(self, name: str) -> Group | None:
        """The waiting group of this name, or None."""
        return self._places[name][1].group if name in self._places else None

    def group_of(self, uid: str) -> Group | None:
        """The waiting group that the pod belongs to, or None."""
        name = self._name_of.get(uid)
        return self._places[name][1].group if name is not None else None

    def name_of(self, uid: str) -> str:
        """The name of the waiting group that the pod belongs to; "" = the pod does not wait."""
        return self._name_of.get(uid, "")

    def drop_pod(self, uid: str, runs: int = 0) -> Group | None:
        """Take a pod that is gone, or that runs (`runs` = 1), out of its group. Returns the rest of the group, or None.

        The rest waits on, and may have become easier to place.
        """
        name = self._name_of.get(uid)
        if name is None:
            return None
        key, (_, group) = self._places[name]
        rest = tuple(pod for pod in group.pods if pod.uid != uid)
        self.remove(name)
        if not rest:
            return None
        roles = [pod.role for pod in group.pods if pod.uid == uid] if runs else []
        smaller = replace(group, pods=rest).with_running(roles)
        self.add(smaller, key)
        return smaller

    def asks(self, key: Hashable) -> bool:
        """Whether a group waits in the line of this key."""
        return key in self._lines

    def requests(self) -> list[Hashable]:
        return list(self._lines)

    def line(self, key: Hashable) -> list[Place]:
        """A copy of the line of this key, in order."""
        return list(self._lines[key])

    def next_in(self, key: Hashable, order: tuple[Any, ...] | None = None, behind: bool = False) -> Place | None:
        """The line's first group whose order is not before `order`; with `behind`, whose order is after `order`."""
        line = self._lines.get(key, [])
        if order is None:
            return line[0] if line else None
        at = (bisect_right if behind else bisect_left)(line, order, key=_place_order)
        return line[at] if at < len(line) else None

    def front(self, besides: str = "") -> Place | None:
        """The first group of a strict queue; with `besides`, the first group other than that one."""
        for place in self._lines.get(IN_ORDER, ())[:2]:
            if place.group.name != besides:
                return place
        return None

    def first(self, key: Hashable) -> Group:
        return self._lines[key][0].group


def _helped(line: Sequence[Place]) -> list[Place]:
    """The first group of the line that room could help, or nothing."""
    return next(([place] for place in line if can_be_placed(place.group)), [])


def _place_order(place: Place) -> tuple[Any, ...]:
    return place.order


def left_over(group: Group, decisions: Sequence[Decision]) -> Group | None:
    """The part of the group that must wait: its pods that were not placed. None = all were placed."""
    if len(decisions) == 1:
        return group if decisions[0].node is None else None
    late = tuple([pod for pod, d in zip(group.pods, decisions, strict=True) if d.node is None])
    if not late:
        return None
    if len(late) == len(group.pods):
        return group
    roles = [pod.role for pod, d in zip(group.pods, decisions, strict=True) if d.node is not None]
    return replace(group, pods=late).with_running(roles)


def can_be_placed(group: Group) -> bool:
    """Whether the group could be placed if nodes had room.

    False if too many of its pods are missing, or are refused on every node.
    """
    sound = Counter(pod.role for pod in group.pods if pod.refusal is None)
    if any(sound[role.name] + role.running < role.minimum for role in group.roles):
        return False
    return sound.total() > 0 and sound.total() + group.running >= group.minimum
