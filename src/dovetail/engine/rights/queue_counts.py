"""What the pods of each queue hold and ask for, counted with the ledger.

A witness of the ledger: inside a transaction, it counts what was placed and released there. Pods are counted one by
one: O(depth of the tree × resources that queues name). Without queues, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from dovetail.engine.kernel.state import JOURNAL_DEPTH
from dovetail.engine.ledger.in_force import Rule
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.queue_amounts import CardKind, Holding, Measures
from dovetail.engine.rights.queue_shares import Shares
from dovetail.engine.rights.queue_tree import Branch, Tree
from dovetail.model.checkpoint import PastUse
from dovetail.model.pod import Group, Pod
from dovetail.model.rights import Queue
from dovetail.policies.quota.kai import remember
from dovetail.policies.quota.table import QUOTA_POLICIES

STEPS_IN_HALF_LIFE = 64  # how often past use is updated


class Counted(NamedTuple):
    """A pod with a place, as it is counted."""

    queue: Branch | None  # None = it has none
    holding: Holding


class QueueCounts:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queues: dict[str, Queue] = {}  # by name
        self.active = False  # whether there is a queue
        self.waiting: Iterable[Group] = ()  # the waiting groups; `asks` and `withdraws` tell what is different
        self.half_life = 0.0  # seconds after which past use counts half; 0 = it is not remembered
        self._remembered: float | None = None  # until this time
        self._measures = Measures(ledger)
        self._tree = Tree()
        self._shares = Shares(self._tree, self._measures)
        self._stale = False  # the queues changed: everything is counted again before the next answer
        self._held: dict[str, Counted] = {}  # by uid
        self._asking: dict[str, tuple[Branch, Mapping[str, int]]] = {}  # uid of a waiting pod -> what it asks for
        self._kinds: frozenset[CardKind] = frozenset()  # for which `_asking` was counted
        self._journal: list[tuple[str, Counted | None]] = []  # uid -> before each change in the current transaction
        self._rebuilt = 0  # grows when everything is counted again
        self.ending: Mapping[str, object] = {}  # by UID: pods that were told to stop
        self._leaving: set[str] = set()  # UIDs of pods with a place that are being deleted
        self._told: frozenset[str] = frozenset()  # `ending` as it was counted
        self._ending: frozenset[str] | None = None  # the pods in Branch.ending; None = count them again
        ledger.witnesses.append(self)
        ledger.row_readers.append(self._count_row_again)
        ledger.bystanders.append(self._watch)

    def __len__(self) -> int:
        return len(self._queues)

    def set(self, queue: Queue) -> None:
        """Store a queue that is new or changed."""
        if queue.arithmetic not in QUOTA_POLICIES:
            raise ValueError(
                f"queue {queue.name}: arithmetic {queue.arithmetic!r}: there is {', '.join(QUOTA_POLICIES)}"
            )
        self._queues[queue.name] = queue
        self._change()

    def drop(self, name: str) -> None:
        self._queues.pop(name, None)
        self._change()

    def _change(self) -> None:
        self.active, self._stale = bool(self._queues), True
        self._ledger.attend(self, self.active)
        self._ledger.in_force.put(Rule.QUEUE, self.active)

    # ---- counting -----------------------------------------------------------------------------------------------

    def came(self, pod: Pod, row: int) -> None:
        if self._counts:
            self._count(pod)

    def left(self, pod: Pod, row: int) -> None:
        if self._counts:
            self._replace(pod.uid, None)

    @property
    def _counts(self) -> bool:
        return self.active and not self._stale and not self._ledger.undoes

    def _watch(self) -> Callable[[], None]:
        """Called when a transaction starts; returns what restores the counts if it is undone."""
        if not self.active:
            return _nothing
        if self._ledger.heads.item(JOURNAL_DEPTH) == 1:
            self._journal.clear()
        start, rebuilt = len(self._journal), self._rebuilt

        def restore() -> None:
            if self._rebuilt != rebuilt:
                self._stale = True  # the counts include what was inside the transaction
            while len(self._journal) > start:
                uid, before = self._journal.pop()
                if not self._stale:
                    self._put(uid, before)

        return restore

    def clear(self, reserved: Collection[str]) -> None:
        self._stale = True

    def asks(self, group: Group) -> None:
        """Count a group that waits from now on: what its pods ask for, until they hold it."""
        if self._stale:
            return
        for pod in group.pods:
            branch = self._tree.of(pod)
            if branch is not None and pod.uid not in self._asking:
                self._asking[pod.uid] = (branch, self._measures.asked(pod).all)
                if pod.uid not in self._held:
                    self._change_demand(pod.uid, 1)
                    self._shares.demand += 1

    def withdraws(self, group: Group) -> None:
        """Discount a group that does not wait any more."""
        if self._stale:
            return
        for pod in group.pods:
            if pod.uid in self._asking:
                if pod.uid not in self._held:
                    self._change_demand(pod.uid, -1)
                    self._shares.demand += 1
                del self._asking[pod.uid]

    def note_time(self, at: float) -> None:
        """Remember the use of each queue until now, in steps: older use counts less (KAI's usage)."""
        if self._remembered is None:
            self._remembered = at
        seconds = at - self._remembered
        if seconds < self.half_life / STEPS_IN_HALF_LIFE:
            return
        self._remembered = at
        for branch in self._fresh().branches:
            branch.known.clear()
            for resource in self._measures.tracked:
                total = self._measures.total(resource)
                now = branch.used[resource] / total if total else 0.0
                branch.history[resource] = remember(branch.history.get(resource, 0.0), now, seconds, self.half_life)
        self._shares.demand += 1

    def past_use(self) -> PastUse:
        """What queues have used in the past."""
        if not (self.half_life and self.active):
            return PastUse()
        branches = self._fresh().branches
        parts = ((one.queue.name, resource, part) for one in branches for resource, part in one.history.items())
        return PastUse(self._remembered, tuple(parts))

    def restore(self, past: PastUse) -> None:
        """Take this as what queues have used in the past."""
        branches = {branch.queue.name: branch for branch in self._fresh().branches}
        self._remembered = past.until
        for branch in branches.values():
            branch.history = {}
        for queue, resource, part in past.parts:
            branches[queue].history[resource] = part

    def begin_again(self) -> None:
        """Count everything again before the next answer."""
        self._stale = self.active

    def _change_demand(self, uid: str, sign: int) -> None:
        branch, ask = self._asking[uid]
        for one in branch.path:
            one.known.clear()
            for resource, amount in ask.items():
                one.waits[resource] += sign * amount

    def _count(self, pod: Pod) -> None:
        slot = self._ledger.pods.slot_of[pod.uid]
        if pod.leaving and pod.uid not in self._leaving:
            self._leaving.add(pod.uid)
            self._ending = None
        self._replace(pod.uid, Counted(self._tree.of(pod), self._measures.held(pod, slot)))

    def _replace(self, uid: str, now: Counted | None) -> None:
        if self._ledger.in_transaction:
            self._journal.append((uid, self._held.get(uid)))
        self._put(uid, now)

    def _put(self, uid: str, now: Counted | None) -> None:
        """Count the pod with this, and not with what it was counted before; None = it holds nothing."""
        before = self._held.pop(uid, None)
        if self._ending and uid in self._ending:
            self._ending = None
        if before is not None:
            self._add(before.queue, before.holding.amounts, -1)
        if now is not None:
            self._held[uid] = now
            self._add(now.queue, now.holding.amounts, 1)
        if uid in self._asking and (before is None) != (now is None):
            self._change_demand(uid, 1 if now is None else -1)
            branch, ask = self._asking[uid]
            counted = now or before
            if counted is not None and counted.holding.amounts == ask and not branch.children:
                return  # what it asked for, it holds now: what its queue wants is as before
        self._shares.demand += 1

    def _add(self, branch: Branch | None, amounts: Mapping[str, int], sign: int) -> None:
        root = self._tree.root
        own = branch or root
        for one in own.path:
            one.known.clear()
        for resource, amount in amounts.items():
            amount *= sign
            root.used[resource] += amount
            own.own[resource] += amount
            for one in own.path:
                one.used[resource] += amount

    def _count_ending(self) -> None:
        """Count what pods hold that are ending: their queues do not have it any more for a reclaim."""
        if self._ending is not None and self._told == self.ending.keys():
            return
        self._told = frozenset(self.ending)
        self._leaving &= self._held.keys()
        self._ending = self._told | self._leaving
        for branch in self._tree.branches:
            branch.ending.clear()
        for uid in self._ending:
            counted = self._held.get(uid)
            for one in counted.queue.path if counted is not None and counted.queue is not None else ():
                one.ending.update(counted.holding.amounts if counted is not None else {})

    def _count_row_again(self, row: int) -> None:
        """Count the pods of a node that was written again: its cards may be others."""
        if self._counts:
            self._rebuilt += 1
            for uid in self._ledger.held_on(row):
                self._count(self._ledger.pods.pod(uid))

    def _fresh(self) -> Tree:
        """The tree, counted again from the ledger if the queues changed."""
        if self._stale:
            self._stale = False
            self._rebuilt += 1
            known = {branch.queue.name: branch.history for branch in self._tree.branches}
            self._tree = Tree(self._queues.values())
            for branch in self._tree.branches:
                branch.history = known.get(branch.queue.name, {})
            self._measures.track(self._tree.resources())
            self._shares = Shares(self._tree, self._measures)
            self._held.clear()
            self._asking.clear()
            self._leaving, self._ending = set(), None
            for uid in self._ledger.pods:
                self._count(self._ledger.pods.pod(uid))
            self._ask_again()
        self._measures.refresh()
        if self._measures.kinds != self._kinds:
            self._ask_again()
        return self._tree

    def _ask_again(self) -> None:
        """Count the waiting pods again: on other cards, they count as other amounts."""
        for uid in self._asking:
            if uid not in self._held:
                self._change_demand(uid, -1)
        self._asking.clear()
        self._shares.demand += 1
        self._measures.refresh()
        self._kinds = self._measures.kinds
        for group in self.waiting:
            self.asks(group)


def _nothing() -> None:
    """For transactions without queues."""
