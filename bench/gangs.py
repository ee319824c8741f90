"""How long gangs with a topology rule take: 512 pods of 8 GPUs in one block of a topology of three levels.

Half of the GPUs of each cluster are in use, node by node; on the fragmented ones, every tenth free node has lost one
GPU to a small pod. Decisions are made and undone, so every round starts from the same cluster. On 500 nodes of 8 GPUs
the gang could never fit (4,096 of 4,000 GPUs), so these nodes have 32. `make bench` runs it; alone: python -m
bench.gangs
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from dovetail import kernel_cache
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.device import Device
from dovetail.model.events import NodeChanged, TopologyChanged
from dovetail.model.gang import DomainSpread, Role, TopologyRule
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, Profile

BLOCK, RACK, HOST = "topology/block", "topology/rack", "kubernetes.io/hostname"
RACK_NODES, BLOCK_NODES, ROUNDS = 25, 1_250, 31
CLUSTERS = {500: 32, 5_000: 8, 20_000: 8}  # nodes -> GPUs of each
GIB = 2**30


def cluster(nodes: int, gpus: int, fragmented: bool) -> Scheduler:
    scheduler = Scheduler(mode="compiled", cache=True)
    scheduler.handle(TopologyChanged(0.0, "default", (BLOCK, RACK, HOST)))
    for number in range(nodes):
        name = f"n{number:05}"
        cards = tuple(Device(f"{name}-{n}", n, "NVIDIA", "NVIDIA A100", 81_920) for n in range(gpus))
        allocatable = {"cpu": 64_000, "memory": 1_024 * GIB, "ephemeral-storage": 1_024 * GIB, "pods": 110}
        labels = {BLOCK: f"b{number // BLOCK_NODES}", RACK: f"r{number // RACK_NODES}", HOST: name}
        node = Node(name, allocatable, cards, labels=labels, enforcer=Enforcer.HAMI)
        scheduler.handle(NodeChanged(0.0, node))
    others = [wants(f"other{n}", gpus, 1_000) for n in range(nodes // 2)]
    if fragmented:
        others += [wants(f"small{n}", 1, 1_000, node="spread") for n in range(nodes // 20)]
    for decision in scheduler.place([Group(pod.key, (pod,)) for pod in others]):
        assert decision.placed
    return scheduler


def wants(name: str, gpus: int, cpu: int, group: str = "", role: str = "", node: str = "random") -> Pod:
    asked = (DeviceAsk("NVIDIA", gpus, 81_920, None, 1_000),)
    profile = Profile("binpack" if group else node, ("binpack",))
    return Pod(
        "default",
        name,
        f"uid-{name}",
        {"cpu": cpu},
        cpu,
        0,
        (Container("main", asks=asked),),
        profile=profile,
        group=group,
        role=role,
    )


def replicas(name: str, gpus: int, cpu: int, group: str, role: str, count: int) -> tuple[Pod, ...]:
    """Pods that share the objects of one template, as those of a workload do."""
    template = wants(name, gpus, cpu, group, role)
    return tuple(template.named(f"{name}-{n}") for n in range(count))


def gang(pods: int, rule: TopologyRule) -> Group:
    name = f"gang{pods}{rule.required}"
    return Group(name, replicas(name, 8, 1_000, name, "", pods), pods, topology=rule)


def hard_gang(size: int) -> Group:
    """Roles that fill 2 × `size` nodes of 8 GPUs completely, and that placing role by role does not solve.

    At most one pod of 4 GPUs on a node: 4 + 2 + 2 and 3 + 3 + 2 must be combined; 4 + 3 wastes a GPU.
    """
    shapes = {"four": (4, size), "three": (3, 2 * size), "two": (2, 3 * size)}
    pods = [pod for role, (gpus, count) in shapes.items() for pod in replicas(role, gpus, 100, "hard", role, count)]
    alone = TopologyRule(spreads=(DomainSpread(HOST, most_each=1),))
    rules = {"four": alone}
    roles = tuple(Role(role, count, rules.get(role, TopologyRule())) for role, (_, count) in shapes.items())
    return Group("hard", tuple(pods), len(pods), roles=roles, topology=TopologyRule(required=BLOCK))


class TimedDecision(NamedTuple):
    """Milliseconds of a decision, over all rounds, and the decisions of the last one."""

    least: float
    median: float
    decisions: Sequence[Decision]

    def __str__(self) -> str:
        return f"{self.least:8.2f} ms {self.median:8.2f} ms"

    @property
    def figures(self) -> dict[str, float]:
        return {"least": round(self.least, 2), "median": round(self.median, 2)}


def timed(scheduler: Scheduler, group: Group) -> TimedDecision:
    seconds: list[float] = []
    decisions: Sequence[Decision] = ()
    for _ in range(ROUNDS):
        with scheduler.trial():
            started = perf_counter()
            decisions = scheduler.place([group])
            seconds.append(perf_counter() - started)
            placed = [decision for decision in decisions if decision.placed]
        assert len(placed) in (0, len(group.pods))
    return TimedDecision(1000 * min(seconds), 1000 * median(seconds), decisions)


def searched() -> dict[str, dict[str, float]]:
    """64 nodes that only the search can fill."""
    scheduler = cluster(64, 8, fragmented=False)
    scheduler.ledger.release_all(list(scheduler.ledger.pods))
    found = timed(scheduler, hard_gang(32))
    assert all(decision.placed for decision in found.decisions)
    assert scheduler.gangs.searched > 0
    print(f"  {'search, 192 pods of 3 roles on 64 nodes':<44} {found}")
    return {"search": found.figures}


def run() -> dict[str, dict[str, float]]:
    kernel_cache.prepare()
    found: dict[str, dict[str, float]] = {}
    print(f"Gangs of 512 pods × 8 GPUs in one block, least and median of {ROUNDS} rounds:")
    for nodes, gpus in CLUSTERS.items():
        for fragmented in (False, True):
            scheduler = cluster(nodes, gpus, fragmented)
            state = "fragmented" if fragmented else "half full"
            cases = {
                "no rule": gang(512, TopologyRule()),
                "required block": gang(512, TopologyRule(required=BLOCK)),
                "no": gang(512, TopologyRule(required=RACK)),  # a rack has 25 nodes
            }
            for title, group in cases.items():
                measured = timed(scheduler, group)
                assert any(decision.placed for decision in measured.decisions) == (title != "no")
                name = f"{nodes:,} nodes, {state}, {title}"
                print(f"  {name:<44} {measured}", flush=True)
                found[name] = measured.figures
    return found | searched()


if __name__ == "__main__":
    print(json.dumps({"gangs_ms": run()}))
