"""The latest event about each object: what an engine must be told so that it knows the cluster as it is now.

KeptWaiting while a journal is written. It holds references to events that the engine was given, and copies nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.events import (
    BudgetChanged,
    Event,
    GangChanged,
    GroupArrived,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodGone,
    PodObserved,
    PodsGone,
    QueueChanged,
    QuotaChanged,
    SelectorChanged,
    SignalsMeasured,
    TopologyChanged,
    VolumesChanged,
)
from dovetail.model.node import Node
from dovetail.model.pod import RunningPod
from dovetail.model.volumes import AttachLimits, VolumeFact

FACTS_IN_ORDER = (  # nodes before pods: otherwise a row that pods hold is written twice
    NodeChanged,
    SignalsMeasured,
    TopologyChanged,
    NamespaceChanged,
    SelectorChanged,
    VolumesChanged,
    QuotaChanged,
    QueueChanged,
    GangChanged,
    BudgetChanged,
    PodObserved,
)


class Facts:
    def __init__(self) -> None:
        self._latest: dict[type[Event], dict[Hashable, Event]] = {kind: {} for kind in FACTS_IN_ORDER}
        self._volumes: dict[Hashable, VolumeFact] = {}

    def note(self, event: Event) -> None:
        """Take in one event, and drop those that it makes obsolete."""
        match event:
            case NodeChanged(_, node):
                self._put(event, node.name, True)
            case NodeGone(_, name):
                self._latest[SignalsMeasured].pop(name, None)
                self._latest[NodeChanged].pop(name, None)
            case PodObserved(_, running):
                self._put(event, running.pod.uid, True)
            case GroupArrived(_, group):  # what its pods hold is released
                for pod in group.pods:
                    self._latest[PodObserved].pop(pod.uid, None)
            case PodGone(_, uid):
                self._latest[PodObserved].pop(uid, None)
            case PodsGone(_, uids):
                for uid in uids:
                    self._latest[PodObserved].pop(uid, None)
            case VolumesChanged(_, facts, gone):
                for fact in gone:  # before `facts`, as the engine takes them in
                    self._volumes.pop(_volume_key(fact), None)
                self._volumes.update((_volume_key(fact), fact) for fact in facts)
            case _:
                self._of_settings(event)

    def _of_settings(self, event: Event) -> None:
        match event:
            case SignalsMeasured(_, node):
                if node in self._latest[NodeChanged]:
                    self._put(event, node, True)
            case TopologyChanged(_, name, levels):
                self._put(event, name, bool(levels))
            case NamespaceChanged(_, name, labels):
                self._put(event, name, labels is not None)
            case SelectorChanged(_, kind, namespace, name, selector):
                self._put(event, (kind, namespace, name), selector is not None)
            case QuotaChanged(_, namespace, name, quota):
                self._put(event, (namespace, name), quota is not None)
            case QueueChanged(_, name, queue):
                self._put(event, name, queue is not None)
            case GangChanged(_, name, minimum):
                self._put(event, name, bool(minimum))
            case BudgetChanged(_, namespace, name, budget):
                self._put(event, (namespace, name), budget is not None)
            case _:
                pass  # of single pods: the ledger and the waiting room show what came of it

    def take_in(self, facts: Iterable[Event]) -> None:
        """Take in the facts of a checkpoint."""
        for event in facts:
            self.note(event)

    def begin_again(self, at: float, nodes: tuple[Node, ...], running: tuple[RunningPod, ...]) -> None:
        """Take these nodes and pods instead of the known ones: the ledger was rebuilt from them."""
        self._latest[NodeChanged] = {node.name: NodeChanged(at, node) for node in nodes}
        self._latest[PodObserved] = {one.pod.uid: PodObserved(at, one) for one in running}

    def _put(self, event: Event, key: Hashable, exists: bool) -> None:
        known = self._latest[type(event)]
        if exists:
            known[key] = event
        else:
            known.pop(key, None)

    def pods(self) -> Iterable[str]:
        """UIDs of the pods that were seen on a node."""
        return map(str, self._latest[PodObserved])

    def observed(self, uid: str) -> RunningPod | None:
        """The pod as it was seen on a node; None = it was not seen, or has arrived again since."""
        event = self._latest[PodObserved].get(uid)
        return event.running if isinstance(event, PodObserved) else None

    def all(self, at: float, ledger: Ledger) -> Iterator[Event]:
        """All facts, in the order in which an empty engine takes them in."""
        for kind in FACTS_IN_ORDER:
            if kind is VolumesChanged and self._volumes:
                yield VolumesChanged(at, tuple(self._volumes.values()))
            for key, event in self._latest[kind].items():
                if kind is not PodObserved or key in ledger.pods:
                    yield event


def _volume_key(fact: VolumeFact) -> Hashable:
    if isinstance(fact, AttachLimits):
        return (AttachLimits, fact.node)
    return (type(fact), getattr(fact, "namespace", ""), fact.name)
