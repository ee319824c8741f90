"""Which cards: order them by the profile's keys, and take the first that fit (HAMi's Sort and Fit).

engine/kernel/build.py replaces `key_first` … `key_fourth` and `choose_set` for each profile.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernel.fit import ask_refusal, card_fits, card_refusal, node_shortage, only_idle
from dovetail.engine.kernel.state import (
    KEYS,
    NONE,
    STYLE_ALONE,
    STYLE_IDLE_ONLY,
    STYLE_NUMA_SIGN,
    STYLE_SET,
    UNLIMITED,
    Int,
    Scratch,
)
from dovetail.model.reason import Reason
from dovetail.policies.cards import link_between, memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_CONTAINER,
    ASK_COUNT,
    ASK_KIND,
    ASK_RULE,
    ASK_VENDOR,
    CARD_MEMORY,
    CARD_VENDOR,
    CARDS,
    COMPUTE,
    FIRST_ASK,
    INDEX,
    LAST_ASK,
    NODE_FLAGS,
    NOT_MEASURED,
    NUMA,
    NUMA_BIND,
    ONE_NUMA_PER_POD,
    SINGLE_NUMA,
    SLOTS,
    WEIGHT_COMPUTE,
    WEIGHT_MEMORY,
    WEIGHT_SLOTS,
    Card,
    Floats,
    Ints,
    Rows,
    Wants,
)

_INIT = 0  # ContainerKind.INIT
_TOO_FEW_FIT = int(Reason.CARDS_TOO_FEW_FIT)


def no_key(card: Card) -> float:
    return 0.0


def no_set(
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
    for n in range(wants.ask[a, ASK_COUNT]):
        chosen[n] = fitting[n]


key_first = key_second = key_third = key_fourth = no_key
choose_set = no_set


def card_load(rows: Rows, i: int, d: int) -> tuple[int, int]:
    """Return "not measured", for policies that do not read load. numba gives literals their own types, hence int64."""
    return int(np.int64(NOT_MEASURED)), int(np.int64(NOT_MEASURED))


def see_card(rows: Rows, wants: Wants, i: int, d: int, s: int, a: int, held: Ints, draw: int) -> Card:
    load, memory_load = card_load(rows, i, d)
    return Card(
        rows.card[i, d, INDEX],
        rows.card[i, d, NUMA],
        rows.card[i, d, SLOTS],
        rows.card[i, d, CARD_MEMORY],
        rows.card[i, d, COMPUTE],
        held[d, SLOTS],
        held[d, CARD_MEMORY],
        held[d, COMPUTE],
        memory_on(rows, wants, i, d, a),
        wants.ask[a, ASK_COMPUTE],
        wants.shape[s, WEIGHT_SLOTS],
        wants.shape[s, WEIGHT_COMPUTE],
        wants.shape[s, WEIGHT_MEMORY],
        draw,
        load,
        memory_load,
    )


def sooner(keys: Floats, x: int, y: int) -> bool:
    """Whether card x comes before card y. Position is the last key, so there are no ties."""
    for k in range(KEYS):
        if keys[x, k] != keys[y, k]:
            return bool(keys[x, k] > keys[y, k])
    return False


def is_bound(rows: Rows, wants: Wants, i: int, a: int) -> bool:
    """Whether the cards of ask `a` must be on one NUMA node: because the pod says so, or kubelet of the node."""
    return bool(wants.rule[wants.ask[a, ASK_RULE], NUMA_BIND] or rows.fact[i, NODE_FLAGS] & SINGLE_NUMA)


def order_cards(
    rows: Rows, wants: Wants, i: int, s: int, a: int, held: Ints, style: Ints, draw: int, work: Scratch
) -> int:
    """Write the vendor's cards into work.order, first choice first; returns how many."""
    bound, zone = is_bound(rows, wants, i, a), work.zone[0]
    alone = style[STYLE_ALONE]
    count = 0
    for d in range(rows.fact[i, CARDS]):
        if rows.card[i, d, CARD_VENDOR] != wants.ask[a, ASK_VENDOR] or (zone != NONE and rows.card[i, d, NUMA] != zone):
            continue
        card = see_card(rows, wants, i, d, s, a, held, draw)
        work.keys[d, 0] = style[STYLE_NUMA_SIGN] * card.numa if bound else 0.0
        work.keys[d, 1] = key_first(card)
        work.keys[d, 2] = key_second(card)
        work.keys[d, 3] = key_third(card)
        work.keys[d, 4] = key_fourth(card)
        work.keys[d, 5] = card.numa if alone else card.ordinal
        work.keys[d, 6] = d
        at = count
        while at > 0 and sooner(work.keys, d, work.order[at - 1]):
            work.order[at] = work.order[at - 1]
            at -= 1
        work.order[at] = d
        count += 1
    return count


