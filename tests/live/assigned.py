"""What the API server's objects say about who has which card: read here by code that shares nothing with dovetail.

Over-allocation and double assignment are counted from the nodes' registers and the pods' annotations alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from tools.controlplane.client import Client, Object

REGISTER, ALLOCATED = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"


@dataclass(frozen=True)
class Piece:
    """A part of a card that a pod holds."""

    pod: str
    node: str
    card: str
    memory: int  # MiB
    cores: int  # per cent


def pieces(pod: Object) -> list[Piece]:
    """`uuid,NVIDIA,memory,cores:` per card, `;` after each container; init containers first, and they give back."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED, "")
    node = pod["spec"].get("nodeName", "")
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    return [
        Piece(name, node, *(fields[0], int(fields[2]), int(fields[3])))
        for segment in text.split(";")
        for entry in segment.split(":")
        if len(fields := entry.split(",")) == 4
    ]


def holding(api: Client) -> list[Object]:
    """Pods that have a node and are not finished, terminating ones included."""
    return [
        pod
        for pod in api.list("Pod", namespace=None)
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]


def faults(api: Client) -> list[str]:
    """Everything that is wrong with who has which card; must be empty."""
    cards = {
        card["id"]: (node["metadata"]["name"], card)
        for node in api.list("Node")
        for card in json.loads(node["metadata"].get("annotations", {}).get(REGISTER, "[]"))
    }
    use: dict[str, list[Piece]] = defaultdict(list)
    wrong = []
    for pod in holding(api):
        asks = any("nvidia.com/gpu" in c["resources"].get("limits", {}) for c in pod["spec"]["containers"])
        mine = pieces(pod)
        if asks and not mine:
            wrong.append(f"{pod['metadata']['name']} asks for a GPU and has none written down")
        for piece in mine:
            use[piece.card].append(piece)
            if piece.card in cards and cards[piece.card][0] != piece.node:
                wrong.append(f"{piece.pod} is on {piece.node} and has {piece.card} of {cards[piece.card][0]}")
    for card, held in use.items():
        if card not in cards:
            continue  # the card is gone; whoever had it keeps it until it ends
        _, facts = cards[card]
        for what, used, limit in (
            ("pods", len(held), facts["count"]),
            ("MiB", sum(piece.memory for piece in held), facts["devmem"]),
            ("% compute", sum(piece.cores for piece in held), facts["devcore"]),
        ):
            if used > limit:
                wrong.append(f"{card}: {used} of {limit} {what}: {', '.join(sorted(p.pod for p in held))}")
        whole = [piece for piece in held if piece.cores == 100]
        if whole and len(held) > 1:
            wrong.append(f"{card}: {whole[0].pod} has all of it, beside {len(held) - 1} others")
    return wrong
