"""The members of each gang that hold a place, counted from the ledger; waiting groups do not store this number.

A stored number would be wrong as soon as a member leaves, and the gang would then be split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.pod import Group, Pod


class MemberPlace(NamedTuple):
    """The row that a member holds, and its role."""

    row: int
    role: str


class Members:
    """A witness of the ledger, from the first call for a gang on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._places: dict[str, dict[str, MemberPlace]] = {}  # group name -> UID of a pod that names it -> its place
        self._attends = False

    def came(self, pod: Pod, row: int) -> None:
        if self._attends and pod.group and not pod.leaving:
            self._places.setdefault(pod.group, {})[pod.uid] = MemberPlace(row, pod.role)

    def left(self, pod: Pod, row: int) -> None:
        places = self._places.get(pod.group) if self._attends and pod.group else None
        if places is not None:
            places.pop(pod.uid, None)
            if not places:
                del self._places[pod.group]

    def clear(self, reserved: Collection[str]) -> None:
        self._places.clear()

    def holding(self, name: str) -> int:
        """The number of members that hold a place, bound or reserved. A pod that is being deleted is not counted."""
        return len(self.places(name))

    def places(self, name: str) -> Mapping[str, MemberPlace]:
        """By UID the places of the members that hold one."""
        if not self._attends:
            self._attends = True
            self._ledger.attend(self, True)
            for uid in self._ledger.pods:
                pod = self._ledger.pods.pod(uid)
                if pod.group:
                    self.came(pod, self._ledger.row_holding(uid))
        return self._places.get(name, {})

    def elsewhere(self, group: Group) -> list[MemberPlace]:
        """The places of the members that are not among the group's pods."""
        places = self.places(group.name)
        if not places:
            return []
        own = {pod.uid for pod in group.pods}
        return [place for uid, place in places.items() if uid not in own]

    def current(self, group: Group) -> Group:
        """The group with the number of members that hold a place now, by role.

        A group that its pods do not name is not changed.
        """
        if group.pods[0].group != group.name:
            return group
        if not group.roles:
            holding = self.holding(group.name) - sum(pod.uid in self._ledger.pods for pod in group.pods)
            return group if holding == group.running else replace(group, running=holding)
        roles = Counter(place.role for place in self.elsewhere(group))
        counted = tuple(replace(role, running=roles[role.name]) for role in group.roles)
        return replace(group, running=roles.total(), roles=counted)
