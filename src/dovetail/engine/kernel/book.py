"""What each pod holds: pods, their entries, and the one function that adds them to a row or removes them.

While a transaction is open, every change first copies the old row into the journal; `roll_back` copies the rows back.
"""

from __future__ import annotations

from dovetail.engine.kernel.state import (
    ENTRY_CARD,
    ENTRY_COMPUTE,
    ENTRY_CONTAINER,
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
    LEAVING,
    LINE_PEER_ROW,
    LINE_PEERS,
    LINE_POD,
    LINE_ROW,
    LINE_STATE,
    MOVES,
    NONE,
    POD_ENTRY,
    POD_OWNER,
    POD_ROW,
    POD_SHAPE,
    POD_STATE,
    Int,
    Scratch,
    State,
    Vectors,
)
from dovetail.policies.cards import part_left
from dovetail.policies.rows import (
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CORDONED,
    EXPECTED_CPU,
    FLAGS,
    FREE_COMPUTE,
    FREE_MEMORY,
    IN_USE,
    KIND_BITS,
    KINDS_THERE,
    LAST_NEED,
    MIG_CARD,
    MOST_COMPUTE_FREE,
    MOST_MEMORY_FREE,
    NO_CARDS,
    NO_GATE,
    NODE_FLAGS,
    QUARANTINED,
    SIZE,
    SLOTS,
    STOCK,
    UNHEALTHY,
    UNUSABLE,
    Ints,
    Rows,
)

_INIT = 0  # ContainerKind.INIT
_WHOLE = 1000
_OUT_OF_USE = UNHEALTHY | CORDONED | QUARANTINED | MIG_CARD


def touch(state: State, i: int) -> None:
    """Mark row i as changed: all its kept scores are stale, and it becomes the newest row of the chain."""
    make_newest(state.vectors.stamp, state.vectors.older, state.vectors.newer, state.heads, i)


def touch_measured(vectors: Vectors, heads: Ints, i: int) -> None:
    """Mark the measured load of row i as changed: scores of policies that read it are stale."""
    make_newest(vectors.measured, vectors.measured_older, vectors.measured_newer, heads, i)


def make_newest(stamp: Ints, older: Ints, newer: Ints, heads: Ints, i: int) -> None:
    """Take row i out of a chain of moves and put it at the front, with the number of this move."""
    ends = len(older) - 1
    if stamp[i] != NONE:
        older[newer[i]], newer[older[i]] = older[i], newer[i]
    older[i], newer[i] = older[ends], ends
    newer[older[ends]] = i
    older[ends] = i
    stamp[i] = heads[MOVES]
    heads[MOVES] += 1


def new_pod(state: State, i: int, s: int, owner: int, status: int) -> int:
    """Take a free slot for a pod without entries. The ledger has made sure that there is one."""
    slot = state.heads[FREE_POD]
    pod = state.book.pod
    state.heads[FREE_POD] = pod[slot, POD_ENTRY]
    state.heads[FREE_PODS] -= 1
    pod[slot, POD_ROW], pod[slot, POD_SHAPE], pod[slot, POD_OWNER] = i, s, owner
    pod[slot, POD_ENTRY], pod[slot, POD_STATE] = NONE, status
    return int(slot)


def add_entry(
    state: State, slot: int, last: Int, container: int, kind: int, card: int, memory: int, compute: int
) -> int:
    """Add one card to a pod, behind entry `last`; returns the new entry."""
    entry, pod = state.book.entry, state.book.pod
    new = state.heads[FREE_ENTRY]
    state.heads[FREE_ENTRY] = entry[new, ENTRY_NEXT]
    state.heads[FREE_ENTRIES] -= 1
    entry[new, ENTRY_NEXT], entry[new, ENTRY_CONTAINER], entry[new, ENTRY_KIND] = NONE, container, kind
    entry[new, ENTRY_CARD], entry[new, ENTRY_MEMORY], entry[new, ENTRY_COMPUTE] = card, memory, compute
    if last == NONE:
        pod[slot, POD_ENTRY] = new
    else:
        entry[last, ENTRY_NEXT] = new
    return int(new)


def free_pod(state: State, slot: int) -> None:
    """Return the slot and its entries to the free lists."""
    pod, entry, heads = state.book.pod, state.book.entry, state.heads
    at = pod[slot, POD_ENTRY]
    while at != NONE:
        following = entry[at, ENTRY_NEXT]
        entry[at, ENTRY_NEXT] = heads[FREE_ENTRY]
        heads[FREE_ENTRY] = at
        heads[FREE_ENTRIES] += 1
        at = following
    pod[slot, POD_ROW], pod[slot, POD_STATE] = NONE, FREE
    pod[slot, POD_ENTRY] = heads[FREE_POD]
    heads[FREE_POD] = slot
    heads[FREE_PODS] += 1