def slack(rows: Rows, i: int, d: int, held: Ints, work: Scratch, k: int) -> int:
    """The part of card `d` that the pod held at its peak and does not hold now: it costs no quota a second time."""
    return int(work.peak[d, k] - (held[d, k] - rows.held[i, d, k]))


def collect(
    rows: Rows,
    wants: Wants,
    i: int,
    a: int,
    held: Ints,
    left: Ints,
    style: Ints,
    wants_set: Int,
    start: Int,
    stop: Int,
    work: Scratch,
) -> int:
    """Write the cards of work.order[start:stop] that fit into work.fitting; returns how many.

    Stops at enough cards, unless a set is chosen from all of them.
    """
    vendor, count = wants.ask[a, ASK_VENDOR], wants.ask[a, ASK_COUNT]
    memory_left, compute_left = left[vendor, 0], left[vendor, 1]
    if wants_set:  # any subset may be chosen, so each card may use only its part of the quota
        memory_left, compute_left = memory_left // count, compute_left // count
    got, alone = 0, only_idle(wants, a, style[STYLE_IDLE_ONLY])
    for n in range(start, stop):
        d = work.order[n]
        spare, idle = slack(rows, i, d, held, work, CARD_MEMORY), slack(rows, i, d, held, work, COMPUTE)
        if card_refusal(rows, wants, i, d, a, held, alone, memory_left + spare, compute_left + idle) == 0:
            work.fitting[got] = d
            got += 1
            if not wants_set:
                memory_left -= max(0, memory_on(rows, wants, i, d, a) - spare)
                compute_left -= max(0, wants.ask[a, ASK_COMPUTE] - idle)
                if got == count:
                    return got
    return got


def closeness(rows: Rows, i: int, cards: Ints, count: int) -> int:
    total = 0
    for x in range(count):
        for y in range(x):
            total += link_between(rows, i, cards[x], cards[y])
    return total


def choose(
    rows: Rows,
    wants: Wants,
    i: int,
    s: int,
    a: int,
    held: Ints,
    left: Ints,
    style: Ints,
    draw: int,
    work: Scratch,
) -> bool:
    """Choose the cards for one ask, into work.best; returns whether there are enough.

    With numa-bind, all cards come from one NUMA node.
    """
    count = wants.ask[a, ASK_COUNT]
    bound = is_bound(rows, wants, i, a)
    cards = order_cards(rows, wants, i, s, a, held, style, draw, work)
    best = NONE
    start: Int = np.int64(0)  # numba gives a literal its own type, and would compile everything below twice
    while start < cards:
        stop: Int = cards
        if bound:
            stop = start + 1
            while stop < cards and rows.card[i, work.order[stop], NUMA] == rows.card[i, work.order[start], NUMA]:
                stop += 1
        got = collect(rows, wants, i, a, held, left, style, style[STYLE_SET], start, stop, work)
        if got < count and style[STYLE_SET]:  # not every set fits the quota, but the first cards may
            got = collect(rows, wants, i, a, held, left, style, np.int64(0), start, stop, work)
        if got >= count:
            if got == count:
                no_set(rows, i, wants, s, a, held, work.fitting, got, work.chosen, work.room)
            else:
                choose_set(rows, i, wants, s, a, held, work.fitting, got, work.chosen, work.room)
            total = closeness(rows, i, work.chosen, count) if style[STYLE_SET] else 0
            if total > best:
                best = total
                for n in range(count):
                    work.best[n] = work.chosen[n]
            if not style[STYLE_SET]:
                return True
        start = stop
    return bool(best > NONE)


def take(rows: Rows, wants: Wants, i: int, a: int, held: Ints, left: Ints, work: Scratch, picked: Int) -> Int:
    """Add the chosen cards of one ask to the working copy and to the list; returns the list's length."""
    vendor, compute = wants.ask[a, ASK_VENDOR], wants.ask[a, ASK_COMPUTE]
    for n in range(wants.ask[a, ASK_COUNT]):
        d = work.best[n]
        memory = memory_on(rows, wants, i, d, a)
        more = max(0, memory - slack(rows, i, d, held, work, CARD_MEMORY))
        busier = max(0, compute - slack(rows, i, d, held, work, COMPUTE))
        held[d, SLOTS] += 1
        held[d, CARD_MEMORY] += memory
        held[d, COMPUTE] += compute
        work.peak[d, CARD_MEMORY] += more
        work.peak[d, COMPUTE] += busier
        left[vendor, 0] -= more
        left[vendor, 1] -= busier
        work.picked[picked, 0] = a
        work.picked[picked, 1] = d
        work.picked[picked, 2] = memory
        picked += 1
    return picked


