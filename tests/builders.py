"""Nodes, cards and pods in a few words, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, DeviceRules, Group, Pod, Profile, RunningPod
from dovetail.model.rules import NodeRules

GIB = 2**30


def card(uuid: str, memory: int = 8000, index: int = 0, **facts: object) -> Device:
    """An NVIDIA card of 8,000 MiB with 10 slots, unless said otherwise."""
    vendor, model = str(facts.pop("vendor", "NVIDIA")), str(facts.pop("model", "NVIDIA"))
    return Device(uuid, index, vendor, model, memory, **facts)  # type: ignore[arg-type]


def node(
    name: str,
    *cards: Device,
    gpus: int = 0,
    memory: int = 8000,
    cpu: int = 64_000,
    extended: Mapping[str, int] | None = None,
    enforcer: Enforcer = Enforcer.HAMI,
    **facts: object,
) -> Node:
    """A node with the given cards, or with `gpus` equal ones called name/0, name/1, …"""
    made = cards or tuple(card(f"{name}/{n}", memory, n) for n in range(gpus))
    allocatable = {"cpu": cpu, "memory": 256 * GIB, "ephemeral-storage": 500 * GIB, "pods": 110, **(extended or {})}
    return Node(name, allocatable, made, enforcer=enforcer, **facts)  # type: ignore[arg-type]


def ask(
    count: int = 1, memory: int = 0, cores: int = 0, percent: int | None = None, vendor: str = "NVIDIA"
) -> DeviceAsk:
    """So many cards × MiB × per cent of compute, as HAMi's tests write it."""
    return DeviceAsk(vendor, count, memory, percent, cores * 10)


def pod(
    name: str,
    *asks: DeviceAsk,
    node_policy: str = "binpack",
    gpu_policy: str = "spread",
    weights: tuple[int, int, int] = (1, 1, 1),
    containers: Sequence[Container] | None = None,
    rules: DeviceRules | None = None,
    node_rules: NodeRules | None = None,
    cpu: int = 0,
    extended: Mapping[str, int] | None = None,
    **facts: object,
) -> Pod:
    """A pod with one container per ask, or with the given containers."""
    made = (
        tuple(containers)
        if containers is not None
        else tuple(Container(f"c{n}", ContainerKind.APP, (one,)) for n, one in enumerate(asks))
    )
    resources = {"cpu": cpu, **(extended or {})} if cpu or extended else {}
    return Pod(
        namespace=str(facts.pop("namespace", "default")),
        name=name,
        uid=str(facts.pop("uid", f"uid-{name}")),
        resources=resources,
        scored_cpu_milli=cpu or 100,
        scored_memory=200 * 2**20,
        containers=made,
        device_rules=(rules,) if rules else (),
        node_rules=node_rules or NodeRules(),
        profile=Profile(node_policy, tuple(gpu_policy.split(",")), weights),
        **facts,  # type: ignore[arg-type]
    )


def group(*pods: Pod, minimum: int | None = None, name: str = "") -> Group:
    """All or nothing, unless a minimum is given."""
    return Group(name or pods[0].key, pods, len(pods) if minimum is None else minimum)


def cluster(*nodes: Node, mode: str = "interpreted", **options: object) -> Scheduler:
    scheduler = Scheduler(mode=mode, **options)  # type: ignore[arg-type]
    for one in nodes:
        scheduler.handle(NodeChanged(0.0, one))
    return scheduler


def use(scheduler: Scheduler, where: str, uuid: str, slots: int, memory: int, cores: int) -> None:
    """Running pods that together hold so many slots, MiB and per cent of compute of one card."""
    for n in range(slots):
        part = (memory, cores * 10) if n == 0 else (0, 0)
        one = pod(f"on-{uuid.replace('/', '-')}-{n}", ask(1, part[0]))
        running = RunningPod(one, where, (Share(0, uuid, *part),))
        scheduler.handle(PodObserved(0.0, running))


def place(scheduler: Scheduler, *pods: Pod) -> list[tuple[str | None, tuple[str, ...]]]:
    """(node, cards) of each pod, placed one by one."""
    decisions = scheduler.place([group(one) for one in pods])
    return [(d.node, tuple(share.uuid for share in d.shares)) for d in decisions]
