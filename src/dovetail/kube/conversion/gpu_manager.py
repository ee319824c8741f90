"""gpu-admission and gpu-manager (tkestack): their nodes, requests and pod annotations.

A node offers 100 `tencent.com/vcuda-core` for each card, and `tencent.com/vcuda-memory` in blocks of 256 MiB on all
cards together. A container asks for less than 100 cores and some memory (a part of a card), or for a multiple of 100
(whole cards). Annotations name the cards of each container: `tencent.com/predicate-gpu-idx-0: "1"`. gpu-manager refuses
a part of a card on another card than its own choice (pkg/services/allocator/nvidia/allocator.go).
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.kube.conversion.plugin_amounts import AskError, Handout, PluginCards, stated
from dovetail.kube.conversion.register import MILLI_PER_CORE
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects.core import Resources
from dovetail.model.pod import CardResources, DeviceAsk
from dovetail.model.units import WHOLE_CARD

CARD_CORES = 100
CARDS_OF = "tencent.com/predicate-gpu-idx-"  # followed by the container's number, without init containers
PREDICATE_TIME, PREDICATE_NODE = "tencent.com/predicate-time", "tencent.com/predicate-node"
ASSIGNED = "tencent.com/gpu-assigned"


def cards(capacity: Mapping[str, int], vendor: Vendor) -> PluginCards | None:
    """The node's cards, as gpu-admission counts them (pkg/device/nodeInfo.go); None = it has no gpu-manager."""
    cores, blocks = capacity.get(vendor.core, 0), capacity.get(vendor.memory, 0)
    if not cores and not blocks:
        return None
    count = cores // CARD_CORES
    if not count or blocks < count:
        short = vendor.memory if count else vendor.core
        return PluginCards(0, wrong_field=f"status.capacity.{short}", wrong="is too little for one card")
    return PluginCards(count, blocks // count * vendor.memory_factor, CARD_CORES)  # a container takes at least one core


def ask(resources: Resources, vendor: Vendor, init: bool) -> DeviceAsk | None:
    """The container's cards; None = it asks for none.

    Raises AskError also where gpu-admission would ignore the container, and where gpu-manager would refuse it.
    """
    cores, blocks = stated(resources, vendor.core), stated(resources, vendor.memory, vendor.memory_factor)
    if not cores and not blocks:
        return None
    if init:
        raise AskError(vendor.core, "is of an init container, to which gpu-manager gives no card; ask in a container")
    names = CardResources("", vendor.memory, compute=vendor.core, memory_unit_mib=vendor.memory_factor)
    if cores >= CARD_CORES:
        if cores % CARD_CORES:
            raise AskError(vendor.core, f"{cores} is neither less than 100 nor a multiple of 100: whole cards")
        return DeviceAsk(vendor.word, cores // CARD_CORES, 0, 100, WHOLE_CARD, resources=names)
    if not cores or not blocks:
        missing, unit = (vendor.memory, "blocks of 256 MiB") if cores else (vendor.core, "per cent of a card")
        raise AskError(missing, f"is missing, and a part of a card needs both; write it in {unit}")
    memory, compute = blocks * vendor.memory_factor, cores * MILLI_PER_CORE
    return DeviceAsk(vendor.word, 1, memory, compute_milli=compute, resources=names)


def notes_for(handout: Handout) -> dict[str, str]:
    """What gpu-manager reads. It replaces the cards by those that it gave, and `gpu-assigned` by `true`."""
    own: dict[int, list[int]] = {}
    for share in handout.shares:
        own.setdefault(share.container - handout.init_containers, []).append(handout.index(share.uuid))
    lists = {f"{CARDS_OF}{number}": ",".join(map(str, sorted(own[number]))) for number in sorted(own)}
    time = {PREDICATE_TIME: str(handout.nanoseconds)}
    return {**lists, **time, PREDICATE_NODE: handout.node.name, ASSIGNED: "false"}


def indices(notes: Mapping[str, str], asking: tuple[int, ...]) -> dict[int, str]:
    """Container, without init containers -> its cards as text; each container that asks, if one of them has cards."""
    found = {number: notes.get(f"{CARDS_OF}{number}", "") for number in asking}
    return found if any(text.strip() for text in found.values()) else {}


def has_assigned(notes: Mapping[str, str]) -> bool:
    """Whether gpu-manager has replaced the cards by those that it gave."""
    return notes.get(ASSIGNED) == "true"


def is_written(annotation: str) -> bool:
    return annotation.startswith(CARDS_OF) or annotation in (PREDICATE_TIME, PREDICATE_NODE, ASSIGNED)


def names_cards(annotation: str) -> bool:
    return annotation.startswith(CARDS_OF)
