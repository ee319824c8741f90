"""Amounts by resource name: what the cluster has, what a pod asks for, and what it holds.

A card counts in `gpus` by the larger part of its memory and its compute that the pod has, in milli; as a whole card if
the pod states neither. A model matches as HAMi's GPU types do: `A100` is a run of whole words of the product name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.engine.kernel.state import NONE, POD_ENTRY
from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.device import Device, type_matches
from dovetail.model.node import PODS, Enforcer, Node
from dovetail.model.pod import DeviceAsk, Pod
from dovetail.model.rights import GPU_AMOUNTS, GPU_COMPUTE, GPU_MEMORY, GPUS, gpu_amount
from dovetail.model.units import WHOLE_CARD

MAX_KEPT_ASKS = 4_096
Amounts = dict[str, int]


class CardKind(NamedTuple):
    """Cards that count the same."""

    vendor: str
    model: str
    memory_mib: int
    compute_milli: int
    stock: bool = False  # its node gives whole cards only


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks for, before it has a place: the most that it can count as."""

    plain: Mapping[str, int]  # by resource, without GPU models
    by_model: Mapping[str, Mapping[str, int]]  # named GPU model -> `gpus`, `gpu-memory`, `gpu-compute` on such cards
    kinds: tuple[CardKind, ...]  # the cards of the cluster that the pod's own rules accept
    all: Mapping[str, int]  # with GPU models: for each model that it could use


class Holding(NamedTuple):
    """What a pod holds of the tracked resources."""

    amounts: Amounts
    products: frozenset[str]  # product names of its cards


class Measures:
    """The resources that queues name, and what the active nodes have of them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.tracked: frozenset[str] = frozenset()  # resource names, with `gpus/A100`
        self.models: tuple[str, ...] = ()  # GPU models that queues name
        self._matching: dict[str, tuple[str, ...]] = {}  # product name -> the named models that match it
        self._counted: list[Node | None] = []  # by row: the node as it was counted
        self._resources: Counter[str] = Counter()
        self._cards: Counter[CardKind] = Counter()
        self._written = -1
        self._totals: Amounts = {}
        self._asks: dict[tuple[int, int, int], tuple[Asked, tuple[object, ...]]] = {}
        self.kinds: frozenset[CardKind] = frozenset()  # of the cluster: what a pod counts as depends on them
        self.version = 0  # grows with every change of the totals or of the tracked resources

    def track(self, resources: Collection[str]) -> bool:
        """Count these resources from now on; returns whether they are others than before."""
        if self.tracked == frozenset(resources):
            return False
        self.tracked = frozenset(resources)
        self.models = tuple(sorted({gpu_amount(resource)[1] for resource in resources} - {""}))
        self._matching.clear()
        self._forget()
        return True

    def _forget(self) -> None:
        self._totals.clear()
        self._asks.clear()
        self.version += 1

    # ---- the cluster --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Count the nodes that are different since the last call. Only nodes that changed cost more than a glance."""
        ledger = self._ledger
        if ledger.places.written == self._written:
            return
        self._written = ledger.places.written
        nodes = ledger.nodes
        now = [node if ledger.is_active(row) else None for row, node in enumerate(nodes)]
        before = self._counted + [None] * (len(now) - len(self._counted))
        for old, new in zip(before, now + [None] * (len(before) - len(now)), strict=True):
            if old is not new:
                self._count(old, -1)
                self._count(new, 1)
        self._counted, self.kinds = now, frozenset(self._cards)
        self._forget()

    def _count(self, node: Node | None, sign: int) -> None:
        if node is None:
            return
        for resource, amount in node.allocatable.items():
            self._resources[resource] += sign * amount
        for device in node.devices:
            if device.healthy and not device.quarantined:
                kind = _kind(device, node.enforcer is Enforcer.STOCK)
                self._cards[kind] += sign
                if not self._cards[kind]:
                    del self._cards[kind]

    def total(self, resource: str) -> int:
        """What the active nodes have of the resource. Unhealthy cards do not count."""
        self.refresh()
        known = self._totals.get(resource)
        if known is None:
            kind, model = gpu_amount(resource)
            known = self._total_of_cards(kind, model) if kind else self._resources[resource]
            self._totals[resource] = known
        return known

    def _total_of_cards(self, what: str, model: str) -> int:
        kinds = [kind for kind in self._cards if not model or model in self.matching(kind.model)]
        column = GPU_AMOUNTS.index(what)
        return sum(self._cards[kind] * (WHOLE_CARD, kind.memory_mib, kind.compute_milli)[column] for kind in kinds)

    def matching(self, product: str) -> tuple[str, ...]:
        """The named models that cards of this product name count for."""
        known = self._matching.get(product)
        if known is None:
            known = tuple(model for model in self.models if type_matches(product, model))
            self._matching[product] = known
        return known

    # ---- pods ---------------------------------------------------------------------------------------------------

    def asked(self, pod: Pod) -> Asked:
        """What the pod asks for. On a mixed cluster, it counts as on the card where it counts most."""
        self.refresh()
        parts = (pod.resources, pod.containers, pod.device_rules)
        key = (id(pod.resources), id(pod.containers), id(pod.device_rules))
        if key not in self._asks:
            if len(self._asks) >= MAX_KEPT_ASKS:
                self._asks.clear()
            self._asks[key] = (self._read(pod), parts)
        return self._asks[key][0]

    def _read(self, pod: Pod) -> Asked:
        plain = {resource: amount for resource, amount in pod.resources.items() if resource in self.tracked and amount}
        if PODS in self.tracked:
            plain[PODS] = 1
        asks = [ask for container in pod.containers for ask in container.asks if ask.count > 0]
        kinds = tuple(kind for kind in sorted(self._cards) if any(_accepts(pod, ask, kind) for ask in asks))
        if asks:
            plain.update(
                {what: most for what, most in _most(pod, asks, kinds).items() if most and what in self.tracked}
            )
        by_model = {}
        for model in self.models if asks else ():
            mine = tuple(kind for kind in kinds if model in self.matching(kind.model))
            if mine:
                by_model[model] = _most(pod, asks, mine)
        models = {f"{what}/{model}": most for model, one in by_model.items() for what, most in one.items() if most}
        everything = {resource: amount for resource, amount in {**plain, **models}.items() if resource in self.tracked}
        return Asked(plain, by_model, kinds, everything)

    def held(self, pod: Pod, slot: int) -> Holding:
        """What the pod at this slot of the ledger holds."""
        tracked = self.tracked
        amounts = {resource: amount for resource, amount in pod.resources.items() if resource in tracked and amount}
        if PODS in tracked:
            amounts[PODS] = 1
        if self._ledger.book.pod.item(slot, POD_ENTRY) == NONE:
            return Holding(amounts, frozenset())
        cards = self._ledger.peak(slot)
        for device, _slots, memory, compute in cards:
            share = {GPUS: _part(_kind(device), memory, compute), GPU_MEMORY: memory, GPU_COMPUTE: compute}
            for what, amount in share.items():
                for resource in (what, *(f"{what}/{model}" for model in self.matching(device.model))):
                    if amount and resource in tracked:
                        amounts[resource] = amounts.get(resource, 0) + amount
        return Holding(amounts, frozenset(card[0].model for card in cards))


