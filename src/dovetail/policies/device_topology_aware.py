"""The best-connected set of cards (HAMi): highest sum of pair scores; a single card is the worst-connected one.

The set is chosen among all cards that fit, in the order of spread; the first of equal sets wins. A single card is the
one whose links are needed least. If there are too many sets to check (8 of 16 cards are not too many), the set grows
card by card.
"""

from __future__ import annotations

from dovetail.policies import device_spread
from dovetail.policies.cards import link_between
from dovetail.policies.rows import ASK_COUNT, DevicePolicy, Ints, Rows, Wants

MAX_CARD_SETS = 13_000  # 8 of 16 are 12,870


def choose(
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
    """Write as many of the first `fits` entries of `fitting` into `chosen` as the pod asks for, in their order."""
    count = wants.ask[a, ASK_COUNT]
    if count == 1:
        least, at = -1, 0
        for x in range(fits):
            total = 0
            for b in range(fits):
                total += link_between(rows, i, fitting[x], fitting[b])
            if least < 0 or total < least:
                least, at = total, x
        chosen[0] = fitting[at]
        return
    pick, sums = room[0], room[1]
    if sets(fits, count) > MAX_CARD_SETS:
        grow(rows, i, fitting, fits, count, pick, sums)
        for n in range(count):
            chosen[n] = fitting[pick[n]]
        return
    # Check all subsets in lexicographic order, keeping the sum of pairs of each prefix.
    sums[0] = 0
    best, depth, start = -1, 0, 0
    while True:
        if depth == count:
            if sums[depth] > best:
                best = sums[depth]
                for n in range(count):
                    chosen[n] = fitting[pick[n]]
            depth -= 1
            start = pick[depth] + 1
        elif start <= fits - (count - depth):
            gain = 0
            for n in range(depth):
                gain += link_between(rows, i, fitting[pick[n]], fitting[start])
            pick[depth] = start
            sums[depth + 1] = sums[depth] + gain
            depth += 1
            start += 1
        else:
            depth -= 1
            if depth < 0:
                return
            start = pick[depth] + 1


def sets(fits: int, count: int) -> int:
    """The number of sets; counting stops above MAX_CARD_SETS."""
    total = 1
    for n in range(1, min(count, fits - count) + 1):
        total = total * (fits - n + 1) // n
        if total > MAX_CARD_SETS:
            break
    return total


def grow(rows: Rows, i: int, fitting: Ints, fits: int, count: int, pick: Ints, gain: Ints) -> None:
    """Write `count` positions in `fitting` into `pick`, in order.

    Start with the best pair, then always add the card that is closest to all chosen ones.
    """
    best, first = -1, 0
    for x in range(fits):
        gain[x] = 0
        for y in range(fits):
            if y != x and link_between(rows, i, fitting[x], fitting[y]) > best:
                best, first = link_between(rows, i, fitting[x], fitting[y]), x
    newest = first
    for n in range(count):
        at = n
        while at > 0 and pick[at - 1] > newest:
            pick[at] = pick[at - 1]
            at -= 1
        pick[at] = newest
        gain[newest] = -1
        following = -1
        for x in range(fits):
            if gain[x] >= 0:
                gain[x] += link_between(rows, i, fitting[newest], fitting[x])
                if following < 0 or gain[x] > gain[following]:
                    following = x
        newest = following


POLICY = DevicePolicy(
    "topology-aware",
    "The best-connected set of cards; a single card where the links are missed least (HAMi).",
    alone_key=device_spread.key,
    choose=choose,
)
