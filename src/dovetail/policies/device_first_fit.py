"""Baseline: the card with the lowest index that fits."""

from __future__ import annotations

from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return -float(card.ordinal)


POLICY = DevicePolicy("first-fit", "Baseline: the card with the lowest index that fits.", key)
