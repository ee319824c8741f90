"""The NUMA nodes of a node, as its cards register them: how many cards of each could serve an ask.

A NUMA node is named by its first card, so that no list is needed.
"""

from __future__ import annotations

from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_IDLE,
    ASK_RULE,
    ASK_VENDOR,
    CARD_KIND,
    CARD_VENDOR,
    CARDS,
    FREE_COMPUTE,
    FREE_MEMORY,
    NUMA,
    SLOTS,
    Rows,
    Wants,
)


def could_serve(rows: Rows, wants: Wants, i: int, d: int, a: int) -> bool:
    """Whether the card has room for the ask, and is of a kind that it accepts."""
    if rows.card[i, d, CARD_VENDOR] != wants.ask[a, ASK_VENDOR]:
        return False
    if rows.free[i, d, FREE_COMPUTE] < wants.ask[a, ASK_COMPUTE] or (
        wants.ask[a, ASK_IDLE] and rows.held[i, d, SLOTS] > 0
    ):
        return False
    enough = rows.free[i, d, FREE_MEMORY] >= memory_on(rows, wants, i, d, a)
    return bool(enough and wants.kind_ok[wants.ask[a, ASK_RULE], rows.card[i, d, CARD_KIND]] != 0)


def starts_zone(rows: Rows, i: int, d: int) -> bool:
    """Whether card `d` is the first of its NUMA node."""
    first = True
    for other in range(d):
        first = first and rows.card[i, other, NUMA] != rows.card[i, d, NUMA]
    return first


def cards_of_zone(rows: Rows, wants: Wants, i: int, first: int, a: int) -> int:
    """The number of cards that could serve the ask, on the NUMA node of card `first`."""
    count = 0
    for d in range(first, rows.fact[i, CARDS]):
        if rows.card[i, d, NUMA] == rows.card[i, first, NUMA] and could_serve(rows, wants, i, d, a):
            count += 1
    return count


def zones_needed(rows: Rows, wants: Wants, i: int, a: int, count: int) -> int:
    """The smallest number of NUMA nodes whose cards together serve an ask for `count` cards; 0 if all do not."""
    left, zones, limit = count, 0, 2**62
    while left > 0:
        most, alike = 0, 0  # the most cards of a NUMA node below the limit, and how many NUMA nodes have so many
        for d in range(rows.fact[i, CARDS]):
            if starts_zone(rows, i, d):
                cards = cards_of_zone(rows, wants, i, d, a)
                if cards < limit and cards > most:
                    most, alike = cards, 1
                elif cards == most and most > 0:
                    alike += 1
        if most == 0:
            return 0
        while alike > 0 and left > 0:
            left, zones, alike = left - most, zones + 1, alike - 1
        limit = most
    return zones
