"""Joint policies: cards are chosen with the score, so a row is looked at card by card when it moves, not when it wins.

`offer` is put in per profile by engine/build.py, which also puts these functions in the place of those of
kernel_place.py and kernel_choose.py whose part they play.
"""

from __future__ import annotations

from dovetail.engine.kernel_choose import choose_all, enough_cards, node_refusal
from dovetail.engine.kernel_fit import ask_refusal, card_refusal, node_shortage
from dovetail.engine.kernel_place import NEVER, first_look
from dovetail.engine.state import NONE, STYLE_IDLE_ONLY, UNLIMITED, Batch, Scratch, State
from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_RULE,
    ASK_VENDOR,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    FIRST_ASK,
    FREE_COMPUTE,
    LAST_ASK,
    MIG_NODE,
    NODE_FLAGS,
    NUMA_BIND,
    SLOTS,
    STOCK,
    VENDOR,
    Ints,
    Rows,
    Wants,
)

_WHOLE = 1000
choose_one_by_one = choose_all  # under a name that build.py does not replace


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, fitting: Ints, fits: int, chosen: Ints
) -> float:
    return 0.0


def is_plain(wants: Wants, s: int, quota: Ints) -> bool:
    """One ask, no quota, no NUMA binding: what nearly every pod is."""
    first = wants.shape[s, FIRST_ASK]
    if wants.shape[s, LAST_ASK] - first != 1 or wants.rule[wants.ask[first, ASK_RULE], NUMA_BIND] != 0:
        return False
    vendor = wants.ask[first, ASK_VENDOR]
    return bool(quota[vendor, 0] == UNLIMITED and quota[vendor, 1] == UNLIMITED)


def cards_that_fit(rows: Rows, wants: Wants, i: int, a: int, style: Ints, fitting: Ints) -> int:
    """Every card that could serve ask `a`, into `fitting`; returns how many."""
    compute, vendor, held = wants.ask[a, ASK_COMPUTE], wants.ask[a, ASK_VENDOR], rows.held[i]
    got = 0
    for d in range(rows.fact[i, CARDS]):
        if rows.free[i, d, FREE_COMPUTE] < compute or rows.card[i, d, VENDOR] != vendor:
            continue
        if card_refusal(rows, wants, i, d, a, held, style[STYLE_IDLE_ONLY], UNLIMITED, UNLIMITED) == 0:
            fitting[got] = d
            got += 1
    return got


def look_jointly(state: State, batch: Batch, k: int, u: int, v: int, i: int) -> float:
    """In the place of `look`: fit, cards and score in one go."""
    s = batch.shape[k]
    code = first_look(state, batch.mask[k], s, i)
    points = NEVER
    if code == 0:
        code, points = appraise(state, s, i, batch.style, batch.quota, batch.draw[k])
    state.vectors.refused[v, i] = code
    state.vectors.score[u, i] = points
    return points


def appraise(state: State, s: int, i: int, style: Ints, quota: Ints, draw: int) -> tuple[int, float]:
    """Why node i cannot take shape s, or 0; and what it is worth."""
    rows, wants, work = state.rows, state.wants, state.scratch
    first, last = wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]
    if first == last or not is_plain(wants, s, quota):
        code = node_refusal(rows, wants, i, s, style, quota, draw, work)
        return code, points_of(state, i, s, style) if code == 0 else NEVER
    short = node_shortage(rows, wants, i, s)
    if short != 0:
        return short, NEVER
    fits = cards_that_fit(rows, wants, i, first, style, work.fitting)
    if fits < wants.ask[first, ASK_COUNT] or rows.fact[i, NODE_FLAGS] & (MIG_NODE | STOCK):
        code = ask_refusal(rows, wants, i, first)
        if code == 0:
            code = enough_cards(rows, wants, i, first, style)
        if code != 0:
            return code, NEVER
    return 0, offer(rows, i, wants, s, first, rows.left[i], work.fitting, fits, work.chosen)


def points_of(state: State, i: int, s: int, style: Ints) -> float:
    """What node i, which fits, is worth to shape s. A pod with several asks is judged by its first."""
    rows, wants, work = state.rows, state.wants, state.scratch
    first = wants.shape[s, FIRST_ASK]
    if first == wants.shape[s, LAST_ASK]:
        return offer(rows, i, wants, s, NONE, rows.left[i], work.fitting, 0, work.chosen)
    fits = cards_that_fit(rows, wants, i, first, style, work.fitting)
    if fits < wants.ask[first, ASK_COUNT]:
        return NEVER
    return offer(rows, i, wants, s, first, rows.left[i], work.fitting, fits, work.chosen)


def no_second_look(state: State, batch: Batch, k: int, i: int) -> int:
    """In the place of `second_look`: the first one saw everything."""
    return 0


def no_scores(state: State, batch: Batch, k: int, u: int) -> None:
    """In the place of `refresh_scores`: scores are made with the look."""


def choose_jointly(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """In the place of `choose_all`."""
    first = wants.shape[s, FIRST_ASK]
    if first == wants.shape[s, LAST_ASK]:
        return 0
    if not is_plain(wants, s, quota):
        return choose_one_by_one(rows, wants, i, s, style, quota, draw, work)
    count = wants.ask[first, ASK_COUNT]
    fits = cards_that_fit(rows, wants, i, first, style, work.fitting)
    if fits < count:
        return NONE
    offer(rows, i, wants, s, first, rows.left[i], work.fitting, fits, work.chosen)
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
    """In the place of `choose_set`: the cards of one ask among several, with what was placed before it."""
    spare = room[0]
    for d in range(rows.fact[i, CARDS]):
        part = _WHOLE
        if held[d, COMPUTE] > 0:
            part = min(part, (rows.card[i, d, COMPUTE] - held[d, COMPUTE]) * _WHOLE // max(1, rows.card[i, d, COMPUTE]))
        if held[d, CARD_MEMORY] > 0:
            total = rows.card[i, d, CARD_MEMORY]
            part = min(part, (total - held[d, CARD_MEMORY]) * _WHOLE // max(1, total))
        spare[d] = max(0, part) if held[d, SLOTS] < rows.card[i, d, SLOTS] else 0
    offer(rows, i, wants, s, a, spare, fitting, fits, chosen)
