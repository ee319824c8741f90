"""A chaos run: faults by the dice of a seed, one after the other, each followed by canaries and a verdict."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.live.chaos.faults_locks import LOCK_FAULTS
from tests.live.chaos.faults_nodes import NODE_FAULTS
from tests.live.chaos.faults_pods import POD_FAULTS, QUOTA_SPACE
from tests.live.chaos.faults_servers import SECOND, SERVER_FAULTS
from tests.live.chaos.machines import machines
from tests.live.chaos.witness import Witness
from tests.live.chaos.world import World
from tests.live.dovetail_process import ALONE, AUDITED, scheduling, wrong_ledger
from tools.controlplane.access import USER
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU_MEMORY
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Failed

Fault = Callable[[World], None]
Tell = Callable[[str], None]
FAULTS: dict[str, Fault] = {
    fault.__name__: fault for fault in (*NODE_FAULTS, *LOCK_FAULTS, *POD_FAULTS, *SERVER_FAULTS)
}
CALM_EVERY = 12  # faults
MOST_TOLD = 3  # findings of one fault
MEMORY_MARGIN = 1.25, 48  # the last look at the scheduler's memory may be so much higher than the first: factor, MiB

POD_GROUPS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@dataclass
class Outcome:
    seed: int
    faults: Counter[str] = field(default_factory=Counter)  # family -> how often
    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # family -> what was wrong
    pods: int = 0
    waits: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # MiB, at calm moments
    log: Path = Path()

    def summary(self) -> str:
        memory = f"{self.memory[0]} → {self.memory[-1]} MiB" if self.memory else "not measured"
        worst = max(self.waits, default=0.0)
        kinds = Counter(what.partition(":")[0] for wrong in self.found.values() for what in wrong)
        said = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())) or "nothing found"
        return (
            f"seed {self.seed}: {self.faults.total()} faults of {len(self.faults)} families, {self.pods} pods, "
            f"{len(self.waits)} canaries, the slowest {worst:.2f} s, memory {memory}: {said}"
        )


def run(plane: ControlPlane, seed: int, seconds: float, families: Sequence[str] = (), tell: Tell = print) -> Outcome:
    """Faults until the time is up; everything that was found wrong is in the outcome, by family."""
    chosen = list(families) or list(FAULTS)
    outcome = Outcome(seed)
    tell(f"chaos with seed {seed}: {len(chosen)} families, {seconds:.0f} s")
    with _world(plane, seed) as world:
        outcome.log = world.dovetail.log
        faults, number = _Faults(world, outcome, tell), 0
        while faults.elapsed() < seconds:
            name = _family(seed, number, chosen)
            world.dice, world.details = random.Random(f"{seed}/{number}/{name}"), []
            faults.make(name, number)
            number += 1
            if number % CALM_EVERY == 0:
                faults.calm()
        faults.calm()
        outcome.pods, outcome.waits = world.made, world.waits
        outcome.found["log"] += _tracebacks(world.dovetail.words()) + wrong_ledger(world.dovetail.words())
    _compare_memory(outcome)
    tell(outcome.summary())
    return outcome


def _family(seed: int, number: int, chosen: Sequence[str]) -> str:
    """Every family once in each round, in an order of its own."""
    order = list(chosen)
    random.Random(f"{seed}/{number // len(chosen)}").shuffle(order)
    return order[number % len(chosen)]


class _Faults:
    """Makes faults in a world, and puts down what was found."""

    def __init__(self, world: World, outcome: Outcome, tell: Tell) -> None:
        self._world, self._outcome, self._tell, self._started = world, outcome, tell, time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def make(self, name: str, number: int) -> None:
        world, at, canaries = self._world, self.elapsed(), len(self._world.waits)
        try:
            world.crowd()
            FAULTS[name](world)
            world.revive()
            world.canaries()
        except (ApiError, OSError, Failed) as error:  # TimeoutError is an OSError
            world.wrong.append(f"{name}: {type(error).__name__}: {error}")
            world.restore()
            world.revive()
        self._outcome.faults[name] += 1
        slowest = max(world.waits[canaries:], default=0.0)
        self._tell(f"{at:6.1f} s  {number:4} {name}({', '.join(world.details)})  canary {slowest:.2f} s")
        self._put_down(name)

    def calm(self) -> None:
        self._world.calm()
        self._put_down("calm")
        self._world.sweep()
        self._outcome.memory.append(_memory(self._world))

    def _put_down(self, name: str) -> None:
        wrong = self._world.witness.drain() + self._world.wrong
        self._world.wrong = []
        self._outcome.found[name] += wrong
        for what in wrong[:MOST_TOLD]:
            self._tell(f"          WRONG: {what}")
        if wrong:
            self._world.start_over()


def _memory(world: World) -> int:
    """Resident MiB of the scheduler."""
    assert world.dovetail.process is not None
    for line in Path(f"/proc/{world.dovetail.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def _compare_memory(outcome: Outcome) -> None:
    factor, more = MEMORY_MARGIN
    first, last = outcome.memory[0], outcome.memory[-1]
    if last > first * factor + more:
        outcome.found["memory"].append(f"{first} MiB at the first calm moment, {last} MiB at the last")


def _tracebacks(text: str) -> list[str]:
    parts = text.split("Traceback (most recent call last)")
    return [f"traceback: {part[:1000]}" for part in parts[1:]]


@contextmanager
def _world(plane: ControlPlane, seed: int) -> Iterator[World]:
    api = plane.client()
    with ExitStack() as stack:
        plane.start_controller_manager()
        _prepare(api)
        there = machines()
        for machine in there.values():
            api.create(machine.node())
        witness = stack.enter_context(Witness(api, there))
        kubelet = stack.enter_context(Kubelet(api.access, hami=True))
        dovetail = stack.enter_context(scheduling(plane, *AUDITED, *ALONE))
        world = World(plane, api, kubelet, dovetail, witness, random.Random(), random.Random(seed))
        world.pause(2.0, 2.0)
        world.canaries()
        yield world


def _prepare(api: Client) -> None:
    api.create(POD_GROUPS)
    api.wait_until(
        lambda: api.request("GET", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")[0] == 200, "PodGroups", 30
    )
    meta = {"name": "urgent"}
    api.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000})
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": QUOTA_SPACE}})
    hard = {f"limits.{GPU_MEMORY}": "4000"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": QUOTA_SPACE}}
    api.create({**quota, "spec": {"hard": hard}})
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update", "patch"],
    }
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": SECOND}}
    api.create({**role, "rules": [rule]})
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": SECOND}}
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SECOND}
    api.create({**binding, "roleRef": to, "subjects": [USER]})
