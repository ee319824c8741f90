"""Baseline: any card that fits, drawn by the pod's name."""

from __future__ import annotations

from dovetail.policies.dice import mix
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return float(mix(card.draw, card.ordinal + 1))


POLICY = DevicePolicy("random", "Baseline: any card that fits, drawn by pod name.", key, draws=True)
