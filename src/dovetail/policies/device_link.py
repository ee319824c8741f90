"""The closest group of cards that has enough free ones; of these the group with the fewest free (gpu-manager).

gpu-manager's link mode (pkg/algorithm/nvidia/link.go): from each card, climb the topology tree to the first group with
enough free cards; take the group with the closest links, then the fewest free cards, then the first cards. gpu-manager
breaks ties between groups by processes on the cards too, which a scheduler does not see.
"""

from __future__ import annotations

from dovetail.policies.rows import ASK_COUNT, CARDS, Card, DevicePolicy, Ints, Rows, Wants
from dovetail.policies.topology_tree import ALL_CARDS, free_in_group, mark, nearness, take_from_group


def choose_linked(
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
    level, first, fewest = ALL_CARDS, 0, fits
    for c in range(rows.fact[i, CARDS]):
        for d in range(rows.fact[i, CARDS]):
            if free[c] == 0 or free[d] == 0 or c == d:
                continue
            near = nearness(rows, i, c, d)
            if near < level:
                continue
            there = free_in_group(rows, i, c, near, free)
            if there >= count and (near > level or there < fewest):
                level, first, fewest = near, c, there
    take_from_group(rows, i, first, level, free, count, chosen)


def first_key(card: Card) -> float:
    """The first card first."""
    return -float(card.ordinal)


POLICY = DevicePolicy(
    "link",
    "The closest group of cards with enough free ones, then the one with the fewest free (gpu-manager).",
    alone_key=first_key,
    choose=choose_linked,
)
