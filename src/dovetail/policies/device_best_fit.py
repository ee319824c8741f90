"""The card with least left that still fits; of equal ones the first (as in the FGD paper)."""

from __future__ import annotations

from dovetail.policies.cards import WHOLE
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    left = WHOLE
    if card.compute_used > 0:
        left = min(left, (card.compute - card.compute_used) * WHOLE // max(1, card.compute))
    if card.memory_used > 0:
        left = min(left, (card.memory - card.memory_used) * WHOLE // max(1, card.memory))
    return float(-left * 1024 - card.ordinal)


POLICY = DevicePolicy("best-fit", "The card with least left that fits; of equal ones the first.", key)