def peak_use(state: State, slot: int, work: Scratch) -> None:
    """Write the most that the pod holds of each card at one time to work.peak; other cards are not changed.

    Init containers release what they held, the others add up, in container order: max(init + sidecars so far, sum).
    """
    entry = state.book.entry
    at = state.book.pod[slot, POD_ENTRY]
    while at != NONE:
        d = entry[at, ENTRY_CARD]
        for k in range(3):
            work.run[d, k] = 0
            work.peak[d, k] = 0
        at = entry[at, ENTRY_NEXT]
    at = state.book.pod[slot, POD_ENTRY]
    while at != NONE:
        d, memory, compute = entry[at, ENTRY_CARD], entry[at, ENTRY_MEMORY], entry[at, ENTRY_COMPUTE]
        slots_now, memory_now, compute_now = (
            work.run[d, SLOTS] + 1,
            work.run[d, CARD_MEMORY] + memory,
            work.run[d, COMPUTE] + compute,
        )
        work.peak[d, SLOTS] = max(work.peak[d, SLOTS], slots_now)
        work.peak[d, CARD_MEMORY] = max(work.peak[d, CARD_MEMORY], memory_now)
        work.peak[d, COMPUTE] = max(work.peak[d, COMPUTE], compute_now)
        if entry[at, ENTRY_KIND] != _INIT:
            work.run[d, SLOTS], work.run[d, CARD_MEMORY], work.run[d, COMPUTE] = slots_now, memory_now, compute_now
        at = entry[at, ENTRY_NEXT]


def note_card(rows: Rows, i: int, d: int) -> None:
    """Write what a new pod may ask of one card.

    A card without free compute takes no pod, and a card in use never gives all of its compute (HAMi's rules 12 and 13).
    """
    card, held = rows.card, rows.held
    total, compute = card[i, d, COMPUTE], card[i, d, COMPUTE] - held[i, d, COMPUTE]
    memory = card[i, d, CARD_MEMORY] - held[i, d, CARD_MEMORY]
    if (
        card[i, d, FLAGS] & _OUT_OF_USE
        or held[i, d, SLOTS] >= card[i, d, SLOTS]
        or (total != 0 and held[i, d, COMPUTE] >= total)
    ):
        rows.free[i, d, FREE_COMPUTE], rows.free[i, d, FREE_MEMORY], rows.left[i, d] = UNUSABLE, UNUSABLE, 0
        return
    if held[i, d, SLOTS] > 0 and total == _WHOLE:
        compute = min(compute, _WHOLE - 1)
    rows.free[i, d, FREE_COMPUTE], rows.free[i, d, FREE_MEMORY] = compute, memory
    rows.left[i, d] = part_left(total, held[i, d, COMPUTE], card[i, d, CARD_MEMORY], held[i, d, CARD_MEMORY])


def note_most_free(rows: Rows, i: int) -> None:
    """Write the largest free amounts of the row's cards: enough to refuse most requests without a look at any card."""
    memory, compute = 0, 0
    for d in range(rows.fact[i, CARDS]):
        memory = max(memory, rows.free[i, d, FREE_MEMORY])
        compute = max(compute, rows.free[i, d, FREE_COMPUTE])
    gate = rows.gate
    if rows.fact[i, CARDS] > 0:
        stock = rows.fact[i, NODE_FLAGS] & STOCK  # gives whole cards, whatever memory they have
        gate[i, MOST_MEMORY_FREE], gate[i, MOST_COMPUTE_FREE] = NO_GATE if stock else memory, compute
        gate[i, KINDS_THERE] = rows.fact[i, KIND_BITS]
    else:
        gate[i, MOST_MEMORY_FREE], gate[i, MOST_COMPUTE_FREE], gate[i, KINDS_THERE] = NO_GATE, NO_GATE, NO_CARDS


def note_all_cards(rows: Rows, i: int) -> None:
    for d in range(rows.fact[i, CARDS]):
        note_card(rows, i, d)
    note_most_free(rows, i)


def hold(rows: Rows, i: int, d: int, slots: int, memory: int, compute: int, sign: int) -> None:
    """Add this amount to the use of card d, or subtract it (sign −1)."""
    held, sums = rows.held, rows.sums
    held[i, d, SLOTS] += slots
    held[i, d, CARD_MEMORY] += sign * memory
    held[i, d, COMPUTE] += sign * compute
    sums[i, IN_USE + SLOTS] += slots
    sums[i, IN_USE + CARD_MEMORY] += sign * memory
    sums[i, IN_USE + COMPUTE] += sign * compute
    note_card(rows, i, d)


