"""Whether a node's facts about its devices are settled: complete, and free of contradictions.

A node that is not settled takes no new pods with devices, and its message says why. A card promised on incomplete facts
may belong to another pod. Rules that need more than the Node object itself are in conversion/settling.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from dovetail.kube.conversion.discovery import COUNT_LABEL, PRODUCT_LABEL, Discovered
from dovetail.kube.conversion.vendors import NVIDIA, Vendors
from dovetail.kube.objects import core as objects
from dovetail.model.device import Device

HANDSHAKE = "hami.io/node-handshake"  # HAMi's scheduler writes it on nodes whose plugin it knows
MOST_BARE_CARDS = 16  # no server has more; a larger count without a register or labels is a count of slots
WHAT_TO_DO = (  # about a register that is missing
    "wait for the device plugin, or label the node dovetail.dev/enforcer=stock"
    " if NVIDIA's own plugin hands out whole cards"
)
CHECK_PLUGIN = "check the device plugin on the node"


class CardSource(Enum):
    """The source of a node's cards."""

    NONE = auto()
    REGISTER = auto()  # HAMi's or our plugin wrote the cards
    LABELS = auto()  # feature-discovery labels describe them
    COUNT = auto()  # only the allocatable number is known


class Doubt(NamedTuple):
    """Why a node is not settled, the field that shows it, and what to do."""

    field: str
    text: str
    advice: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return f"{self.field} {self.text}" if self.field else self.text


NO_DOUBT = Doubt("", "")


def has_hami_plugin(annotations: Mapping[str, str]) -> bool:
    """Whether HAMi's plugin hands out the node's cards: its handshake is there, and not marked as deleted."""
    return HANDSHAKE in annotations and not annotations[HANDSHAKE].startswith("Deleted")


def card_source_of(
    meta: objects.Meta, registered: Sequence[Device], discovered: Discovered, vendors: Vendors
) -> CardSource:
    if registered or any(meta.annotations.get(row.register, "").strip() for row in vendors.rows if row.register):
        return CardSource.REGISTER
    if not discovered.devices:
        return CardSource.NONE
    return CardSource.LABELS if PRODUCT_LABEL in meta.labels else CardSource.COUNT


def why_unsettled(
    meta: objects.Meta,
    allocatable: Mapping[str, int],
    registered: Sequence[Device],
    source: CardSource,
    vendors: Vendors,
) -> Doubt:
    """What is missing or contradictory in the Node object itself, if anything."""
    if source is CardSource.REGISTER:
        return _fewer_than_registered(allocatable, registered, vendors)
    if source is CardSource.NONE:
        return NO_DOUBT
    if has_hami_plugin(meta.annotations):
        field = "metadata.annotations." + vendors.by_word[NVIDIA].register
        return Doubt(field, f"is missing although HAMi's plugin is there ({HANDSHAKE})", WHAT_TO_DO)
    return _incomplete_labels(meta, allocatable, source, vendors)


def _fewer_than_registered(allocatable: Mapping[str, int], registered: Sequence[Device], vendors: Vendors) -> Doubt:
    """A doubt if fewer cards are allocatable than registered.

    The plugin's socket failed, or another plugin serves the resource: kubelet would refuse the pod.
    """
    for word in dict.fromkeys(device.vendor for device in registered):
        name = vendors.by_word[word].count
        healthy = sum(1 for device in registered if device.vendor == word and device.healthy)
        if name in allocatable and allocatable[name] < healthy:
            text = f"is {allocatable[name]}, but {healthy} healthy cards are registered"
            return Doubt(f"status.allocatable.{name}", text, CHECK_PLUGIN)
    return NO_DOUBT


def _incomplete_labels(
    meta: objects.Meta, allocatable: Mapping[str, int], source: CardSource, vendors: Vendors
) -> Doubt:
    """A doubt if labels are incomplete: they come in several writes.

    The allocatable number may count slots, not cards.
    """
    product = meta.labels.get(PRODUCT_LABEL, "")
    if source is CardSource.LABELS and product and COUNT_LABEL not in meta.labels:
        return Doubt(
            f"metadata.labels.{COUNT_LABEL}",
            f"is missing although {PRODUCT_LABEL} is there",
            "wait for feature discovery",
        )
    name = vendors.by_word[NVIDIA].count
    if source is CardSource.COUNT and allocatable.get(name, 0) > MOST_BARE_CARDS:
        text = f"is {allocatable[name]} with neither a register nor labels, which cannot be a number of cards"
        return Doubt(f"status.allocatable.{name}", text, WHAT_TO_DO)
    return NO_DOUBT
