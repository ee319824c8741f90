"""The emptiest card first, against contention inside a card (HAMi)."""

from __future__ import annotations

from dovetail.policies.hami_score import card_busyness
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return -card_busyness(card)


POLICY = DevicePolicy("spread", "Take the emptiest card first, against contention inside a card (HAMi).", key)
