"""The ledger held against itself: everything in use recomputed from the pods' entries, by arithmetic of its own.

For tests after every step, and for a running scheduler that wants to be sure. Shares no code with the kernel, on
purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.engine.kernel.state import (
    ENTRY_CARD,
    ENTRY_COMPUTE,
    ENTRY_KIND,
    ENTRY_MEMORY,
    ENTRY_NEXT,
    FREE,
    FREE_ENTRIES,
    FREE_PODS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    NONE,
    POD_ENTRY,
    POD_OWNER,
    POD_ROW,
    POD_SHAPE,
    POD_STATE,
)
from dovetail.engine.ledger.holders import LedgerError
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.signals import MOST_LOAD
from dovetail.model.pod import ContainerKind
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


def validate(ledger: Ledger) -> None:
    """Raises LedgerError with everything that does not add up."""
    wrong = list(contradictions(ledger))
    if wrong:
        raise LedgerError("; ".join(wrong))


def contradictions(ledger: Ledger) -> Iterator[str]:
    rows, pod = ledger.rows, ledger.book.pod
    used, scored = np.zeros_like(rows.used), np.zeros_like(rows.scored)
    held, peers, hosts = np.zeros_like(rows.held), np.zeros_like(rows.peers), np.zeros_like(rows.hosts)
    wants = ledger.state().wants
    owners, entries = {held.slot for held in ledger.pods.values()}, 0
    for slot in range(len(pod)):
        if pod[slot, POD_STATE] == FREE:
            continue
        row, shape, owner = (int(pod[slot, n]) for n in (POD_ROW, POD_SHAPE, POD_OWNER))
        hosts[row, wants.shape[shape, SIZE]] += 1
        used[row] += wants.need[shape, : used.shape[1]]
        scored[row] += wants.scored[shape]
        if owner != NONE and ledger.book.peer_row[owner] != NONE:
            peers[ledger.book.peer_row[owner], row] += 1
        chain = list(_chain(ledger, slot))
        entries += len(chain)
        for card, peak in _peaks(chain).items():
            held[row, card] += peak
        if slot not in owners:
            yield f"pod slot {slot} belongs to nobody"
    free, left, most = _free(rows)
    measured = _measured(ledger)
    for name, mine, theirs in (
        ("resources", used, rows.used),
        ("scored resources", scored, rows.scored),
        ("cards", held, rows.held),
        ("sums over cards", held.sum(axis=1), rows.sums[:, IN_USE:]),
        ("what cards have left", free, rows.free),
        ("parts of cards left", left, rows.left),
        ("what the emptiest cards have left", most, rows.gate[:, : most.shape[1]]),
        ("pods by size", hosts, rows.hosts),
        ("pods per owner", peers, rows.peers),
        ("measured loads", *measured[0]),
        ("measured loads of cards", *measured[1]),
    ):
        if not np.array_equal(mine, theirs):
            row = int(np.argwhere(mine != theirs)[0][-1 if name == "pods per owner" else 0])
            yield f"{name} of node {ledger.nodes[row].name} do not add up"
    if ledger.heads[FREE_PODS] + len(ledger.pods) != len(pod):
        yield "pod slots are lost"
    if ledger.heads[FREE_ENTRIES] + entries != len(ledger.book.entry):
        yield "entries are lost"
    if ledger.heads[JOURNAL_DEPTH] or ledger.heads[JOURNAL_LENGTH]:
        yield "a transaction was never ended"


def over_allocated(ledger: Ledger) -> list[str]:
    """Nodes and cards that hold more than they have; only running pods that were observed can cause it."""
    rows, found = ledger.rows, []
    for row, node in enumerate(ledger.nodes):
        enforced = rows.enforced == 1
        if np.any((rows.used[row] > rows.cap[row]) & enforced):
            found.append(f"node {node.name}")
        for n, device in enumerate(ledger.devices(row)):
            if np.any(rows.held[row, n] > rows.card[row, n, :3]):
                found.append(f"card {device.uuid}")
    return found


def _free(rows: Rows) -> tuple[Ints, Ints, Ints]:
    """What cards have left, in their units and in milli of the card, and of the emptiest of each node."""
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
    stock = rows.fact[:, NODE_FLAGS] & STOCK != 0  # their cards are given whole, whatever memory is asked for
    most[:, MOST_MEMORY_FREE] = np.where(stock, NO_GATE, most[:, MOST_MEMORY_FREE])
    return np.where(there[:, :, None], free, rows.free), np.where(there, left, rows.left), most


def _measured(ledger: Ledger) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Of nodes and of cards: what was measured, laid out by card, and what the arrays say."""
    rows, places = ledger.rows, ledger.places
    nodes, cards = np.full_like(rows.signal, NOT_MEASURED), np.full_like(rows.card_signal, NOT_MEASURED)
    for row in range(len(ledger.nodes)):
        known = places.signals.of(row) if ledger.is_active(row) else None
        if known is not None:
            values = np.array([known.cpu, known.cpu_deviation, known.memory, known.memory_deviation], dtype=np.float64)
            nodes[row] = np.where(np.isnan(values), NOT_MEASURED, np.clip(values, 0, MOST_LOAD))
            of = {card.uuid: card for card in known.cards}
            for uuid, n in {device.uuid: n for n, device in enumerate(ledger.devices(row))}.items():
                one = of.get(uuid)
                for column, value in enumerate((one.compute, one.memory) if one is not None else ()):
                    cards[row, n, column] = NOT_MEASURED if value is None else np.clip(value, 0, MOST_LOAD)
    return (nodes, rows.signal), (cards, rows.card_signal)


def _chain(ledger: Ledger, slot: int) -> Iterator[Ints]:
    at = int(ledger.book.pod[slot, POD_ENTRY])
    while at != NONE:
        yield ledger.book.entry[at]
        at = int(ledger.book.entry[at, ENTRY_NEXT])


def _peaks(chain: list[Ints]) -> dict[int, Ints]:
    """card -> slots, MiB and milli at the worst moment: init containers one by one, the rest together."""
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
