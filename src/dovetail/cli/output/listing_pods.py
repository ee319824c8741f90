"""The lists of pods, and of pods that wait in the order in which they are served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.cli.board import NOTHING_SAID, Board
from dovetail.cli.output.amounts import amount_of, bytes_of, card_index
from dovetail.cli.output.list_view import DASH, Item, ListColumn, ListView, age
from dovetail.engine.usage import CardUse
from dovetail.kube.conversion.owners import NEWEST_CREATION
from dovetail.model.decision import Share
from dovetail.model.node import CPU, MEMORY
from dovetail.model.order import natural
from dovetail.model.pod import Pod, group_title
from dovetail.model.units import WHOLE_CARD


def pod_items(board: Board) -> Iterator[Item]:
    """Pods with a node and pods that wait, by namespace and name."""
    where = {(use.node.name, card.device.uuid): card for use in board.overview.nodes for card in use.cards}
    rows = [_pod(board, held.pod, held.node, _cards(held.node, held.shares, where)) for held in board.overview.running]
    rows += [_pod(board, one.pod, None, []) for one in board.overview.waiting]
    yield from sorted(rows, key=lambda item: (item["namespace"], natural(item["name"])))


def _cards(node: str, shares: Sequence[Share] | None, where: dict[tuple[str, str], CardUse]) -> list[Item]:
    found = []
    for one in shares or ():
        card = where.get((node, one.uuid))
        index = card_index(card.device) if card is not None else DASH
        mine = {"memoryMib": one.memory_mib, "computeMilli": one.compute_milli}
        found.append({"uuid": one.uuid, "index": None if index == DASH else int(index), **mine})
    return found


def _pod(board: Board, pod: Pod, node: str | None, cards: list[Item]) -> Item:
    facts = board.facts.get(pod.key, NOTHING_SAID)
    asked = asked_of(pod)
    by_card = [card["memoryMib"] for card in cards], [card["computeMilli"] for card in cards]
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "phase": "Terminating" if pod.leaving else facts.phase or ("Running" if node else "Pending"),
        "node": node,
        "gpus": len({card["uuid"] for card in cards}) or asked["gpus"],
        "gpuMemoryMib": sum(by_card[0]) if cards else asked["memoryMib"],
        "gpuComputeMilli": sum(by_card[1]) if cards else asked["computeMilli"],
        "devices": cards,
        "cpuMilli": pod.resources.get(CPU, 0),
        "memoryBytes": pod.resources.get(MEMORY, 0),
        "priority": pod.priority,
        "owner": pod.owner,
        "gang": group_title(pod.group),
        "scheduler": pod.scheduler,
        "ageSeconds": waited(board, pod),
        "why": "" if node else board.why(pod),
        "labels": dict(sorted(pod.labels.items())),
    }


def asked_of(pod: Pod) -> dict[str, int]:
    """The GPUs that a pod asks for: how many, MiB and milli of all together. 0 MiB = whole cards or a percentage."""
    asks = [ask for container in pod.containers for ask in container.asks]
    return {
        "gpus": sum(ask.count for ask in asks),
        "memoryMib": sum(ask.count * ask.memory_mib for ask in asks),
        "computeMilli": sum(ask.count * (WHOLE_CARD if ask.plain else ask.compute_milli) for ask in asks),
    }


def waited(board: Board, pod: Pod) -> float | None:
    return None if pod.created >= NEWEST_CREATION or not pod.created else max(board.now - pod.created, 0.0)


def _mib_or_whole(item: Item) -> str:
    if not item["gpus"]:
        return DASH
    return f"{item['gpuMemoryMib']:,}" if item["gpuMemoryMib"] else "whole"


LIST_OF_PODS = ListView(
    "PodList",
    pod_items,
    (
        ListColumn("NAMESPACE", lambda item: item["namespace"]),
        ListColumn("POD", lambda item: item["name"]),
        ListColumn("PHASE", lambda item: item["phase"]),
        ListColumn("NODE", lambda item: item["node"] or DASH),
        ListColumn("GPUS", lambda item: str(item["gpus"]), right=True),
        ListColumn("MEMORY MIB", _mib_or_whole, right=True),
        ListColumn("COMPUTE", lambda item: f"{item['gpuComputeMilli'] // 10} %" if item["gpus"] else DASH, right=True),
        ListColumn("AGE", lambda item: age(item["ageSeconds"]), right=True),
        ListColumn("INDEX", lambda item: ",".join(str(one["index"]) for one in item["devices"]) or DASH, wide=True),
        ListColumn("CPU", lambda item: amount_of(CPU, item["cpuMilli"]), wide=True, right=True),
        ListColumn("MEMORY", lambda item: bytes_of(item["memoryBytes"]), wide=True, right=True),
        ListColumn("PRIORITY", lambda item: str(item["priority"]), wide=True, right=True),
        ListColumn("OWNER", lambda item: item["owner"] or DASH, wide=True),
        ListColumn("GANG", lambda item: item["gang"] or DASH, wide=True),
        ListColumn("WHY IT WAITS", lambda item: item["why"]),
    ),
    lambda item: f"pod/{item['namespace']}/{item['name']}",
    labels="pod",
)


def queue_items(board: Board) -> Iterator[Item]:
    for one in board.overview.waiting:
        pod, facts = one.pod, board.facts.get(one.pod.key, NOTHING_SAID)
        yield {
            "position": one.position,
            "namespace": pod.namespace,
            "name": pod.name,
            "priority": pod.priority,
            "queue": one.queue,
            "gang": group_title(pod.group),
            **asked_of(pod),
            "waitSeconds": waited(board, pod),
            "reason": facts.reason,
            "why": board.why(pod),
            "labels": dict(sorted(pod.labels.items())),
        }


def asked_text(item: Item) -> str:
    """`2`, `1 × 4,096 MiB`, `1 × 30 %`."""
    if not item["gpus"]:
        return "0"
    parts = []
    if item["memoryMib"]:
        parts.append(f"{item['memoryMib'] // item['gpus']:,} MiB")
    if item["computeMilli"] and item["computeMilli"] != WHOLE_CARD * item["gpus"]:
        parts.append(f"{item['computeMilli'] // item['gpus'] // 10} %")
    return f"{item['gpus']} × {', '.join(parts)}" if parts else str(item["gpus"])


LIST_OF_QUEUES = ListView(
    "QueueList",
    queue_items,
    (
        ListColumn("#", lambda item: str(item["position"]), right=True),
        ListColumn("NAMESPACE", lambda item: item["namespace"]),
        ListColumn("POD", lambda item: item["name"]),
        ListColumn("PRIORITY", lambda item: str(item["priority"]), right=True),
        ListColumn("GPUS", asked_text),
        ListColumn("WAITS", lambda item: age(item["waitSeconds"]), right=True),
        ListColumn("QUEUE", lambda item: item["queue"] or DASH, wide=True),
        ListColumn("GANG", lambda item: item["gang"] or DASH, wide=True),
        ListColumn("REASON", lambda item: item["reason"] or DASH, wide=True),
        ListColumn("WHY", lambda item: item["why"] or "not decided yet"),
    ),
    lambda item: f"pod/{item['namespace']}/{item['name']}",
    labels="pod",
)
