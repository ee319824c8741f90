"""How long a preemption plan takes on a full cluster: one GPU, 64 pods of 8 GPUs, and a request that cannot be helped.

5,000 nodes with 8 GPUs each hold 40,000 pods of one GPU, of priorities 0 to 4. Plans are made and thrown away, so every
round starts from the same cluster. `make bench` runs it; alone: python -m bench.preemption
"""

from __future__ import annotations

import json
from statistics import median
from time import perf_counter

from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.device import Device
from dovetail.model.events import NodeChanged, PodBound
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, Profile
from dovetail.policies.yielding import YIELD_BY_PRIORITY

NODES, CARDS, ROUNDS = 5_000, 8, 15
GIB = 2**30


def full(nodes: int = NODES) -> Scheduler:
    scheduler = Scheduler(mode="compiled", cache=True, rights=Rights(yielding=YIELD_BY_PRIORITY))
    for number in range(nodes):
        name = f"n{number:05}"
        cards = tuple(Device(f"{name}-{n}", n, "NVIDIA", "NVIDIA A100", 81_920) for n in range(CARDS))
        allocatable = {"cpu": 128_000, "memory": 1_024 * GIB, "ephemeral-storage": 1_024 * GIB, "pods": 110}
        scheduler.handle(NodeChanged(0.0, Node(name, allocatable, cards, enforcer=Enforcer.HAMI)))
    pods = [wants(f"low{n}", 1, n % 5) for n in range(nodes * CARDS)]
    for number, decision in enumerate(scheduler.place([Group(pod.key, (pod,)) for pod in pods])):
        assert decision.placed
        scheduler.handle(PodBound(1.0 + number / 1_000, decision.uid))
    return scheduler


def wants(name: str, gpus: int, priority: int) -> Pod:
    asked = DeviceAsk("NVIDIA", gpus, 81_920, None, 1_000)
    profile = Profile("binpack", ("binpack",))
    containers = (Container("main", asks=(asked,)),)
    resources = {"cpu": 4_000}
    return Pod("default", name, f"uid-{name}", resources, 4_000, 0, containers, profile=profile, priority=priority)


def gang(pods: int, gpus: int, priority: int) -> Group:
    name = f"gang{pods}x{gpus}"
    return Group(name, tuple(wants(f"{name}-{n}", gpus, priority) for n in range(pods)), pods)


def timed(scheduler: Scheduler, group: Group) -> tuple[float, int]:
    """Median seconds of a plan, and the number of its victims."""
    preemption, seconds, victims = scheduler.claims._preemption, [], 0
    assert preemption is not None
    for _ in range(ROUNDS):
        facts = scheduler.claims.service.of(group)
        started = perf_counter()
        with scheduler.trial():
            plan = preemption.plan(group, facts)
        seconds.append(perf_counter() - started)
        victims = len(plan.victims) if plan is not None else 0
    return median(seconds), victims


def run(nodes: int = NODES) -> dict[str, float]:
    scheduler, found = full(nodes), {}
    cases = {"1 GPU": gang(1, 1, 10), "64 pods of 8 GPUs": gang(64, 8, 10), "no eviction helps": gang(1, 9, 10)}
    print(f"Preemption plans on {nodes:,} full nodes, median of {ROUNDS}:")
    for title, group in cases.items():
        seconds, victims = timed(scheduler, group)
        print(f"  {title:<20} {seconds * 1000:8.1f} ms, {victims} pods to be stopped")
        found[title] = round(seconds * 1000, 2)
    return found


if __name__ == "__main__":
    print(json.dumps({"preemption_ms": run()}))
