"""A sharing rule by Kubernetes' classes: Guaranteed pods take only idle cards, the others the fullest that fits.

Together with the order `qos`, which tries Guaranteed pods first, and with preemption, where BestEffort pods yield first
(scheduler-plugins QOSSort orders by the same classes). A card with a Guaranteed pod is not closed to later pods: a pod
that wants a card to itself asks for all of it.
"""

from __future__ import annotations

from dovetail.policies.hami_score import card_busyness
from dovetail.policies.rows import Card, DevicePolicy


def key(card: Card) -> float:
    return card_busyness(card)


POLICY = DevicePolicy(
    "qos",
    "Guaranteed pods on idle cards only; the others on the fullest card that fits.",
    key,
    guaranteed_idle_only=True,
)
