"""What an ask takes of a card, and how well two cards are connected."""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_MEMORY,
    ASK_PERCENT,
    CARD_MEMORY,
    COMPUTE,
    NODE_FLAGS,
    STOCK,
    Rows,
    Wants,
)


def memory_on(rows: Rows, wants: Wants, i: int, d: int, a: int) -> int:
    """MiB that the ask takes of the card; a percentage is cut to whole MiB as in HAMi. Stock nodes give whole cards."""
    percent = wants.ask[a, ASK_PERCENT]
    if percent >= 0:
        return int(rows.card[i, d, CARD_MEMORY] * percent // 100)
    if rows.fact[i, NODE_FLAGS] & STOCK:
        return int(rows.card[i, d, CARD_MEMORY])
    return int(wants.ask[a, ASK_MEMORY])


def milli_on(rows: Rows, wants: Wants, i: int, d: int, a: int) -> int:
    """Milli of the card that the ask takes: the larger part of its compute and of its memory."""
    part, total = wants.ask[a, ASK_COMPUTE], rows.card[i, d, COMPUTE]
    if total != WHOLE_CARD:
        part = part * WHOLE_CARD // max(1, total)
    memory = memory_on(rows, wants, i, d, a)
    if memory > 0:
        part = max(part, -(-memory * WHOLE_CARD // max(1, rows.card[i, d, CARD_MEMORY])))
    return int(min(part, WHOLE_CARD))


def link_between(rows: Rows, i: int, a: int, b: int) -> int:
    """The pair score of two cards of a node; 0 outside the table, which covers only nodes that state pair scores."""
    width = rows.link.shape[1]
    return int(rows.link[i, a, b]) if a < width and b < width else 0


def part_left(compute: int, compute_held: int, memory: int, memory_held: int) -> int:
    """Milli of a card that are left: the smaller part of its free compute and of its free memory."""
    left = WHOLE_CARD
    if compute_held > 0:
        free = compute - compute_held
        left = free if compute == WHOLE_CARD else free * WHOLE_CARD // max(1, compute)
    if memory_held > 0:
        left = min(left, (memory - memory_held) * WHOLE_CARD // max(1, memory)) if memory > memory_held else 0
    return max(0, left)
