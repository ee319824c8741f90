"""Nodes as rows: what each node has, and which pods its rules refuse. What pods hold is kept elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b

import msgspec
import numpy as np

from dovetail.engine.kernel.state import INACTIVE, JOURNAL_DEPTH, MOVES, NONE, OWN
from dovetail.engine.ledger.decisions import Names
from dovetail.engine.ledger.in_force import InForce, Rule
from dovetail.engine.ledger.intern import SWEEP_FROM, Interner, capacity, kind_bit
from dovetail.engine.ledger.remembered import size_of
from dovetail.engine.ledger.signals import SignalRows
from dovetail.engine.ledger.storage import Storage
from dovetail.model.card_specs import spec_of
from dovetail.model.device import MIG, Device
from dovetail.model.node import PREFER_NO_SCHEDULE, Alignment, Enforcer, Node, StaticNode
from dovetail.model.pod import ANY_NODE
from dovetail.model.rules import NodeKey, NodeRules
from dovetail.policies.rows import (
    ACTIVE,
    CARDS,
    CORDONED,
    HARDWARE,
    KIND_BITS,
    MIG_CARD,
    MIG_NODE,
    NODE_FLAGS,
    ONE_NUMA_PER_POD,
    QUARANTINED,
    SINGLE_NUMA,
    STOCK,
    UNHEALTHY,
    UNSETTLED,
    UUID,
    Bytes,
    Ints,
)

ALIGNED = {
    Alignment.NONE: 0,
    Alignment.CONTAINER: SINGLE_NUMA,
    Alignment.POD: SINGLE_NUMA | ONE_NUMA_PER_POD,
}
HIGHEST_LINK = 10**6
SWEEP_RULES_FROM = 16 << 20  # bytes of node rules; below, a search for unused ones costs more than it saves
MAX_KEPT_KEYS = 16  # sets of labels, with a number for each node
MOST_COLUMNS = 512  # cards of a node, with cards that only pods name


class NodeRows:
    """The nodes, by row. A node that is gone, or that only pods name, is inactive.

    When no pod holds an inactive row any more, the next new node gets the row.
    """

    def __init__(self, interner: Interner, storage: Storage, in_force: InForce) -> None:
        self._intern, self._storage, self._in_force = interner, storage, in_force
        self.signals = SignalRows(storage)
        self.nodes: list[Node] = []  # by row
        self.static: list[StaticNode] = []  # by row: what node rules may read
        self.row_of: dict[str, int] = {}
        self.written = 0  # grows with every change of a node
        self.offered: list[str] = []  # resources that no node had until now; the ledger empties it
        self.reused = 0  # grows whenever a row gets another node
        self._ghosts: dict[int, tuple[Device, ...]] = {}  # row -> cards that only pods name
        self.names: list[Names] = []  # by row: the node's name, its cards' UUIDs
        self._names_lent = False  # decisions read the list: write into a copy
        self._masks: dict[NodeRules, int] = {ANY_NODE: OWN + 1}  # the class of most pods, kept from the start
        self._free_masks: list[int] = []
        self._keys: dict[tuple[str, ...], tuple[list[NodeKey], Ints]] = {}  # labels -> `_told_apart`
        self._keys_at = -1  # `written` when they were made
        self.masks_limit = SWEEP_FROM  # more classes than this: search for unused ones
        self._mask_bytes = 0  # of the rules of these classes
        self._mask_bytes_limit = SWEEP_RULES_FROM
        self._gone: set[int] = set()  # rows of inactive nodes
        self.aligned: set[int] = set()  # rows of nodes that bind cards to NUMA nodes
        self._avoided: set[int] = set()  # rows of nodes with a PreferNoSchedule taint
        self._changed_at: dict[int, int] = {}  # row -> generation of the ledger at the last `note_change`

    def add(self, name: str) -> int:
        """A row for a node about which nothing is known yet. `write` must follow."""
        row = self._spare_row()
        if row == NONE:
            return self.append(name)
        self._take_over(row, name)
        self.row_of[name] = row
        self._storage.ranks_stale = True
        return row

    def append(self, name: str) -> int:
        """A new row, as `add` gives, whatever rows are spare. `write` must follow."""
        row = self._storage.add_row()
        self.nodes.append(Node(name))
        self.static.append(self.nodes[row].static)
        self._own_names().append((name, ()))
        self.row_of[name] = row
        self._storage.ranks_stale = True
        return row

    def _spare_row(self) -> int:
        """The first row of a node that is gone with all its pods, or NONE.

        NONE in a transaction: it may restore pods on rows.
        """
        if not self._gone or self._storage.heads.item(JOURNAL_DEPTH):
            return NONE
        gone = np.array(sorted(self._gone), dtype=np.int64)
        spare = gone[~self._storage.rows.hosts[gone].any(axis=1)]
        return int(spare[0]) if len(spare) else NONE

    def _take_over(self, row: int, name: str) -> None:
        """Give the row to a new node. Kept scores are dropped: they break ties by the rank of the old name."""
        del self.row_of[self.nodes[row].name]
        self._ghosts.pop(row, None)
        self.nodes[row] = Node(name)
        self.static[row] = self.nodes[row].static
        self._own_names()[row] = (name, ())
        self._storage.vectors.forget()
        self.reused += 1

    def give_back(self, row: int, before: Node | None) -> None:
        """Undo `add` for a node that was only a trial: remove the row, or restore the inactive node `before`."""
        if before is None:
            node = self.nodes.pop()
            self.static.pop()
            self._own_names().pop()
            self._ghosts.pop(self.row_of.pop(node.name), None)
            self._storage.drop_last_row()
            self.signals.forget(row)
            self._gone.discard(row)
            self.aligned.discard(row)
            self._avoid(row, False)
        else:
            self._take_over(row, before.name)
            self.row_of[before.name] = row
            self.write(row, before, False, ())
        self.written += 1
        self._storage.ranks_stale = True

    def _avoid(self, row: int, tainted: bool) -> None:
        (self._avoided.add if tainted else self._avoided.discard)(row)
        self._in_force.put(Rule.NODE_TAINT, bool(self._avoided))

    def write(self, row: int, node: Node, active: bool, held: Collection[str]) -> None:
        """Write the row again, with nothing in use.

        Cards that pods hold there and that the node does not have are kept.
        """
        self.written += 1
        self.note_change(row)
        uuids = {device.uuid for device in node.devices}
        lost = {device.uuid: device for device in self.devices(row) if device.uuid not in uuids}
        missing = sorted(set(held) - uuids)
        self._ghosts[row] = tuple(_ghost(lost.get(uuid), uuid) for uuid in missing)
        self.nodes[row] = node
        (self._gone.discard if active else self._gone.add)(row)
        static = self.static[row] = node.static
        self._avoid(row, active and any(taint.effect == PREFER_NO_SCHEDULE for taint in node.taints))
        (self.aligned.add if active and node.alignment is not Alignment.NONE else self.aligned.discard)(row)
        self._storage.ranks_stale |= active != self.is_active(row)
        self._storage.fit_cards(len(node.devices) + len(missing))
        self._storage.fit_links(min(len(node.links), len(node.devices)))
        self._write_capacity(row, node, active)
        self._write_cards(row, 0)
        for rules, mask in self._masks.items():
            self._storage.masks[mask, row] = rules.refusal(static) if active else INACTIVE
        self._own_names()[row] = (node.name, tuple(device.uuid for device in self.devices(row)))
        self._storage.rows.fact[row, HARDWARE] = self._intern.hardware_of(self._hardware(row))
        self.signals.write(row, active, self.columns)

    def add_ghosts(self, row: int, uuids: Collection[str]) -> None:
        """Add cards that a pod holds and the node does not register.

        At most MOST_COLUMNS cards: every node gets a column for each.
        """
        first = len(self.devices(row))
        uuids = list(uuids)[: max(0, MOST_COLUMNS - first)]
        self._ghosts[row] = self._ghosts.get(row, ()) + tuple(_ghost(None, uuid) for uuid in uuids)
        devices = self.devices(row)
        self._storage.fit_cards(len(devices))
        self._write_cards(row, first)
        self._storage.rows.fact[row, CARDS] = len(devices)
        self._own_names()[row] = (self.nodes[row].name, tuple(device.uuid for device in devices))

    @property
    def ghosts(self) -> dict[str, tuple[Device, ...]]:
        """By node: cards that pods hold and the node does not register."""
        return {self.nodes[row].name: devices for row, devices in self._ghosts.items() if devices}

    def know_ghosts(self, row: int, devices: tuple[Device, ...]) -> None:
        """Take over what another ledger knew of such cards. `write` must follow."""
        known = {device.uuid: device for device in devices}
        self._ghosts[row] = tuple(known.get(device.uuid, device) for device in self._ghosts.get(row, ()))

    def note_change(self, row: int) -> None:
        """Note that the row changed by something that no decision weighed: another node, or a pod that runs there."""
        self._changed_at[row] = self._storage.heads.item(MOVES)

    def changed_since(self, row: int, generation: int) -> bool:
        """Whether the node was written again after a decision of this generation, or a pod came that was not placed."""
        return self._changed_at.get(row, 0) >= generation

    def is_active(self, row: int) -> bool:
        return bool(self._storage.rows.fact[row, NODE_FLAGS] & ACTIVE)

    def devices(self, row: int) -> tuple[Device, ...]:
        """By column: the node's cards, then cards that only pods name."""
        return self.nodes[row].devices + self._ghosts.get(row, ())

    def columns(self, row: int) -> Mapping[str, int]:
        """UUID -> column."""
        return {uuid: n for n, uuid in enumerate(self.names[row][1])}

    def lend_names(self) -> list[Names]:
        """The list as it is now: later changes are made to a copy."""
        self._names_lent = True
        return self.names

    def mask(self, rules: NodeRules) -> int:
        """The static class of a pod's node rules. A new class is checked against every node."""
        known = self._masks.get(rules)
        if known is None:
            known = self._masks[rules] = self._free_masks.pop() if self._free_masks else OWN + 1 + len(self._masks)
            self._mask_bytes += size_of(rules)
            self._storage.add_mask(known)
            size = len(self.nodes)
            active = (self._storage.rows.fact[:size, NODE_FLAGS] & ACTIVE) != 0
            self._storage.masks[known, :size] = np.where(active, self._refusals(rules), INACTIVE)
        return known

    @property
    def crowded(self) -> bool:
        return len(self._masks) > self.masks_limit or self._mask_bytes > self._mask_bytes_limit

    def keep_masks(self, used: Collection[int]) -> None:
        """Forget unused classes; their numbers are used again."""
        dropped = [rules for rules, mask in self._masks.items() if mask not in used and rules != ANY_NODE]
        numbers = [self._masks.pop(rules) for rules in dropped]
        self._free_masks = sorted((*self._free_masks, *numbers), reverse=True)
        self.masks_limit = max(SWEEP_FROM, 2 * len(self._masks))
        self._mask_bytes = sum(map(size_of, self._masks))
        self._mask_bytes_limit = max(SWEEP_RULES_FROM, 2 * self._mask_bytes)

    def drop_masks_since(self, count: int) -> None:
        """Forget all classes but the first `count`."""
        dropped = list(self._masks)[count:]
        numbers = [self._masks.pop(rules) for rules in dropped]
        self._mask_bytes -= sum(map(size_of, dropped))
        first = OWN + 1 + count + len(self._free_masks)  # numbers that were never given out before
        self._free_masks = sorted((*self._free_masks, *(n for n in numbers if n < first)), reverse=True)

    @property
    def classes(self) -> int:
        """The number of known static classes."""
        return len(self._masks)

    def _refusals(self, rules: NodeRules) -> Bytes:
        """The rules' refusal by row.

        Nodes that are equal for the rules are checked once: most clusters have few zones and pools.
        """
        if rules.looks_at_names:
            return np.array([int(rules.refusal(node)) for node in self.static], dtype=np.uint8)
        keys, key_of = self._told_apart(rules)
        return np.array([int(rules.refusal_of(key)) for key in keys], dtype=np.uint8)[key_of]

    def _told_apart(self, rules: NodeRules) -> tuple[list[NodeKey], Ints]:
        """The distinct keys of the nodes for these rules, and by row which of them the node has.

        They depend on the labels that the rules read, so many rules share them while no node changes.
        """
        if self._keys_at != self.written or len(self._keys) >= MAX_KEPT_KEYS:
            self._keys_at, self._keys = self.written, {}
        labels = rules.labels_looked_at
        if labels not in self._keys:
            numbers: dict[NodeKey, int] = {}
            key_of = [numbers.setdefault(key, len(numbers)) for key in rules.keys(self.static)]
            self._keys[labels] = (list(numbers), np.array(key_of, dtype=np.int64))
        return self._keys[labels]

    def write_own_mask(self, rules: NodeRules, refusals: Bytes) -> int:
        """Write mask OWN for one decision: the rules' class, and these refusals where the class has none."""
        known, size = self.mask(rules), len(self.nodes)
        masks = self._storage.masks
        static = masks[known, :size]
        masks[OWN, :size] = np.where(static != 0, static, refusals)
        return OWN

    def rank(self) -> None:
        """Update the ranks of nodes by name, which break ties. Inactive nodes come last.

        Their number must not change the result of a policy that reads ranks.
        """
        rows = self._storage.rows
        by_name = np.array([self.row_of[name] for name in sorted(self.row_of)], dtype=np.int64)
        gone = (rows.fact[by_name, NODE_FLAGS] & ACTIVE) == 0
        rows.rank[by_name[np.argsort(gone, kind="stable")]] = np.arange(len(by_name))
        self._storage.ranks_stale = False

    def _write_capacity(self, row: int, node: Node, active: bool) -> None:
        self.offered += self._intern.offer(node.allocatable)
        columns = [self._intern.columns(name) for name in node.allocatable]
        self._storage.fit_columns()
        rows = self._storage.rows
        for field in (
            rows.cap,
            rows.used,
            rows.scored,
            rows.card,
            rows.spec,
            rows.held,
            rows.sums,
            rows.hosts,
            rows.link,
        ):
            field[row] = 0
        rows.peers[:, row] = 0
        for column, amount in zip(columns, node.allocatable.values(), strict=True):
            rows.cap[row, column] = capacity(amount)
        flags = (ACTIVE if active else 0) | (MIG_NODE if node.mig else 0) | (UNSETTLED if node.unsettled else 0)
        flags |= ALIGNED[node.alignment] | (STOCK if node.enforcer is Enforcer.STOCK else 0)
        rows.fact[row, NODE_FLAGS] = flags
        rows.fact[row, CARDS], rows.fact[row, KIND_BITS] = len(self.devices(row)), 0
        for x, scores in enumerate(node.links):
            for y, score in enumerate(scores):
                if x != y and x < len(node.devices) and y < len(node.devices):
                    rows.link[row, x, y] = max(0, min(score, HIGHEST_LINK))

    def _write_cards(self, row: int, first: int) -> None:
        """Write the cards from column `first` on."""
        cards, bits, sums = [], 0, [0, 0, 0]
        for device in self.devices(row)[first:]:
            kind = self._intern.kind(device)
            bits |= kind_bit(kind)
            cards.append(self._card(device, kind))
            if not device.quarantined:
                sums = [total + amount for total, amount in zip(sums, cards[-1], strict=False)]
        if cards:
            rows = self._storage.rows
            rows.card[row, first : first + len(cards)] = cards
            rows.spec[row, first : first + len(cards)] = [spec_of(one.model) for one in self.devices(row)[first:]]
            rows.fact[row, KIND_BITS] |= bits
            rows.sums[row, :3] += sums

    def _card(self, device: Device, kind: int) -> tuple[int, ...]:
        """The fields of the card in `rows.card`: size, vendor, kind, UUID, NUMA node, index, flags."""
        return (
            capacity(device.slots),
            capacity(device.memory_mib),
            capacity(device.compute_milli),
            self._intern.vendors(device.vendor),
            kind,
            self._intern.uuids(device.uuid),
            device.numa,
            device.index,
            (0 if device.healthy else UNHEALTHY)
            | (CORDONED if device.cordoned else 0)
            | (QUARANTINED if device.quarantined else 0)
            | (MIG_CARD if device.mode == MIG else 0),
        )

    def _hardware(self, row: int) -> bytes:
        """A digest of everything in a row but names."""
        rows = self._storage.rows
        cards = int(rows.fact[row, CARDS])
        nameless = rows.card[row, :cards].copy()
        nameless[:, UUID] = 0
        made_of = blake2b(digest_size=16)
        for part in (rows.cap[row], nameless, rows.fact[row, :HARDWARE], rows.link[row, :cards, :cards]):
            made_of.update(np.ascontiguousarray(part).data)
            made_of.update(b";")
        return made_of.digest()

    def _own_names(self) -> list[Names]:
        """The list to write into: a copy if decisions read the current one."""
        if self._names_lent:
            self.names, self._names_lent = list(self.names), False
        return self.names


def _ghost(known: Device | None, uuid: str) -> Device:
    """A card in use that its node does not register: it is booked, and no pod is placed on it."""
    if known is None:
        return Device(
            uuid, index=NONE, vendor="", model="unknown", memory_mib=0, compute_milli=0, slots=0, quarantined=True
        )
    return msgspec.structs.replace(known, memory_mib=0, compute_milli=0, slots=0, quarantined=True)
