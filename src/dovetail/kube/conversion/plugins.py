"""Device plugins of other systems, beside HAMi's: one row for each, and what nodes, pods and records mean there.

The model's name of a card is `node/vendor-index`: these plugins tell no UUIDs. Dovetail keeps its own record in HAMi's
encoding (`Vendor.allocated`), and writes the plugin's annotations beside it. A pod without our record, which the
plugin's own scheduler placed, is read from the plugin's annotations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.kube.conversion import gpu_manager, gpushare
from dovetail.kube.conversion.plugin_amounts import Handout, PluginCards
from dovetail.kube.conversion.register import MAX_CARD_NUMBER, MILLI_PER_CORE
from dovetail.kube.conversion.settled import NO_DOUBT, Doubt
from dovetail.kube.conversion.vendors import GPU_MANAGER, GPUSHARE, Vendor, Vendors
from dovetail.kube.objects.bounds import CARDS_PER_NODE, SHARES
from dovetail.kube.objects.core import Resources
from dovetail.model.device import Device
from dovetail.model.node import Enforcer
from dovetail.model.pod import ContainerKind, DeviceAsk, Pod
from dovetail.model.units import WHOLE_CARD

LONGEST_LIST = 8 * SHARES.most  # characters of a list of indices that are read


class Plugin(NamedTuple):
    """One system's rules, as functions."""

    enforcer: Enforcer
    cards: Callable[[Mapping[str, int], Vendor], PluginCards | None]  # of a node, by its capacity
    ask: Callable[[Resources, Vendor, bool], DeviceAsk | None]  # of a container; True = an init container
    notes_for: Callable[[Handout], dict[str, str]]  # annotations of a pod that is being bound
    indices: Callable[[Mapping[str, str], tuple[int, ...]], dict[int, str]]  # container -> "0,1", by the annotations
    has_assigned: Callable[[Mapping[str, str]], bool]  # whether its annotations name what it gave, not what we chose
    is_written: Callable[[str], bool]  # whether scheduler or plugin write the annotation
    names_cards: Callable[[str], bool]


PLUGINS: Mapping[str, Plugin] = {
    name: Plugin(enforcer, on.cards, on.ask, on.notes_for, on.indices, on.has_assigned, on.is_written, on.names_cards)
    for name, enforcer, on in (
        (GPUSHARE, Enforcer.GPUSHARE, gpushare),
        (GPU_MANAGER, Enforcer.GPU_MANAGER, gpu_manager),
    )
}


class PluginNode(NamedTuple):
    """The cards of a node that such a plugin hands out, and why they cannot be relied on."""

    devices: tuple[Device, ...] = ()
    enforcer: Enforcer = Enforcer.HAMI
    doubt: Doubt = NO_DOUBT


NO_PLUGIN = PluginNode()


def plugin_cards(
    node: str, capacity: Mapping[str, int], allocatable: Mapping[str, int], vendors: Vendors
) -> PluginNode:
    """The node's cards. Two plugins on one node would hand out the same cards twice: then it takes no new pods."""
    found = [(row, PLUGINS[row.plugin], PLUGINS[row.plugin].cards(capacity, row)) for row in vendors.with_plugin]
    there = [(row, plugin, cards) for row, plugin, cards in found if cards is not None]
    if not there:
        return NO_PLUGIN
    row, plugin, cards = there[0]
    if cards.memory_mib > MAX_CARD_NUMBER:
        cards = replace(cards, wrong_field=f"status.capacity.{row.memory}", wrong="is more than any card has")
    if cards.wrong:
        return PluginNode((), plugin.enforcer, Doubt(cards.wrong_field, cards.wrong, "check the device plugin"))
    count = min(cards.count, CARDS_PER_NODE.most)
    devices = tuple(
        Device(f"{node}/{row.word}-{i}", i, row.word, row.word, cards.memory_mib, slots=cards.slots)
        for i in range(count)
    )
    return PluginNode(devices, plugin.enforcer, _doubt(row, there[1:], capacity, allocatable, vendors))


def _doubt(
    row: Vendor,
    others: list[tuple[Vendor, Plugin, PluginCards]],
    capacity: Mapping[str, int],
    allocatable: Mapping[str, int],
    vendors: Vendors,
) -> Doubt:
    beside = [other.memory for other, _, _ in others]
    beside += [one.count for one in vendors.rows if one.count and allocatable.get(one.count, 0) > 0]
    if beside:
        text = f"is there beside {row.memory}: two plugins hand out the same cards"
        return Doubt(f"status.allocatable.{beside[0]}", text, "run one of them")
    for name in sorted(row.shares):
        if allocatable.get(name, 0) < capacity.get(name, 0):
            text = f"is {allocatable.get(name, 0)} of {capacity[name]}: a card is not healthy, and not known which"
            return Doubt(f"status.allocatable.{name}", text, "check the device plugin and the cards")
    return NO_DOUBT


