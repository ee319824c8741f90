"""The group of cards with the fewest free ones that are enough, so that other groups stay whole (gpu-manager).

gpu-manager's fragment mode (pkg/algorithm/nvidia/fragment.go): from the root of the topology tree, go down into the
group with the fewest free cards, while there is one with enough; take its first free cards.
"""

from __future__ import annotations

from dovetail.policies.device_link import first_key
from dovetail.policies.rows import ASK_COUNT, CARDS, DevicePolicy, Ints, Rows, Wants
from dovetail.policies.topology_tree import (
    ALL_CARDS,
    free_in_group,
    in_group,
    is_of_vendor,
    mark,
    nearness,
    take_from_group,
)

NO_LEVEL = -2


def choose_fragment(
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
    """Write as many of the first `fits` entries of `fitting` into `chosen` as the pod asks for."""
    count, free = wants.ask[a, ASK_COUNT], room[0]
    mark(fitting, fits, rows.fact[i, CARDS], free)
    level, first = ALL_CARDS, fitting[0]
    while True:
        below = level_below(rows, i, wants, a, first, level)
        if below == NO_LEVEL:
            break
        child, fewest = -1, fits + 1
        for c in range(rows.fact[i, CARDS]):
            if not is_of_vendor(rows, i, wants, a, c) or not in_group(rows, i, first, level, c):
                continue
            there = free_in_group(rows, i, c, below, free)
            if count <= there < fewest and has_neighbour(rows, i, wants, a, c, below):
                child, fewest = c, there
        if child < 0:
            break
        first, level = child, below
    take_from_group(rows, i, first, level, free, count, chosen)


def level_below(rows: Rows, i: int, wants: Wants, a: int, first: int, level: int) -> int:
    """The next closer level of links inside the group; NO_LEVEL if all links there are the same."""
    found = NO_LEVEL
    for c in range(rows.fact[i, CARDS]):
        if not is_of_vendor(rows, i, wants, a, c) or not in_group(rows, i, first, level, c):
            continue
        for d in range(c):
            if not is_of_vendor(rows, i, wants, a, d) or not in_group(rows, i, first, level, d):
                continue
            near = nearness(rows, i, c, d)
            if near > level and (found == NO_LEVEL or near < found):
                found = near
    return found


def has_neighbour(rows: Rows, i: int, wants: Wants, a: int, c: int, level: int) -> bool:
    """Whether the group of card `c` has another card, in use or not: a single card is no group."""
    for d in range(rows.fact[i, CARDS]):
        if d != c and is_of_vendor(rows, i, wants, a, d) and nearness(rows, i, c, d) >= level:
            return True
    return False


POLICY = DevicePolicy(
    "fragment",
    "The group of cards with the fewest free ones that are enough: other groups stay whole (gpu-manager).",
    alone_key=first_key,
    choose=choose_fragment,
)
