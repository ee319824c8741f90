"""How many members of each gang hold a place, counted from the ledger; waiting groups do not store this number.

A stored number would be wrong as soon as a member leaves, and the gang would then be split.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.pod import Group, Pod


class Members:
    """A witness of the ledger, from the first call for a gang on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._count: dict[str, int] = {}  # group name -> pods that name it and hold a place
        self._attends = False

    def came(self, pod: Pod, row: int) -> None:
        self._note(pod, 1)

    def left(self, pod: Pod, row: int) -> None:
        self._note(pod, -1)

    def clear(self, reserved: Collection[str]) -> None:
        self._count.clear()

    def holding(self, name: str) -> int:
        """The number of members that hold a place, bound or reserved. A pod that is being deleted is not counted."""
        if not self._attends:
            self._attends = True
            self._ledger.attend(self, True)
            for uid in self._ledger.pods:
                self._note(self._ledger.pods.pod(uid), 1)
        return self._count.get(name, 0)

    def current(self, group: Group) -> Group:
        """The group with the number of members that hold a place now.

        A group that its pods do not name is not changed.
        """
        if group.pods[0].group != group.name:
            return group
        holding = self.holding(group.name) - sum(pod.uid in self._ledger.pods for pod in group.pods)
        return group if holding == group.running else replace(group, running=holding)

    def _note(self, pod: Pod, change: int) -> None:
        if not self._attends or not pod.group or pod.leaving:
            return
        count = self._count.get(pod.group, 0) + change
        if count:
            self._count[pod.group] = count
        else:
            del self._count[pod.group]
