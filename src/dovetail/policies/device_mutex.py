"""Only cards that no pod uses (HAMi). In a chain it filters, and the other policies order the cards."""

from __future__ import annotations

from dovetail.policies.rows import Card, DevicePolicy


def alone(card: Card) -> float:
    return -float(card.slots_used)


POLICY = DevicePolicy("mutex", "Only cards that nobody uses (HAMi).", alone_key=alone, idle_only=True)
