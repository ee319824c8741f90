"""Small mixed clusters and pods for property tests: little of everything, so that things collide.

Hypothesis chooses how many nodes and pods and a seed; what they are is drawn from the seed, each by its own number, so
that a failing example shrinks to few nodes and pods without changing those that stay. Sizes are small multiples of one
another on purpose: ties, exact fits and misses by one are then common.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node, Taint
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, DeviceRules, Group, Pod, Profile, Quota
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration
from dovetail.policies.table import NODE_POLICIES as TABLE

GIB = 2**30
DONGLE = "example.com/dongle"
MODELS = {"NVIDIA": ("NVIDIA A100-SXM4-80GB", "NVIDIA T4"), "AMD": ("AMD MI300X",)}
TAINT = Taint("gpu", "only", "NoSchedule")
NODE_POLICIES = tuple(TABLE)
JOINT_POLICIES = tuple(name for name, policy in TABLE.items() if policy.offer is not None)
CHAINS = (
    ("binpack",),
    ("spread",),
    ("mutex",),
    ("numa",),
    ("topology-aware",),
    ("first-fit",),
    ("random",),
    ("best-fit",),
    ("binpack", "numa"),
    ("numa", "spread"),
    ("mutex", "topology-aware"),
)
ALL_PROFILES = tuple(Profile(node, chain) for node in NODE_POLICIES for chain in CHAINS)
JOINT_PROFILES = tuple(Profile(node) for node in JOINT_POLICIES)
SEPARATE_PROFILES = tuple(profile for profile in ALL_PROFILES if profile.node not in JOINT_POLICIES)
ARGUMENTS = {
    "fit-plus": {
        "resources": {
            DONGLE: {"type": "MostAllocated", "weight": 20},
            "cpu": {"type": "LeastAllocated", "weight": 2},
        }
    }
}
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
KINDS = ((APP,), (APP,), (APP,), (APP, APP), (INIT, APP), (SIDECAR, INIT, APP), (INIT, SIDECAR, APP), (INIT, INIT, APP))
OWNERS = ("", "Deployment/default/web", "Job/default/train")


class World(NamedTuple):
    nodes: tuple[Node, ...]
    groups: tuple[Group, ...]
    seed: int

    @property
    def chance(self) -> Random:
        """For what the test itself decides: orders, who leaves."""
        return Random(f"{self.seed}-test")


def some_node(chance: Random, name: str) -> Node:
    """Usually cards of one kind, sometimes mixed; now and then tainted, cordoned, with the stock plugin, or in MIG."""
    devices = _cards(chance, name)
    side = range(len(devices))
    pairs = [[chance.choice((10, 20, 50, 100)) for _ in side] for _ in side]
    links = tuple(tuple(0 if x == y else pairs[max(x, y)][min(x, y)] for y in side) for x in side)
    allocatable = {
        "cpu": chance.choice((2000, 8000, 8000)),
        "memory": 16 * GIB,
        "ephemeral-storage": 100 * GIB,
        "pods": chance.choice((3, 110, 110)),
        "nvidia.com/gpu": sum(device.slots for device in devices),
    }
    if chance.random() < 0.5:
        allocatable[DONGLE] = 4
    return Node(
        name,
        allocatable,
        devices,
        links if chance.random() < 0.5 else (),
        labels={"zone": chance.choice("ab"), "kubernetes.io/hostname": name},
        taints=(TAINT,) if chance.random() < 0.1 else (),
        unschedulable=chance.random() < 0.05,
        enforcer=Enforcer.STOCK if chance.random() < 0.08 else Enforcer.HAMI,
        mig=chance.random() < 0.03,
    )


def _cards(chance: Random, name: str) -> tuple[Device, ...]:
    mixed = chance.random() < 0.15

    def kind() -> tuple[str, str, int, int, int]:
        vendor = chance.choice(("NVIDIA",) * 9 + ("AMD",))
        memory, compute = chance.choice((4000, 8000)), chance.choice((1000, 1000, 1000, 2000))
        return vendor, chance.choice(MODELS[vendor]), memory, compute, chance.choice((1, 3, 10, 10))

    same = kind()
    return tuple(
        Device(
            f"{name}/{n}",
            n,
            *(kind() if mixed else same),
            numa=chance.randrange(2),
            healthy=chance.random() < 0.93,
            cordoned=chance.random() < 0.05,
        )
        for n in range(chance.choice((0, 1, 2, 2, 3, 3, 4, 4, 4, 4)))
    )


def some_pod(chance: Random, name: str, profiles: tuple[Profile, ...] = ALL_PROFILES) -> Pod:
    resources: dict[str, int] = {}
    if chance.random() < 0.5:
        resources["cpu"] = chance.choice((100, 500, 1000, 3000))
    if chance.random() < 0.1:
        resources[DONGLE] = chance.randint(1, 3)
    profile = chance.choice(profiles)
    if chance.random() < 0.2:
        profile = replace(profile, weights=(0, 1, 3))
    kinds = chance.choice(KINDS) if chance.random() < 0.9 else ()
    asking = [1] + [chance.choice((0, 1, 1, 2)) for _ in kinds[1:]]
    chance.shuffle(asking)
    return Pod(
        "default",
        name,
        f"uid-{name}",
        resources,
        scored_cpu_milli=resources.get("cpu", 100),
        scored_memory=200 * 2**20,
        containers=tuple(
            Container(f"c{n}", kind, tuple(some_ask(chance) for _ in range(number)))
            for n, (kind, number) in enumerate(zip(kinds, asking, strict=False))
        ),
        device_rules=(_device_rules(chance),) if chance.random() < 0.25 else (),
        node_rules=_node_rules(chance),
        profile=profile,
        priority=chance.randrange(3),
        owner=chance.choice(OWNERS),
    )


def some_ask(chance: Random) -> DeviceAsk:
    """By MiB, which now and then are a default and nobody's wish, by per cent, or whole cards."""
    vendor = chance.choice(("NVIDIA",) * 15 + ("AMD",))
    count, cores = chance.choice((1, 1, 1, 1, 1, 2, 2, 3)), chance.choice((0, 0, 100, 300, 500, 1000))
    way = chance.random()
    if way < 0.15:
        return DeviceAsk(vendor, count, 0, 100, 1000)
    if way < 0.3:
        return DeviceAsk(vendor, count, 0, chance.choice((1, 25, 50, 100)), cores)
    memory = chance.choice((0, 1, 500, 1000, 1000, 1000, 2000, 2000, 3000, 4000, 9000))
    return DeviceAsk(vendor, count, memory, None, cores, plain=way > 0.9)


