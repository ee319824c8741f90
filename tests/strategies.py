"""Small mixed clusters and pods for property tests: little of everything, so that things collide.

Sizes are small multiples of one another on purpose: ties, exact fits and misses by one are then common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node, Taint
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, DeviceRules, Group, Pod, Profile, Quota
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration

GIB = 2**30
DONGLE = "example.com/dongle"
MODELS = {"NVIDIA": ("NVIDIA A100-SXM4-80GB", "NVIDIA T4"), "AMD": ("AMD MI300X",)}
TAINT = Taint("gpu", "only", "NoSchedule")
NODE_POLICIES = (
    "binpack",
    "spread",
    "spread-replicas",
    "least-allocated",
    "most-allocated",
    "requested-to-capacity-ratio",
    "fit-plus",
    "first-fit",
    "random",
)
CHAINS = (
    ("binpack",),
    ("spread",),
    ("mutex",),
    ("numa",),
    ("topology-aware",),
    ("first-fit",),
    ("random",),
    ("binpack", "numa"),
    ("numa", "spread"),
    ("mutex", "topology-aware"),
)
ARGUMENTS = {
    "fit-plus": {
        "resources": {
            DONGLE: {"type": "MostAllocated", "weight": 20},
            "cpu": {"type": "LeastAllocated", "weight": 2},
        }
    }
}
MEMORIES = (0, 1, 1000, 2000, 3000, 4000, 8000, 9000)
PERCENTS = (1, 25, 50, 100)
CORES = (0, 0, 100, 300, 500, 1000)


class Cluster(NamedTuple):
    nodes: tuple[Node, ...]
    groups: tuple[Group, ...]


rarely = st.integers(0, 9).map(lambda n: n == 0)
often = st.booleans()


@st.composite
def cards(draw: st.DrawFn, prefix: str, most: int = 4) -> tuple[Device, ...]:
    """Cards of one node: usually one model and size, sometimes mixed, some of them out of order."""
    made = []
    mixed = draw(rarely)
    vendor = draw(st.sampled_from(("NVIDIA", "NVIDIA", "NVIDIA", "AMD")))
    model, memory = draw(st.sampled_from(MODELS[vendor])), draw(st.sampled_from((4000, 8000)))
    slots, compute = draw(st.sampled_from((1, 2, 10))), draw(st.sampled_from((1000, 1000, 1000, 2000)))
    for n in range(draw(st.integers(0, most))):
        if mixed:
            vendor = draw(st.sampled_from(sorted(MODELS)))
            model, memory = draw(st.sampled_from(MODELS[vendor])), draw(st.sampled_from((4000, 8000)))
        made.append(
            Device(
                f"{prefix}/{n}",
                n,
                vendor,
                model,
                memory,
                compute,
                slots,
                numa=draw(st.integers(0, 1)),
                healthy=not draw(rarely),
                cordoned=draw(rarely),
            )
        )
    return tuple(made)


@st.composite
def nodes(draw: st.DrawFn, name: str = "n0", most_cards: int = 4) -> Node:
    devices = draw(cards(name, most_cards))
    links: tuple[tuple[int, ...], ...] = ()
    if devices and draw(often):
        pairs = [[draw(st.sampled_from((10, 20, 50, 100))) for _ in range(n)] for n in range(len(devices))]
        side = range(len(devices))
        links = tuple(tuple(0 if x == y else pairs[max(x, y)][min(x, y)] for y in side) for x in side)
    allocatable = {
        "cpu": draw(st.sampled_from((2000, 8000))),
        "memory": 16 * GIB,
        "ephemeral-storage": 100 * GIB,
        "pods": draw(st.sampled_from((2, 110))),
        "nvidia.com/gpu": sum(device.slots for device in devices),
    }
    if draw(often):
        allocatable[DONGLE] = 4
    return Node(
        name,
        allocatable,
        devices,
        links,
        labels={"zone": draw(st.sampled_from("ab")), "kubernetes.io/hostname": name},
        taints=(TAINT,) if draw(rarely) else (),
        unschedulable=draw(rarely),
        enforcer=Enforcer.STOCK if draw(rarely) else Enforcer.HAMI,
        mig=draw(st.integers(0, 29)) == 0,
    )


@st.composite
def asks(draw: st.DrawFn) -> DeviceAsk:
    vendor = draw(st.sampled_from(("NVIDIA",) * 4 + ("AMD",)))
    count = draw(st.sampled_from((1, 1, 1, 2, 3)))
    if draw(st.integers(0, 3)) == 0:
        return DeviceAsk(vendor, count, 0, 100, 1000)  # whole cards
    if draw(st.integers(0, 3)) == 0:
        return DeviceAsk(vendor, count, 0, draw(st.sampled_from(PERCENTS)), draw(st.sampled_from(CORES)))
    return DeviceAsk(vendor, count, draw(st.sampled_from(MEMORIES)), None, draw(st.sampled_from(CORES)))


@st.composite
def containers(draw: st.DrawFn) -> tuple[Container, ...]:
    """One app container, often after an init container or a sidecar; HAMi's order."""
    kinds = draw(
        st.sampled_from(
            (
                (ContainerKind.APP,),
                (ContainerKind.APP,),
                (ContainerKind.APP,),
                (ContainerKind.APP, ContainerKind.APP),
                (ContainerKind.INIT, ContainerKind.APP),
                (ContainerKind.SIDECAR, ContainerKind.INIT, ContainerKind.APP),
                (ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP),
            )
        )
    )
    return tuple(
        Container(f"c{n}", kind, tuple(draw(st.lists(asks(), min_size=0 if n else 1, max_size=2 if n else 1))))
        for n, kind in enumerate(kinds)
    )