def _kind(device: Device, stock: bool = False) -> CardKind:
    return CardKind(device.vendor, device.model, device.memory_mib, device.compute_milli, stock)


def _part(kind: CardKind, memory: int, compute: int) -> int:
    """Milli of a card: the larger part of its compute and of its memory (policies/cards.py milli_on)."""
    if not memory and not compute:
        return WHOLE_CARD
    part = compute * WHOLE_CARD // max(1, kind.compute_milli)
    if memory > 0:
        part = max(part, -(-memory * WHOLE_CARD // max(1, kind.memory_mib)))
    return min(part, WHOLE_CARD)


def _accepts(pod: Pod, ask: DeviceAsk, kind: CardKind) -> bool:
    fits = ask.memory_percent is not None or ask.memory_mib <= kind.memory_mib
    return ask.vendor == kind.vendor and fits and pod.rules_for(ask.vendor).accepts(kind.model)


def _most(pod: Pod, asks: Iterable[DeviceAsk], kinds: Collection[CardKind]) -> Amounts:
    """The most that the asks count as on cards of these kinds, each ask where it counts most."""
    most = dict.fromkeys(GPU_AMOUNTS, 0)
    for ask in asks:
        on = [_share(ask, kind) for kind in kinds if _accepts(pod, ask, kind)]
        if not on and not kinds:
            on = [_share(ask, CardKind(ask.vendor, "", ask.memory_mib, WHOLE_CARD))]  # the cluster has no such card
        for n, what in enumerate(GPU_AMOUNTS):
            most[what] += ask.count * max((share[n] for share in on), default=0)
    return most


def _share(ask: DeviceAsk, kind: CardKind) -> tuple[int, int, int]:
    """What one card of the ask counts as: milli of a card, MiB, milli of compute."""
    percent = ask.memory_percent
    if percent is None:
        memory = kind.memory_mib if kind.stock else ask.memory_mib
    else:
        memory = kind.memory_mib * percent // 100
    return _part(kind, memory, ask.compute_milli), memory, ask.compute_milli
