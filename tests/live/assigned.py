"""What the API server's objects say about who has which card: read here by code that shares nothing with dovetail.

Over-allocation and double assignment are counted from the nodes' registers and the pods' annotations alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tools.controlplane.client import Client, Object

REGISTER, ALLOCATED = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"
Card = dict[str, Any]  # an entry of the register, and "node"
UNITS = {"m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Piece:
    """A part of a card that a container of a pod holds."""

    pod: str
    node: str
    card: str
    memory: int  # MiB
    cores: int  # per cent
    container: int = 0  # its position, init containers first


def pieces(pod: Object) -> list[Piece]:
    """`uuid,NVIDIA,memory,cores:` per card, `;` after each container; init containers first."""
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED, "")
    node, name = pod["spec"].get("nodeName", ""), _key(pod)
    return [
        Piece(name, node, fields[0], int(fields[2]), int(fields[3]), container)
        for container, segment in enumerate(text.split(";"))
        for entry in segment.split(":")
        if len(fields := entry.split(",")) == 4
    ]


def holds(pod: Object) -> bool:
    """It has a node and is not finished; a terminating one still holds."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def holding(api: Client) -> list[Object]:
    return [pod for pod in api.list("Pod", namespace=None) if holds(pod)]


def moments(pod: Object) -> list[list[int]]:
    """Which containers, by position, hold at the same time: each init container with the sidecars before it, then all
    others. Init containers that have ended have given back what they held."""
    inits = pod["spec"].get("initContainers") or []
    states = {one["name"]: one.get("state", {}) for one in pod.get("status", {}).get("initContainerStatuses", [])}
    sidecars: list[int] = []
    found, ended = [], True
    for position, container in enumerate(inits):
        if container.get("restartPolicy") == "Always":
            sidecars.append(position)
            continue
        ended = ended and states.get(container["name"], {}).get("terminated", {}).get("exitCode", 1) == 0
        found.append([*sidecars, position])
    rest = [*sidecars, *range(len(inits), len(inits) + len(pod["spec"]["containers"]))]
    return [rest] if ended else [*found, rest]


@dataclass(frozen=True)
class Use:
    """What a pod takes of a card at its worst moment."""

    pod: str
    slots: int
    memory: int
    cores: int


def uses(pod: Object) -> dict[str, Use]:
    """Card -> what the pod takes of it."""
    mine, found = pieces(pod), {}
    for card in {piece.card for piece in mine}:
        worst = [0, 0, 0]
        for moment in moments(pod):
            held = [piece for piece in mine if piece.card == card and piece.container in moment]
            now = (len(held), sum(piece.memory for piece in held), sum(piece.cores for piece in held))
            worst = [max(pair) for pair in zip(worst, now, strict=True)]
        if worst[0]:
            found[card] = Use(_key(pod), *worst)
    return found


def cards(api: Client) -> dict[str, Card]:
    """UUID -> the card, of all registers that can be read."""
    found = {}
    for node in api.list("Node"):
        try:
            register = json.loads((node["metadata"].get("annotations") or {}).get(REGISTER, "[]"))
            for card in register:
                found[card["id"]] = {**card, "node": node["metadata"]["name"]}
        except (ValueError, TypeError, KeyError):
            continue
    return found


def over(uuid: str, card: Card | None, held: Iterable[Use]) -> list[str]:
    """What is wrong with one card. Of one that is gone (None) only that it was not given away twice."""
    held = list(held)
    who = ", ".join(sorted(use.pod for use in held))
    limits = [("% compute", sum(use.cores for use in held), card["devcore"] if card else 100)]
    if card is not None:
        limits.append(("pods", sum(use.slots for use in held), card["count"]))
        limits.append(("MiB", sum(use.memory for use in held), card["devmem"]))
    wrong = [f"{uuid}: {used} of {limit} {what}: {who}" for what, used, limit in limits if used > limit]
    if len(held) > 1 and any(use.cores >= 100 for use in held):
        wrong.append(f"{uuid} is given whole and shared: {who}")
    return wrong


def faults(api: Client, sums: bool = False) -> list[str]:
    """Everything that is wrong with who has which card; must be empty. `sums`: CPU, memory and pods of nodes, too."""
    known, use = cards(api), defaultdict(list)
    wrong = []
    pods = holding(api)
    for pod in pods:
        ours = pod["spec"].get("schedulerName") == "dovetail"
        if ours and _asks(pod) and not pieces(pod):
            wrong.append(f"{_key(pod)} asks for a GPU and has none written down")
        for uuid, taken in uses(pod).items():
            use[uuid].append(taken)
            node = pod["spec"]["nodeName"]
            if uuid in known and known[uuid]["node"] != node:
                wrong.append(f"{_key(pod)} is on {node} and has {uuid} of {known[uuid]['node']}")
    for uuid, held in use.items():
        wrong += over(uuid, known.get(uuid), held)
    return wrong + (_overfull(api, pods) if sums else [])


def _asks(pod: Object) -> bool:
    return any("nvidia.com/gpu" in one["resources"].get("limits", {}) for one in pod["spec"]["containers"])


def _overfull(api: Client, pods: list[Object]) -> list[str]:
    taken: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for pod in pods:
        for resource, amount in requests(pod).items():
            taken[pod["spec"]["nodeName"]][resource] += amount
    has = {node["metadata"]["name"]: node["status"]["allocatable"] for node in api.list("Node")}
    return [
        f"{node}: {amount:g} of {has[node].get(resource, '0')} {resource}"
        for node, sums in taken.items()
        for resource, amount in sums.items()
        if node in has and resource in ("cpu", "memory", "pods")
        if amount > quantity(has[node].get(resource, "0")) * (1 + 1e-9)
    ]


def requests(pod: Object) -> dict[str, float]:
    """What the pod takes of its node, as kubelet adds it up."""
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    worst: dict[str, float] = {"pods": 1.0}
    for moment in moments({**pod, "status": {}}):
        now: dict[str, float] = defaultdict(float)
        for position in moment:
            for resource, amount in (containers[position].get("resources", {}).get("requests") or {}).items():
                now[resource] += quantity(amount)
        for resource, amount in now.items():
            worst[resource] = max(worst.get(resource, 0.0), amount)
    return worst


def quantity(text: str) -> float:
    number = text.rstrip("mkMGTKi")
    unit = text[len(number) :]
    return float(number) * (UNITS[unit] if unit else 1)


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def wrongly_pending(api: Client) -> list[str]:
    """Pods of ours that wait although cards are free for them; one container, no other rules."""
    known, use = cards(api), defaultdict(list)
    for pod in holding(api):
        for uuid, taken in uses(pod).items():
            use[uuid].append(taken)
    wrong = []
    for pod in api.list("Pod", namespace=None):
        if pod["spec"].get("nodeName") or pod["spec"].get("schedulerName") != "dovetail":
            continue
        limits = {
            key: int(quantity(value)) for key, value in pod["spec"]["containers"][0]["resources"]["limits"].items()
        }
        free: dict[str, int] = defaultdict(int)
        for uuid, card in known.items():
            whole: int = card["devmem"]
            ask = Use("", 1, limits.get("nvidia.com/gpumem", whole), limits.get("nvidia.com/gpucores", 0))
            free[card["node"]] += card.get("health", False) and not over(uuid, card, [*use[uuid], ask])
        roomy = [node for node, count in free.items() if count >= limits["nvidia.com/gpu"]]
        if roomy:
            wrong.append(f"{_key(pod)} waits, though {roomy[0]} has {free[roomy[0]]} cards for it")
    return wrong
