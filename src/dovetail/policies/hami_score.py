"""HAMi's two scores (pkg/scheduler/policy): how busy a node is, and how busy a card would be.

They use 64-bit floats and always count the request. HAMi compares the request's vendor word with the card's model name,
which never match on real nodes.
"""

from __future__ import annotations

from dovetail.policies.rows import CARD_MEMORY, COMPUTE, IN_USE, SLOTS, Card, Rows


def node_busyness(rows: Rows, i: int) -> float:
    """The use of the node from 0 (idle) to 30 (full).

    Ten times the sum of the used parts of slots, compute and memory over all cards of all vendors.
    """
    slots, compute, memory = rows.sums[i, SLOTS], rows.sums[i, COMPUTE], rows.sums[i, CARD_MEMORY]
    if slots == 0 or compute == 0 or memory == 0:
        return 0.0
    used = rows.sums[i, IN_USE + SLOTS] / slots + rows.sums[i, IN_USE + COMPUTE] / compute
    return float(10.0 * (used + rows.sums[i, IN_USE + CARD_MEMORY] / memory))


def card_busyness(card: Card) -> float:
    """The card's use with this container on it, each part weighted by the pod's `device-scoring-weights`."""
    if card.slots == 0 or card.compute == 0 or card.memory == 0:
        return 0.0
    return 10.0 * (
        card.weight_slots * ((1 + card.slots_used) / card.slots)
        + card.weight_compute * ((card.ask_compute + card.compute_used) / card.compute)
        + card.weight_memory * ((card.ask_memory + card.memory_used) / card.memory)
    )
