"""Topologies and HyperNodes as last reported → topologies of the engine and labels of nodes, only where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.hyper_nodes import HyperNodes
from dovetail.kube.conversion.topologies import (
    CONFIGURED,
    HYPER_NODE_TOPOLOGY,
    levels_of,
    present,
    topology_name,
)
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects.domain_objects import HyperNode, TopologyObject
from dovetail.kube.objects.problems import Problem
from dovetail.model.events import Event as Happening
from dovetail.model.events import TopologyChanged

MOST_SAID = 1_000  # problems that are remembered


class TopologyKind(NamedTuple):
    api_group: str
    version: str
    kind: str
    plural: str

    @property
    def path(self) -> str:
        return f"/apis/{self.api_group}/{self.version}/{self.plural}"


Ref = tuple[TopologyKind, str]  # one object: its kind and name


class TopologyMirror:
    def __init__(self, mirror: Mirror, clock: Callable[[], float], configured: tuple[str, ...] = ()) -> None:
        """`configured`: the levels of the configuration."""
        self._mirror, self._clock, self._configured = mirror, clock, configured
        self._levels: dict[Ref, tuple[str, ...]] = {}
        self._hyper_nodes: dict[Ref, HyperNode] = {}
        self._of_hyper_nodes: tuple[str, ...] = ()  # the levels of all HyperNodes
        self._told: dict[str, tuple[str, ...]] = {}  # by name: what the engine knows
        self._said: dict[str, None] = {}  # problems that were reported
        self.faults: list[Fault] = []  # objects that could not be read; the code that reports them empties the list
        self.problems: list[str] = []  # lines for the log; emptied likewise

    def hear(self, kind: TopologyKind, batch: Iterable[Event[TopologyObject]]) -> list[Happening]:
        """Events for topologies and nodes that differ now."""
        before = dict(self._hyper_nodes)
        for event in batch:
            self._heard(kind, event)
        happened: list[Happening] = []
        if self._hyper_nodes != before:
            nodes = HyperNodes(self._hyper_nodes.values(), self._wrong_hyper_node)
            self._of_hyper_nodes = nodes.levels
            happened += self._mirror.relabel(nodes)
        return [*happened, *self.changes()]

    def changes(self) -> list[Happening]:
        """Events for topologies that differ from what was told. Of one object in two versions, the first counts."""
        labels = (node.labels for node in self._mirror.nodes.values())
        now = {CONFIGURED: present(self._configured, labels), HYPER_NODE_TOPOLOGY: self._of_hyper_nodes}
        for (kind, name), levels in sorted(self._levels.items()):
            now.setdefault(topology_name(kind.api_group, name), levels)
        now = {name: levels for name, levels in now.items() if levels}
        gone = [TopologyChanged(self._clock(), name, ()) for name in self._told if name not in now]
        new = [name for name in now if self._told.get(name) != now[name]]
        self._told = now
        return [*gone, *(TopologyChanged(self._clock(), name, now[name]) for name in new)]

    def _heard(self, kind: TopologyKind, event: Event[TopologyObject]) -> None:
        if isinstance(event, (Replaced, NotServed)):
            there = set[str]()
            if isinstance(event, Replaced):
                there = {one.metadata.name for one in event.items} | {one.ref.name for one in event.unreadable}
            for ref in [ref for ref in (*self._levels, *self._hyper_nodes) if ref[0] == kind and ref[1] not in there]:
                self._drop(ref)
            for item in event.items if isinstance(event, Replaced) else ():
                self._read((kind, item.metadata.name), item)
        elif isinstance(event, Changed):
            self._read((kind, event.object.metadata.name), event.object)
        elif isinstance(event, Deleted):
            self._drop((kind, event.ref.name))

    def _read(self, ref: Ref, item: TopologyObject) -> None:
        """Take in one object. One that cannot be read keeps its previous form."""
        if isinstance(item, HyperNode):
            self._hyper_nodes[ref] = item
            return
        where = f"Topology {ref[1]} ({ref[0].api_group})"

        def wrong(field: str, message: str) -> None:
            self._complain(str(Problem("error", where, field, message)))

        try:
            self._levels[ref] = levels_of(item, wrong)
        except Exception as error:
            self.faults.append(Fault("Topology", ref[1], error))

    def _drop(self, ref: Ref) -> None:
        self._levels.pop(ref, None)
        self._hyper_nodes.pop(ref, None)

    def _wrong_hyper_node(self, name: str, field: str, message: str) -> None:
        self._complain(str(Problem("error", f"HyperNode {name}", field, message)))

    def _complain(self, line: str) -> None:
        """Report a line once. What was reported is forgotten when it is too much."""
        if len(self._said) > MOST_SAID:
            self._said.clear()
        if line not in self._said:
            self._said[line] = None
            self.problems.append(line)