def written_by_plugins(vendors: Vendors) -> Callable[[str], bool]:
    """Whether an annotation of a pod is a result of one of these schedulers or plugins."""
    rules = tuple(PLUGINS[row.plugin].is_written for row in vendors.with_plugin)
    return lambda annotation: any(rule(annotation) for rule in rules)


def named_cards(annotations: Mapping[str, str], vendors: Vendors) -> tuple[tuple[str, str], ...]:
    """The annotations, with their texts, in which the plugins name a pod's cards."""
    rules = [PLUGINS[row.plugin].names_cards for row in vendors.with_plugin]
    return tuple((name, text) for name, text in annotations.items() if any(rule(name) for rule in rules))


def with_plugin_records(pod: Pod, node: str, annotations: Mapping[str, str], vendors: Vendors) -> Mapping[str, str]:
    """The annotations with a record of the pod's cards made from the plugin's annotations.

    That is where a pod has only those, and where the plugin itself wrote which cards it gave.
    """
    words = {ask.vendor for container in pod.containers for ask in container.asks}
    made = {}
    for row in vendors.with_plugin:
        if row.word not in words:
            continue
        if not annotations.get(row.allocated, "").strip() or PLUGINS[row.plugin].has_assigned(annotations):
            made[row.allocated] = _record(pod, node, annotations, row)
    made = {name: text for name, text in made.items() if text}
    return {**annotations, **made} if made else annotations


def assigned_by_plugin(
    pod: Pod, node: str, annotations: Mapping[str, str], vendors: Vendors
) -> Mapping[str, str] | None:
    """The annotations with a record of the cards that plugins say they gave; None where one of them is not legible."""
    words = {ask.vendor for container in pod.containers for ask in container.asks}
    rows = [row for row in vendors.with_plugin if row.word in words]
    rows = [row for row in rows if PLUGINS[row.plugin].has_assigned(annotations)]
    made = {row.allocated: _record(pod, node, annotations, row) for row in rows}
    return {**annotations, **made} if made and all(made.values()) else None


def assigned_trace(annotations: Mapping[str, str], vendors: Vendors) -> int:
    """A digest of which cards plugins say they gave; 0 = they say nothing yet."""
    rows = [row for row in vendors.with_plugin if PLUGINS[row.plugin].has_assigned(annotations)]
    return hash(frozenset(named_cards(annotations, vendors))) or 1 if rows else 0


def asks_whole_cards(asks: Iterable[DeviceAsk]) -> bool:
    return any(ask.memory_percent == 100 and ask.compute_milli == WHOLE_CARD for ask in asks)


def _record(pod: Pod, node: str, annotations: Mapping[str, str], row: Vendor) -> str:
    """The record in HAMi's encoding (assigned.py).

    It is "" unless the plugin's annotations name exactly the cards that each container asks for. A client that may
    change the pod could otherwise name fewer.
    """
    first = sum(1 for container in pod.containers if container.kind is not ContainerKind.APP)
    asks = [next((a for a in container.asks if a.vendor == row.word), None) for container in pod.containers]
    asking = tuple(n - first for n, one in enumerate(asks) if one is not None)
    given = PLUGINS[row.plugin].indices(annotations, asking)
    if not given:
        return ""
    segments, taken = [], Counter[int]()
    for n, one in enumerate(asks):
        if one is None or n - first not in given:
            segments.append("")
            continue
        own = _indices(given[n - first])
        taken.update(dict.fromkeys(own, one.compute_milli))
        if len(own) != one.count or any(taken[index] > WHOLE_CARD for index in own):
            return ""
        memory = one.memory_mib if one.memory_percent is None else MAX_CARD_NUMBER  # limited to the card's size
        amounts = f"{row.word},{memory},{one.compute_milli // MILLI_PER_CORE}"
        segments.append("".join(f"{node}/{row.word}-{index},{amounts}:" for index in own))
    return ";".join(segments) + ";"


def _indices(text: str) -> list[int]:
    """The different cards of a list such as "0,1"; none where one of them cannot be a card of a node."""
    texts = [one.strip() for one in text.split(",")] if len(text) <= LONGEST_LIST else []
    if not all(one.isascii() and one.isdigit() and len(one) < 5 for one in texts):
        return []
    found = list(dict.fromkeys(map(int, texts)))
    return found if len(found) == len(texts) and max(found, default=0) < CARDS_PER_NODE.most else []
