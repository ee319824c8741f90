"""Whether the nodes of a cluster could ever take a request for cards, were they empty.

Necessary conditions only: what a node has, not what is free of it. The engine decides; this says early what will never
fit, so that a person need not wait for a pod that cannot start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import DeviceAsk, DeviceRules, Pod


def impossible(pod: Pod, nodes: Collection[Node]) -> str:
    """Why no node could take one of the pod's requests for cards; "" = some node could. No nodes = not known."""
    if not nodes:
        return ""
    rules = {rule.vendor: rule for rule in pod.device_rules}
    for container in pod.containers:
        for ask in container.asks:
            why = _why_not(ask, rules.get(ask.vendor), nodes)
            if why:
                return f"container {container.name}: {why}"
    return ""


def _why_not(ask: DeviceAsk, rules: DeviceRules | None, nodes: Iterable[Node]) -> str:
    """Why no node has the cards, by the first condition that all nodes fail."""
    having = [(node, [card for card in node.devices if card.vendor == ask.vendor]) for node in nodes]
    having = [(node, cards) for node, cards in having if cards]
    if not having:
        return f"no node of the cluster has a card of {ask.vendor}"
    accepted = [
        (node, [card for card in cards if rules is None or rules.accepts(card.model)]) for node, cards in having
    ]
    accepted = [(node, cards) for node, cards in accepted if cards]
    if not accepted:
        models = sorted({card.model for _, cards in having for card in cards})[:5]
        return f"no node has a card of a type that its annotations accept; there are {', '.join(models)}"
    sharing = [(node, cards) for node, cards in accepted if ask.whole or node.enforcer is not Enforcer.STOCK]
    if not sharing:
        return (
            "it asks for a part of a card, and on every node with such cards the vendor's own device plugin gives out"
            " whole cards only; ask for whole cards, or install HAMi's or Dovetail's plugin on a node"
        )
    largest = [sum(_is_large_enough(card, ask) for card in cards) for _, cards in sharing]
    if max(largest) >= ask.count:
        return ""
    most = max(len(cards) for _, cards in sharing)
    if most < ask.count:
        return f"it asks for {ask.count} cards of one node, and no node has more than {most}"
    memory = max(card.memory_mib for _, cards in sharing for card in cards)
    return (
        f"it asks for {ask.count} card{'s' * (ask.count > 1)} with {ask.memory_mib:,} MiB each on one node, and no node"
        f" has as many so large; the largest card has {memory:,} MiB"
    )


def _is_large_enough(card: Device, ask: DeviceAsk) -> bool:
    return card.memory_mib >= ask.memory_mib and card.compute_milli >= ask.compute_milli
