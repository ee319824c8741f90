"""The ledger: the only mutable state. Nodes are rows, cards are columns, pods hold entries; one door in, one door out.

Everything here can be rebuilt from nodes and bound pods; engine/audit.py does so and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np

from dovetail.engine.build import BookKeeping
from dovetail.engine.decisions import Decisions, Names, shares_of
from dovetail.engine.holders import NEVER, Holders
from dovetail.engine.intern import LARGEST, NOBODY, Interner, capacity, kind_bit
from dovetail.engine.kernel_book import add_entry, new_pod, note_all_cards, peak_use, touch
from dovetail.engine.state import (
    ALLOCATED,
    ENTRY_CARD,
    ENTRY_NEXT,
    INACTIVE,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    MOVES,
    NONE,
    POD_ENTRY,
    POD_OWNER,
    POD_ROW,
    POD_STATE,
    RESERVED,
    RESULT_POD,
    RESULT_REASON,
    RESULT_ROW,
    Batch,
    Book,
    State,
)
from dovetail.engine.storage import Storage
from dovetail.engine.stream import Pods
from dovetail.engine.vectors import VectorRoom
from dovetail.model.decision import Decision, Share
from dovetail.model.device import MIG, Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import ANY_NODE, ContainerKind, Pod
from dovetail.model.reason import Reason
from dovetail.model.rules import NodeRules
from dovetail.policies.rows import (
    ACTIVE,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CORDONED,
    FLAGS,
    HARDWARE,
    INDEX,
    KIND,
    KIND_BITS,
    MIG_CARD,
    MIG_NODE,
    NODE_FLAGS,
    NUMA,
    QUARANTINED,
    SLOTS,
    STOCK,
    UNHEALTHY,
    UUID,
    VENDOR,
    Ints,
    Rows,
)


class Ledger:
    """Nodes, pods and what is left. Changed only by its own methods and by the kernel that the scheduler runs on it."""

    def __init__(self, keeper: BookKeeping, interner: Interner) -> None:
        self._keeper = keeper
        self.intern = interner
        self.storage = Storage(interner)
        self.nodes: list[Node] = []  # by row; a node that is gone or only heard of is inactive
        self.row_of: dict[str, int] = {}
        self.pods = Holders()  # uid -> what it holds
        self._ghosts: dict[int, tuple[Device, ...]] = {}  # row -> cards only pods speak of
        self._names: list[Names] = []  # by row: the node's name, its cards' UUIDs
        self._names_lent = False  # decisions look into the list: write into a copy
        self._masks: dict[NodeRules, int] = {ANY_NODE: 0}  # what most pods have, kept from the start
        self._ranks_stale = False
        self.nodes_written = 0  # grows with every change of a node
        self._undo: list[tuple[str, int, float, bool]] | None = None  # (uid, slot, expiry, added) in a transaction
        self._one_slot = np.zeros(1, dtype=np.int64)
        # Called when a transaction starts; what they return is called if it is undone.
        self.bystanders: list[Callable[[], Callable[[], None]]] = []

    # ---- what the kernel works on -------------------------------------------------------------------------------

    def state(self) -> State:
        """The arrays, with ranks and sizes up to date. Valid until the next method call that may grow something."""
        if self._ranks_stale:
            for rank, name in enumerate(sorted(self.row_of)):
                self.rows.rank[self.row_of[name]] = rank
            self._ranks_stale = False
        return self.storage.state()

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
        """Grows with every change."""
        return int(self.heads[MOVES])

    @property
    def in_transaction(self) -> bool:
        return self._undo is not None

    def make_room(self, pods: int, entries: int, journal: int = 0) -> None:
        """Enough free slots for what the kernel may add in one call."""
        self.storage.make_room(pods, entries, journal)
        self.pods.fit(len(self.book.pod))

    def use(self, keeper: BookKeeping) -> None:
        """From now on with these functions, which do the same."""
        self._keeper = keeper

    def count_by_cards(self, resources: Collection[str]) -> None:
        """Of these resources the cards decide how many are left, not the node's count."""
        columns = [self.intern.columns(name) for name in resources]
        self.storage.fit_columns()
        self.rows.enforced[columns] = 0

    # ---- nodes --------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """A node is new or different; what its pods hold stays booked."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        elif self.nodes[row] == node and self.rows.fact[row, NODE_FLAGS] & ACTIVE:
            return
        self._write_row(row, node, active=True)

    def remove_node(self, name: str) -> bool:
        """The node is gone. Its pods keep what they hold until they are gone too; nothing new goes there."""
        row = self.row_of.get(name)
        if row is None or not self.rows.fact[row, NODE_FLAGS] & ACTIVE:
            return False
        self._write_row(row, self.nodes[row], active=False)
        return True

    def is_active(self, row: int) -> bool:
        return bool(self.rows.fact[row, NODE_FLAGS] & ACTIVE)

    def devices(self, row: int) -> tuple[Device, ...]:
        """By column: the node's cards, then those only pods speak of."""
        return self.nodes[row].devices + self._ghosts.get(row, ())

    def mask(self, rules: NodeRules) -> int:
        """The static class of a pod's node rules; a new one is held against every node."""
        known = self._masks.get(rules)
        if known is None:
            known = self._masks[rules] = len(self._masks)
            self.storage.add_mask(known)
            active = (self.rows.fact[: len(self.nodes), NODE_FLAGS] & ACTIVE).tolist()
            self.storage.masks[known, : len(self.nodes)] = [
                rules.refusal(node) if there else INACTIVE for node, there in zip(self.nodes, active, strict=True)
            ]
        return known

    def _new_row(self, name: str) -> int:
        row = self.storage.add_row()
        self.nodes.append(Node(name))
        self._own_names().append((name, ()))
        self.row_of[name] = row
        self._ranks_stale = True
        return row

    def _write_row(self, row: int, node: Node, active: bool) -> None:
        """Rebuild one row from the node and from what its pods hold: there is no way to forget one of them."""
        self.nodes_written += 1
        holding = self._held_on(row)
        uuids = {device.uuid for device in node.devices}
        lost = {d.uuid: d for d in self.devices(row) if d.uuid not in uuids}
        missing = {share.uuid for _, shares in holding for share in shares if share.uuid not in uuids}
        self._ghosts[row] = tuple(_ghost(lost.get(uuid), uuid) for uuid in sorted(missing))
        self.nodes[row] = node
        self.storage.fit_cards(len(node.devices) + len(missing))
        self._write_capacity(row, node, active)
        for n, device in enumerate(self.devices(row)):
            self._write_card(row, n, device)
        for mask, rules in enumerate(self._masks):
            self.storage.masks[mask, row] = rules.refusal(node) if active else INACTIVE
        self._own_names()[row] = (node.name, tuple(device.uuid for device in self.devices(row)))
        column = {uuid: n for n, uuid in enumerate(self._names[row][1])}
        for slot, shares in holding:
            entry = self.book.pod[slot, POD_ENTRY]
            for share in shares:
                self.book.entry[entry, ENTRY_CARD] = column[share.uuid]
                entry = self.book.entry[entry, ENTRY_NEXT]
            self._keeper.charge(self.state(), slot, 1)
        note_all_cards(self.rows, row)
        self.rows.fact[row, HARDWARE] = self.intern.hardware_of(self._hardware(row))
        touch(self.state(), row)

    def _write_capacity(self, row: int, node: Node, active: bool) -> None:
        columns = [self.intern.columns(name) for name in node.allocatable]
        self.storage.fit_columns()
        rows = self.rows
        for field in (rows.cap, rows.used, rows.scored, rows.card, rows.held, rows.sums, rows.hosts, rows.link):
            field[row] = 0
        rows.peers[:, row] = 0
        for column, amount in zip(columns, node.allocatable.values(), strict=True):
            rows.cap[row, column] = capacity(amount)
        flags = (ACTIVE if active else 0) | (MIG_NODE if node.mig else 0)
        rows.fact[row, NODE_FLAGS] = flags | (STOCK if node.enforcer is Enforcer.STOCK else 0)
        rows.fact[row, CARDS], rows.fact[row, KIND_BITS] = len(self.devices(row)), 0
        for x, scores in enumerate(node.links):
            for y, score in enumerate(scores):
                if x != y and x < len(node.devices) and y < len(node.devices):
                    rows.link[row, x, y] = max(0, min(score, 10**6))

    def _hardware(self, row: int) -> bytes:
        """Everything but names that a row says of its node."""
        rows = self.rows
        nameless = rows.card[row].copy()
        nameless[:, UUID] = 0
        return b"".join(a.tobytes() for a in (rows.cap[row], nameless, rows.fact[row, :HARDWARE], rows.link[row]))

    def _write_card(self, row: int, n: int, device: Device) -> None:
        card = self.rows.card[row, n]
        vendor = self.intern.vendors(device.vendor)
        card[SLOTS], card[CARD_MEMORY] = capacity(device.slots), capacity(device.memory_mib)
        card[COMPUTE] = capacity(device.compute_milli)
        self.rows.fact[row, KIND_BITS] |= kind_bit(self.intern.kind(device))
        card[VENDOR], card[KIND] = vendor, self.intern.kind(device)
        card[UUID], card[NUMA], card[INDEX] = self.intern.uuids(device.uuid), device.numa, device.index
        card[FLAGS] = (
            (0 if device.healthy else UNHEALTHY)
            | (CORDONED if device.cordoned else 0)
            | (QUARANTINED if device.quarantined else 0)
            | (MIG_CARD if device.mode == MIG else 0)
        )
        if not device.quarantined:
            self.rows.sums[row, :3] += card[:3]

    # ---- pods ---------------------------------------------------------------------------------------------------

    def adopt(self, pods: Pods, batch: Batch, expires: float) -> Decisions:
        """What the kernel booked, as decisions. Placed pods are reserved until confirmed, or until `expires`."""
        results = batch.results
        rows, slots, uids = results[:, RESULT_ROW], results[:, RESULT_POD], pods.uids
        placed = np.flatnonzero(rows != NONE)
        if len(placed) == len(uids):
            self._add_all(uids, slots, pods.templates, expires)
        else:
            known = list(compress(uids, (rows != NONE).tolist()))
            self._add_all(known, slots[placed], pods.templates[placed], expires)
        self._names_lent = True
        reasons, generation = results[:, RESULT_REASON], self.generation
        return Decisions(uids, rows, self._names, reasons, batch.taken_from, batch.taken, generation)

    def adopt_one(self, pod: Pod, batch: Batch, cards: int, expires: float) -> Decision:
        """As `adopt`, of a batch of one that is used again afterwards."""
        row, reason, slot = batch.results[0].tolist()
        if row == NONE:
            return Decision(pod.uid, None, (), Reason(reason), self.generation)
        self._add(pod, slot, False, expires)
        name, uuids = self._names[row]
        return Decision(pod.uid, name, shares_of(uuids, batch.taken[:cards]), Reason.OK, self.generation)

    def book_observed(self, pod: Pod, node: str, shares: tuple[Share, ...], assumed: bool) -> list[str]:
        """A pod holds a node already: truth, booked whether it fits or not. Returns UUIDs the node does not know."""
        row = self.row_of.get(node)
        if row is None:
            row = self._new_row(node)
            self._write_row(row, Node(node), active=False)
        column = {uuid: n for n, uuid in enumerate(self._names[row][1])}
        unknown = sorted({share.uuid for share in shares} - column.keys())
        if unknown:
            self._ghosts[row] = self._ghosts.get(row, ()) + tuple(_ghost(None, uuid) for uuid in unknown)
            self.storage.fit_cards(len(self.devices(row)))
            for device in self._ghosts[row][-len(unknown) :]:
                column[device.uuid] = len(column)
                self._write_card(row, column[device.uuid], device)
            self.rows.fact[row, CARDS] = len(column)
            self._own_names()[row] = (node, tuple(column))
        shape, owner = self.intern.shape(pod, NOBODY), self.owner(pod)
        self.make_room(1, len(shares), 1)
        state = self.state()
        slot, last = new_pod(state, row, shape, owner, ALLOCATED), NONE
        for share in shares:
            kind = pod.containers[share.container].kind if share.container < len(pod.containers) else ContainerKind.APP
            memory, compute = min(share.memory_mib, LARGEST), min(share.compute_milli, LARGEST)
            last = add_entry(state, slot, last, share.container, int(kind), column[share.uuid], memory, compute)
        self._keeper.charge(state, slot, 1)
        self._add(pod, slot, assumed, NEVER)
        return unknown

    def confirm(self, uid: str) -> bool:
        """Reserved becomes allocated."""
        slot = self.pods.slot_of.get(uid)
        if slot is None:
            return False
        self.book.pod[slot, POD_STATE] = ALLOCATED
        self.pods.confirm(slot)
        return True

    def release(self, uid: str) -> bool:
        """The pod is gone; the ledger is as if it had never been there."""
        return self.release_all((uid,)) == 1

    def release_all(self, uids: Sequence[str]) -> int:
        """Several pods are gone; returns how many were known."""
        dropped = self.pods.drop(uids)
        if not dropped:
            return 0
        if self._undo is not None:
            self.make_room(0, 0, len(dropped))
            self._undo += [(*one, False) for one in dropped]
        slots = self._one_slot if len(dropped) == 1 else np.empty(len(dropped), dtype=np.int64)
        slots[:] = [slot for _, slot, _ in dropped]
        self._keeper.release(self.state(), slots)
        return len(dropped)

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
        uuids = self._names[int(self.book.pod[slot, POD_ROW])][1]
        return tuple(
            Share(container, uuids[card], memory, compute)
            for _, container, _, card, memory, compute in (entry.tolist() for entry in self._entries(slot))
        )

    def peak(self, slot: int) -> list[tuple[Device, int, int, int]]:
        """Per card what a pod holds at its worst moment: slots, MiB, milli."""
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
            return NOBODY
        owner = self.intern.owners(pod.owner)
        self.storage.add_owner(owner)
        return owner

    def peers(self, owner: int) -> int:
        """The owner's line in rows.peers, counted up from the pods at the first question."""
        if owner == NOBODY:
            return NOBODY
        if self.book.peer_row[owner] == NONE:
            line, pod = self.storage.add_peers(), self.book.pod
            mine = pod[(pod[:, POD_OWNER] == owner) & np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED)), POD_ROW]
            self.rows.peers[line] = np.bincount(mine, minlength=self.rows.peers.shape[1])
            self.book.peer_row[owner] = line
        return int(self.book.peer_row[owner])

    # ---- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything placed or released inside is undone at the end, unless `commit` was called."""
        outer, self._undo = self._undo, []
        start = int(self.heads[JOURNAL_LENGTH])
        self.heads[JOURNAL_DEPTH] += 1
        opened, undo = Transaction(), [watch() for watch in self.bystanders]
        try:
            yield opened
        finally:
            changes, self._undo = self._undo, outer
            if not opened.committed:
                self._keeper.roll_back(self.state(), start)
                for uid, slot, expires, added in reversed(changes):
                    self.pods.drop((uid,)) if added else self.pods.put_back(uid, slot, expires)
                for one in undo:
                    one()
            elif outer is not None:
                outer.extend(changes)
            self.heads[JOURNAL_DEPTH] -= 1
            if self.heads[JOURNAL_DEPTH] == 0:
                self._keeper.settle(self.state())

    def _add(self, pod: Pod, slot: int, assumed: bool, expires: float) -> None:
        self.pods.add(pod.uid, slot, pod, assumed, expires)
        if self._undo is not None:
            self._undo.append((pod.uid, slot, expires, True))

    def _add_all(self, uids: Sequence[str], slots: Ints, pods: Any, expires: float) -> None:
        self.pods.add_all(uids, slots, pods, expires)
        if self._undo is not None:
            self._undo += [(uid, slot, expires, True) for uid, slot in zip(uids, slots.tolist(), strict=True)]

    def _own_names(self) -> list[Names]:
        """The list to write into."""
        if self._names_lent:
            self._names, self._names_lent = list(self._names), False
        return self._names

    def _held_on(self, row: int) -> list[tuple[int, tuple[Share, ...]]]:
        if not self.rows.hosts[row].any():
            return []
        pod = self.book.pod
        slots = np.flatnonzero((pod[:, POD_ROW] == row) & np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED)))
        return [(int(slot), self.shares(int(slot))) for slot in slots]


@dataclass(slots=True)
class Transaction:
    committed: bool = False

    def commit(self) -> None:
        self.committed = True


def _ghost(known: Device | None, uuid: str) -> Device:
    """A card in use that its node does not register: kept on the books, never given to anyone."""
    if known is None:
        return Device(
            uuid, index=NONE, vendor="", model="unknown", memory_mib=0, compute_milli=0, slots=0, quarantined=True
        )
    return replace(known, memory_mib=0, compute_milli=0, slots=0, quarantined=True)
