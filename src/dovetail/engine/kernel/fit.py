"""Whether a request fits a node or card: HAMi's fourteen rules (pkg/device/nvidia/device.go:715-876), in its order."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model.reason import Reason
from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ACCEPTED_BITS,
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_IDLE,
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
    CORDONED,
    CPU_COLUMN,
    FIRST_ASK,
    FLAGS,
    FREE_COMPUTE,
    FREE_MEMORY,
    KINDS_THERE,
    LAST_ASK,
    LAST_NEED,
    MEMORY_COLUMN,
    MIG_CARD,
    MIG_NODE,
    MOST_COMPUTE_FREE,
    MOST_MEMORY_FREE,
    NO_CARDS,
    NO_PERCENT,
    NODE_FLAGS,
    NOUSE_FROM,
    NOUSE_TO,
    PODS_COLUMN,
    QUARANTINED,
    SLOTS,
    STOCK,
    STORAGE_COLUMN,
    UNHEALTHY,
    UNSETTLED,
    USE_FROM,
    USE_TO,
    UUID,
    Ints,
    Rows,
    Wants,
)

# Plain integers: compiled code has no enums.
_CPU, _MEMORY, _STORAGE, _PODS, _EXTENDED = map(
    int, (Reason.CPU, Reason.MEMORY, Reason.STORAGE, Reason.PODS, Reason.EXTENDED)
)
_UNREGISTERED, _TOO_FEW_CARDS, _MIG_NODE, _WHOLE_CARDS_ONLY, _UNSETTLED = map(
    int,
    (
        Reason.UNREGISTERED,
        Reason.TOO_FEW_CARDS,
        Reason.MIG_NODE,
        Reason.WHOLE_CARDS_ONLY,
        Reason.NODE_UNSETTLED,
    ),
)
_UNHEALTHY, _CORDONED, _TYPE, _UUID, _SLOTS, _IN_USE = map(
    int,
    (
        Reason.CARD_UNHEALTHY,
        Reason.CARD_CORDONED,
        Reason.CARD_TYPE,
        Reason.CARD_UUID,
        Reason.CARD_SLOTS,
        Reason.CARD_IN_USE,
    ),
)
_QUOTA, _CARD_MEMORY, _CARD_COMPUTE, _EXHAUSTED, _CARD_MIG, _QUARANTINED = map(
    int,
    (
        Reason.CARD_QUOTA,
        Reason.CARD_MEMORY,
        Reason.CARD_COMPUTE,
        Reason.CARD_COMPUTE_EXHAUSTED,
        Reason.CARD_MIG,
        Reason.CARD_QUARANTINED,
    ),
)
_WHOLE = 1000


def node_shortage(rows: Rows, wants: Wants, i: int, s: int) -> int:
    """The first resource that the node is short of, or 0. Resources that the pod does not ask for are not checked."""
    for r in range(wants.shape[s, LAST_NEED]):
        need = wants.need[s, r]
        if need > 0 and rows.enforced[r] == 1 and rows.used[i, r] + need > rows.cap[i, r]:
            if r == CPU_COLUMN:
                return _CPU
            if r == MEMORY_COLUMN:
                return _MEMORY
            if r == STORAGE_COLUMN:
                return _STORAGE
            return _PODS if r == PODS_COLUMN else _EXTENDED
    return 0


def vendor_cards(rows: Rows, i: int, vendor: int) -> int:
    """The number of cards that the node registers, without cards that only pods name."""
    count = 0
    for d in range(rows.fact[i, CARDS]):
        if rows.card[i, d, CARD_VENDOR] == vendor and rows.card[i, d, FLAGS] & QUARANTINED == 0:
            count += 1
    return count


def ask_refusal(rows: Rows, wants: Wants, i: int, a: int) -> int:
    """Why the node refuses an ask, before a look at single cards; 0 = it does not."""
    flags = rows.fact[i, NODE_FLAGS]
    if flags & UNSETTLED:
        return _UNSETTLED
    if flags & MIG_NODE:
        return _MIG_NODE
    cards = vendor_cards(rows, i, wants.ask[a, ASK_VENDOR])
    if cards == 0:
        return _UNREGISTERED
    if flags & STOCK and wants.ask[a, ASK_WHOLE] == 0:
        return _WHOLE_CARDS_ONLY
    return _TOO_FEW_CARDS if wants.ask[a, ASK_COUNT] > cards else 0


def uuid_accepted(wants: Wants, rule: int, uuid: int) -> bool:
    for n in range(wants.rule[rule, NOUSE_FROM], wants.rule[rule, NOUSE_TO]):
        if wants.uuids[n] == uuid:
            return False
    first, last = wants.rule[rule, USE_FROM], wants.rule[rule, USE_TO]
    for n in range(first, last):
        if wants.uuids[n] == uuid:
            return True
    return bool(first == last)


def only_idle(wants: Wants, a: int, idle_only: int) -> bool:
    """Whether ask `a` takes only cards that no pod uses: by the device policy, or by the pod's class."""
    return bool(idle_only or wants.ask[a, ASK_IDLE])


