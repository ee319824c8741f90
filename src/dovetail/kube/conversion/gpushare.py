"""gpushare (AliyunContainerService/gpushare-scheduler-extender): its nodes, requests and pod annotations.

A node offers `aliyun.com/gpu-count` cards and `aliyun.com/gpu-mem` units of memory on all of them together; its plugin
counts in GiB or in MiB (`--memory-unit`). A pod gets one card: `ALIYUN_COM_GPU_MEM_IDX`. The plugin hands out the card
of the pod with the same amount and the earliest `…_ASSUME_TIME` (gpushare-device-plugin, pkg/gpu/nvidia/allocate.go).
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.kube.conversion.plugin_amounts import AskError, Handout, PluginCards, stated
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects.core import Resources
from dovetail.model.pod import CardResources, DeviceAsk

COUNT = "aliyun.com/gpu-count"
CARD, POD_AMOUNT, CARD_AMOUNT = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_DEV"
FLAG, ASSUMED_AT = "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
WRITTEN = (CARD, POD_AMOUNT, CARD_AMOUNT, FLAG, ASSUMED_AT)
MOST_GIB, LEAST_MIB = 1_024, 256  # of one card: outside, the unit is probably the other one


def cards(capacity: Mapping[str, int], vendor: Vendor) -> PluginCards | None:
    """The node's cards, as the extender counts them (pkg/cache/nodeinfo.go); None = it has no gpushare."""
    count, units = capacity.get(COUNT, 0), capacity.get(vendor.memory, 0)
    if not units:
        return None
    field = f"status.capacity.{vendor.memory}"
    if not count:
        return PluginCards(0, wrong_field=field, wrong=f"is there without {COUNT}, the number of cards")
    each = units // count
    in_gib = vendor.memory_factor > 1
    if each > MOST_GIB if in_gib else each < LEAST_MIB:
        unit = "GiB" if in_gib else "MiB"
        text = f"is {units} for {count} cards, which cannot be {unit}; set gpushareMemoryUnit in the configuration"
        return PluginCards(0, wrong_field=field, wrong=text)
    return PluginCards(count, each * vendor.memory_factor, each)  # a pod takes at least one unit


def ask(resources: Resources, vendor: Vendor, init: bool) -> DeviceAsk | None:
    """The container's part of the pod's card; None = it asks for none. Raises AskError."""
    units = stated(resources, vendor.memory, vendor.memory_factor)
    if not units:
        return None
    if init:
        raise AskError(vendor.memory, "is of an init container, to which gpushare gives no card; ask in a container")
    names = CardResources("", vendor.memory, memory_unit_mib=vendor.memory_factor)
    return DeviceAsk(vendor.word, 1, units * vendor.memory_factor, resources=names)


def notes_for(handout: Handout) -> dict[str, str]:
    """What the plugin reads. It replaces the flag by `true` when it has handed out the card."""
    share, factor = handout.shares[0], handout.vendor.memory_factor
    card = next(device for device in handout.node.devices if device.uuid == share.uuid)
    return {
        CARD: str(card.index),
        POD_AMOUNT: str(share.memory_mib // factor),
        CARD_AMOUNT: str(card.memory_mib // factor),
        FLAG: "false",
        ASSUMED_AT: str(handout.nanoseconds),
    }


def indices(notes: Mapping[str, str], asking: tuple[int, ...]) -> dict[int, str]:
    """Container -> its card as text. The first container that asks holds the card of the pod."""
    return {asking[0]: notes[CARD]} if asking and notes.get(CARD, "").strip() else {}


def has_assigned(notes: Mapping[str, str]) -> bool:
    """Whether the plugin has replaced the card: it never does."""
    return False


def is_written(annotation: str) -> bool:
    return annotation in WRITTEN


def names_cards(annotation: str) -> bool:
    return annotation == CARD
