"""Which nodes are settled, by their past and by other nodes; the rules for one Node object are in settled.py.

Four rules need more than one Node object:

    a register that vanishes      the last cards stay, and the node takes no new pods until the register is back
    records without a register    the pods hold cards of a register that vanished before the scheduler started
    a count without description   may be HAMi's slots whose register follows: it is trusted after SETTLE_SECONDS
    a card of another node        belongs to that node, or its pods, until they are gone

The live scheduler reports each change to `Settling`. Files have no past: `settled_nodes` is used for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf

from dovetail.kube.conversion.nodes import NodeReading
from dovetail.kube.conversion.reading import Held
from dovetail.kube.conversion.settled import CardSource
from dovetail.kube.objects import core as objects
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node

MOST_GONE_NODES = 1_000  # deleted nodes without known pods whose register is kept: a pod may be reported later
SETTLE_SECONDS = 30.0  # HAMi's plugin writes its register within seconds of its first report to kubelet


@dataclass(slots=True)
class _SeenNode:
    """A node as last read."""

    reading: NodeReading
    since: float  # when its cards were first offered in this form
    registered: Node | None = None  # the node when it last had its register


class Settling:
    """Turns readings of nodes into nodes for the engine."""

    def __init__(self, clock: Callable[[], float], seconds: float = SETTLE_SECONDS) -> None:
        self._clock, self._seconds = clock, seconds
        self._seen: dict[str, _SeenNode] = {}  # by node
        self._lost: dict[str, Node] = {}  # nodes that were deleted while pods held their cards, as they were
        self._gone: dict[str, Node] = {}  # other nodes that were deleted, as they were; the oldest first
        self._registrar: dict[str, str] = {}  # uuid -> the node that registered it first
        self._pods_on: defaultdict[str, dict[str, int]] = defaultdict(dict)  # uuid -> node -> pods that prove it
        self._pods_of: Counter[str] = Counter()  # node -> cards held by pods with a record
        self._contested: set[str] = set()  # nodes that wait until a card is released elsewhere
        self._young: set[str] = set()  # nodes whose count is not trusted yet

    def node(self, reading: NodeReading, created: float) -> Node:
        """Take in a new or changed node; returns the node for the engine."""
        name, now = reading.node.name, self._clock()
        seen = self._seen.get(name)
        self._gone.pop(name, None)
        if seen is None:
            seen = self._seen[name] = _SeenNode(reading, min(created, now), self._lost.pop(name, None))
        elif _offer(seen.reading) != _offer(reading):
            seen.since = now
        seen.reading = reading
        if reading.source is CardSource.REGISTER:
            self._unregister(name, seen.registered)
            seen.registered = reading.node
        return self._settled(name)

    def node_gone(self, name: str) -> None:
        seen = self._seen.pop(name, None)
        if seen is None:
            return
        self._unregister(name, seen.registered)
        if seen.registered is not None:
            (self._lost if self._pods_of[name] else self._gone)[name] = seen.registered
        if len(self._gone) > MOST_GONE_NODES:
            del self._gone[next(iter(self._gone))]
        self._contested.discard(name)
        self._young.discard(name)

    def pod_holds(self, node: str, uuids: Iterable[str], proves: bool = True) -> None:
        """Note a pod on the node whose record names these cards. `proves`: its owner cannot have written the record."""
        for uuid in uuids:
            if node in self._gone:  # the watch of nodes is ahead of that of pods
                self._lost[node] = self._gone.pop(node)
            self._pods_of[node] += 1
            if not proves:
                continue
            pods = self._pods_on[uuid]
            pods[node] = pods.get(node, 0) + 1
            if self._registrar.get(uuid, node) != node:
                self._contested.add(self._registrar[uuid])
        if node in self._seen and self._seen[node].reading.source is CardSource.COUNT:
            self._contested.add(node)

    def pod_gone(self, node: str, uuids: Iterable[str], proves: bool = True) -> None:
        """Undo `pod_holds`, with the same arguments."""
        for uuid in uuids:
            for counter in (self._pods_of, self._pods_on[uuid]) if proves else (self._pods_of,):
                left = counter.get(node, 0) - 1
                if left > 0:
                    counter[node] = left
                else:
                    counter.pop(node, None)
            if not self._pods_on.get(uuid, True):
                del self._pods_on[uuid]
        if node in self._lost and not self._pods_of[node]:
            del self._lost[node]

    def settled_by_now(self) -> list[Node]:
        """Nodes that may be settled by now: a card was released elsewhere, or time has passed."""
        due = [name for name in self._young if self._clock() >= self._seen[name].since + self._seconds]
        return [self._settled(name) for name in sorted({*self._contested, *due})]

    def _unregister(self, name: str, registered: Node | None) -> None:
        for device in registered.devices if registered is not None else ():
            if self._registrar.get(device.uuid) == name:
                del self._registrar[device.uuid]

    def _settled(self, name: str) -> Node:
        seen = self._seen[name]
        node, source = self._with_last_register(seen), seen.reading.source
        self._young.discard(name)
        self._contested.discard(name)
        if source is CardSource.REGISTER and (why := self._held_elsewhere(name, node.devices)):
            self._contested.add(name)
            return replace(node, unsettled=why)
        if source is CardSource.COUNT and self._pods_of[name] and seen.registered is None and not seen.reading.declared:
            self._contested.add(name)
            text = "its pods hold cards of a register that is gone"
            return replace(node, devices=(), links=(), enforcer=Enforcer.HAMI, unsettled=text)
        waits = self._clock() < seen.since + self._seconds
        if source is CardSource.COUNT and waits and not (node.unsettled or seen.reading.declared):
            self._young.add(name)
            text = f"offers GPUs without a register or feature-discovery labels; believed after {self._seconds:g} s"
            return replace(node, unsettled=text)
        return node

    def _with_last_register(self, seen: _SeenNode) -> Node:
        """The node with its last register, which has vanished: its cards stay for their pods, and no pod is added."""
        reading, last = seen.reading, seen.registered
        if last is None or reading.source is CardSource.REGISTER or reading.declared:
            return reading.node
        text = "the register of its cards is gone"
        return replace(
            reading.node, devices=last.devices, links=last.links, enforcer=last.enforcer, mig=last.mig, unsettled=text
        )

    def _held_elsewhere(self, name: str, devices: Iterable[Device]) -> str:
        """Why one of the cards belongs to another node; "" = none does.

        One card cannot be in two machines. It belongs to the node whose pods hold it, else to the one that registered
        it first.
        """
        why = ""
        for device in devices:
            pods = self._pods_on.get(device.uuid, ())
            others = sorted(node for node in pods if node != name and self._had(node, device.uuid))
            first = self._registrar.setdefault(device.uuid, name)
            if others:
                why = why or f"card {device.uuid} is held by pods of node {others[0]}"
                if first != name and name in pods:
                    self._contested.add(first)  # pods of both hold it, which was not known when the other was settled
            elif first != name and name not in pods:
                why = why or f"card {device.uuid} is also registered by node {first}"
            elif first != name:
                self._contested.add(first)  # it must release the card to this node, whose pods hold it
        return why

    def _had(self, name: str, uuid: str) -> bool:
        """Whether the node itself registered the card.

        A pod's record alone proves nothing, as its owner can write it.
        """
        seen = self._seen.get(name)
        node = seen.registered if seen is not None else self._lost.get(name)
        return node is not None and any(device.uuid == uuid for device in node.devices)


def settled_nodes(readings: Iterable[NodeReading], held: Iterable[Held]) -> dict[str, Node]:
    """The nodes of files, by name. `readings` are those of `oldest_first`; `held` is what pods with a node hold.

    All waiting times count as over: it is not known when the files were written.
    """
    settling = Settling(lambda: inf)
    nodes = {reading.node.name: settling.node(reading, 0.0) for reading in readings}
    for one in held:
        settling.pod_holds(one.running.node, one.recorded, one.proves)
    for _ in range(len(nodes) + 1):  # a node that releases a card may settle another one
        changed = {node.name: node for node in settling.settled_by_now() if nodes[node.name] != node}
        if not changed:
            break
        nodes.update(changed)
    return nodes


def refuses_new_pods(node: Node) -> str:
    """The message for a node that is not settled."""
    return f"takes no new GPU pods: {node.unsettled}; running pods keep their cards"


def oldest_first(nodes: Iterable[objects.Node]) -> list[objects.Node]:
    """The nodes in the order in which they joined.

    If two nodes register one card, a scheduler that starts trusts the older node, and a running one trusts the node
    that it saw first. A node cannot change its creation time.
    """
    return sorted(nodes, key=joined)


def joined(node: objects.Node) -> tuple[str, str]:
    """When the node joined, with its name: the key of `oldest_first`."""
    return node.metadata.creation_timestamp, node.metadata.name


def _offer(reading: NodeReading) -> tuple[object, ...]:
    """What the node offers, without names: its waiting time restarts when this changes."""
    return (reading.source, len(reading.node.devices), reading.node.mig)