def card_refusal(
    rows: Rows, wants: Wants, i: int, d: int, a: int, held: Ints, idle_only: int, memory_left: int, compute_left: int
) -> int:
    """Why card `d` of node `i` cannot serve ask `a`, or 0. `held`: the use of the node's cards, with earlier asks."""
    flags = rows.card[i, d, FLAGS]
    if flags & QUARANTINED:
        return _QUARANTINED
    if flags & UNHEALTHY:
        return _UNHEALTHY
    if flags & CORDONED:
        return _CORDONED
    rule = wants.ask[a, ASK_RULE]
    if wants.kind_ok[rule, rows.card[i, d, CARD_KIND]] == 0:
        return _TYPE
    if not uuid_accepted(wants, rule, rows.card[i, d, UUID]):
        return _UUID
    if rows.card[i, d, SLOTS] <= held[d, SLOTS]:
        return _SLOTS
    if idle_only and held[d, SLOTS] > 0:
        return _IN_USE
    memory, compute = memory_on(rows, wants, i, d, a), wants.ask[a, ASK_COMPUTE]
    if memory > memory_left or compute > compute_left:
        return _QUOTA
    total = rows.card[i, d, COMPUTE]
    if rows.card[i, d, CARD_MEMORY] - held[d, CARD_MEMORY] < memory:
        return _CARD_MEMORY
    if total - held[d, COMPUTE] < compute:
        return _CARD_COMPUTE
    # Exclusive means exactly 100 % of a card whose compute is not overcommitted (rule 12).
    if total == _WHOLE and compute == _WHOLE and held[d, SLOTS] > 0:
        return _IN_USE
    if compute == 0 and total != 0 and held[d, COMPUTE] >= total:
        return _EXHAUSTED
    return _CARD_MIG if flags & MIG_CARD else 0


def card_fits(rows: Rows, wants: Wants, i: int, d: int, a: int, idle_only: int) -> bool:
    """Whether `card_refusal` is 0 with the ledger as it is and without a quota.

    Faster: `free` includes most of the rules.
    """
    if rows.free[i, d, FREE_COMPUTE] < wants.ask[a, ASK_COMPUTE]:
        return False
    if rows.free[i, d, FREE_MEMORY] < memory_on(rows, wants, i, d, a) or (idle_only and rows.held[i, d, SLOTS] > 0):
        return False
    rule = wants.ask[a, ASK_RULE]
    if wants.kind_ok[rule, rows.card[i, d, CARD_KIND]] == 0:
        return False
    return not names_cards(wants, rule) or uuid_accepted(wants, rule, rows.card[i, d, UUID])


def names_cards(wants: Wants, rule: int) -> bool:
    """Whether the rule names cards by UUID."""
    return bool(wants.rule[rule, USE_FROM] != wants.rule[rule, NOUSE_TO])


class Sieve(NamedTuple):
    """The numbers for the first check of a request against a row: looked up once for many rows."""

    mask: int
    shape: int
    ask: int  # the first ask
    memory: int  # MiB of the first card; negative if the pod asks for no card
    compute: int
    kinds: int  # accepted kinds of card, as bits


def sieve_of(wants: Wants, mask: int, s: int) -> Sieve:
    a = wants.shape[s, FIRST_ASK]
    if a == wants.shape[s, LAST_ASK]:
        return Sieve(mask, s, a, -1, -1, -1)
    memory = wants.ask[a, ASK_MEMORY] if wants.ask[a, ASK_PERCENT] == NO_PERCENT else 0
    return Sieve(mask, s, a, memory, wants.ask[a, ASK_COMPUTE], wants.rule[wants.ask[a, ASK_RULE], ACCEPTED_BITS])


def no_card_left(rows: Rows, i: int, sieve: Sieve) -> int:
    """Compare the request with the largest free amounts of the row: refuses most rows without a look at a card.

    0 = may fit.
    """
    gate = rows.gate
    if sieve.compute > gate[i, MOST_COMPUTE_FREE]:
        return _CARD_COMPUTE
    if sieve.memory > gate[i, MOST_MEMORY_FREE]:
        return _CARD_MEMORY
    return _TYPE if gate[i, KINDS_THERE] & sieve.kinds == 0 and gate[i, KINDS_THERE] != NO_CARDS else 0