def _device_rules(chance: Random) -> DeviceRules:
    uuids = tuple(f"n{chance.randrange(3)}/{chance.randrange(3)}" for _ in range(chance.randint(1, 4)))
    return chance.choice(
        (
            DeviceRules("NVIDIA", use_types=("A100",)),
            DeviceRules("NVIDIA", nouse_types=("T4",)),
            DeviceRules("NVIDIA", use_types=("NVIDIA",), numa_bind=True),
            DeviceRules("NVIDIA", numa_bind=True),
            DeviceRules("NVIDIA", numa_bind=True),
            DeviceRules("NVIDIA", use_uuids=uuids),
            DeviceRules("NVIDIA", nouse_uuids=uuids),
            DeviceRules("NVIDIA", mode="hami-core"),
        )
    )


def _node_rules(chance: Random) -> NodeRules:
    tolerations = (Toleration("gpu", "Exists"),) if chance.random() < 0.5 else ()
    way = chance.random()
    if way < 0.04:
        return NodeRules(node_name="n0", tolerations=tolerations)
    if way < 0.12:
        return NodeRules(selector=(("zone", chance.choice("ab")),), tolerations=tolerations)
    if way < 0.2:
        return NodeRules(affinity=(AffinityTerm((Requirement("zone", "In", ("a",)),)),), tolerations=tolerations)
    return NodeRules(tolerations=tolerations)


def renamed(pod: Pod, name: str) -> Pod:
    return replace(pod, name=name, uid=f"uid-{name}")


def some_groups(seed: int, pods: int, profiles: tuple[Profile, ...] = ALL_PROFILES) -> tuple[Group, ...]:
    """Replicas of few templates: most alone, some in groups that need all, or all but one, or more than there are."""
    made: list[Group] = []
    n = 0
    while n < pods:
        chance = Random(f"{seed}-group-{n}")
        size = min(chance.choice((1, 1, 1, 2, 3)), pods - n)
        members = []
        for m in range(n, n + size):
            template = Random(f"{seed}-pod-{Random(f'{seed}-which-{m}').randrange(6)}")
            members.append(renamed(some_pod(template, "t", profiles), f"p{m}"))
        minimum = max(1, size - chance.choice((0, 0, 1, -1))) if size > 1 else 1
        made.append(Group(f"p{n}", tuple(members), minimum))
        n += size
    return tuple(made)


def some_nodes(seed: int, nodes: int) -> tuple[Node, ...]:
    return tuple(some_node(Random(f"{seed}-node-{n}"), f"n{n}") for n in range(nodes))


seeds = st.integers(0, 2**32 - 1)


def worlds(nodes: int = 6, pods: int = 16, profiles: tuple[Profile, ...] = ALL_PROFILES) -> st.SearchStrategy[World]:
    """Up to so many nodes and pods."""

    def build(seed: int, many_nodes: int, many_pods: int) -> World:
        return World(some_nodes(seed, many_nodes), some_groups(seed, many_pods, profiles), seed)

    return st.builds(build, seeds, st.sampled_from(range(1, nodes + 1)), st.sampled_from(range(1, pods + 1)))


quotas = st.builds(
    lambda mib, milli: (
        Quota("default", "q", device_memory_mib={"NVIDIA": mib}, device_compute_milli={"NVIDIA": milli}),
    ),
    st.sampled_from((0, 3000, 5000, 8000, 12_000)),
    st.sampled_from((500, 1000, 10_000)),
)
