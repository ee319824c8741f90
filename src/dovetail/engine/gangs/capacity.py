"""How many pods of one request each row could take, computed for all rows at once and kept.

The numbers are upper bounds: rules about other pods, NUMA nodes and card UUIDs are not looked at, and several asks of a
pod are counted one by one. For pods with one ask they are exact. Only rows that changed are counted again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Signature
from dovetail.model.pod import ContainerKind
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_KIND,
    ASK_MEMORY,
    ASK_PERCENT,
    ASK_RULE,
    ASK_VENDOR,
    ASK_WHOLE,
    CARD_KIND,
    CARD_MEMORY,
    CARD_VENDOR,
    CARDS,
    COMPUTE,
    FIRST_ASK,
    FREE_COMPUTE,
    LAST_ASK,
    LAST_NEED,
    MIG_NODE,
    NO_PERCENT,
    NODE_FLAGS,
    SLOTS,
    STOCK,
    UNSETTLED,
    Bytes,
    Ints,
)
from dovetail.policies.table import DEVICE_POLICIES

MAX_KEPT_COUNTS = 128  # requests whose numbers are kept
PLENTY = 2**40  # pods: more than any row takes
ROUNDS_OF_DISTINCT_CARDS = 4


@dataclass(slots=True)
class _Counted:
    room: Ints  # [row]
    seen: int  # moves of the ledger when it was last updated
    epoch: int


class RowCapacity:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[tuple[int, bool], _Counted] = OrderedDict()

    def room(self, signature: Signature) -> Ints:
        """[row]: pods of this request that the row could take, 0 where its node rules refuse it."""
        size = len(self._ledger.nodes)
        idle_only = any(DEVICE_POLICIES[name].idle_only for name in signature.profile.device)
        counted = self._counted(signature.shape, idle_only, size)
        refused: Bytes = self._ledger.storage.masks[signature.mask, :size]
        room: Ints = np.where(refused == 0, counted.room[:size], 0)
        return room

    def _counted(self, shape: int, idle_only: bool, size: int) -> _Counted:
        vectors, generation = self._ledger.vectors, self._ledger.generation
        found = self._kept.get((shape, idle_only))
        if found is None or found.epoch != vectors.epoch or len(found.room) != size:
            room = self._count(np.arange(size), shape, idle_only)
            found = self._kept[shape, idle_only] = _Counted(room, generation, vectors.epoch)
            if len(self._kept) > MAX_KEPT_COUNTS:
                self._kept.popitem(last=False)
            return found
        self._kept.move_to_end((shape, idle_only))
        if found.seen != generation:
            stamp = vectors.arrays.stamp[:size]
            changed = np.flatnonzero((stamp >= found.seen) & (stamp != NONE))
            if len(changed):
                found.room[changed] = self._count(changed, shape, idle_only)
            found.seen = generation
        return found

    def _count(self, at: Ints, shape: int, idle_only: bool) -> Ints:
        rows, wants = self._ledger.rows, self._ledger.intern.wants
        room: Ints = np.full(len(at), PLENTY, dtype=np.int64)
        for column in range(int(wants.shape[shape, LAST_NEED])):
            need = int(wants.need[shape, column])
            if need > 0 and rows.enforced[column] == 1:
                np.minimum(room, np.maximum(rows.cap[at, column] - rows.used[at, column], 0) // need, out=room)
        for ask in range(int(wants.shape[shape, FIRST_ASK]), int(wants.shape[shape, LAST_ASK])):
            np.minimum(room, self._count_cards(at, ask, idle_only), out=room)
        return room

    def _count_cards(self, at: Ints, ask: int, idle_only: bool) -> Ints:
        """Pods whose ask the cards of each row could serve, each with distinct cards."""
        rows, line = self._ledger.rows, self._ledger.intern.wants.ask[ask]
        times, count = self._times(at, ask, idle_only), int(line[ASK_COUNT])
        flags = rows.fact[at, NODE_FLAGS]
        closed = (flags & (UNSETTLED | MIG_NODE)) != 0
        if not line[ASK_WHOLE]:
            closed |= (flags & STOCK) != 0
        times[closed] = 0
        if line[ASK_KIND] == ContainerKind.INIT:  # it ends before the pod runs: cards are only needed for a while
            return np.where((times > 0).sum(axis=1) >= count, PLENTY, 0)
        pods: Ints = times.sum(axis=1) // count
        if count > 1:
            for _ in range(ROUNDS_OF_DISTINCT_CARDS):  # n pods use each card n times at most
                pods = np.minimum(times, pods[:, None]).sum(axis=1) // count
        return pods

    def _times(self, at: Ints, ask: int, idle_only: bool) -> Ints:
        """[row, card]: how often the card could serve the ask."""
        rows, wants = self._ledger.rows, self._ledger.intern.wants
        line, card, held = wants.ask[ask], rows.card[at], rows.held[at]
        memory = card[..., CARD_MEMORY] - held[..., CARD_MEMORY]
        there = np.arange(card.shape[1]) < rows.fact[at, CARDS, None]
        kinds = np.minimum(card[..., CARD_KIND], wants.kind_ok.shape[1] - 1)
        usable = there & (rows.free[at, :, FREE_COMPUTE] >= 0) & (card[..., CARD_VENDOR] == line[ASK_VENDOR])
        usable &= wants.kind_ok[line[ASK_RULE], kinds] != 0
        used = held[..., SLOTS]
        times = card[..., SLOTS] - used
        if line[ASK_COMPUTE] > 0:
            times = np.minimum(times, (card[..., COMPUTE] - held[..., COMPUTE]) // line[ASK_COMPUTE])
        if line[ASK_COMPUTE] == WHOLE_CARD:  # not beside other pods, unless compute is overcommitted
            usable &= (used == 0) | (card[..., COMPUTE] != WHOLE_CARD)
        per_card = self._memory(at, line, card)
        times = np.minimum(times, np.where(per_card > 0, memory // np.maximum(per_card, 1), PLENTY))
        if idle_only:
            usable &= used == 0
            times = np.minimum(times, 1)
        found: Ints = np.where(usable, np.maximum(times, 0), 0)
        return found

    def _memory(self, at: Ints, line: Ints, card: Ints) -> Ints:
        """[row, card]: MiB that the ask takes, as `memory_on` computes it."""
        if line[ASK_PERCENT] != NO_PERCENT:
            percent: Ints = card[..., CARD_MEMORY] * line[ASK_PERCENT] // 100
            return percent
        stock = (self._ledger.rows.fact[at, NODE_FLAGS] & STOCK) != 0
        return np.where(stock[:, None], card[..., CARD_MEMORY], line[ASK_MEMORY])

    # ---- what several requests share ----------------------------------------------------------------------------

    def shared(self, signatures: Sequence[Signature], size: int) -> tuple[Ints, Ints]:
        """[row, amount] and [request, amount]: what rows have free, and what one pod of each request takes of it.

        Amounts: resources of the node that a request names, then compute and memory of cards by vendor. If the
        pods of a row take more than it has, they do not fit there. The reverse holds for whole cards, not for parts.
        """
        rows, wants = self._ledger.rows, self._ledger.intern.wants
        shapes = [signature.shape for signature in signatures]
        named = (wants.need[shapes] > 0).any(axis=0) & (rows.enforced[: wants.need.shape[1]] == 1)
        columns = np.flatnonzero(named)
        free = [np.maximum(rows.cap[:size, columns] - rows.used[:size, columns], 0)]
        takes = [wants.need[shapes][:, columns]]
        asks = [range(int(wants.shape[s, FIRST_ASK]), int(wants.shape[s, LAST_ASK])) for s in shapes]
        for vendor in sorted({int(wants.ask[a, ASK_VENDOR]) for one in asks for a in one}):
            free.append(self._free_of(vendor, size))
            takes.append(np.array([_taken(wants.ask, one, vendor) for one in asks], dtype=np.int64).reshape(-1, 2))
        return np.concatenate(free, axis=1), np.concatenate(takes, axis=1)

    def _free_of(self, vendor: int, size: int) -> Ints:
        """[row, 2]: compute and memory of the vendor's usable cards."""
        rows = self._ledger.rows
        there = np.arange(rows.card.shape[1]) < rows.fact[:size, CARDS, None]
        usable = there & (rows.card[:size, :, CARD_VENDOR] == vendor) & (rows.free[:size, :, FREE_COMPUTE] >= 0)
        left = rows.card[:size, :, [COMPUTE, CARD_MEMORY]] - rows.held[:size, :, [COMPUTE, CARD_MEMORY]]
        found: Ints = np.where(usable[..., None], np.maximum(left, 0), 0).sum(axis=1)
        return found


def _taken(ask: Ints, asks: range, vendor: int) -> tuple[int, int]:
    """Compute and MiB that one pod takes of a vendor's cards; a percentage of memory counts as nothing."""
    mine = [a for a in asks if ask[a, ASK_VENDOR] == vendor and ask[a, ASK_KIND] != ContainerKind.INIT]
    compute = sum(int(ask[a, ASK_COUNT] * ask[a, ASK_COMPUTE]) for a in mine)
    memory = sum(int(ask[a, ASK_COUNT] * ask[a, ASK_MEMORY]) for a in mine if ask[a, ASK_PERCENT] == NO_PERCENT)
    return compute, memory
