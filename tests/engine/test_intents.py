"""The four strategies keep their promise on 100 mixed nodes, half full; recomputed from `usage` before every pod.

Node binpack: the pod goes to the busiest node of those that can take it; spread: to the least busy. Card binpack: to
the card that would be fullest with it; spread: to the emptiest. Nodes tie by name, cards by NUMA node and position.
"""

from __future__ import annotations

from random import Random

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import CardUse, NodeUse, usage, whole_cards_free
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.events import PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import DeviceAsk, Group, Pod, RunningPod
from tests.builders import ask, cluster, node, pod
from tests.engine.test_choices import accepts

TYPES = [  # model, MiB, cards per node
    ("NVIDIA T4", 15_360, 4),
    ("NVIDIA A10G", 23_028, 4),
    ("NVIDIA V100", 16_384, 8),
    ("NVIDIA A100-SXM4-80GB", 81_920, 8),
    ("NVIDIA H100", 81_920, 2),
]
STRATEGIES = {
    "A": ("binpack", "binpack"),
    "B": ("spread", "binpack"),
    "C": ("binpack", "spread"),
    "D": ("spread", "spread"),
}
REPLICAS = 40
WANTED = ask(1, 7500, 5)  # two fit on a T4, three on an A10G, as in the demo


def half_full(seed: int) -> Scheduler:
    """100 nodes of five kinds; on every card pods until about half of all memory is taken."""
    chance = Random(seed)
    nodes: list[Node] = []
    for n in range(100):
        model, memory, cards = chance.choice(TYPES)
        devices = [Device(f"n{n:03}/{c}", c, "NVIDIA", model, memory, numa=c * 2 // cards) for c in range(cards)]
        nodes.append(node(f"n{n:03}", *devices))
    scheduler = cluster(*nodes)
    for one in nodes:
        crowded = chance.random()
        for device in one.devices:
            held = pods = 0
            while chance.random() < crowded and held < device.memory_mib * 0.9 and pods < 9:
                memory = min(chance.choice((1000, 2000, 4000, 7500)), device.memory_mib - held)
                held, pods = held + memory, pods + 1
                running = pod(f"r{len(scheduler.ledger.pods)}", ask(1, memory), namespace="running")
                share = Share(0, device.uuid, memory, chance.choice((0, 50)))
                scheduler.handle(PodObserved(0.0, RunningPod(running, one.name, (share,))))
    return scheduler


def busyness(use: NodeUse) -> float:
    slots = sum(c.slots_used for c in use.cards) / sum(c.device.slots for c in use.cards)
    compute = sum(c.compute_used_milli for c in use.cards) / sum(c.device.compute_milli for c in use.cards)
    memory = sum(c.memory_used_mib for c in use.cards) / sum(c.device.memory_mib for c in use.cards)
    return 10 * (slots + compute + memory)


def fullness(card: CardUse, wants: DeviceAsk) -> float:
    """With the pod on it."""
    return (
        (card.slots_used + 1) / card.device.slots
        + (card.compute_used_milli + wants.compute_milli) / card.device.compute_milli
        + (card.memory_used_mib + wants.memory_mib) / card.device.memory_mib
    )


def expected(uses: tuple[NodeUse, ...], wanted: Pod, wants: DeviceAsk) -> tuple[str, str]:
    on_node = 1 if wanted.profile.node == "binpack" else -1
    on_card = 1 if wanted.profile.device == ("binpack",) else -1
    fitting = [use for use in uses if any(accepts(card, wants, wanted) for card in use.cards)]
    best = min(fitting, key=lambda use: (-on_node * round(busyness(use), 9), use.node.name))
    cards = [(n, card) for n, card in enumerate(best.cards) if accepts(card, wants, wanted)]
    _, chosen = max(cards, key=lambda c: (on_card * round(fullness(c[1], wants), 9), c[1].device.numa, c[0]))
    return best.node.name, chosen.device.uuid


def replicas(letter: str, wants: DeviceAsk = WANTED) -> list[Pod]:
    node_policy, gpu_policy = STRATEGIES[letter]
    return [pod(f"demo-{n}", wants, node_policy=node_policy, gpu_policy=gpu_policy) for n in range(REPLICAS)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("letter", STRATEGIES)
def test_each_pod_goes_where_the_strategy_says(letter: str, seed: int) -> None:
    scheduler = half_full(seed)
    share = sum(c.memory_used_mib for use in usage(scheduler) for c in use.cards) / sum(
        c.device.memory_mib for use in usage(scheduler) for c in use.cards
    )
    assert 0.05 < share < 0.75
    for one in replicas(letter):
        where = expected(usage(scheduler), one, WANTED)
        (decision,) = scheduler.place([Group(one.key, (one,))])
        assert (decision.node, decision.shares[0].uuid) == where


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_each_strategy_buys(seed: int) -> None:
    """Nodes and cards touched, and whole cards left: packing needs fewer than spreading, on each axis by itself."""
    nodes, cards, free = {}, {}, {}
    for letter in STRATEGIES:
        scheduler = half_full(seed)
        decisions = scheduler.place([Group(one.key, (one,)) for one in replicas(letter)])
        assert all(decision.placed for decision in decisions)
        nodes[letter] = len({decision.node for decision in decisions})
        cards[letter] = len({decision.shares[0].uuid for decision in decisions})
        free[letter] = whole_cards_free(usage(scheduler))
    assert nodes["A"] < nodes["B"]
    assert nodes["C"] < nodes["D"]
    assert cards["A"] < cards["D"]
    assert cards["B"] <= cards["D"]
    assert free["A"] > free["D"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_packing_opens_no_node_while_a_busier_one_has_room(seed: int) -> None:
    """A, stated as the fewest nodes possible under its rule: whoever is left out earlier had no room."""
    scheduler = half_full(seed)
    order = sorted(usage(scheduler), key=lambda use: (-busyness(use), use.node.name))
    decisions = scheduler.place([Group(one.key, (one,)) for one in replicas("A")])
    used = {decision.node for decision in decisions}
    last = max(n for n, use in enumerate(order) if use.node.name in used)
    probe = pod("probe", WANTED)
    now = {use.node.name: use for use in usage(scheduler)}
    for use in order[:last]:
        assert not any(accepts(card, WANTED, probe) for card in now[use.node.name].cards)


@pytest.mark.parametrize("seed", [1, 2])
def test_replicas_really_spread(seed: int) -> None:
    """spread-replicas: no node has two of a Deployment while one that could take it has none."""
    scheduler = half_full(seed)
    wanted = [
        pod(f"web-{n}", WANTED, node_policy="spread-replicas", owner="Deployment/default/web") for n in range(REPLICAS)
    ]
    able = sum(any(accepts(card, WANTED, wanted[0]) for card in use.cards) for use in usage(scheduler))
    decisions = scheduler.place([Group(one.key, (one,)) for one in wanted])
    assert len({decision.node for decision in decisions}) == min(able, REPLICAS)
