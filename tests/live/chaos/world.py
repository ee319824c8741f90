"""The cluster that faults happen to: its nodes and its load, canaries that show a blind scheduler, and calm moments."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.live.chaos.machines import CANARY, CANARY_TAINT, Machine
from tests.live.chaos.witness import Witness, gpus_of, name_of
from tests.live.dovetail_process import Dovetail
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, REGISTER, gpu_limits, pod
from tools.controlplane.plane import ControlPlane

BLIND_SECONDS = 5.0  # a canary that waits longer shows a blind scheduler; 0.05 s are usual
FIT_SECONDS = 30.0  # a pod that fits may wait so long
LOAD = (38, 56)  # pods at least and at most: more than fit, so that some always wait
WAITING = 4  # so many at least when a fault begins
WHOLE = gpu_limits(1, memory=15360, cores=100)
WHOLES = (gpu_limits(1), WHOLE, gpu_limits(1), {GPU_MEMORY: 15360, GPU_CORES: 100})  # all ask for one whole GPU
RESERVED = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
SETTLE = 0.7  # seconds after a change of a node in which binds that precede it arrive
GANG = "scheduling.x-k8s.io/pod-group"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


@dataclass
class World:
    plane: ControlPlane
    api: Client
    kubelet: Kubelet
    dovetail: Dovetail
    witness: Witness
    dice: random.Random  # of the fault under way: a seed gives the same faults whatever the load does
    load_dice: random.Random
    wrong: list[str] = field(default_factory=list)  # what this module itself found
    details: list[str] = field(default_factory=list)  # arguments of the fault under way, printed for a repetition
    waits: list[float] = field(default_factory=list)  # of canaries, seconds
    gangs: dict[str, int] = field(default_factory=dict)  # gang -> its minimum; those that faults left whole
    made: int = 0
    excused: bool = False  # the scheduler may have ended: it could not renew its Lease, or was killed

    # --- verbs

    def machine(self, *kinds: str) -> Machine:
        """One of these kinds, by the dice."""
        names = [name for name, one in self.witness.machines.items() if one.kind in kinds and name in LASTING]
        chosen = self.witness.machines[self.dice.choice(names)]
        self.details.append(chosen.name)
        return chosen

    def note(self, kind: str, name: str, key: str, value: str | None) -> None:
        self.quietly(lambda: self.api.patch(kind, name, {"metadata": {"annotations": {key: value}}}))

    def label(self, kind: str, name: str, key: str, value: str | None) -> None:
        self.quietly(lambda: self.api.patch(kind, name, {"metadata": {"labels": {key: value}}}))

    def register(self, node: str, cards: list[Object]) -> None:
        self.note("Node", node, REGISTER, json.dumps(cards, separators=(",", ":")))

    def allocatable(self, node: str, gpus: int) -> None:
        amounts = {GPU: str(gpus)}
        self.api.patch("Node", node, {"status": {"capacity": amounts, "allocatable": amounts}}, part="status")

    def quietly(self, do: Callable[[], Any]) -> None:
        """What a fault does to an object that has gone meanwhile does not matter."""
        try:
            do()
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def create(self, item: Object) -> Object:
        self.made += item["kind"] == "Pod"
        return self.api.create(item)

    def name(self, stem: str) -> str:
        return f"{stem}-{self.made:05}"

    def remove(self, name: str, now: bool = False) -> None:
        options: Object = {"gracePeriodSeconds": 0} if now else {}
        self.api.delete("Pod", name, **options)

    def running(self, fits: Callable[[Object], bool] = lambda item: True) -> list[str]:
        """Names of default's pods that have a node, in order."""
        items = [one.item for one in list(self.witness.held.values())]
        return sorted(i["metadata"]["name"] for i in items if i["metadata"]["namespace"] == "default" and fits(i))

    def any_running(self, fits: Callable[[Object], bool] = lambda item: True) -> str | None:
        names = self.running(fits)
        if not names:
            return None
        chosen = self.dice.choice(names)
        self.details.append(chosen)
        return chosen

    # --- load

    def pause(self, least: float, most: float) -> None:
        """Lasts so long by the dice; meanwhile pods come and go."""
        end = time.monotonic() + self.dice.uniform(least, most)
        while time.monotonic() < end:
            self.churn()
            time.sleep(min(0.15, max(0.0, end - time.monotonic())))

    def churn(self) -> None:
        there = [item for item in self.api.list("Pod") if is_load(item)]
        for item in there:
            if item["status"].get("phase") in ("Failed", "Succeeded"):
                self.remove(item["metadata"]["name"], now=True)
        if len(there) >= LOAD[1] or (len(there) > LOAD[0] and self.load_dice.random() < 0.5):
            leaving = [item for item in there if not item["metadata"].get("deletionTimestamp")]
            if leaving:
                self.remove(self.load_dice.choice(leaving)["metadata"]["name"])
        else:
            self.create(self.some_pod())

    def some_pod(self) -> Object:
        """Whole GPUs, parts of one with and without a count, two GPUs, none."""
        draw, name, marks = self.load_dice.random(), self.name("p"), {"load": "1"}
        if draw < 0.60:
            return pod(name, self.load_dice.choice(WHOLES), labels=marks)
        if draw < 0.68:
            return pod(name, gpu_limits(2), labels=marks)
        if draw < 0.76:
            return pod(name, {"cpu": "100m"}, labels=marks)
        memory, cores = self.load_dice.randrange(1000, 7000), self.load_dice.randrange(10, 50)
        return pod(name, gpu_limits(1, memory=memory, cores=cores), labels=marks)

    def crowd(self) -> None:
        """More pods than fit: a card that is given away by mistake finds a taker at once."""
        for _ in range(10):
            waiting = [item for item in self.api.list("Pod") if is_load(item) and not item["spec"].get("nodeName")]
            if len(waiting) >= WAITING:
                return
            self.fill(WAITING)
            time.sleep(0.3)

    @contextmanager
    def reserved(self, node: str) -> Iterator[Object]:
        """The node has room, and only pods with what is yielded in their spec may come."""
        self.api.patch("Node", node, {"spec": {"taints": [RESERVED]}})
        time.sleep(SETTLE)
        for name in self.running(lambda item: bool(item["spec"]["nodeName"] == node)):
            self.remove(name, now=True)
        try:
            yield {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [RESERVED]}
        finally:
            self.quietly(lambda: self.api.patch("Node", node, {"spec": {"taints": []}}))

    def fill(self, wholes: int, **spec: Any) -> list[str]:
        """Pods that ask for a whole GPU each: something always waits for a card."""
        names = []
        for _ in range(wholes):
            names.append(self.name("w"))
            self.create(pod(names[-1], self.load_dice.choice(WHOLES), labels={"load": "1"}, **spec))
        return names

    def gang(self, members: int, minimum: int, group: bool = True, **spec: Any) -> str:
        name = self.name("gang")
        if group:
            self.pod_group(name, minimum)
        self.gangs[f"default/{name}"] = minimum
        for _ in range(members):
            self.member(name, **spec)
        return name

    def member(self, gang: str, **spec: Any) -> str:
        name = self.name(gang)
        self.create(pod(name, gpu_limits(1), labels={GANG: gang}, **spec))
        return name

    def pod_group(self, name: str, minimum: int) -> None:
        meta = {"name": name, "namespace": "default"}
        body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta}
        self.api.ask("POST", GROUPS, {**body, "spec": {"minMember": minimum}})

    def disband(self, gang: str) -> None:
        """Members first: what they were is no longer judged."""
        self.gangs.pop(f"default/{gang}", None)
        for item in self.api.list("Pod", labelSelector=f"{GANG}={gang}"):
            self.remove(item["metadata"]["name"], now=True)
        self.api.request("DELETE", f"{GROUPS}/{gang}")

    # --- is the scheduler blind?

    def revive(self) -> None:
        """As kubelet would: a process that ended is started again. That it ended is wrong, unless it was excused."""
        process = self.dovetail.process
        if process is None or not process.running():
            if not self.excused:
                last = process.last_words(3) if process else "?"
                self.wrong.append(f"process: the scheduler ended: {last}")
            self.dovetail.start()
        self.excused = False

    def canaries(self, node: str = CANARY) -> None:
        """One pod without and one with a GPU, on a node that has room for them: each must be bound in time."""
        for limits in ({"cpu": "10m"}, gpu_limits(1, memory=100, cores=1)):
            name = self.name("canary")
            only: Object = {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [CANARY_TAINT]}
            self.create(pod(name, limits, **only))
            self._watch_canary(name)
            self.remove(name, now=True)

    def _watch_canary(self, name: str) -> None:
        started, told = time.monotonic(), False
        while not self.api.get("Pod", name)["spec"].get("nodeName"):
            waited = time.monotonic() - started
            if waited > BLIND_SECONDS and not told:
                told = True
                self.wrong.append(
                    f"blind: {name} still waits after {waited:.1f} s; /readyz {self.dovetail.get('/readyz')}"
                )
            if waited > 4 * BLIND_SECONDS:
                self.dovetail.kill()
                self.dovetail.start()
                break
            time.sleep(0.02)
        self.waits.append(time.monotonic() - started)

    def fresh_node(self) -> None:
        """A node that came after the fault, with canaries of its own: nodes are seen, too."""
        machine = Machine(self.name("fresh"), "hami", 1)
        self.witness.machines[machine.name] = machine
        made = machine.node()
        made["spec"]["taints"] = [CANARY_TAINT]
        self.api.create(made)
        self.canaries(machine.name)
        self.api.delete("Node", machine.name)
        del self.witness.machines[machine.name]

    # --- calm: nothing is broken, so nothing may wait in vain

    def calm(self) -> None:
        """Pods that fit are placed within FIT_SECONDS, and no gang is placed in part."""
        deadline = time.monotonic() + FIT_SECONDS
        while (waiting := self.in_vain() + self.in_part()) and time.monotonic() < deadline:
            time.sleep(0.5)
        self.wrong += waiting

    def in_vain(self) -> list[str]:
        return [
            f"in vain: {name_of(item)} waits though {free[0]} is free: {_said(item)}"
            for item in self.api.list("Pod")
            if is_load(item) and not item["spec"].get("nodeName") and not item["metadata"].get("deletionTimestamp")
            if gpus_of(item) == 1 and (free := self.witness.free_cards(item["spec"].get("nodeSelector", {})))
        ]

    def in_part(self) -> list[str]:
        bound = self.witness.bound_of_gang
        return [
            f"gang: {len(bound[gang])} of {minimum} members of {gang} were ever bound"
            for gang, minimum in self.gangs.items()
            if 0 < len(bound[gang]) < minimum
        ]

    def sweep(self) -> None:
        """Pods that ended are removed."""
        for item in self.api.list("Pod"):
            if item["status"].get("phase") in ("Failed", "Succeeded"):
                self.remove(item["metadata"]["name"], now=True)

    def restore(self) -> None:
        """After a fault that could not be made as it was meant: the API server, and every node as it was."""
        self.plane.start_api_server()
        self.kubelet.start_delay = 0.0
        for name in LASTING:
            self.api.delete("Node", name)
            self.api.create(self.witness.machines[name].node())

    def start_over(self) -> None:
        """After something was found: no pods at all, so that it is found once, and under its own name."""
        self.gangs.clear()

        def gone() -> bool:
            names = [item["metadata"]["name"] for item in self.api.list("Pod")]
            for name in names:
                self.remove(name, now=True)
            return not names and not self.running()

        self.api.wait_until(gone, "all pods are gone")
        self.witness.drain()


LASTING = frozenset({"h0", "h1", "h2", "h3", "k0", "k1", "s0", "s1"})


def is_load(item: Object) -> bool:
    return "load" in (item["metadata"].get("labels") or {})


def _said(item: Object) -> str:
    for one in item["status"].get("conditions", []):
        if one["type"] == "PodScheduled":
            return f"{one.get('reason')}: {one.get('message')}"
    return "no condition"


@contextmanager
def put_back(world: World, node: str, changes: Object, back: Object) -> Iterator[None]:
    """The node changed as long as the block runs."""
    world.quietly(lambda: world.api.patch("Node", node, changes))
    try:
        yield
    finally:
        world.quietly(lambda: world.api.patch("Node", node, back))