def charge(state: State, slot: int, sign: int) -> None:
    """Add a pod to its row (sign 1) or remove it (sign −1): the only arithmetic on what is in use."""
    rows, book, work = state.rows, state.book, state.scratch
    i, s, owner = book.pod[slot, POD_ROW], book.pod[slot, POD_SHAPE], book.pod[slot, POD_OWNER]
    if state.heads[JOURNAL_DEPTH] > 0:
        remember(state, slot)
    for r in range(state.wants.shape[s, LAST_NEED]):
        rows.used[i, r] += sign * state.wants.need[s, r]
    rows.scored[i, 0] += sign * state.wants.scored[s, 0]
    rows.scored[i, 1] += sign * state.wants.scored[s, 1]
    rows.scored[i, EXPECTED_CPU] += sign * state.wants.scored[s, EXPECTED_CPU]
    if owner != NONE and book.peer_row[owner] != NONE:
        rows.peers[book.peer_row[owner], i] += sign
    at = book.pod[slot, POD_ENTRY]
    if at != NONE and book.entry[at, ENTRY_NEXT] == NONE:  # the usual pod: one card
        d, memory, compute = book.entry[at, ENTRY_CARD], book.entry[at, ENTRY_MEMORY], book.entry[at, ENTRY_COMPUTE]
        hold(rows, i, d, sign, memory, compute, sign)
    elif at != NONE:
        peak_use(state, slot, work)
        while at != NONE:
            d = book.entry[at, ENTRY_CARD]
            slots, memory, compute = work.peak[d, SLOTS], work.peak[d, CARD_MEMORY], work.peak[d, COMPUTE]
            hold(rows, i, d, sign * slots, memory, compute, sign)
            for k in range(3):
                work.peak[d, k] = 0  # a card with several entries counts once
            at = book.entry[at, ENTRY_NEXT]
    rows.hosts[i, state.wants.shape[s, SIZE]] += sign
    note_most_free(rows, i)
    touch(state, i)


def release(state: State, slots: Ints) -> None:
    """Release these pods. In a transaction their slots are kept until the end, for a roll-back."""
    for n in range(len(slots)):
        charge(state, slots[n], -1)
        if state.heads[JOURNAL_DEPTH] > 0:
            state.book.pod[slots[n], POD_STATE] = LEAVING
        else:
            free_pod(state, slots[n])


def copy_row(target: Ints, n: int, source: Ints, i: int) -> None:
    """Copy element by element: for a slice, numba needs its allocator and five seconds more."""
    for x in range(source.shape[1]):
        target[n, x] = source[i, x]


def copy_cards(target: Ints, n: int, source: Ints, i: int) -> None:
    for d in range(source.shape[1]):
        for x in range(source.shape[2]):
            target[n, d, x] = source[i, d, x]


def remember(state: State, slot: int) -> None:
    """Copy the pod's row to the journal, before the change."""
    rows, journal, book = state.rows, state.journal, state.book
    n = state.heads[JOURNAL_LENGTH]
    i, owner = book.pod[slot, POD_ROW], book.pod[slot, POD_OWNER]
    line = journal.line
    line[n, LINE_ROW], line[n, LINE_POD], line[n, LINE_STATE] = i, slot, book.pod[slot, POD_STATE]
    line[n, LINE_PEER_ROW] = NONE
    if owner != NONE and book.peer_row[owner] != NONE:
        line[n, LINE_PEER_ROW] = book.peer_row[owner]
        line[n, LINE_PEERS] = rows.peers[book.peer_row[owner], i]
    copy_row(journal.used, n, rows.used, i)
    copy_row(journal.scored, n, rows.scored, i)
    copy_cards(journal.held, n, rows.held, i)
    copy_row(journal.sums, n, rows.sums, i)
    copy_row(journal.hosts, n, rows.hosts, i)
    state.heads[JOURNAL_LENGTH] = n + 1


def roll_back(state: State, start: int) -> None:
    """Restore every row changed since the journal had length `start`, latest first."""
    rows, journal, book = state.rows, state.journal, state.book
    for n in range(state.heads[JOURNAL_LENGTH] - 1, start - 1, -1):
        i, slot = journal.line[n, LINE_ROW], journal.line[n, LINE_POD]
        copy_row(rows.used, i, journal.used, n)
        copy_row(rows.scored, i, journal.scored, n)
        copy_cards(rows.held, i, journal.held, n)
        copy_row(rows.sums, i, journal.sums, n)
        copy_row(rows.hosts, i, journal.hosts, n)
        note_all_cards(rows, i)
        owner = book.pod[slot, POD_OWNER]
        if journal.line[n, LINE_PEER_ROW] != NONE:
            rows.peers[journal.line[n, LINE_PEER_ROW], i] = journal.line[n, LINE_PEERS]
        elif owner != NONE and book.peer_row[owner] != NONE:  # counted for the first time after this change
            rows.peers[book.peer_row[owner], i] += 1 if book.pod[slot, POD_STATE] == LEAVING else -1
        if book.pod[slot, POD_STATE] == LEAVING:
            book.pod[slot, POD_STATE] = journal.line[n, LINE_STATE]
        else:
            free_pod(state, slot)
        touch(state, i)
    state.heads[JOURNAL_LENGTH] = start


def settle(state: State) -> None:
    """Free the slots of released pods and empty the journal: the outermost transaction is committed."""
    for n in range(state.heads[JOURNAL_LENGTH]):
        slot = state.journal.line[n, LINE_POD]
        if state.book.pod[slot, POD_STATE] == LEAVING:
            free_pod(state, slot)
    state.heads[JOURNAL_LENGTH] = 0
