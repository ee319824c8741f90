"""A node's cards as a tree of ever closer groups, by their pair scores and NUMA nodes; used by link and fragment.

Two cards are in one group of a level if they are at least so near. gpu-manager builds the same tree from the output of
`nvidia-smi topo --matrix` (pkg/device/nvidia/tree.go).
"""

from __future__ import annotations

from dovetail.policies.cards import link_between
from dovetail.policies.rows import ASK_VENDOR, CARD_VENDOR, CARDS, FLAGS, NUMA, QUARANTINED, Ints, Rows, Wants

ALL_CARDS = -1  # the level of the group of all cards


def nearness(rows: Rows, i: int, a: int, b: int) -> int:
    """How near two cards are: their pair score; without one, 1 in the same NUMA node and 0 otherwise."""
    link = link_between(rows, i, a, b)
    if link > 0:
        return link
    return 1 if rows.card[i, a, NUMA] == rows.card[i, b, NUMA] else 0


def in_group(rows: Rows, i: int, first: int, level: int, d: int) -> bool:
    """Whether card `d` is in the group of card `first` at this level."""
    return bool(level == ALL_CARDS or d == first or nearness(rows, i, first, d) >= level)


def is_of_vendor(rows: Rows, i: int, wants: Wants, a: int, d: int) -> bool:
    return bool(rows.card[i, d, CARD_VENDOR] == wants.ask[a, ASK_VENDOR] and rows.card[i, d, FLAGS] & QUARANTINED == 0)


def mark(fitting: Ints, fits: int, cards: int, free: Ints) -> None:
    """Write 1 for each card that fits into `free`, else 0."""
    for d in range(cards):
        free[d] = 0
    for n in range(fits):
        free[fitting[n]] = 1


def free_in_group(rows: Rows, i: int, first: int, level: int, free: Ints) -> int:
    total = 0
    for d in range(rows.fact[i, CARDS]):
        if free[d] == 1 and in_group(rows, i, first, level, d):
            total += 1
    return total


def take_from_group(rows: Rows, i: int, first: int, level: int, free: Ints, count: int, chosen: Ints) -> None:
    """Write the first `count` free cards of the group into `chosen`, in the order of the node."""
    got = 0
    for d in range(rows.fact[i, CARDS]):
        if got < count and free[d] == 1 and in_group(rows, i, first, level, d):
            chosen[got] = d
            got += 1
