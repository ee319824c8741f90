"""The cluster of mixed hardware, half full, and the stream of pods that all measurements use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, DeviceRules, Pod, Profile, RunningPod
from dovetail.model.rules import NodeRules, Toleration

GIB = 2**30
# 12 hardware types: model, GPU memory in MiB, CPU in milli, memory in GiB
HARDWARE = (
    ("NVIDIA Tesla T4", 15360, 32_000, 128),
    ("NVIDIA A10G", 23028, 48_000, 192),
    ("NVIDIA A10", 23028, 64_000, 256),
    ("NVIDIA L4", 23034, 48_000, 192),
    ("NVIDIA L40S", 46068, 96_000, 384),
    ("NVIDIA V100-SXM2-16GB", 16384, 64_000, 256),
    ("NVIDIA V100-SXM2-32GB", 32768, 64_000, 512),
    ("NVIDIA A100-SXM4-40GB", 40960, 96_000, 1024),
    ("NVIDIA A100-SXM4-80GB", 81920, 128_000, 1024),
    ("NVIDIA H100-SXM5-80GB", 81559, 192_000, 2048),
    ("NVIDIA H200-SXM5-141GB", 143771, 192_000, 2048),
    ("NVIDIA H20-96GB", 97871, 192_000, 1024),
)
CARDS = 8
IDLE = 0.3  # fraction of the cards
SHARES = (1, 2, 3, 4, 6, 8, 10, 12)  # thousand MiB


def nodes(count: int) -> Iterator[Node]:
    for n in range(count):
        model, memory, cpu, ram = HARDWARE[n % len(HARDWARE)]
        name = f"node-{n:05d}"
        devices = tuple(Device(f"{name}-gpu-{d}", d, "NVIDIA", model, memory, numa=d // 4) for d in range(CARDS))
        yield Node(
            name,
            {"cpu": cpu, "memory": ram * GIB, "pods": 110},
            devices,
            labels={"zone": f"zone-{n % 3}", "pool": f"pool-{n % 5}"},
            taints=(Taint("dedicated", "training", "NoSchedule"),) if n % 10 == 0 else (),
        )


def templates(kinds: int, profile: Profile, dice: Random) -> list[Pod]:
    """Pods with `kinds` distinct requests; every fifth has a selector, a GPU type, a toleration or NUMA binding."""
    made = []
    for n in range(kinds):
        whole = n % 10 == 3
        count = dice.choice((1, 1, 2, 4)) if whole else 1
        ask = (
            DeviceAsk("NVIDIA", count, 0, 100, 1000)
            if whole
            else DeviceAsk("NVIDIA", 1, 1000 * dice.choice(SHARES) + n, None, 10 * dice.randrange(0, 40, 5))
        )
        rules, where = DeviceRules("NVIDIA"), NodeRules()
        if n % 5 == 4:
            kind = dice.randrange(4)
            if kind == 0:
                where = NodeRules(selector=(("zone", f"zone-{n % 3}"),))
            elif kind == 1:
                rules = DeviceRules("NVIDIA", use_types=(dice.choice(("A100", "H100", "T4", "L4")),))
            elif kind == 2:
                where = NodeRules(tolerations=(Toleration("dedicated", "Exists"),))
            else:
                rules = DeviceRules("NVIDIA", numa_bind=True, nouse_types=("T4",))
        cpu = count * 1000 + 100 * (n % 7)
        made.append(
            Pod(
                "bench",
                f"t{n}",
                "",
                {"cpu": cpu, "memory": count * 4 * GIB},
                cpu,
                count * 4 * GIB,
                (Container("main", ContainerKind.APP, (ask,)),),
                (rules,),
                where,
                profile,
            )
        )
    return made


def half_full(count: int, made: list[Pod], mode: str, dice: Random) -> tuple[Scheduler, list[str]]:
    """A half-full cluster (some cards idle, the others well filled), and the uids of its pods."""
    scheduler = Scheduler(mode=mode, cache=True)
    small = [pod for pod in made if pod.containers[0].asks[0].memory_percent is None]
    running: list[str] = []
    for node in nodes(count):
        scheduler.handle(NodeChanged(0.0, node))
        for device in node.devices:
            if dice.random() < IDLE:
                continue
            memory, compute, level = 0, 0, dice.uniform(0.6, 1.0) * device.memory_mib
            for slot in range(device.slots):
                pod = dice.choice(small)
                ask = pod.containers[0].asks[0]
                memory, compute = memory + ask.memory_mib, compute + ask.compute_milli
                if memory > level or compute > device.compute_milli:
                    break
                uid = f"{device.uuid}-{slot}"
                shares = (Share(0, device.uuid, ask.memory_mib, ask.compute_milli),)
                held = RunningPod(replace(pod, name=uid, uid=uid), node.name, shares)
                scheduler.handle(PodObserved(0.0, held))
                running.append(uid)
    return scheduler, running
