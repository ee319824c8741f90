"""What the GPUs of one node, or of a cluster, still give: as JSON, and in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.cli.output.list_view import DASH, Item
from dovetail.engine.usage import CardUse
from dovetail.whatif.room import NodeRoom


def room_item(room: NodeRoom, largest: NodeRoom, cards: Iterable[CardUse]) -> Item:
    """The fields about GPUs. `largest`: the node that fits the largest request; `cards`: all cards that are counted."""
    fragmentation, card, counted = room.fragmentation, largest.largest, tuple(cards)
    return {
        "gpus": {"total": room.cards, "usable": room.usable, "wholeFree": room.whole},
        "freeMilli": room.free_milli,
        "strandedMilli": room.stranded_milli,
        "fragmentation": None if fragmentation is None else round(fragmentation, 4),
        "largest": {
            "gpus": largest.whole or (1 if card else 0),
            "memoryMib": card.memory_mib if card else 0,
            "computeMilli": card.compute_milli if card else 0,
        },
        "gpuMemoryMib": _sums((one.memory_used_mib, one.device.memory_mib) for one in counted),
        "gpuComputeMilli": _sums((one.compute_used_milli, one.device.compute_milli) for one in counted),
    }


def _sums(pairs: Iterable[tuple[int, int]]) -> dict[str, int]:
    used = total = 0
    for mine, all_of in pairs:
        used, total = used + mine, total + all_of
    return {"used": used, "total": total}


def share(amounts: dict[str, int]) -> str:
    return f"{100 * amounts['used'] // amounts['total']} %" if amounts["total"] else DASH


def largest_text(item: dict[str, Any]) -> str:
    """`3 whole GPUs`, `12,288 MiB, 70 %`, `none`."""
    largest = item["largest"]
    if item["gpus"]["wholeFree"]:
        return f"{largest['gpus']} whole GPU{'s' * (largest['gpus'] != 1)}"
    if not largest["gpus"]:
        return "none" if item["gpus"]["total"] else DASH
    return f"{largest['memoryMib']:,} MiB, {largest['computeMilli'] // 10} %"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"
