"""Running pods whose record is not fully trusted: amounts from the pod's request; every card that it could have.

A tenant that may change its pods can write any card and any amount into their records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.pod import DeviceAsk, Pod, Trust

if TYPE_CHECKING:
    from dovetail.engine.ledger.ledger import Ledger

NVIDIA = "NVIDIA"  # other vendors split cards by templates: their pods may get more than they ask for


def memory_on(device: Device, ask: DeviceAsk) -> int:
    """MiB that the ask takes of the card."""
    return ask.memory_mib if ask.memory_percent is None else device.memory_mib * ask.memory_percent // 100


def with_sound_amounts(
    pod: Pod, shares: tuple[Share, ...], devices: Sequence[Device], trust: Trust
) -> tuple[Share, ...]:
    """The shares with the amounts that the pod asks for, which may be a percentage: they depend on the node's card.

    For a card that the node does not register, the percentage is of the node's largest card. If another scheduler wrote
    the record (AMOUNTS_CAPPED), its amounts are kept where the pod states none: they are that scheduler's defaults.
    """
    known = {device.uuid: device for device in devices}
    largest = {device.vendor: device for device in sorted(devices, key=lambda one: one.memory_mib)}
    return tuple(_sound(pod, share, known.get(share.uuid), largest, trust) for share in shares)


def _sound(pod: Pod, share: Share, device: Device | None, largest: Mapping[str, Device], trust: Trust) -> Share:
    asks = pod.containers[share.container].asks if share.container < len(pod.containers) else ()
    vendor = device.vendor if device is not None else asks[0].vendor if asks else ""
    ask, size = next((one for one in asks if one.vendor == vendor), None), device or largest.get(vendor)
    if ask is None or size is None:
        return share
    memory, compute = memory_on(size, ask), ask.compute_milli
    given = min(share.memory_mib, size.memory_mib), min(share.compute_milli, size.compute_milli)
    if vendor != NVIDIA:
        memory, compute = max(memory, given[0]), max(compute, given[1])
    elif trust is Trust.AMOUNTS_CAPPED:
        memory = given[0] if ask.plain and given[0] else memory
        compute = given[1] if ask.plain or not compute else compute
    if (memory, compute) == (share.memory_mib, share.compute_milli):
        return share
    return msgspec.structs.replace(share, memory_mib=memory, compute_milli=compute)


def every_possible_card(ledger: Ledger, pod: Pod, row: int) -> tuple[tuple[Share, ...], bool]:
    """What the pod asks for, on every card of the row that has room for it beside the pods with known cards.

    False: fewer cards have room than it asks for. Then the least used of the other cards are taken too.
    """
    used = _known_use(ledger, row)
    shares: list[Share] = []
    complete = True
    for n, container in enumerate(pod.containers):
        for ask in container.asks:
            mine = [device for device in ledger.devices(row) if device.vendor == ask.vendor and not device.quarantined]
            fitting = [device for device in mine if _fits(device, ask, used[device.uuid])]
            complete = complete and len(fitting) >= ask.count
            others = sorted((device for device in mine if device not in fitting), key=lambda d: (used[d.uuid], d.index))
            chosen = fitting + others[: max(0, ask.count - len(fitting))]
            shares += (Share(n, device.uuid, memory_on(device, ask), ask.compute_milli) for device in chosen)
    return tuple(shares), complete


def _known_use(ledger: Ledger, row: int) -> dict[str, list[int]]:
    """UUID -> MiB and milli held by pods whose cards are not guessed."""
    used = {device.uuid: [0, 0] for device in ledger.devices(row)}
    guessed = set(ledger.assumed_on(row))
    for uid in ledger.held_on(row):
        for device, _slots, memory, compute in ledger.peak(ledger.pods.slot_of[uid]) if uid not in guessed else ():
            used[device.uuid][0] += memory
            used[device.uuid][1] += compute
    return used


def _fits(device: Device, ask: DeviceAsk, used: Sequence[int]) -> bool:
    memory, compute = used
    room_for_memory = memory + memory_on(device, ask) <= device.memory_mib
    return room_for_memory and compute + ask.compute_milli <= device.compute_milli
