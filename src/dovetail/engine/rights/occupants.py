"""The pods that hold a place, as preemption looks for them: by row, by gang, and as arrays by slot.

A witness of the ledger. A search over tens of thousands of pods reads the arrays; only pods of a few rows are then
looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import ALLOCATED, ENTRY_CARD, NONE, POD_ENTRY, POD_STATE
from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.pod import Pod
from dovetail.policies.rows import CARD_KIND, Ints


class Times(NamedTuple):
    """When a pod got its node and when it started, in seconds; 0 = not known."""

    placed: float = 0.0
    started: float = 0.0


UNKNOWN_TIMES = Times()
MOST_ACCOUNTS = 4_096  # namespaces and queues that are told apart before unused ones are dropped


class Occupants:
    def __init__(self, ledger: Ledger, schedulers: frozenset[str] | None) -> None:
        """`schedulers`: only pods with one of these scheduler names may be stopped; None = all."""
        self._ledger, self._schedulers = ledger, schedulers
        self.on_row: dict[int, dict[str, None]] = {}  # row -> UIDs there
        self.of_group: dict[str, dict[str, None]] = {}  # gang -> UIDs of its members
        self.times: dict[str, Times] = {}  # by UID, until the pod is gone
        self._priority: Ints = np.zeros(0, dtype=np.int64)  # [slot]
        self._account: Ints = np.zeros(0, dtype=np.int64)  # [slot]: its number in `_of_account`
        self._started: npt.NDArray[np.float64] = np.zeros(0)  # [slot]; inf = not known
        self._may_stop: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)  # [slot]
        self._accounts: dict[tuple[str, str, int], int] = {}  # namespace, queue and kind of card -> number
        self._of_account: list[dict[str, None]] = []  # by number: UIDs
        self._number_of: dict[str, int] = {}  # UID -> its account
        self._most_accounts: float = MOST_ACCOUNTS
        self._count: dict[int, int] = {}  # priority -> pods
        ledger.witnesses.append(self)
        ledger.attend(self, True)
        for uid in ledger.pods:
            self.came(ledger.pods.pod(uid), ledger.row_holding(uid))

    def came(self, pod: Pod, row: int) -> None:
        slot = self._ledger.pods.slot_of[pod.uid]
        if slot >= len(self._priority):
            self._grow(slot)
        self.on_row.setdefault(row, {})[pod.uid] = None
        if pod.group:
            self.of_group.setdefault(pod.group, {})[pod.uid] = None
        self._priority[slot] = pod.priority
        self._account[slot] = self._account_of(pod, slot, row)
        self._number_of[pod.uid] = number = int(self._account[slot])
        self._of_account[number][pod.uid] = None
        self._started[slot] = self.times.get(pod.uid, UNKNOWN_TIMES).started or inf
        ours = self._schedulers is None or pod.scheduler in self._schedulers
        self._may_stop[slot] = ours and not pod.leaving
        self._count[pod.priority] = self._count.get(pod.priority, 0) + 1

    def left(self, pod: Pod, row: int) -> None:
        self._drop(self.on_row, row, pod.uid)
        number = self._number_of.pop(pod.uid, None)
        if number is not None:
            self._of_account[number].pop(pod.uid, None)
        if pod.group:
            self._drop(self.of_group, pod.group, pod.uid)
        self._count[pod.priority] -= 1
        if not self._count[pod.priority]:
            del self._count[pod.priority]

    def clear(self, reserved: Collection[str]) -> None:
        self.on_row.clear()
        self.of_group.clear()
        self._count.clear()
        self._accounts, self._of_account = {}, []
        self._number_of.clear()

    def note(self, uid: str, times: Times) -> None:
        """Store when a pod was placed and started. Times that are not known do not replace known ones."""
        known = self.times.get(uid, UNKNOWN_TIMES)
        times = Times(times.placed or known.placed, times.started or known.started)
        slot = self._ledger.pods.slot_of.get(uid)
        if slot is not None and times != known:
            self.times[uid] = times
            self._started[slot] = times.started or inf

    def restore(self, times: Mapping[str, Times]) -> None:
        """Take these times instead of those that were noted here."""
        self.times = dict(times)
        for uid, slot in self._ledger.pods.slot_of.items():
            self._started[slot] = self.times.get(uid, UNKNOWN_TIMES).started or inf

    def forget(self, uid: str) -> None:
        """Drop the times of a pod that is gone."""
        self.times.pop(uid, None)

    def keep(self, uid: str, may_stop: bool) -> None:
        """Note that the pod is being stopped, so that no search looks at it; or that it goes on."""
        slot = self._ledger.pods.slot_of.get(uid)
        if slot is not None:
            self._may_stop[slot] = may_stop

    def is_kept(self, uid: str) -> bool:
        """Whether searches leave the pod out (`keep`)."""
        slot = self._ledger.pods.slot_of.get(uid)
        return slot is not None and not self._may_stop[slot]

    def may_stop(self, uid: str) -> bool:
        """Whether the pod may be stopped at all: bound, not ending, and of a scheduler that is served."""
        slot = self._ledger.pods.slot_of[uid]
        return bool(self._may_stop[slot]) and self._ledger.book.pod.item(slot, POD_STATE) == ALLOCATED

    @property
    def lowest_priority(self) -> float:
        """The lowest priority of all pods; infinite if there are none."""
        return min(self._count, default=inf)

    def candidates(self, below: int | None, accounts: Collection[int]) -> Ints:
        """Slots of pods that may be stopped: with a priority below the number, or of one of these accounts.

        `below` None: whatever the priority.
        """
        size = min(len(self._priority), len(self._ledger.book.pod))
        bound = self._ledger.book.pod[:size, POD_STATE] == ALLOCATED
        found = bound & self._may_stop[:size]
        if below is not None:
            low = self._priority[:size] < below
            found &= low | np.isin(self._account[:size], list(accounts)) if accounts else low
        return np.flatnonzero(found)

    def priorities(self, slots: Ints) -> Ints:
        return self._priority[slots]

    def starts(self, slots: Ints) -> npt.NDArray[np.float64]:
        return self._started[slots]

    def examples(self) -> list[tuple[int, Pod]]:
        """(number, pod): a pod of each account that has pods. Pods of one account have a queue and a GPU model."""
        firsts = ((number, next(iter(uids), "")) for number, uids in enumerate(self._of_account))
        return [(number, self._ledger.pods.pod(uid)) for number, uid in firsts if uid in self._ledger.pods]

    def _account_of(self, pod: Pod, slot: int, row: int) -> int:
        entry = self._ledger.book.pod.item(slot, POD_ENTRY)
        kind = NONE
        if entry != NONE:
            kind = self._ledger.rows.card.item(row, self._ledger.book.entry.item(entry, ENTRY_CARD), CARD_KIND)
        key = (pod.namespace, pod.queue, kind)
        number = self._accounts.get(key)
        if number is None:
            if len(self._accounts) >= self._most_accounts:
                self._count_accounts_again()
            number = self._accounts[key] = len(self._of_account)
            self._of_account.append({})
        return number

    def begin_again(self) -> None:
        """Count accounts again: since a pod came, its node may have got other cards."""
        self._count_accounts_again()

    def _count_accounts_again(self) -> None:
        """Drop accounts that have no pods any more."""
        self._accounts, self._of_account, self._most_accounts = {}, [], inf
        for uid in self._number_of:
            slot, row = self._ledger.pods.slot_of[uid], self._ledger.row_holding(uid)
            self._number_of[uid] = number = self._account_of(self._ledger.pods.pod(uid), slot, row)
            self._account[slot] = number
            self._of_account[number][uid] = None
        self._most_accounts = max(MOST_ACCOUNTS, 2 * len(self._accounts))

    def _grow(self, slot: int) -> None:
        size = max(2 * len(self._priority), slot + 1, 1024)
        self._priority = _longer(self._priority, size)
        self._account = _longer(self._account, size)
        self._started = _longer(self._started, size)
        self._may_stop = _longer(self._may_stop, size)

    @staticmethod
    def _drop(index: dict[Any, dict[str, None]], key: object, uid: str) -> None:
        members = index.get(key, {})
        members.pop(uid, None)
        if not members:
            index.pop(key, None)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.concatenate([array, np.zeros(size - len(array), dtype=array.dtype)])
