"""Joint policies choose cards with the score: a row is checked card by card when it changes, not when it wins.

engine/kernel/build.py puts in `offer` for each profile, and replaces functions of place.py and choose.py by these.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernel.choose import choose_all, enough_cards, node_refusal
from dovetail.engine.kernel.fit import Sieve, ask_refusal, card_fits, names_cards, node_shortage, sieve_of
from dovetail.engine.kernel.place import NO_SCORE, first_look, refuse
from dovetail.engine.kernel.state import NONE, STYLE_IDLE_ONLY, UNLIMITED, Batch, Scratch, State
from dovetail.model.reason import Reason
from dovetail.policies.cards import memory_on, part_left
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_PERCENT,
    ASK_RULE,
    ASK_VENDOR,
    CARD_KIND,
    CARD_MEMORY,
    CARD_VENDOR,
    CARDS,
    COMPUTE,
    FIRST_ASK,
    FREE_COMPUTE,
    FREE_MEMORY,
    HARDWARE,
    KIND_BITS,
    LAST_ASK,
    LAST_KIND_BIT,
    MIG_NODE,
    NO_PERCENT,
    NODE_FLAGS,
    NUMA_BIND,
    PODS_COLUMN,
    POSTPONED,
    SINGLE_NUMA,
    SLOTS,
    STOCK,
    UNSETTLED,
    Ints,
    Rows,
    Wants,
)

_WHOLE = 1000
_CROWDED = 1 << LAST_KIND_BIT  # several kinds share this bit
_TOO_FEW_FIT, _POSTPONED = int(Reason.CARDS_TOO_FEW_FIT), int(Reason.POSTPONED)
choose_one_by_one = choose_all  # a name that build.py does not replace


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    return 0.0


def node_worth(rows: Rows, i: int) -> float:
    return 0.0


def worth_as_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """Replaces `node_score`: all requests share the node's worth."""
    return node_worth(rows, i)


def own_line(u: int, v: int) -> int:
    """Replaces `score_line`: each request has its own scores."""
    return v


def is_plain_on(rows: Rows, wants: Wants, i: int, s: int, quota: Ints) -> bool:
    """Whether the shape is plain and kubelet of the node does not bind its cards to one NUMA node."""
    return rows.fact[i, NODE_FLAGS] & SINGLE_NUMA == 0 and is_plain(wants, s, quota)


def is_plain(wants: Wants, s: int, quota: Ints) -> bool:
    """Whether the shape has one ask, no quota and no NUMA binding: true for nearly every pod."""
    first = wants.shape[s, FIRST_ASK]
    if wants.shape[s, LAST_ASK] - first != 1 or wants.rule[wants.ask[first, ASK_RULE], NUMA_BIND] != 0:
        return False
    vendor = wants.ask[first, ASK_VENDOR]
    return bool(quota[vendor, 0] == UNLIMITED and quota[vendor, 1] == UNLIMITED)


def cards_that_fit(rows: Rows, wants: Wants, i: int, a: int, style: Ints, fitting: Ints) -> int:
    """Write every card that could serve ask `a` into `fitting`; returns how many."""
    vendor, kinds, got = wants.ask[a, ASK_VENDOR], rows.fact[i, KIND_BITS], 0
    one_kind = kinds & (kinds - 1) == 0 and kinds != _CROWDED
    if one_kind and not names_cards(wants, wants.ask[a, ASK_RULE]):
        return alike_cards_that_fit(rows, wants, i, a, fitting)
    for d in range(rows.fact[i, CARDS]):
        if card_fits(rows, wants, i, d, a, style[STYLE_IDLE_ONLY]) and rows.card[i, d, CARD_VENDOR] == vendor:
            fitting[got] = d
            got += 1
    return got


def alike_cards_that_fit(rows: Rows, wants: Wants, i: int, a: int, fitting: Ints) -> int:
    """As `cards_that_fit`, on a node with cards of one kind only: kind and vendor are checked once."""
    if rows.fact[i, CARDS] == 0 or rows.card[i, 0, CARD_VENDOR] != wants.ask[a, ASK_VENDOR]:
        return 0
    if wants.kind_ok[wants.ask[a, ASK_RULE], rows.card[i, 0, CARD_KIND]] == 0:
        return 0
    percent, compute, got = wants.ask[a, ASK_PERCENT], wants.ask[a, ASK_COMPUTE], 0
    by_percent = percent != NO_PERCENT and percent <= 100
    for d in range(rows.fact[i, CARDS]):
        if rows.free[i, d, FREE_COMPUTE] < compute:
            continue
        idle = by_percent and rows.left[i, d] == _WHOLE  # then any percentage of its memory is free
        if idle or rows.free[i, d, FREE_MEMORY] >= memory_on(rows, wants, i, d, a):
            fitting[got] = d
            got += 1
    return got


def look_jointly(state: State, batch: Batch, k: int, sieve: Sieve, u: int, v: int, i: int) -> float:
    """Replaces `look`: fit, cards and score in one step."""
    code, points = first_look(state, sieve, i), NO_SCORE
    if code == 0:
        code, points = appraise(state, batch, k, sieve, i, state.vectors.score[u, i])
    refuse(state.vectors, v, i, code)
    if code == 0:  # the score of a refused row is never read
        state.vectors.score[v, i] = points
    return points


