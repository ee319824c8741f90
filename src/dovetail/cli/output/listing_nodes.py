"""The lists of GPUs and nodes."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.cli.board import Board
from dovetail.cli.output.amounts import bytes_of
from dovetail.cli.output.list_view import DASH, Item, ListColumn, ListView, of_whole
from dovetail.cli.output.rooms import largest_text, percent, room_item, share
from dovetail.engine.usage import CardUse, NodeUse
from dovetail.model.node import CPU, MEMORY
from dovetail.whatif.room import CardRoom, NodeRoom, card_room, takes_pods

LONGEST_UUID = 16  # characters shown, unless wide


def gpu_items(board: Board) -> Iterator[Item]:
    for use in board.overview.nodes:
        for card in use.cards:
            yield _gpu(use, card)


def _gpu(use: NodeUse, card: CardUse) -> Item:
    device = card.device
    room = card_room(card) if takes_pods(use) else None
    return {
        "node": use.node.name,
        "index": None if device.quarantined else device.index,
        "uuid": device.uuid,
        "vendor": device.vendor,
        "model": device.model,
        "memoryMib": {"used": card.memory_used_mib, "total": device.memory_mib or None},
        "computeMilli": {"used": card.compute_used_milli, "total": device.compute_milli},
        "slots": {"used": card.slots_used, "total": device.slots},
        "pods": list(card.pods),
        "podsGuessed": card.assumed,
        "numa": device.numa,
        "mode": device.mode,
        "healthy": device.healthy,
        "cordoned": device.cordoned,
        "registered": not device.quarantined,
        "takesPods": room is not None and room != CardRoom(0, 0, False),
    }


def _gpu_state(item: Item) -> str:
    if not item["registered"]:
        return "unregistered"
    states = ["unhealthy"] * (not item["healthy"]) + ["cordoned"] * item["cordoned"]
    if states:
        return ",".join(states)
    if item["takesPods"]:
        return "free" if not item["slots"]["used"] else "in use"
    return "full" if item["slots"]["used"] else "closed"


def _pods_of(item: Item) -> str:
    return (",".join(item["pods"]) or DASH) + ("  (kubelet picks)" if item["podsGuessed"] and item["pods"] else "")


def short_uuid(uuid: str) -> str:
    return uuid if len(uuid) <= LONGEST_UUID else f"{uuid[: LONGEST_UUID - 1]}…"


LIST_OF_GPUS = ListView(
    "GpuList",
    gpu_items,
    (
        ListColumn("NODE", lambda item: item["node"]),
        ListColumn("GPU", lambda item: DASH if item["index"] is None else str(item["index"]), right=True),
        ListColumn("UUID", lambda item: short_uuid(item["uuid"])),
        ListColumn("MODEL", lambda item: item["model"] or DASH),
        ListColumn(
            "MEMORY MIB", lambda item: of_whole(item["memoryMib"]["used"], item["memoryMib"]["total"]), right=True
        ),
        ListColumn("COMPUTE", lambda item: f"{item['computeMilli']['used'] // 10} %", right=True),
        ListColumn("SLOTS", lambda item: of_whole(item["slots"]["used"], item["slots"]["total"]), right=True),
        ListColumn("STATE", _gpu_state),
        ListColumn("WHOLE UUID", lambda item: item["uuid"], wide=True),
        ListColumn("NUMA", lambda item: str(item["numa"]), wide=True, right=True),
        ListColumn("MODE", lambda item: item["mode"], wide=True),
        ListColumn("PODS", _pods_of),
    ),
    lambda item: f"gpu/{item['uuid']}",
    labels="node",
    namespaced=False,
)


def node_items(board: Board) -> Iterator[Item]:
    rooms = board.rooms
    for use in board.overview.nodes:
        yield _node(use, rooms[use.node.name])


def _node(use: NodeUse, room: NodeRoom) -> Item:
    node = use.node
    return {
        "name": node.name,
        "models": sorted({card.device.model for card in use.cards if card.device.model}),
        **room_item(room, room, use.cards),
        "pods": use.pods,
        "cpuMilli": {"used": use.used.get(CPU, 0), "total": node.allocatable.get(CPU, 0)},
        "memoryBytes": {"used": use.used.get(MEMORY, 0), "total": node.allocatable.get(MEMORY, 0)},
        "enforcer": str(node.enforcer),
        "unschedulable": node.unschedulable,
        "unsettled": node.unsettled,
        "taints": [str(taint) for taint in node.taints],
    }


def _node_state(item: Item) -> str:
    if item["unschedulable"]:
        return "cordoned"
    return "no new GPU pods" if item["unsettled"] else "ready"


LIST_OF_NODES = ListView(
    "NodeList",
    node_items,
    (
        ListColumn("NODE", lambda item: item["name"]),
        ListColumn("MODEL", lambda item: ",".join(item["models"]) or DASH),
        ListColumn("GPUS FREE", lambda item: f"{item['gpus']['wholeFree']}/{item['gpus']['total']}", right=True),
        ListColumn("GPU MEMORY", lambda item: share(item["gpuMemoryMib"]), right=True),
        ListColumn("GPU COMPUTE", lambda item: share(item["gpuComputeMilli"]), right=True),
        ListColumn("FRAGMENTED", lambda item: percent(item["fragmentation"]), right=True),
        ListColumn("LARGEST THAT FITS", largest_text),
        ListColumn("PODS", lambda item: str(item["pods"]), right=True),
        ListColumn("CPU", lambda item: share(item["cpuMilli"]), wide=True, right=True),
        ListColumn("MEMORY", lambda item: share(item["memoryBytes"]), wide=True, right=True),
        ListColumn("FREE MEMORY", lambda item: bytes_of(max(_left(item["memoryBytes"]), 0)), wide=True, right=True),
        ListColumn("ENFORCER", lambda item: item["enforcer"], wide=True),
        ListColumn("TAINTS", lambda item: ",".join(item["taints"]) or DASH, wide=True),
        ListColumn("STATE", _node_state),
    ),
    lambda item: f"node/{item['name']}",
    labels="node",
    namespaced=False,
)


def _left(amounts: dict[str, int]) -> int:
    return amounts["total"] - amounts["used"]