def copy_into(target: Ints, source: Ints) -> None:
    """Copy element by element: a slice assignment takes numba five seconds more to compile."""
    for x in range(source.shape[0]):
        for y in range(source.shape[1]):
            target[x, y] = source[x, y]


def choose_all(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Choose cards for every container, into work.picked; returns how many, or NONE minus the ask that found none.

    Where kubelet wants all cards of a pod on one NUMA node, the lowest on which they fit.
    """
    asks = wants.shape[s, LAST_ASK] - wants.shape[s, FIRST_ASK]
    if asks < 2 or rows.fact[i, NODE_FLAGS] & ONE_NUMA_PER_POD == 0:
        return choose_each(rows, wants, i, s, style, quota, draw, work)
    zone, found = next_zone(rows, i, NONE), NONE
    while zone != NONE:
        work.zone[0] = zone
        found = choose_each(rows, wants, i, s, style, quota, draw, work)
        work.zone[0] = NONE
        if found >= 0:
            return found
        zone = next_zone(rows, i, zone)
    return found


def next_zone(rows: Rows, i: int, after: int) -> int:
    """The lowest NUMA node of the node's cards above `after`, or NONE."""
    lowest = NONE
    for d in range(rows.fact[i, CARDS]):
        zone = rows.card[i, d, NUMA]
        if zone > after and (lowest == NONE or zone < lowest):
            lowest = zone
    return int(lowest)


def choose_each(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Choose cards for one container after the other.

    Init containers run alone, one after another: each starts from the sidecars before it. The other containers add up.
    A quota counts each card at its peak.
    """
    copy_into(work.run, rows.held[i])
    copy_into(work.left, quota)
    for d in range(rows.fact[i, CARDS]):
        work.peak[d, CARD_MEMORY] = 0
        work.peak[d, COMPUTE] = 0
    picked: Int = np.int64(0)
    trial_of = NONE
    for a in range(wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]):
        held = work.run
        if wants.ask[a, ASK_KIND] == _INIT:
            if wants.ask[a, ASK_CONTAINER] != trial_of:
                trial_of = wants.ask[a, ASK_CONTAINER]
                copy_into(work.trial, work.run)
            held = work.trial
        if not choose(rows, wants, i, s, a, held, work.left, style, draw, work):
            return int(NONE - (a - wants.shape[s, FIRST_ASK]))
        picked = take(rows, wants, i, a, held, work.left, work, picked)
    return int(picked)


def enough_cards(rows: Rows, wants: Wants, i: int, a: int, style: Ints) -> int:
    """Check a pod with one ask and no quota, the usual case: 0 if enough cards fit, else the reason.

    Chooses no card.
    """
    count, found, alone = wants.ask[a, ASK_COUNT], 0, only_idle(wants, a, style[STYLE_IDLE_ONLY])
    for d in range(rows.fact[i, CARDS]):
        if not card_fits(rows, wants, i, d, a, alone):
            continue
        if rows.card[i, d, CARD_VENDOR] == wants.ask[a, ASK_VENDOR]:
            found += 1
            if found == count:
                return 0
    return _TOO_FEW_FIT if found > 0 else last_refusal(rows, wants, i, a, style)


def last_refusal(rows: Rows, wants: Wants, i: int, a: int, style: Ints) -> int:
    """The reason of the vendor's last card."""
    held, reason, alone = rows.held[i], 0, only_idle(wants, a, style[STYLE_IDLE_ONLY])
    for d in range(rows.fact[i, CARDS]):
        if rows.card[i, d, CARD_VENDOR] == wants.ask[a, ASK_VENDOR]:
            reason = card_refusal(rows, wants, i, d, a, held, alone, UNLIMITED, UNLIMITED)
    return int(reason)


def node_refusal(rows: Rows, wants: Wants, i: int, s: int, style: Ints, quota: Ints, draw: int, work: Scratch) -> int:
    """Why node `i` cannot take shape `s` now, or 0."""
    short = node_shortage(rows, wants, i, s)
    if short != 0:
        return short
    first, last = wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]
    if first == last:
        return 0
    refused, at = 0, last
    for a in range(first, last):
        refused = ask_refusal(rows, wants, i, a)
        if refused != 0:
            at = a
            break
    if at == first:
        return refused
    vendor = wants.ask[first, ASK_VENDOR]
    plain = last - first == 1 and not is_bound(rows, wants, i, first)
    if plain and quota[vendor, 0] == UNLIMITED and quota[vendor, 1] == UNLIMITED:
        return enough_cards(rows, wants, i, first, style)
    found = choose_all(rows, wants, i, s, style, quota, draw, work)
    failed = first + (NONE - found)
    if found >= 0 or at <= failed:  # of several asks, the first that fails gives the reason
        return refused
    lacking = enough_cards(rows, wants, i, failed, style)
    return lacking if lacking != 0 else _TOO_FEW_FIT
