"""The ledger: the only mutable state of the engine. Nodes are rows, cards are columns, pods hold entries.

Everything here can be rebuilt from nodes and bound pods; engine/ledger/audit.py does so and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, Protocol

import numpy as np

from dovetail.engine.kernel.book import add_entry, new_pod, note_all_cards, peak_use, touch
from dovetail.engine.kernel.build import BookKeeping
from dovetail.engine.kernel.state import (
    ALLOCATED,
    ENTRY_CARD,
    ENTRY_NEXT,
    FREE_ENTRIES,
    FREE_PODS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    MOVES,
    NONE,
    POD_ENTRY,
    POD_OWNER,
    POD_ROW,
    POD_SHAPE,
    POD_STATE,
    RESERVED,
    RESULT_POD,
    RESULT_REASON,
    RESULT_ROW,
    Batch,
    Book,
    State,
)
from dovetail.engine.ledger.decisions import Decisions
from dovetail.engine.ledger.holders import Holders, shares_of
from dovetail.engine.ledger.in_force import InForce
from dovetail.engine.ledger.intern import MAX_LEDGER_AMOUNT, NO_OWNER, Interner
from dovetail.engine.ledger.node_rows import NodeRows
from dovetail.engine.ledger.storage import Storage
from dovetail.engine.ledger.stream import Pods
from dovetail.engine.ledger.transaction import Change, Transaction, passing
from dovetail.engine.ledger.vectors import VectorRoom
from dovetail.model.decision import Decision, Share
from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import ContainerKind, Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import NO_RELATIONS
from dovetail.model.signals import NodeSignals
from dovetail.policies.rows import Ints, Rows


class Witness(Protocol):
    """An object that counts pods by row. It is called for pods with relations, and for all pods while it attends."""

    def came(self, pod: Pod, row: int) -> None: ...

    def left(self, pod: Pod, row: int) -> None: ...

    def clear(self, reserved: Collection[str]) -> None:
        """Forget all pods: they will be booked again. Pods with these UIDs keep the volumes reserved for them."""


class Ledger:
    """Nodes, pods and what is left. Only its own methods and the kernel that the scheduler runs change it."""

    def __init__(self, keeper: BookKeeping, interner: Interner) -> None:
        self._keeper = keeper
        self.intern = interner
        self.storage = Storage(interner)
        self.in_force = InForce()
        self.places = NodeRows(interner, self.storage, self.in_force)
        self.pods = Holders()  # uid -> what it holds
        self._undo: list[Change] | None = None  # in a transaction
        self.undoes = False  # a transaction is being undone: what a pod held inside it cannot be read any more
        self.witnesses: list[Witness] = []
        self._attending: list[Witness] = []
        self._one_slot = np.zeros(1, dtype=np.int64)
        self.learners: list[Callable[[Collection[str]], None]] = []  # called with resources that no node had until now
        self.row_readers: list[Callable[[int], None]] = []  # called with a row that was written again
        # Called when a transaction starts. What they return is called if the transaction is undone.
        self.bystanders: list[Callable[[], Callable[[], None]]] = []
        self.bystanders.append(lambda: self.places.signals.watch(self.heads.item(JOURNAL_DEPTH), self.places.columns))

    # ---- what the kernel works on -------------------------------------------------------------------------------

    def state(self) -> State:
        """The arrays, with ranks and sizes up to date. Valid until the next call of a method that may grow an array."""
        if self.storage.ranks_stale:
            self.places.rank()
        return self._arrays()

    def _arrays(self) -> State:
        """As `state`, without ranks.

        New names (a resource, a vendor) also make new `wants`, so two comparisons are enough.
        """
        current, storage = self.storage.current, self.storage
        if current is None or current.wants is not self.intern.wants or current.vectors is not storage.vectors.arrays:
            return storage.gather()
        return current

    @property
    def rows(self) -> Rows:
        return self.storage.rows

    @property
    def book(self) -> Book:
        return self.storage.book

    @property
    def heads(self) -> Ints:
        return self.storage.heads

    @property
    def vectors(self) -> VectorRoom:
        return self.storage.vectors

    @property
    def generation(self) -> int:
        """The number of changes of the ledger."""
        return self.storage.heads.item(MOVES)

    @property
    def in_transaction(self) -> bool:
        return self._undo is not None

    def make_room(self, pods: int, entries: int, journal: int = 0) -> None:
        """Make enough free slots for what the kernel may add in one call."""
        heads, storage = self.heads, self.storage
        lines = heads.item(JOURNAL_LENGTH) + journal
        if (
            heads.item(FREE_PODS) < pods
            or heads.item(FREE_ENTRIES) < entries
            or len(storage.journal.line) < lines
            or len(storage.scratch.picked) < entries  # `state` fits the rest
        ):
            storage.make_room(pods, entries, lines)
            self.pods.fit(len(self.book.pod))

    def use(self, keeper: BookKeeping) -> None:
        """From now on, use these book-keeping functions (interpreted or compiled); the results are the same."""
        self._keeper = keeper

    def count_by_cards(self, resources: Collection[str]) -> None:
        """For these resources, cards decide how many are left, not the node's count."""
        columns = [self.intern.pin_column(name) for name in resources]
        self.storage.fit_columns()
        self.rows.enforced[columns] = 0

    def attend(self, witness: Witness, attends: bool) -> None:
        """Call the witness for all pods from now on; or, with `attends` False, only for pods with relations."""
        if witness in self._attending:
            self._attending.remove(witness)
        if attends:
            self._attending.append(witness)

    def _concerned(self, pod: Pod) -> list[Witness]:
        return self._attending if pod.relations is NO_RELATIONS else self.witnesses

    # ---- nodes --------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        """By row. A node is inactive if it is gone, or if only a pod named it."""
        return self.places.nodes

    @property
    def row_of(self) -> dict[str, int]:
        return self.places.row_of

    def is_active(self, row: int) -> bool:
        return self.places.is_active(row)

    def devices(self, row: int) -> tuple[Device, ...]:
        """By column: the node's cards, then cards that only records of pods name."""
        return self.places.devices(row)

    def set_node(self, node: Node) -> None:
        """Write a node that is new or changed; what its pods hold stays booked."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self.places.add(node.name)
        elif self.nodes[row] == node and self.is_active(row):
            return
        self._write_row(row, node, active=True)

    def remove_node(self, name: str) -> bool:
        """Deactivate a node that is gone: no new pod goes there.

        Its pods keep what they hold until they are gone too.
        """
        row = self.row_of.get(name)
        if row is None or not self.is_active(row):
            return False
        self._write_row(row, self.nodes[row], active=False)
        return True

    def close_node(self, node: Node) -> None:
        """Write the node as inactive: no new pod goes there. What its pods hold stays booked."""
        row = self.row_of[node.name] if node.name in self.row_of else self.places.add(node.name)
        self._write_row(row, node, active=False)

    def measure(self, name: str, signals: NodeSignals) -> None:
        """Store the measured load of a node. Nothing is kept for a node that is not active."""
        row = self.row_of.get(name)
        if row is not None and self.is_active(row):
            self.places.signals.measure(row, signals, self.places.columns(row), self.in_transaction)

    def rewrite(self, row: int) -> None:
        """Rebuild a row after a booking on it failed halfway."""
        self._write_row(row, self.nodes[row], self.is_active(row))

    def lay_out(self, names: Sequence[str]) -> None:
        """Give these nodes the rows 0, 1, … of an empty ledger. They are inactive until `set_node`."""
        for name in names:
            self._write_row(self.places.append(name), Node(name), active=False)

    def empty(self, reserved: Collection[str]) -> None:
        """Drop everything that pods hold: all are booked again afterwards, pods with these UIDs as reservations.

        Called when the ledger contradicts itself, so nothing that it says now is used.
        """
        self._undo = None
        self.storage.empty_book()
        self.pods.clear()
        for witness in self.witnesses:
            witness.clear(reserved)
        for row, node in enumerate(self.nodes):
            self._write_row(row, node, self.is_active(row))
        self.vectors.forget()

    def _write_row(self, row: int, node: Node, active: bool) -> None:
        """Rebuild one row from the node and from everything that its pods hold."""
        holding = self._held_on(row)
        self.places.write(row, node, active, {share.uuid for _, shares in holding for share in shares})
        others = self._count_offered() - {row} if self.places.offered else ()
        column = self.places.columns(row)
        for slot, shares in holding:
            entry = self.book.pod[slot, POD_ENTRY]
            for share in shares:
                self.book.entry[entry, ENTRY_CARD] = column[share.uuid]
                entry = self.book.entry[entry, ENTRY_NEXT]
            self._keeper.charge(self._arrays(), slot, 1)
        note_all_cards(self.rows, row)
        touch(self._arrays(), row)
        for read in self.row_readers:
            read(row)
        for other in others:
            self._write_row(other, self.nodes[other], self.is_active(other))

    def _count_offered(self) -> set[int]:
        """Count pods by resources that a node now has for the first time.

        Returns the rows of those pods, which must be written again.
        """
        names, self.places.offered = frozenset(self.places.offered), []
        for learn in self.learners:
            learn(names)
        pod, need = self.book.pod, self.intern.wants.need
        slots = np.flatnonzero(np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED)))
        rows = set()
        for slot in slots[need[pod[slots, POD_SHAPE], self.intern.nowhere] > 0].tolist():
            if not names.isdisjoint(self.pods.at(slot).resources):
                pod[slot, POD_SHAPE] = self.intern.shape(self.pods.at(slot), NO_OWNER)
                rows.add(int(pod[slot, POD_ROW]))
        return rows

    def _held_on(self, row: int) -> list[tuple[int, tuple[Share, ...]]]:
        return [(slot, self.shares(slot)) for slot in self._slots_on(row)]

    def _slots_on(self, row: int) -> list[int]:
        if not self.rows.hosts[row].any():
            return []
        pod = self.book.pod
        slots = np.flatnonzero((pod[:, POD_ROW] == row) & np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED)))
        return slots.tolist()

    def held_on(self, row: int) -> list[str]:
        """UIDs of the pods on the row."""
        return [self.pods.at(slot).uid for slot in self._slots_on(row)]

    def assumed_on(self, row: int) -> list[str]:
        """UIDs of the pods on the row whose cards are guessed."""
        return [self.pods.at(slot).uid for slot in self._slots_on(row) if self.pods.is_assumed(slot)]

    # ---- pods ---------------------------------------------------------------------------------------------------

    def adopt(self, pods: Pods, batch: Batch) -> Decisions:
        """Turn what the kernel booked into decisions. Placed pods are reserved until `confirm` or `release`."""
        results = batch.results
        rows, slots, uids = results[:, RESULT_ROW], results[:, RESULT_POD], pods.uids
        placed = np.flatnonzero(rows != NONE)
        if len(placed) == len(uids):
            self._add_all(uids, slots, pods.templates)
        else:
            known = list(compress(uids, (rows != NONE).tolist()))
            self._add_all(known, slots[placed], pods.templates[placed])
        names, reasons, generation = self.places.lend_names(), results[:, RESULT_REASON], self.generation
        return Decisions(uids, rows, names, reasons, batch.taken_from, batch.taken, generation)

    def adopt_one(self, pod: Pod, batch: Batch, cards: int) -> Decision:
        """As `adopt`, for a batch of one pod whose arrays are used again afterwards."""
        [[row, reason, slot]] = batch.results.tolist()
        if row == NONE:
            return Decision(pod.uid, None, (), Reason(reason), self.generation)
        self._add(pod, slot, False)
        name, uuids = self.places.names[row]
        return Decision(pod.uid, name, shares_of(uuids, batch.taken[:cards]), Reason.OK, self.generation)

    def book_observed(
        self, pod: Pod, node: str, shares: tuple[Share, ...], assumed: bool, status: int = ALLOCATED
    ) -> list[str]:
        """Book a pod that holds a node already, whether it fits or not.

        Returns UUIDs that the node does not register.
        """
        row = self.row_of.get(node)
        if row is None:
            row = self.places.add(node)
            self._write_row(row, Node(node), active=False)
        self.places.note_change(row)
        unknown = sorted({share.uuid for share in shares} - self.places.columns(row).keys())
        if unknown:
            self.places.add_ghosts(row, unknown)
        column = self.places.columns(row)
        shares = tuple(share for share in shares if share.uuid in column) if unknown else shares
        shape, owner = self.intern.shape(pod, NO_OWNER), self.owner(pod)
        self.make_room(1, len(shares), 1)
        state = self.state()
        slot, last = new_pod(state, row, shape, owner, status), NONE
        for share in shares:
            kind = pod.containers[share.container].kind if share.container < len(pod.containers) else ContainerKind.APP
            memory, compute = min(share.memory_mib, MAX_LEDGER_AMOUNT), min(share.compute_milli, MAX_LEDGER_AMOUNT)
            last = add_entry(state, slot, last, share.container, int(kind), column[share.uuid], memory, compute)
        self._keeper.charge(state, slot, 1)
        self._add(pod, slot, assumed)
        return unknown

    def confirm(self, uid: str) -> bool:
        """Turn the pod's reservation into an allocation. Returns whether the pod is known."""
        slot = self.pods.slot_of.get(uid)
        if slot is None:
            return False
        self.book.pod[slot, POD_STATE] = ALLOCATED
        return True

    def relabel(self, pod: Pod) -> None:
        """Replace the labels of a pod on a node: rules of other pods may select them. Its request stays the same."""
        slot = self.pods.slot_of[pod.uid]
        known, row = self.pods.pod(pod.uid), self.book.pod.item(slot, POD_ROW)
        for witness in self._concerned(known):
            witness.left(known, row)
        for witness in self._concerned(pod):
            witness.came(pod, row)
        self.pods.put(slot, pod)

    def release(self, uid: str) -> bool:
        """Release what a pod that is gone holds: afterwards the ledger is as if the pod had never been there."""
        return self.release_all((uid,)) == 1

    def release_all(self, uids: Sequence[str]) -> int:
        """Release several pods that are gone; returns how many were known."""
        dropped = self.pods.drop(uids)
        if not dropped:
            return 0
        failed = self._leave(dropped)
        if self._undo is not None:
            self.make_room(0, 0, len(dropped))
            self._undo += [Change(*one, False, self.book.pod.item(one[1], POD_ROW)) for one in dropped]
        if len(dropped) == 1:
            slots = self._one_slot
            slots[0] = dropped[0][1]
        else:
            slots = np.array([slot for _, slot in dropped], dtype=np.int64)
        self._keeper.release(self.state(), slots)
        if failed is not None:
            raise failed
        return len(dropped)

    def _leave(self, dropped: Sequence[tuple[str, int]]) -> Exception | None:
        """Call `left` of all witnesses, even if one fails; returns the first error."""
        failed: Exception | None = None
        for uid, slot in dropped:
            pod, row = self.pods.at(slot), self.book.pod.item(slot, POD_ROW)
            concerned = self._concerned(pod)
            if concerned and pod.uid != uid:
                pod = pod.named(uid)
            for witness in concerned:
                try:
                    witness.left(pod, row)
                except Exception as error:
                    failed = failed or error
        return failed

    def is_reserved(self, uid: str) -> bool:
        slot = self.pods.slot_of.get(uid)
        return slot is not None and int(self.book.pod[slot, POD_STATE]) == RESERVED

    def row_holding(self, uid: str) -> int:
        """The row the pod is on, or NONE."""
        slot = self.pods.slot_of.get(uid)
        return NONE if slot is None else self.book.pod.item(slot, POD_ROW)

    def held_shares(self, uid: str) -> tuple[Share, ...]:
        slot = self.pods.slot_of.get(uid)
        return () if slot is None else self.shares(slot)

    def node_of(self, uid: str) -> str:
        return self.nodes[self.row_holding(uid)].name

    def shares(self, slot: int) -> tuple[Share, ...]:
        """What a pod holds, container by container."""
        uuids = self.places.names[int(self.book.pod[slot, POD_ROW])][1]
        return tuple(
            Share(container, uuids[card], memory, compute)
            for _, container, _, card, memory, compute in (entry.tolist() for entry in self._entries(slot))
        )

    def peak(self, slot: int) -> list[tuple[Device, int, int, int]]:
        """Per card the most that a pod holds at one time: slots, MiB, milli."""
        state = self.state()
        peak_use(state, slot, state.scratch)
        devices = self.devices(int(self.book.pod[slot, POD_ROW]))
        cards = sorted({int(entry[ENTRY_CARD]) for entry in self._entries(slot)})
        return [(devices[d], *state.scratch.peak[d].tolist()) for d in cards]

    def _entries(self, slot: int) -> Iterator[Any]:
        entry = int(self.book.pod[slot, POD_ENTRY])
        while entry != NONE:
            yield self.book.entry[entry]
            entry = int(self.book.entry[entry, ENTRY_NEXT])

    def owner(self, pod: Pod) -> int:
        if not pod.owner:
            return NO_OWNER
        owner = self.intern.owners(pod.owner)
        self.storage.add_owner(owner)
        return owner

    def peers(self, owner: int) -> int:
        """The owner's line in rows.peers, counted from the pods at the first call."""
        if owner == NO_OWNER:
            return NO_OWNER
        if self.book.peer_row[owner] == NONE:
            line, pod = self.storage.add_peers(), self.book.pod
            mine = pod[(pod[:, POD_OWNER] == owner) & np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED)), POD_ROW]
            self.rows.peers[line] = np.bincount(mine, minlength=self.rows.peers.shape[1])
            self.book.peer_row[owner] = line
        return int(self.book.peer_row[owner])

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """Forget at the end the names, requests and rules that trials inside have added.

        Kept scores are forgotten too. Other code that keeps numbers of requests must look them up again.
        """
        marks, classes, counted = self.intern.mark(), self.places.classes, self.book.peer_row != NONE
        try:
            yield
        finally:
            had_line = np.zeros(len(self.book.peer_row), dtype=np.bool_)
            had_line[: len(counted)] = counted
            lines = np.flatnonzero(~had_line & (self.book.peer_row != NONE)).tolist()
            self.storage.take_back_lines([*dict.fromkeys((*self.intern.forget_since(marks), *lines))])
            self.places.drop_masks_since(classes)
            self.vectors.clear()

    # ---- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Undo at the end everything placed or released inside, unless `commit` was called."""
        outer, self._undo = self._undo, []
        start = int(self.heads[JOURNAL_LENGTH])
        self.heads[JOURNAL_DEPTH] += 1
        opened, undo = Transaction(), [watch() for watch in self.bystanders]
        try:
            yield opened
        finally:
            changes, self._undo = self._undo, outer
            if not opened.committed:
                self._undo_all(start, changes)
                for one in undo:
                    one()
            elif outer is not None:
                outer.extend(changes)
            self.heads[JOURNAL_DEPTH] -= 1
            if self.heads[JOURNAL_DEPTH] == 0:
                self._keeper.settle(self.state())

    def _undo_all(self, start: int, changes: Sequence[Change]) -> None:
        self.undoes = True
        try:
            self._keeper.roll_back(self.state(), start)
            passed = passing(changes)
            for change in reversed(changes):
                if change.slot not in passed:
                    self._take_back(change)
        finally:
            self.undoes = False

    def _take_back(self, change: Change) -> None:
        if not change.added:
            self.pods.put_back(change.uid, change.slot)
        pod = self.pods.pod(change.uid)
        for witness in self._concerned(pod):
            (witness.left if change.added else witness.came)(pod, change.row)
        if change.added:
            self.pods.drop((change.uid,))

    def _add(self, pod: Pod, slot: int, assumed: bool) -> None:
        self.pods.add(pod.uid, slot, pod, assumed)
        told: list[Witness] = []
        try:
            for witness in self._concerned(pod):
                witness.came(pod, self.book.pod.item(slot, POD_ROW))
                told.append(witness)
        except Exception:  # undo the calls of witnesses; the caller frees the slot (faults.mend)
            for witness in told:
                witness.left(pod, self.book.pod.item(slot, POD_ROW))
            self.pods.drop((pod.uid,))
            raise
        if self._undo is not None:
            self._undo.append(Change(pod.uid, slot, True, self.book.pod.item(slot, POD_ROW)))

    def _add_all(self, uids: Sequence[str], slots: Ints, pods: Any) -> None:
        """Add pods that were placed in bulk. They have no relations: pods with relations are placed one by one."""
        self.pods.add_all(uids, slots, pods)
        if self._undo is None and not self._attending:
            return
        rows = self.book.pod[slots, POD_ROW].tolist()
        for uid, slot, row in zip(uids, slots.tolist(), rows, strict=True):
            for witness in self._attending:
                witness.came(self.pods.pod(uid), row)
            if self._undo is not None:
                self._undo.append(Change(uid, slot, True, row))
