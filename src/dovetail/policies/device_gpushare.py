"""The card with the least free memory that still fits; of equal ones the first (gpushare-scheduler-extender).

pkg/cache/nodeinfo.go allocateGPUID. Memory decides alone, to the MiB: gpushare shares no compute.
"""

from __future__ import annotations

from dovetail.policies.rows import Card, DevicePolicy

CARDS_OF_A_NODE = 1024  # more than a node may have: the index never outweighs a MiB


def key(card: Card) -> float:
    return float(-(card.memory - card.memory_used) * CARDS_OF_A_NODE - card.ordinal)


POLICY = DevicePolicy("gpushare", "The card with the least free memory that fits; of equal ones the first.", key)
