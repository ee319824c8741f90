"""The nodes as the API server last reported them, as events, only where something differs from before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.hyper_nodes import NO_HYPER_NODES, HyperNodes, labelled
from dovetail.kube.conversion.settling import Settling, oldest_first, refuses_new_pods
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem
from dovetail.model.events import Event as Happening
from dovetail.model.events import NodeChanged, NodeGone
from dovetail.model.node import Node


class NodeMirror:
    def __init__(
        self,
        reader: PodReader,
        settling: Settling,
        clock: Callable[[], float],
        complain: Callable[[Iterable[Problem]], None],
        set_aside: Callable[[Fault], None],
    ) -> None:
        """`complain` gets what is wrong with a node; `set_aside` gets nodes that could not be read."""
        self._reader, self._settling, self._clock = reader, settling, clock
        self._complain, self._set_aside = complain, set_aside
        self.nodes: dict[str, Node] = {}
        reader.nodes = self.nodes
        self._unlabelled: dict[str, Node] = {}  # by name: without the labels of HyperNodes
        self._hyper_nodes = NO_HYPER_NODES
        self._gists: dict[str, bytes] = {}  # by name: a digest of what the node last reported

    def hear(self, batch: Iterable[Event[objects.Node]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Changed):
                happened += self._heard(event.object)
            elif isinstance(event, Deleted):
                happened += self._gone(event.ref.name)
            elif isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                for name in [name for name in self.nodes if name not in there]:
                    happened += self._gone(name)
                for source in oldest_first(event.items):
                    happened += self._heard(source)
        return happened + self.settled_by_now()

    def settled_by_now(self) -> list[Happening]:
        """Events for nodes that take pods with devices from now on, because a wait ended; or that no longer do."""
        return [one for node in self._settling.settled_by_now() for one in self._is(node)]

    def _heard(self, source: objects.Node) -> Iterator[Happening]:
        """As `_read`. A node that cannot be read takes no new pods; its pods keep what they hold."""
        try:
            yield from self._read(source)
        except Exception as error:
            self._set_aside(Fault("Node", source.metadata.name, error))
            yield from self._gone(source.metadata.name)

    def _read(self, source: objects.Node) -> Iterator[Happening]:
        """Events from one node.

        A heartbeat, or an annotation written in another order, gives an equal node: no event.
        """
        gist = self._reader.gist(source)
        if self._gists.get(source.metadata.name) == gist:
            return
        reading, created, problems = self._reader.node(source)
        node = self._settling.node(reading, created)
        self._gists[node.name] = gist
        if node.unsettled == reading.node.unsettled and self._unlabelled.get(node.name) != node:
            self._complain(problems)  # other problems follow from what the node waits for
        yield from self._is(node)

    def relabel(self, hyper_nodes: HyperNodes) -> list[Happening]:
        """Events for nodes whose HyperNodes differ now."""
        self._hyper_nodes = hyper_nodes
        return [one for node in list(self._unlabelled.values()) for one in self._is(node)]

    def _is(self, node: Node) -> Iterator[Happening]:
        self._unlabelled[node.name] = node
        node = labelled(node, self._hyper_nodes)
        before = self.nodes.get(node.name)
        if before == node:
            return
        self.nodes[node.name] = node
        if node.unsettled != (before.unsettled if before is not None else ""):
            again = "takes GPU pods again; running pods keep their cards"
            text = refuses_new_pods(node) if node.unsettled else again
            self._complain((Problem("warning", f"Node {node.name}", "", text),))
        yield NodeChanged(self._clock(), node)

    def _gone(self, name: str) -> Iterator[Happening]:
        self._gists.pop(name, None)
        self._unlabelled.pop(name, None)
        self._settling.node_gone(name)
        if self.nodes.pop(name, None) is not None:
            yield NodeGone(self._clock(), name)
