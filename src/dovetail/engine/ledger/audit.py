"""The ledger compared with itself: everything in use is recomputed from the pods' entries, with separate arithmetic.

Tests do this after every step; the live scheduler does it at intervals, a slice of rows at a time. This module shares
no code with the kernel, so that it does not repeat a fault of the kernel. It must not fail on a ledger that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import (
    ALLOCATED,
    ENTRY_CARD,
    ENTRY_COMPUTE,
    ENTRY_KIND,
    ENTRY_MEMORY,
    ENTRY_NEXT,
    FREE,
    FREE_ENTRIES,
    FREE_ENTRY,
    FREE_POD,
    FREE_PODS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    NONE,
    POD_ENTRY,
    POD_OWNER,
    POD_ROW,
    POD_SHAPE,
    POD_STATE,
    RESERVED,
)
from dovetail.engine.ledger.holders import LedgerError
from dovetail.engine.ledger.intern import MAX_LEDGER_AMOUNT
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.signals import MOST_LOAD
from dovetail.model.pod import ContainerKind
from dovetail.model.signals import MAX_NETWORK_KBIT
from dovetail.policies.rows import (
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CORDONED,
    FLAGS,
    IN_USE,
    MIG_CARD,
    MOST_MEMORY_FREE,
    NO_GATE,
    NODE_FLAGS,
    NOT_MEASURED,
    QUARANTINED,
    SIZE,
    SLOTS,
    STOCK,
    UNHEALTHY,
    UNUSABLE,
    Ints,
    Rows,
)

Flags = npt.NDArray[np.bool_]
MOST_LINKS = 4_096  # entries of one pod; a longer chain is taken for a cycle


class LedgerDifference(NamedTuple):
    """A contradiction, and where it is."""

    what: str
    node: str = ""
    card: str = ""
    pod: str = ""  # namespace/name

    def __str__(self) -> str:
        names = (f"{kind} {name}" for kind, name in zip(self._fields[1:], self[1:], strict=True) if name)
        return ", ".join((self.what, *names))


class _Taken(NamedTuple):
    """Pods and their entries, as far as they can be read."""

    slots: Ints
    owner: Ints  # by entry: the index in `slots` of its pod
    entry: Ints  # the entry's number
    broken: list[LedgerDifference]


def validate(ledger: Ledger) -> None:
    """Raise LedgerError with all contradictions."""
    wrong = [str(one) for one in contradictions(ledger)]
    if wrong:
        raise LedgerError("; ".join(wrong))


def contradictions(ledger: Ledger) -> Iterator[LedgerDifference]:
    """All contradictions."""
    yield from of_book(ledger)
    yield from of_entries(ledger)
    yield from of_rows(ledger, 0, len(ledger.rows.cap))


def of_book(ledger: Ledger) -> Iterator[LedgerDifference]:
    """Each slot is free or belongs to one pod."""
    pod, heads = ledger.book.pod, ledger.heads
    slots = np.fromiter(ledger.pods.slot_of.values(), dtype=np.int64, count=len(ledger.pods))
    sound = (slots >= 0) & (slots < len(pod))
    times = np.bincount(slots[sound], minlength=len(pod))
    is_free = pod[:, POD_STATE] == FREE
    for n in np.flatnonzero(~sound).tolist():
        yield LedgerDifference(f"the slot of pod UID {list(ledger.pods.slot_of)[n]} does not exist")
    for text, wrong in (
        ("a free slot is held", is_free & (times > 0)),
        ("two pods hold one slot", times > 1),
        ("a slot is taken by no pod", ~is_free & (times == 0)),
        ("the slot's state is none of a pod's", ~np.isin(pod[:, POD_STATE], (FREE, RESERVED, ALLOCATED))),
        ("the slot's row does not exist", ~is_free & ~_inside(pod[:, POD_ROW], len(ledger.nodes))),
    ):
        for slot in np.flatnonzero(wrong).tolist():
            yield LedgerDifference(f"{text} (slot {slot})", pod=_key_at(ledger, slot) if times[slot] else "")
    if not _is_free_list(pod[:, POD_ENTRY], is_free, int(heads[FREE_POD]), int(heads[FREE_PODS])):
        yield LedgerDifference("the list of free slots is broken")
    if heads[JOURNAL_DEPTH] or heads[JOURNAL_LENGTH]:
        yield LedgerDifference("a transaction was never ended")


def of_entries(ledger: Ledger) -> Iterator[LedgerDifference]:
    """Each entry is free or belongs to one pod."""
    taken = _taken(ledger, np.flatnonzero(ledger.book.pod[:, POD_STATE] != FREE))
    times = np.bincount(taken.entry, minlength=len(ledger.book.entry))
    for slot in taken.slots[np.unique(taken.owner[times[taken.entry] > 1])].tolist():
        yield _at(ledger, "the pod shares an entry with another pod", slot)
    heads, links = ledger.heads, ledger.book.entry[:, ENTRY_NEXT]
    if not taken.broken and not _is_free_list(links, times == 0, int(heads[FREE_ENTRY]), int(heads[FREE_ENTRIES])):
        yield LedgerDifference("the list of free entries is broken")


def is_readable(ledger: Ledger, slot: int) -> bool:
    """Whether the pod's chain of cards ends, and all its entries exist. If not, `of_rows` reports it."""
    entry, at = ledger.book.entry, int(ledger.book.pod[slot, POD_ENTRY])
    cards = len(ledger.devices(int(ledger.book.pod[slot, POD_ROW])))
    for _ in range(MOST_LINKS):
        if at == NONE:
            return True
        if not (0 <= at < len(entry) and 0 <= entry[at, ENTRY_CARD] < cards):
            return False
        at = int(entry[at, ENTRY_NEXT])
    return False