def look_at_each_jointly(state: State, batch: Batch, k: int, u: int, v: int) -> None:
    """Replaces `look_at_each`: idle nodes of the same hardware have the same score, so one of them is checked."""
    rows, vectors, wants, s = state.rows, state.vectors, state.wants, batch.shape[k]
    sieve = sieve_of(wants, batch.mask[k], s)
    alike = is_plain(wants, s, batch.quota) and not names_cards(wants, wants.ask[wants.shape[s, FIRST_ASK], ASK_RULE])
    example = vectors.example
    for h in range(len(example)):
        example[h] = NONE
    for i in range(state.size):
        h = rows.fact[i, HARDWARE]
        if not alike or h == NONE or rows.used[i, PODS_COLUMN] > 0 or state.masks[sieve.mask, i] != 0:
            look_jointly(state, batch, k, sieve, u, v, i)
        elif example[h] == NONE:
            example[h] = i
            look_jointly(state, batch, k, sieve, u, v, i)
        else:
            vectors.refused[v, i] = vectors.refused[v, example[h]]
            vectors.score[v, i] = vectors.score[v, example[h]]


def appraise(state: State, batch: Batch, k: int, sieve: Sieve, i: int, worth: float) -> tuple[int, float]:
    """The reason why node i cannot take the pod, or 0; and its score for the pod."""
    rows, wants, work, s, a = state.rows, state.wants, state.scratch, sieve.shape, sieve.ask
    if not is_plain_on(rows, wants, i, s, batch.quota):
        code = node_refusal(rows, wants, i, s, batch.style, batch.quota, batch.draw[k], work)
        if code != 0:
            return code, NO_SCORE
        return unless_postponed(points_of(state, i, s, worth, batch.style))
    short = node_shortage(rows, wants, i, s)
    if short != 0:
        return short, NO_SCORE
    fits = cards_that_fit(rows, wants, i, a, batch.style, work.fitting)
    if fits < wants.ask[a, ASK_COUNT] or rows.fact[i, NODE_FLAGS] & (MIG_NODE | STOCK | UNSETTLED):
        code = ask_refusal(rows, wants, i, a)
        if code == 0 and fits < wants.ask[a, ASK_COUNT]:
            code = enough_cards(rows, wants, i, a, batch.style)
            code = code if code != 0 else _TOO_FEW_FIT
        if code != 0:
            return code, NO_SCORE
    return unless_postponed(offer(rows, i, wants, s, a, rows.left[i], worth, work.fitting, fits, work.chosen))


def unless_postponed(points: float) -> tuple[int, float]:
    """The reason and the score: a policy may rather let the pod wait."""
    return (_POSTPONED, NO_SCORE) if points <= POSTPONED else (0, points)


def no_ask() -> tuple[int, int]:
    """No ask and no card. numba gives literals their own types, and would compile everything below twice."""
    return int(np.int64(NONE)), int(np.int64(0))


def points_of(state: State, i: int, s: int, worth: float, style: Ints) -> float:
    """The score of node i, which fits, for shape s. A pod with several asks is scored by its first ask."""
    rows, wants, work = state.rows, state.wants, state.scratch
    first = wants.shape[s, FIRST_ASK]
    if first == wants.shape[s, LAST_ASK]:
        nobody, none = no_ask()
        return offer(rows, i, wants, s, nobody, rows.left[i], worth, work.fitting, none, work.chosen)
    fits = cards_that_fit(rows, wants, i, first, style, work.fitting)
    if fits < wants.ask[first, ASK_COUNT]:
        return NO_SCORE
    return offer(rows, i, wants, s, first, rows.left[i], worth, work.fitting, fits, work.chosen)


def points_now(state: State, i: int, s: int, style: Ints) -> float:
    """The same, for callers that keep no scores."""
    return points_of(state, i, s, node_worth(state.rows, i), style)


def no_second_look(state: State, batch: Batch, k: int, i: int) -> int:
    """Replaces `second_look`: `look_jointly` has checked everything."""
    return 0


def choose_jointly(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Replaces `choose_all`."""
    first = wants.shape[s, FIRST_ASK]
    if first == wants.shape[s, LAST_ASK]:
        return 0
    if not is_plain_on(rows, wants, i, s, quota):
        return choose_one_by_one(rows, wants, i, s, style, quota, draw, work)
    count = wants.ask[first, ASK_COUNT]
    fits = cards_that_fit(rows, wants, i, first, style, work.fitting)
    if fits < count:
        return NONE
    offer(rows, i, wants, s, first, rows.left[i], node_worth(rows, i), work.fitting, fits, work.chosen)
    for n in range(count):
        d = work.chosen[n]
        work.picked[n, 0], work.picked[n, 1], work.picked[n, 2] = first, d, memory_on(rows, wants, i, d, first)
    return int(count)


def choose_set_jointly(
    rows: Rows,
    i: int,
    wants: Wants,
    s: int,
    a: int,
    held: Ints,
    fitting: Ints,
    fits: int,
    chosen: Ints,
    room: Ints,
) -> None:
    """Replaces `choose_set`: the cards of one ask of several, after the cards taken by the asks before it."""
    spare = room[0]
    for d in range(rows.fact[i, CARDS]):
        card = rows.card[i, d]
        part = part_left(card[COMPUTE], held[d, COMPUTE], card[CARD_MEMORY], held[d, CARD_MEMORY])
        spare[d] = part if held[d, SLOTS] < card[SLOTS] else 0
    offer(rows, i, wants, s, a, spare, node_worth(rows, i), fitting, fits, chosen)