@st.composite
def device_rules(draw: st.DrawFn) -> tuple[DeviceRules, ...]:
    if draw(st.integers(0, 2)) > 0:
        return ()
    some_cards = st.sampled_from(("n0/0", "n0/1", "n1/0"))
    fields: dict[str, Any] = draw(
        st.sampled_from(
            (
                {"use_types": ("A100",)},
                {"nouse_types": ("T4",)},
                {"use_types": ("A100",), "numa_bind": True},
                {"numa_bind": True},
                {"use_uuids": ("n0/0", "n1/1")},
                {"nouse_uuids": ("n0/0",)},
                {"mode": "hami-core"},
            )
        )
    )
    if "nouse_uuids" in fields:
        fields = {"nouse_uuids": (draw(some_cards),)}
    return (DeviceRules("NVIDIA", **fields),)


@st.composite
def node_rules(draw: st.DrawFn) -> NodeRules:
    kind = draw(st.integers(0, 11))
    tolerations = (Toleration("gpu", "Exists"),) if draw(st.integers(0, 3)) == 0 else ()
    if kind == 0:
        return NodeRules(node_name="n0", tolerations=tolerations)
    if kind in (1, 2):
        return NodeRules(selector=(("zone", draw(st.sampled_from("ab"))),), tolerations=tolerations)
    if kind == 3:
        term = AffinityTerm((Requirement("zone", "In", ("a",)),))
        return NodeRules(affinity=(term,), tolerations=tolerations)
    return NodeRules(tolerations=tolerations)


profiles = st.builds(
    Profile,
    st.sampled_from(NODE_POLICIES),
    st.sampled_from(CHAINS),
    st.sampled_from(((1, 1, 1), (1, 1, 1), (0, 1, 3))),
)


@st.composite
def pods(draw: st.DrawFn, name: str = "p0", profile: st.SearchStrategy[Profile] = profiles) -> Pod:
    resources: dict[str, int] = {}
    if draw(often):
        resources["cpu"] = draw(st.sampled_from((500, 1000, 3000)))
    if draw(rarely):
        resources[DONGLE] = draw(st.integers(1, 3))
    wants_cards = draw(st.integers(0, 5)) > 0
    return Pod(
        "default",
        name,
        f"uid-{name}",
        resources,
        scored_cpu_milli=resources.get("cpu", 100),
        scored_memory=200 * 2**20,
        containers=draw(containers()) if wants_cards else (Container("c0"),),
        device_rules=draw(device_rules()),
        node_rules=draw(node_rules()),
        profile=draw(profile),
        priority=draw(st.integers(0, 2)),
        owner=draw(st.sampled_from(("", "Deployment/default/web", "Job/default/train"))),
    )


@st.composite
def groups(
    draw: st.DrawFn, count: int, prefix: str = "p", profile: st.SearchStrategy[Profile] = profiles
) -> tuple[Group, ...]:
    """`count` pods in their order, most of them alone, some in groups with a minimum."""
    made = []
    n = 0
    while n < count:
        size = min(draw(st.sampled_from((1, 1, 1, 2, 3))), count - n)
        members = tuple(draw(pods(f"{prefix}{n + m}", profile)) for m in range(size))
        minimum = draw(st.integers(1, size + 1)) if size > 1 else 1
        made.append(Group(f"{prefix}{n}", members, minimum))
        n += size
    return tuple(made)


@st.composite
def clusters(
    draw: st.DrawFn, most_nodes: int = 4, most_pods: int = 8, profile: st.SearchStrategy[Profile] = profiles
) -> Cluster:
    made = tuple(draw(nodes(f"n{n}")) for n in range(draw(st.integers(1, most_nodes))))
    return Cluster(made, draw(groups(draw(st.integers(1, most_pods)), profile=profile)))


quotas = st.builds(
    lambda mib, milli: (
        Quota("default", "q", device_memory_mib={"NVIDIA": mib}, device_compute_milli={"NVIDIA": milli}),
    ),
    st.sampled_from((0, 3000, 8000, 12_000)),
    st.sampled_from((500, 1000, 10_000)),
)