def of_rows(ledger: Ledger, first: int, last: int) -> Iterator[LedgerDifference]:
    """Contradictions on these rows: what is in use, what is left, and whether sizes equal the nodes' sizes."""
    pod, last = ledger.book.pod, min(last, len(ledger.rows.cap))
    there = (pod[:, POD_STATE] != FREE) & (pod[:, POD_ROW] >= first) & (pod[:, POD_ROW] < last)
    taken = _taken(ledger, np.flatnonzero(there))
    yield from taken.broken
    rows = _sliced(ledger.rows, first, last)
    used, scored, hosts, peers = _used(ledger, taken, rows, first)
    held = _held(ledger, taken, rows, first)
    free, left, most = _free(rows)
    measured = _measured(ledger, rows, first)
    for what, mine, theirs in (
        ("resources do not add up", used, rows.used),
        ("scored resources do not add up", scored, rows.scored),
        ("what is held of a card does not add up", held, rows.held),
        ("sums over cards do not add up", held.sum(axis=1), rows.sums[:, IN_USE:]),
        ("what a card has left is wrong", free, rows.free),
        ("the part that a card has left is wrong", left, rows.left),
        ("what the emptiest cards have left is wrong", most, rows.gate[:, : most.shape[1]]),
        ("pods by size do not add up", hosts, rows.hosts),
        ("pods per owner do not add up", peers, rows.peers.T),
        ("measured loads are others than were measured", measured[0], rows.signal),
        ("measured loads of a card are others than were measured", measured[1], rows.card_signal),
    ):
        by_card = theirs is rows.held or theirs is rows.free or theirs is rows.left
        yield from _unequal(ledger, what, mine, theirs, first, by_card)
    for row in range(first, min(last, len(ledger.nodes))):
        yield from _sizes(ledger, row)


def over_allocated(ledger: Ledger) -> list[str]:
    """Nodes and cards that hold more than they have. Only observed running pods can cause this."""
    rows, found = ledger.rows, []
    for row, node in enumerate(ledger.nodes):
        enforced = rows.enforced == 1
        if np.any((rows.used[row] > rows.cap[row]) & enforced):
            found.append(f"node {node.name}")
        for n, device in enumerate(ledger.devices(row)):
            if np.any(rows.held[row, n] > rows.card[row, n, :3]):
                found.append(f"card {device.uuid}")
    return found


def _is_free_list(links: Ints, is_free: Flags, head: int, count: int) -> bool:
    """Whether head and links name every free place once, and nothing else."""
    free = np.flatnonzero(is_free)
    named = np.sort(np.append(links[free], head))
    return count == len(free) and np.array_equal(named, np.append(NONE, free))


def _inside(numbers: Ints, size: int) -> Flags:
    return (numbers >= 0) & (numbers < size)


def _sliced(rows: Rows, first: int, last: int) -> Rows:
    whole = {"peers": rows.peers[:, first:last], "enforced": rows.enforced, "outlook": rows.outlook}
    parts = {name: getattr(rows, name)[first:last] for name in Rows._fields if name not in whole}
    return Rows(**parts, **whole)


