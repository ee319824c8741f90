"""Follows pods and nodes at the API server and judges every placement when it is made. Shares no code with dovetail.

What a pod holds is what was written when it was bound, whatever is written over it later, until the pod is gone. A node
is judged by what it said at any moment of the last seconds: a scheduler cannot know what was written an instant ago.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from tests.live.assigned import ALLOCATED, REGISTER, Use, holds, over, uses
from tests.live.chaos.machines import MEMORY, Machine
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, SLOTS

GRACE = 4.0  # seconds in which a placement may rest on what a node said before
LAG = 0.5  # seconds by which news of nodes may come after news of pods
CARD = {"devmem": MEMORY, "devcore": 100, "count": SLOTS}  # as every card physically is
ENFORCER = "dovetail.dev/enforcer"  # a node that says so itself may leave the choice of cards to kubelet
NAMES = ("dovetail", "dovetail-two")


@dataclass(frozen=True)
class Said:
    """What a node said from a moment on; of one that is gone, `exists` is False."""

    since: float
    exists: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    taints: frozenset[tuple[str, str]] = frozenset()  # (key, value) of those that keep pods off
    gpus: int = 0  # allocatable
    cards: dict[str, int] = field(default_factory=dict)  # UUID -> MiB, of those that are well and not cordoned


@dataclass
class Holding:
    """A pod that has a node, with the record of its GPUs as it was when it was bound."""

    item: Object
    record: str
    gpus: int  # that it asked for when it was bound

    @property
    def node(self) -> str:
        return str(self.item["spec"]["nodeName"])

    def uses(self) -> dict[str, Use]:
        meta = {**self.item["metadata"], "annotations": {ALLOCATED: self.record}}
        return uses({**self.item, "metadata": meta})

    def unrecorded(self) -> int:
        """Whole GPUs of a pod without a record: kubelet picks them, or another scheduler did."""
        return 0 if self.record else self.gpus


@dataclass(frozen=True)
class Placement:
    of: Holding
    at: float
    taken: dict[str, int]  # card -> MiB that all of its pods then had


class Witness:
    """`with Witness(client, machines) as witness`; `drain()` returns what was wrong since the last time."""

    def __init__(self, api: Client, machines: dict[str, Machine]) -> None:
        self._api, self.machines = api, machines
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._wrong: list[str] = []
        self._doubted: list[Placement] = []  # on what their nodes say they would be wrong
        self._said: dict[str, deque[Said]] = defaultdict(
            lambda: deque([Said(0.0)], maxlen=200)
        )  # node -> the latest last
        self.held: dict[str, Holding] = {}  # uid -> what it holds
        self.seen: dict[str, str] = {}  # uid -> its node, of every pod that ever had one
        self.bound_of_gang: dict[str, set[str]] = defaultdict(set)  # gang -> UIDs that were ever bound
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in ("Node", "Pod")]

    def __enter__(self) -> Witness:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def drain(self) -> list[str]:
        """What was wrong since the last call. Doubtful placements are judged again once LAG has passed."""
        while any(new.at > time.monotonic() - LAG for new in self._doubted):
            time.sleep(0.05)
        with self._lock:
            for new in self._doubted:
                where = f"{name_of(new.of.item)} on {new.of.node}"
                self._wrong += [f"placement: {where}: {what}" for what in self._on_node(new)]
            found, self._wrong, self._doubted = self._wrong, [], []
        return list(dict.fromkeys(found))

    # --- following the watches

    def _follow(self, kind: str) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = version or self._list(kind)
                for event in self._api.watch(kind, version, None, seconds=3, allowWatchBookmarks="true"):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._hear(kind, event["object"], event["type"] == "DELETED")
            except (OSError, ApiError, ValueError):  # the API server is away
                version = ""
                time.sleep(0.1)

    def _list(self, kind: str) -> str:
        said = self._api.ask("GET", f"/api/v1/{kind.lower()}s")
        there = {item["metadata"]["uid" if kind == "Pod" else "name"] for item in said["items"]}
        with self._lock:
            for uid in [uid for uid in self.held if kind == "Pod" and uid not in there]:
                del self.held[uid]
            for name in [name for name in self._said if kind == "Node" and name not in there]:
                self._note(name, Said(time.monotonic()))
        for item in said["items"]:
            self._hear(kind, item, gone=False)
        return str(said["metadata"]["resourceVersion"])

    def _hear(self, kind: str, item: Object, gone: bool) -> None:
        with self._lock:
            if kind == "Node":
                self._note(item["metadata"]["name"], Said(time.monotonic()) if gone else said_by(item))
            else:
                self._hear_pod(item, gone)

    def _note(self, name: str, said: Said) -> None:
        self._said[name].append(said)

    def _hear_pod(self, item: Object, gone: bool) -> None:
        uid = item["metadata"]["uid"]
        if gone or not holds(item):
            self.held.pop(uid, None)
            return
        known = self.held.get(uid)
        if known is not None:
            known.item = item
            return
        record = (item["metadata"].get("annotations") or {}).get(ALLOCATED, "")
        holding = self.held[uid] = Holding(item, record, gpus_of(item))
        if uid in self.seen:
            if self.seen[uid] != holding.node:
                self._wrong.append(f"placement: {name_of(item)} was bound to {self.seen[uid]} and to {holding.node}")
            return
        self.seen[uid] = holding.node
        if gang := gang_of(item):
            self.bound_of_gang[gang].add(uid)
        if item["spec"].get("schedulerName") in NAMES:
            new = Placement(holding, time.monotonic(), self._taken(holding))
            if any(self._on_node(new)):
                self._doubted.append(new)
            where = f"{name_of(item)} on {holding.node}"
            self._wrong += [f"double booking: {where}: {what}" for what in self._cards(holding)]

    # --- judging a placement

    def _cards(self, new: Holding) -> Iterator[str]:
        mine = new.uses()
        for uuid in mine:
            yield from over(uuid, CARD, self._uses_of(uuid))
        for machine in {self._machine_of(uuid) for uuid in mine} | {self._machine(new.node)}:
            if machine is not None and new.gpus:
                yield from self._crowded(machine)

    def _on_node(self, new: Placement) -> Iterator[str]:
        spec, node, said_then = new.of.item["spec"], new.of.node, self._since(new.of.node, new.at - GRACE)

        def ever(true: Callable[[Said], bool]) -> bool:
            return any(true(said) for said in said_then)

        borne = {(one.get("key"), one.get("value")) for one in spec.get("tolerations", [])}
        wanted = spec.get("nodeSelector", {}).items()
        if not ever(lambda said: said.exists):
            yield "the node was not there"
            return
        if not ever(lambda said: said.exists and said.taints <= borne):
            yield "the node was cordoned or tainted"
        if not ever(lambda said: said.exists and wanted <= said.labels.items()):
            yield "its nodeSelector does not match"
        if new.of.gpus and not ever(lambda said: said.gpus > 0):
            yield f"the node had no {GPU} allocatable"
        for uuid, memory in new.taken.items():
            sizes = [said.cards[uuid] for said in said_then if uuid in said.cards]
            if not sizes:
                yield f"{uuid} was not offered there (unregistered, sick or cordoned)"
            elif memory > max(sizes):
                yield f"{uuid}: {memory} MiB are in use, and it has {max(sizes)}"
        unwritten = new.of.gpus and not new.taken and self._kind(node) in ("hami", "lock")
        if unwritten and not ever(lambda said: said.exists and (not said.cards or ENFORCER in said.labels)):
            yield "asks for GPUs and has none written down"

    def _taken(self, new: Holding) -> dict[str, int]:
        return {uuid: sum(use.memory for use in self._uses_of(uuid)) for uuid in new.uses()}

    def _crowded(self, machine: Machine) -> Iterator[str]:
        """Each card holds pods with records, or one pod without."""
        there = [one for one in self.held.values() if self._machine(one.node) == machine]
        kubelets = sum(one.unrecorded() for one in there)
        recorded = {uuid for one in self.held.values() for uuid in one.uses() if self._machine_of(uuid) == machine}
        if kubelets and kubelets + len(recorded) > machine.cards:
            names = sorted(name_of(one.item) for one in there)
            yield f"{kubelets} whole GPUs and {len(recorded)} GPUs written down on {machine.cards} cards: {names}"

    def _uses_of(self, uuid: str) -> list[Use]:
        return [mine[uuid] for one in self.held.values() if uuid in (mine := one.uses())]

    def _since(self, node: str, start: float) -> list[Said]:
        """What the node said at any moment from then on."""
        all_of_it = list(self._said[node])
        ends = chain((said.since for said in all_of_it[1:]), [float("inf")])
        return [said for said, end in zip(all_of_it, ends, strict=True) if end >= start]

    def _machine(self, node: str) -> Machine | None:
        return self.machines.get(node)

    def _machine_of(self, uuid: str) -> Machine | None:
        return next((one for one in self.machines.values() if uuid in one.uuids), None)

    def _kind(self, node: str) -> str:
        machine = self._machine(node)
        return machine.kind if machine else ""

    # --- for the calm moments

    def free_cards(self, selector: dict[str, str]) -> list[str]:
        """Idle cards of machines without faults: a pod that asks for one card at most fits there."""
        with self._lock:
            used = {uuid for one in self.held.values() for uuid in one.uses()}
            spoilt = {one.node for one in self.held.values() if one.unrecorded()}
            free = []
            for machine in self.machines.values():
                said = self._said[machine.name][-1]
                if machine.kind == "stock" or machine.name in spoilt or said.taints or not said.gpus:
                    continue
                if selector.items() <= said.labels.items():
                    free += [uuid for uuid in machine.uuids if uuid not in used and uuid in said.cards]
            return free


def said_by(item: Object) -> Said:
    notes, spec = item["metadata"].get("annotations") or {}, item.get("spec", {})
    cordoned = {word.strip() for word in notes.get("hami.io/device-cordon", "").split(",")}
    cards = {}
    try:
        for card in json.loads(notes.get(REGISTER) or "[]"):
            if card.get("health") and card["id"] not in cordoned:
                cards[card["id"]] = int(card["devmem"])
    except (ValueError, TypeError, KeyError, AttributeError):
        cards = {}
    taints = {(one["key"], one.get("value")) for one in spec.get("taints", []) if one["effect"] != "PreferNoSchedule"}
    if spec.get("unschedulable"):
        taints.add(("node.kubernetes.io/unschedulable", None))
    gpus = int(item["status"].get("allocatable", {}).get(GPU, "0"))
    labels = item["metadata"].get("labels") or {}
    return Said(time.monotonic(), True, labels, frozenset(taints), gpus, cards)


def gpus_of(item: Object) -> int:
    """Cards that the pod's containers ask for; a part without a number is one card, as HAMi's webhook would write.

    Pods with the label `hami.io/webhook: ignore` skip the webhook: a part without a number is no request.
    """
    total, left_alone = 0, (item["metadata"].get("labels") or {}).get("hami.io/webhook") == "ignore"
    for container in item["spec"]["containers"]:
        limits = container.get("resources", {}).get("limits", {})
        part = GPU_MEMORY in limits or GPU_CORES in limits
        total += int(limits.get(GPU, "1" if part and not left_alone else "0"))
    return total


def gang_of(item: Object) -> str:
    labels = item["metadata"].get("labels") or {}
    name = labels.get("scheduling.x-k8s.io/pod-group", "")
    return f"{item['metadata']['namespace']}/{name}" if name else ""


def name_of(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
