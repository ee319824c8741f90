"""The card with the least left that still fits; among equals the first (as in the FGD paper)."""

from __future__ import annotations

from dovetail.policies.cards import part_left
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    left = part_left(card.compute, card.compute_used, card.memory, card.memory_used)
    return float(-left * 1024 - card.ordinal)


POLICY = DevicePolicy("best-fit", "The card with least left that fits; of equal ones the first.", key)
