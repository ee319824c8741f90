"""The four strategies live, on 100 mixed nodes half full: what each buys, read from the API server's objects."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from tests.live.assigned import Piece, faults, holding, pieces
from tests.live.dovetail_process import scheduling
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

TYPES = [  # model, MiB, cards per node
    ("NVIDIA Tesla T4", 15_360, 4),
    ("NVIDIA A10G", 23_028, 4),
    ("NVIDIA V100", 16_384, 8),
    ("NVIDIA A100-SXM4-80GB", 81_920, 8),
]
STRATEGIES = {
    "a": ("binpack", "binpack"),
    "b": ("spread", "binpack"),
    "c": ("binpack", "spread"),
    "d": ("spread", "spread"),
}
REPLICAS, MEMORY = 16, 7500


def _half_full(api: Client, chance: Random) -> dict[str, tuple[str, int]]:
    """Returns card -> its node and MiB."""
    cards: dict[str, tuple[str, int]] = {}
    for n in range(100):
        model, memory, count = chance.choice(TYPES)
        name = f"n{n:03}"
        api.create(objects.node(name, gpus=objects.cards(name, count, memory, model)))
        crowded = chance.random()
        for index in range(count):
            card = f"GPU-{name}-{index}"
            cards[card] = (name, memory)
            held = pods = 0
            while chance.random() < crowded and held + 4000 < memory and pods < 9:
                held, pods = held + 4000, pods + 1
                api.create(_runs(f"r-{name}-{index}-{pods}", name, card))
    return cards


def _runs(name: str, node: str, card: str) -> Object:
    text = f"{card},NVIDIA,4000,0:;"
    notes = {"hami.io/vgpu-devices-allocated": text, "hami.io/vgpu-node": node}
    return objects.pod(name, objects.gpu_limits(1, 4000), scheduler="other", annotations=notes, nodeName=node)


def _demo(letter: str) -> Object:
    node_policy, gpu_policy = STRATEGIES[letter]
    notes = {"hami.io/node-scheduler-policy": node_policy, "hami.io/gpu-scheduler-policy": gpu_policy}
    template = objects.pod("x", objects.gpu_limits(1, MEMORY), annotations=notes)
    return objects.deployment(f"demo-{letter}", REPLICAS, template)


def _placed(api: Client, letter: str) -> list[Piece]:
    def all_placed() -> list[Piece]:
        mine = [p for p in holding(api) if p["metadata"].get("labels", {}).get("app") == f"demo-{letter}"]
        return [piece for pod in mine for piece in pieces(pod)] if len(mine) == REPLICAS else []

    return api.wait_until(all_placed, f"demo-{letter} is placed", 60)


def test_each_strategy_keeps_its_promise_on_100_mixed_nodes_half_full(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    cards = _half_full(api, Random(7))
    before: defaultdict[str, int] = defaultdict(int)  # card -> MiB held
    for pod in holding(api):
        for piece in pieces(pod):
            before[piece.card] += piece.memory
    plane.start_controller_manager()
    nodes, used, opened = {}, {}, {}
    with scheduling(plane):
        for letter in STRATEGIES:
            api.create(_demo(letter))
            held = _placed(api, letter)
            nodes[letter] = {piece.node for piece in held}
            used[letter] = {piece.card for piece in held}
            opened[letter] = {piece.card for piece in held if before[piece.card] == 0}
            assert faults(api) == []
            api.delete("Deployment", f"demo-{letter}", "default")
            _until_gone(api, letter)
    assert len(nodes["a"]) < len(nodes["b"])  # node binpack against node spread
    assert len(nodes["c"]) < len(nodes["d"])
    assert len(nodes["b"]) == len(nodes["d"]) == REPLICAS  # spread: a node each, there are enough
    assert len(used["a"]) < len(used["d"])
    assert len(opened["a"]) <= len(opened["c"])  # GPU binpack fills cards in use before it takes idle ones
    assert len(opened["b"]) <= len(opened["d"])
    _packed_into_the_busiest(nodes["a"], cards, before)


def _until_gone(api: Client, letter: str) -> None:
    api.wait_until(lambda: not _of(api, letter), "the Deployment's pods are gone", 60)


def _of(api: Client, letter: str) -> list[Object]:
    return [pod for pod in api.list("Pod") if pod["metadata"].get("labels", {}).get("app") == f"demo-{letter}"]


def _packed_into_the_busiest(used: set[str], cards: dict[str, tuple[str, int]], before: dict[str, int]) -> None:
    """No node was taken while a busier one had room for a replica. HAMi: slots, compute (0 here) and memory in use."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # node -> slots held, slots, MiB held, MiB
    room: dict[str, int] = defaultdict(int)
    for card, (node, memory) in cards.items():
        held = before.get(card, 0)
        for n, amount in enumerate((held // 4000, objects.SLOTS, held, memory)):
            sums[node][n] += amount
        room[node] += (memory - held) // MEMORY
    busy = {node: slots / all_slots + held / total for node, (slots, all_slots, held, total) in sums.items()}
    emptiest = min(busy[node] for node in used)
    assert [node for node in busy if busy[node] > emptiest + 1e-9 and node not in used and room[node]] == []
