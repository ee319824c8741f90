"""What an ask takes of a card, and how two cards are joined."""

from __future__ import annotations

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

WHOLE = 1000  # milli


def memory_on(rows: Rows, wants: Wants, i: int, d: int, a: int) -> int:
    """MiB this ask takes of this card; a percentage is cut to whole MiB as HAMi does. Stock nodes give whole cards."""
    percent = wants.ask[a, ASK_PERCENT]
    if percent >= 0:
        return int(rows.card[i, d, CARD_MEMORY] * percent // 100)
    if rows.fact[i, NODE_FLAGS] & STOCK:
        return int(rows.card[i, d, CARD_MEMORY])
    return int(wants.ask[a, ASK_MEMORY])


def milli_on(rows: Rows, wants: Wants, i: int, d: int, a: int) -> int:
    """Of the card as a whole: the larger of the parts of compute and of memory."""
    part, total = wants.ask[a, ASK_COMPUTE], rows.card[i, d, COMPUTE]
    if total != WHOLE:
        part = part * WHOLE // max(1, total)
    memory = memory_on(rows, wants, i, d, a)
    if memory > 0:
        part = max(part, -(-memory * WHOLE // max(1, rows.card[i, d, CARD_MEMORY])))
    return int(min(part, WHOLE))


def link_between(rows: Rows, i: int, a: int, b: int) -> int:
    """The pair score of two cards of a node. The table is as wide as the nodes that state scores need it."""
    width = rows.link.shape[1]
    return int(rows.link[i, a, b]) if a < width and b < width else 0


def part_left(compute: int, compute_held: int, memory: int, memory_held: int) -> int:
    """Milli of a card that are left: the smaller of what is left of its compute and of its memory."""
    left = WHOLE
    if compute_held > 0:
        free = compute - compute_held
        left = free if compute == WHOLE else free * WHOLE // max(1, compute)
    if memory_held > 0:
        left = min(left, (memory - memory_held) * WHOLE // max(1, memory)) if memory > memory_held else 0
    return max(0, left)
