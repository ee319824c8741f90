"""Formats amounts for users: 7,500 MiB, 1.5 cores, 16 GiB, 62 %."""

from __future__ import annotations

from dovetail.engine import wording
from dovetail.model.device import Device
from dovetail.model.node import CPU, MEMORY, STORAGE


def mib(amount: int) -> str:
    return f"{amount:,} MiB"


def card_mib(amount: int) -> str:
    """Memory of a card, or of a whole card that a pod holds. 0 means that the size of the card is unknown."""
    return mib(amount) if amount else "unknown"


def card_index(device: Device) -> str:
    """The card's index; `-` if the node does not, or no longer, register the card."""
    return "-" if device.quarantined else str(device.index)


def amount_of(resource: str, amount: int) -> str:
    """The amount in the usual unit of the resource."""
    if resource == CPU:
        return wording.amount_of(CPU, amount)
    if resource in (MEMORY, STORAGE):
        return bytes_of(amount)
    return f"{amount:,}"


def bytes_of(amount: int) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size:
            return f"{amount / size:,.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{amount} B"


def percent(part: int, whole: int) -> str:
    return f"{100 * part // whole} %" if whole else "-"


def change(before: str, after: str) -> str:
    """`8 → 6`, or only `8` if nothing changed."""
    return before if before == after else f"{before} → {after}"


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
