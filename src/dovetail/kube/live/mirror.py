"""What the API server says of pods and nodes → events, and only where something is different from before.

The API server is the truth; the ledger follows it. A pod is known by its UID: a name that comes again is another pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from dovetail.kube import objects
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.live.gangs import Gangs, Name
from dovetail.kube.live.reader import TERMINAL, Reader
from dovetail.kube.problems import Problem
from dovetail.model.events import (
    Event as Happening,
)
from dovetail.model.events import (
    GroupArrived,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodGone,
    PodNominated,
    PodObserved,
)
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod


class Stand(Enum):
    """Where a pod stands."""

    WAITS = auto()  # ours, to be placed
    HOLDS = auto()  # it has a node
    PROMISED = auto()  # another scheduler's, with a nominated node


@dataclass(slots=True)
class Known:
    """What we know of a pod that matters."""

    key: str  # namespace/name
    stand: Stand
    version: str  # resourceVersion: the precondition of a write
    pod: Pod
    running: RunningPod | None = None
    node: str = ""  # nominated
    epoch: str = ""  # stamped on it
    condition: tuple[str, str] = ("", "")  # PodScheduled=False: reason, message
    phase: str = ""


EPOCH = "dovetail.dev/epoch"


class Mirror:
    """Pods, nodes and namespaces as they were last heard of."""

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        self._reader, self._clock = reader, clock
        self.pods: dict[str, Known] = {}  # by uid
        self.nodes: dict[str, Node] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.gangs = Gangs()
        self._uid_of: dict[str, str] = {}  # namespace/name -> uid
        self._forgotten: dict[str, Known] = {}  # by uid: whose next version is news
        self.problems: list[Problem] = []  # not said yet; whoever says them empties it
        self.failures: list[objects.Pod] = []  # pods that failed after they had a node; likewise

    # ---- pods ---------------------------------------------------------------------------------------------------

    def hear_pods(self, batch: Iterable[Event[objects.Pod]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Changed):
                happened += self.hear_pod(event.object)
            elif isinstance(event, Deleted):
                happened += self._pod_gone(event.ref.uid)
            elif isinstance(event, Replaced):
                happened += self._all_pods(event)
        return happened

    def hear_pod(self, source: objects.Pod) -> Iterator[Happening]:
        """One pod as it is now."""
        meta, spec = source.metadata, source.spec
        self._forgotten.pop(meta.uid, None)
        key = f"{meta.namespace}/{meta.name}"
        before = self._uid_of.get(key)
        if before is not None and before != meta.uid:
            yield from self._pod_gone(before)
        if source.status.phase in TERMINAL:
            yield from self._finished(source)
        elif spec.node_name:
            yield from self._holds(key, source)
        elif self._reader.is_ours(source) and not meta.deletion_timestamp:
            yield from self._waits(key, source)
        elif source.status.nominated_node_name and not meta.deletion_timestamp:
            yield from self._promised(key, source)
        else:
            yield from self._pod_gone(meta.uid)

    def forget(self, uid: str) -> None:
        """Whatever is heard of the pod next is new."""
        known = self.pods.get(uid)
        if known is not None and known.stand is Stand.WAITS:
            self._drop(uid)
            self._forgotten[uid] = known

    def recall(self, pod: Pod) -> bool:
        """A pod that was forgotten and still waits, as far as anybody knows, is known again. False: it is not that."""
        if pod.uid in self._forgotten:
            self._note(pod.uid, self._forgotten.pop(pod.uid))
            return True
        return False

    def has(self, key: str) -> bool:
        """Whether a pod of this namespace/name is there and not finished."""
        return key in self._uid_of

    def read(self, source: objects.Pod) -> Pod:
        return self._reader.pod(source).pod

    def _all_pods(self, event: Replaced[objects.Pod]) -> Iterator[Happening]:
        there = {source.metadata.uid for source in event.items} | {each.ref.uid for each in event.unreadable}
        for uid in [uid for uid in self.pods if uid not in there]:
            yield from self._pod_gone(uid)
        for source in event.items:
            yield from self.hear_pod(source)

    def _waits(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid, version = source.metadata.uid, source.metadata.resource_version
        reading = self._reader.pod(source)
        known = self.pods.get(uid)
        said = _condition(source)
        epoch = source.metadata.annotations.get(EPOCH, "")
        if known is not None and known.stand is Stand.WAITS and known.pod == reading.pod:
            known.version, known.condition, known.epoch = version, said, epoch
            return
        self.problems += reading.problems
        self._note(uid, Known(key, Stand.WAITS, version, reading.pod, None, "", epoch, said))
        self.gangs.note(reading.pod, source, waits=True)
        yield GroupArrived(self._clock(), self.gangs.group(reading.pod))

    def _holds(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid = source.metadata.uid
        running, problems = self._reader.running(source)
        known = self.pods.get(uid)
        if known is not None and known.running == running:
            known.version, known.phase = source.metadata.resource_version, source.status.phase
            return
        self.problems += problems
        version, phase = source.metadata.resource_version, source.status.phase
        self._note(uid, Known(key, Stand.HOLDS, version, running.pod, running, phase=phase))
        self.gangs.note(running.pod, source, waits=False)
        yield PodObserved(self._clock(), running)

    def _promised(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        pod, node = self._reader.pod(source).pod, source.status.nominated_node_name
        known = self.pods.get(pod.uid)
        if known is not None and known.stand is Stand.PROMISED and (known.pod, known.node) == (pod, node):
            return
        self._note(pod.uid, Known(key, Stand.PROMISED, source.metadata.resource_version, pod, None, node))
        yield PodNominated(self._clock(), pod, node)

    def _finished(self, source: objects.Pod) -> Iterator[Happening]:
        known = self.pods.get(source.metadata.uid)
        if source.status.phase == "Failed" and known is not None and known.stand is Stand.HOLDS:
            self.failures.append(source)
        yield from self._pod_gone(source.metadata.uid)

    def _pod_gone(self, uid: str) -> Iterator[Happening]:
        self._forgotten.pop(uid, None)
        if uid in self.pods:
            self._drop(uid)
            yield PodGone(self._clock(), uid)

    def _note(self, uid: str, known: Known) -> None:
        self.pods[uid] = known
        self._uid_of[known.key] = uid

    def _drop(self, uid: str) -> None:
        known = self.pods.pop(uid)
        if self._uid_of.get(known.key) == uid:
            del self._uid_of[known.key]
        self.gangs.forget(uid)

    # ---- nodes and namespaces -----------------------------------------------------------------------------------

    def hear_nodes(self, batch: Iterable[Event[objects.Node]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Changed):
                happened += self._node(event.object)
            elif isinstance(event, Deleted):
                happened += self._node_gone(event.ref.name)
            elif isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                for name in [name for name in self.nodes if name not in there]:
                    happened += self._node_gone(name)
                for source in event.items:
                    happened += self._node(source)
        return happened

    def _node(self, source: objects.Node) -> Iterator[Happening]:
        """Heartbeats, and an annotation written in another order, give an equal node: that is no event."""
        node, problems = self._reader.node(source)
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self.problems += problems
            yield NodeChanged(self._clock(), node)

    def _node_gone(self, name: str) -> Iterator[Happening]:
        if self.nodes.pop(name, None) is not None:
            yield NodeGone(self._clock(), name)

    def hear_namespaces(self, batch: Iterable[Event[objects.Namespace]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items}
                gone = [name for name in self.namespaces if name not in there]
                happened += [self._namespace_gone(name) for name in gone]
            elif isinstance(event, Deleted) and event.ref.name in self.namespaces:
                happened.append(self._namespace_gone(event.ref.name))
            changed = event.items if isinstance(event, Replaced) else []
            for source in [event.object] if isinstance(event, Changed) else changed:
                name, labels = source.metadata.name, source.metadata.labels
                if self.namespaces.get(name) != labels:
                    self.namespaces[name] = labels
                    happened.append(NamespaceChanged(self._clock(), name, labels))
        return happened

    def _namespace_gone(self, name: str) -> Happening:
        del self.namespaces[name]
        return NamespaceChanged(self._clock(), name, None)

    def hear_pod_groups(self, batch: Iterable[Event[objects.PodGroup]], api_group: str) -> list[Happening]:
        """A PodGroup that is new or different lets its pods be tried together."""
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Deleted):
                names = self.gangs.drop_group(api_group, event.ref.namespace, event.ref.name)
            elif isinstance(event, Replaced):
                names = self.gangs.set_groups(api_group, event.items)
            elif isinstance(event, Changed):
                names = self.gangs.set_group(api_group, event.object)
            else:
                continue
            happened += [one for name in names for one in self._regrouped(name)]
        return happened

    def _regrouped(self, name: Name) -> list[Happening]:
        """Those who waited alone, or with others, are taken out and come again as what they are now."""
        pods = [self.pods[uid].pod for uid in self.gangs.waiting(name)]
        groups = {group.name: group for group in map(self.gangs.group, pods)}
        gone: list[Happening] = [PodGone(self._clock(), pod.uid) for pod in pods]
        return gone + [GroupArrived(self._clock(), group) for group in groups.values()]


def _condition(source: objects.Pod) -> tuple[str, str]:
    """What the pod says of its own scheduling already."""
    for condition in source.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""
