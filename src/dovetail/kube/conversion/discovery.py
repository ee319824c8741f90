"""Cards of a node without HAMi: from NVIDIA's GPU feature discovery labels; the vendor's own plugin hands them out.

There kubelet picks the card, so each card is one slot. Replicas (time-slicing, MPS) are never counted as more cards
(NVIDIA k8s-device-plugin, docs on sharing: `nvidia.com/gpu.replicas`, `-SHARED`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.kube.conversion.register import MAX_CARD_NUMBER, clean_model
from dovetail.kube.conversion.vendors import Vendor, Vendors
from dovetail.kube.objects.bounds import CARDS_PER_NODE
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.device import Device

PRODUCT_LABEL, MEMORY_LABEL, COUNT_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"
REPLICAS_LABEL, STRATEGY_LABEL = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
MIG_RESOURCE = "nvidia.com/mig-"


class Discovered(NamedTuple):
    devices: tuple[Device, ...] = ()
    mig: bool = False


def discover(
    node: str, labels: Mapping[str, str], allocatable: Mapping[str, int], vendors: Vendors, tell: NodeProblems
) -> Discovered:
    """The node's cards, as many as are allocatable.

    Labels only describe cards: without a device plugin there are none.
    """
    devices: list[Device] = []
    for vendor in vendors.rows:
        count = allocatable.get(vendor.count)
        if vendor.word == "NVIDIA":
            devices.extend(_nvidia(node, labels, count, vendor, tell))
        elif count:
            tell.warning(f"status.allocatable.{vendor.count}", _UNKNOWN.format(count=count, name=vendor.count))
            indices = range(len(devices), len(devices) + min(count, CARDS_PER_NODE.most))
            devices.extend(_cards(node, vendor, vendor.word, 0, indices))
    return Discovered(tuple(devices), _mig(labels, allocatable))


class NodeProblems(NamedTuple):
    """A problem collector for one node."""

    where: str
    problems: Problems

    def warning(self, field: str, message: str) -> None:
        self.problems.warning(self.where, field, message)

    def note(self, field: str, message: str) -> None:
        self.problems.note(self.where, field, message)


_UNKNOWN = (
    "{count} × {name} with neither HAMi's register nor feature-discovery labels: model and memory are unknown, "
    "whole cards only"
)
_NOT_OFFERED = "is not there, so no card can be asked for by that name, though the labels count {count}"


def _nvidia(
    node: str, labels: Mapping[str, str], count: int | None, vendor: Vendor, tell: NodeProblems
) -> list[Device]:
    product = labels.get(PRODUCT_LABEL, "")
    labelled = _label(labels, COUNT_LABEL, tell)
    replicas = max(_label(labels, REPLICAS_LABEL, tell) or 1, 1)
    if "-MIG-" in product:
        return []
    if count is None:
        if labelled:
            tell.warning(f"status.allocatable.{vendor.count}", _NOT_OFFERED.format(count=labelled))
        return []
    cards = count // replicas if labelled is None else min(labelled, count // replicas)
    if cards > CARDS_PER_NODE.most:
        tell.warning(f"metadata.labels.{COUNT_LABEL}", f"{cards} cards on one node; {CARDS_PER_NODE.most} are used")
        cards = CARDS_PER_NODE.most
    if replicas > 1 and cards:
        how = labels.get(STRATEGY_LABEL, "time-slicing")
        message = f"{cards} GPUs shared {replicas}-fold by {printable(how)}: whole cards only"
        tell.note(f"metadata.labels.{REPLICAS_LABEL}", message)
    if not product and cards:
        tell.warning(f"status.allocatable.{vendor.count}", _UNKNOWN.format(count=count, name=vendor.count))
    model = clean_model(product.removesuffix("-SHARED")) or vendor.word
    return _cards(node, vendor, model, _label(labels, MEMORY_LABEL, tell) or 0, range(cards))


def _cards(node: str, vendor: Vendor, model: str, memory: int, indices: range) -> list[Device]:
    return [Device(f"{node}/gpu-{i}", i, vendor.word, model, memory, slots=1) for i in indices]


def _label(labels: Mapping[str, str], name: str, tell: NodeProblems) -> int | None:
    text = labels.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= MAX_CARD_NUMBER:
        return int(text)
    tell.warning(f"metadata.labels.{name}", f"{printable(text, 40)!r} is not a whole number; the label is ignored")
    return None


def _mig(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> bool:
    if "-MIG-" in labels.get(PRODUCT_LABEL, ""):
        return True
    if any(amount > 0 for name, amount in allocatable.items() if name.startswith(MIG_RESOURCE)):
        return True
    return any(
        name.startswith(MIG_RESOURCE) and name.endswith(".count") and value.isdecimal() and value.strip("0") != ""
        for name, value in labels.items()
    )
