"""Cards of one NUMA node, the highest first; usually part of a chain such as `numa,binpack` (HAMi)."""

from __future__ import annotations

from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return float(card.numa)


POLICY = DevicePolicy("numa", "Cards of the highest NUMA node first; usually in a chain (HAMi).", key, is_chain=True)
