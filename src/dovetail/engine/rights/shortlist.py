"""The rows on which stopping pods could make room for a request, the most promising first.

Computed for all rows at once, from sums over the pods that may be stopped. The conditions are necessary, not
sufficient: a row that is left out cannot take the pod, whatever is stopped there (tests/engine/test_preemption.py).
`victims.py` checks the first rows of the list exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import (
    ENTRY_CARD,
    ENTRY_COMPUTE,
    ENTRY_MEMORY,
    ENTRY_NEXT,
    NONE,
    POD_ENTRY,
    POD_ROW,
    POD_SHAPE,
)
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.occupants import Occupants
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_MEMORY,
    ASK_PERCENT,
    ASK_RULE,
    ASK_VENDOR,
    CARD_KIND,
    CARD_MEMORY,
    CARD_VENDOR,
    CARDS,
    COMPUTE,
    CORDONED,
    FIRST_ASK,
    FLAGS,
    LAST_ASK,
    MIG_CARD,
    NO_PERCENT,
    QUARANTINED,
    SLOTS,
    UNHEALTHY,
    Bytes,
    Ints,
)

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
MOST_LEVELS = 6  # distinct priorities of pods to be stopped that are told apart
ENOUGH_ROWS = 1_000
UNUSABLE_CARD = QUARANTINED | UNHEALTHY | CORDONED | MIG_CARD


class Freed(NamedTuple):
    """What cards would have free again. Sums of integers as floats: exact below 2^53."""

    cards: Numbers  # [3, row, card]: slots, memory, compute
    pods: Numbers  # [row, card]: pods there; a pod on n cards counts 1/n on each
    lost: Numbers  # [row, card]: cards that the pods there hold, on this card and on others


def shortlist(ledger: Ledger, occupants: Occupants, slots: Ints, shape: int, refused: Bytes) -> Ints:
    """Rows in order: the lowest priority that must be stopped, the fewest pods and cards, the latest start, the name.

    `slots`: the pods that may be stopped. `refused`: [row], 0 unless a rule that no eviction changes refuses the pod.
    Rows that need higher priorities than others are left out once there are `ENOUGH_ROWS`.
    """
    size = len(ledger.nodes)
    open_rows: Flags = refused[:size] == 0
    priorities = occupants.priorities(slots)
    levels = _levels(priorities)
    found: list[Ints] = []
    starts = _latest_starts(ledger, occupants, slots, size)
    rank = ledger.state().rows.rank[:size]
    for number, level in enumerate(levels):
        fits, pods = _could_take(ledger, shape, slots[priorities <= level], size)
        rows = np.flatnonzero(fits & open_rows)
        open_rows[rows] = False
        found.append(rows[np.lexsort((rank[rows], -starts[rows], *pods[::-1, rows]))])
        if sum(map(len, found)) >= ENOUGH_ROWS:
            break
        if number == 0 and len(levels) > 2 and not (_could_take(ledger, shape, slots, size)[0] & open_rows).any():
            break  # higher priorities do not help either
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _levels(priorities: Ints) -> list[int]:
    """The distinct priorities, ascending; if there are many, some of them and the highest."""
    distinct = np.unique(priorities)
    if len(distinct) > MOST_LEVELS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, MOST_LEVELS).astype(np.int64)]
    return [int(one) for one in distinct]


def _could_take(ledger: Ledger, shape: int, slots: Ints, size: int) -> tuple[Flags, Numbers]:
    """[row]: whether the row could take the request without these pods; [2, row]: what that would cost.

    The cost is an estimate: how many of the pods would be stopped, and how many cards these hold.
    """
    rows, wants = ledger.rows, ledger.intern.wants
    asks = range(int(wants.shape[shape, FIRST_ASK]), int(wants.shape[shape, LAST_ASK]))
    fits = _has_resources(ledger, shape, slots, size)
    cost = np.zeros((2, size))
    if not asks or not fits.any():
        return fits, cost
    freed = _freed_cards(ledger, slots, size)
    there = np.arange(rows.card.shape[1])[None, :] < rows.fact[:size, CARDS][:, None]
    for ask in asks:
        usable = _usable_cards(ledger, ask, freed, size) & there
        count = int(wants.ask[ask, ASK_COUNT])
        fits &= usable.sum(axis=1) >= count
        for number, weight in enumerate((freed.pods, freed.lost)):
            cheapest = np.sort(np.where(usable, weight, np.inf), axis=1)[:, :count].sum(axis=1)
            cost[number] = np.maximum(cost[number], np.where(np.isfinite(cheapest), cheapest, 0.0))
    cost[0] = np.ceil(cost[0] - 1e-6)
    return fits, cost


def _has_resources(ledger: Ledger, shape: int, slots: Ints, size: int) -> Flags:
    """[row]: whether the node has what the request needs beside cards."""
    rows, need, pod = ledger.rows, ledger.intern.wants.need, ledger.book.pod
    there, shapes = pod[slots, POD_ROW], pod[slots, POD_SHAPE]
    fits: Flags = np.ones(size, dtype=np.bool_)
    for column in np.flatnonzero(need[shape] > 0).tolist():
        if rows.enforced[column] == 1:
            freed = np.bincount(there, need[shapes, column], size)
            fits &= rows.cap[:size, column] - np.maximum(rows.used[:size, column] - freed, 0) >= need[shape, column]
    return fits


def _freed_cards(ledger: Ledger, slots: Ints, size: int) -> Freed:
    pod, entry = ledger.book.pod, ledger.book.entry
    rows, entries, width = pod[slots, POD_ROW], pod[slots, POD_ENTRY], ledger.rows.card.shape[1]
    live, lengths = np.flatnonzero(entries != NONE), np.zeros(len(slots))
    chain = []
    these = entries[live]
    while live.size:
        lengths[live] += 1
        chain.append((live, these))
        following = entry[these, ENTRY_NEXT]
        live, these = live[following != NONE], following[following != NONE]
    cards, pods, lost = np.zeros((3, size * width)), np.zeros(size * width), np.zeros(size * width)
    for live, these in chain:
        spot = rows[live] * width + entry[these, ENTRY_CARD]
        cards[0] += np.bincount(spot, minlength=size * width)
        cards[1] += np.bincount(spot, entry[these, ENTRY_MEMORY], size * width)
        cards[2] += np.bincount(spot, entry[these, ENTRY_COMPUTE], size * width)
        pods += np.bincount(spot, 1 / lengths[live], size * width)
        lost += np.bincount(spot, lengths[live], size * width)
    return Freed(cards.reshape(3, size, width), pods.reshape(size, width), lost.reshape(size, width))


def _usable_cards(ledger: Ledger, ask: int, freed: Freed, size: int) -> Flags:
    """[row, card]: whether the card could serve the ask alone."""
    rows, wants = ledger.rows, ledger.intern.wants
    card, held, line = rows.card[:size], rows.held[:size], wants.ask[ask]
    left = [
        card[..., kind] - np.maximum(held[..., kind] - freed.cards[kind], 0) for kind in (SLOTS, CARD_MEMORY, COMPUTE)
    ]
    memory = line[ASK_MEMORY]
    if line[ASK_PERCENT] != NO_PERCENT:
        memory = np.floor(card[..., CARD_MEMORY] * line[ASK_PERCENT] / 100) - 1
    kinds = np.minimum(card[..., CARD_KIND], wants.kind_ok.shape[1] - 1)
    usable: Flags = (
        (card[..., CARD_VENDOR] == line[ASK_VENDOR])
        & (card[..., FLAGS] & UNUSABLE_CARD == 0)
        & (wants.kind_ok[line[ASK_RULE], kinds] != 0)
        & (left[0] > 0)
        & (left[1] >= memory)
        & (left[2] >= line[ASK_COMPUTE])
    )
    return usable


def _latest_starts(ledger: Ledger, occupants: Occupants, slots: Ints, size: int) -> Numbers:
    starts = np.full(size, -np.inf)
    np.maximum.at(starts, ledger.book.pod[slots, POD_ROW], occupants.starts(slots))
    return starts