def _taken(ledger: Ledger, slots: Ints) -> _Taken:
    """Read all chains together, one link at a time."""
    pod, entry = ledger.book.pod, ledger.book.entry
    bad = ~_inside(pod[slots, POD_SHAPE], len(ledger.intern.wants.shape))
    owner, at = np.arange(len(slots)), pod[slots, POD_ENTRY]
    owners, entries = [], []
    for _ in range(MOST_LINKS):
        owner, at = owner[at != NONE], at[at != NONE]
        sound = _inside(at, len(entry))
        bad[owner[~sound]] = True
        owner, at = owner[sound], at[sound]
        if not len(at):
            break
        owners.append(owner)
        entries.append(at)
        at = entry[at, ENTRY_NEXT]
    bad[owner] = True  # pods whose chain has not ended
    everyone = np.concatenate([np.zeros(0, dtype=np.int64), *owners])
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *entries])
    cards = ledger.rows.held.shape[1]  # of the node with the most cards
    bad[everyone[~_inside(entry[numbers, ENTRY_CARD], cards)]] = True
    broken = [_at(ledger, "the pod's cards or request cannot be read", int(slot)) for slot in slots[bad]]
    kept, place = ~bad[everyone], np.cumsum(~bad) - 1
    return _Taken(slots[~bad], place[everyone[kept]], numbers[kept], broken)


