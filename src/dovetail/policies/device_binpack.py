"""Fill the fullest card first, so that whole cards stay whole (HAMi)."""

from __future__ import annotations

from dovetail.policies.hami_score import card_busyness
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return card_busyness(card)


POLICY = DevicePolicy(
    "binpack", "Fill the fullest card first, so that whole cards stay whole (HAMi).", key, lowest_numa_first=True
)