def _used(ledger: Ledger, taken: _Taken, rows: Rows, first: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Resources, scored resources, pods by size, pods by owner."""
    pod, wants, book = ledger.book.pod[taken.slots], ledger.intern.wants, ledger.book
    row, shape = pod[:, POD_ROW] - first, pod[:, POD_SHAPE]
    used, scored = np.zeros_like(rows.used), np.zeros_like(rows.scored)
    hosts, peers = np.zeros_like(rows.hosts), np.zeros_like(rows.peers.T)
    width = min(used.shape[1], wants.need.shape[1])
    np.add.at(used[:, :width], row, wants.need[shape, :width])
    np.add.at(scored, row, wants.scored[shape])
    np.add.at(hosts, (row, wants.shape[shape, SIZE]), 1)
    counted = _inside(pod[:, POD_OWNER], len(book.peer_row))
    line = book.peer_row[pod[counted, POD_OWNER]]
    has_line = _inside(line, peers.shape[1])
    np.add.at(peers, (row[counted][has_line], line[has_line]), 1)
    return used, scored, hosts, peers


def _held(ledger: Ledger, taken: _Taken, rows: Rows, first: int) -> Ints:
    """By card: slots, MiB and milli. Pods with init containers are counted one by one, at their peak."""
    held, row = np.zeros_like(rows.held), ledger.book.pod[taken.slots, POD_ROW] - first
    entry = ledger.book.entry[taken.entry]
    has_init = np.zeros(len(taken.slots), dtype=np.bool_)
    has_init[taken.owner[entry[:, ENTRY_KIND] == ContainerKind.INIT]] = True
    plain = ~has_init[taken.owner]
    amounts = np.column_stack((np.ones(len(entry), dtype=np.int64), entry[:, [ENTRY_MEMORY, ENTRY_COMPUTE]]))
    np.add.at(held, (row[taken.owner[plain]], entry[plain, ENTRY_CARD]), amounts[plain])
    for n in np.flatnonzero(has_init).tolist():
        for card, peak in _peaks(entry[taken.owner == n]).items():
            held[row[n], card] += peak
    return held


def _peaks(chain: Ints) -> dict[int, Ints]:
    """card -> slots, MiB and milli at the peak: init containers one by one, the rest together."""
    staying: dict[int, Ints] = {}
    peaks: dict[int, Ints] = {}
    for entry in chain:
        card = int(entry[ENTRY_CARD])
        part = np.array([1, entry[ENTRY_MEMORY], entry[ENTRY_COMPUTE]], dtype=np.int64)
        now = staying.get(card, np.zeros(3, dtype=np.int64)) + part
        peaks[card] = np.maximum(peaks.get(card, now), now)
        if entry[ENTRY_KIND] != ContainerKind.INIT:
            staying[card] = now
    return peaks


def _free(rows: Rows) -> tuple[Ints, Ints, Ints]:
    """What cards have left, in their units and in milli of the card, and the largest free amounts of each node."""
    size, held = rows.card[:, :, :3], rows.held
    there = np.arange(size.shape[1]) < rows.fact[:, CARDS, None]
    in_order = rows.card[:, :, FLAGS] & (UNHEALTHY | CORDONED | QUARANTINED | MIG_CARD) == 0
    exhausted = (size[:, :, COMPUTE] != 0) & (held >= size)[:, :, COMPUTE]
    open_ = there & in_order & (held < size)[:, :, SLOTS] & ~exhausted
    free = np.where(open_[:, :, None], size - held, UNUSABLE)[:, :, [COMPUTE, CARD_MEMORY]]
    shared = open_ & (held[:, :, SLOTS] > 0) & (size[:, :, COMPUTE] == 1000)
    free[:, :, 0] = np.where(shared, np.minimum(free[:, :, 0], 999), free[:, :, 0])
    parts = np.where(held > 0, (size - held) * 1000 // np.maximum(size, 1), 1000)[:, :, [CARD_MEMORY, COMPUTE]]
    left = np.where(open_, np.maximum(parts.min(axis=2), 0), 0)
    most = np.where(rows.fact[:, CARDS, None] > 0, np.maximum(free.max(axis=1)[:, ::-1], 0), rows.gate[:, :2])
    stock = rows.fact[:, NODE_FLAGS] & STOCK != 0  # their cards are given whole, whatever memory the pod asks for
    most[:, MOST_MEMORY_FREE] = np.where(stock, NO_GATE, most[:, MOST_MEMORY_FREE])
    return np.where(there[:, :, None], free, rows.free), np.where(there, left, rows.left), most


def _unequal(
    ledger: Ledger, what: str, mine: Ints, theirs: Ints, first: int, by_card: bool
) -> Iterator[LedgerDifference]:
    """A difference for each wrong row, or for each wrong card of a row."""
    wrong = mine != theirs
    wrong = wrong.reshape(*wrong.shape[: 2 if by_card else 1], -1).any(axis=-1)
    for row, *card in np.argwhere(wrong).tolist():
        devices = ledger.devices(row + first) if card and row + first < len(ledger.nodes) else ()
        uuid = devices[card[0]].uuid if card and card[0] < len(devices) else ""
        yield LedgerDifference(what, _node(ledger, row + first), uuid)


def _measured(ledger: Ledger, rows: Rows, first: int) -> tuple[Ints, Ints]:
    """The kept measurements of nodes and cards, in the form of the arrays."""
    places = ledger.places
    nodes, cards = np.full_like(rows.signal, NOT_MEASURED), np.full_like(rows.card_signal, NOT_MEASURED)
    for row in range(first, min(first + len(rows.signal), len(ledger.nodes))):
        known = places.signals.of(row) if ledger.is_active(row) else None
        if known is not None:
            loads = [known.cpu, known.cpu_deviation, known.memory, known.memory_deviation, known.disk]
            values = np.array([*loads, known.network_kbit, known.network_capacity_kbit], dtype=np.float64)
            most = [MOST_LOAD] * len(loads) + [MAX_NETWORK_KBIT] * 2
            nodes[row - first] = np.where(np.isnan(values), NOT_MEASURED, np.clip(values, 0, most))
            of = {card.uuid: card for card in known.cards}
            for uuid, n in {device.uuid: n for n, device in enumerate(ledger.devices(row))}.items():
                one = of.get(uuid)
                loaded = (one.compute, one.memory, one.compute_deviation, one.memory_deviation) if one else ()
                for column, value in enumerate(loaded):
                    cards[row - first, n, column] = NOT_MEASURED if value is None else np.clip(value, 0, MOST_LOAD)
    return nodes, cards


def _sizes(ledger: Ledger, row: int) -> Iterator[LedgerDifference]:
    """Differences between the row's sizes and the node's."""
    node, rows, columns = ledger.nodes[row], ledger.rows, ledger.intern.columns
    has = np.flatnonzero(rows.cap[row])
    said = {
        columns.known(name): min(amount, MAX_LEDGER_AMOUNT) for name, amount in node.allocatable.items() if amount > 0
    }
    if said != dict(zip(has.tolist(), rows.cap[row, has].tolist(), strict=True)):
        yield LedgerDifference("resources are not those of the node", node.name)
    devices = ledger.devices(row)
    if rows.fact[row, CARDS] != len(devices):
        yield LedgerDifference("cards are not those of the node", node.name)
        return
    sizes = rows.card[row, : len(devices), :3].tolist()
    for device, size in zip(devices, sizes, strict=True):
        amounts = (device.slots, device.memory_mib, device.compute_milli)
        if [max(0, min(amount, MAX_LEDGER_AMOUNT)) for amount in amounts] != size:
            yield LedgerDifference("the card's size is not what the node says", node.name, device.uuid)


def _node(ledger: Ledger, row: int) -> str:
    return ledger.nodes[row].name if 0 <= row < len(ledger.nodes) else f"of row {row}"


def _key_at(ledger: Ledger, slot: int) -> str:
    uids = [uid for uid, number in ledger.pods.slot_of.items() if number == slot]
    return ", ".join(ledger.pods.pod(uid).key for uid in uids)


def _at(ledger: Ledger, what: str, slot: int) -> LedgerDifference:
    return LedgerDifference(what, _node(ledger, int(ledger.book.pod[slot, POD_ROW])), pod=_key_at(ledger, slot))
