"""What the API server says of pods and nodes → events, and only where something is different from before.

The API server is the truth; the ledger follows it. A pod is known by its UID: a name that comes again is another pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from dovetail.kube import objects
from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.live.gangs import Gangs, Name
from dovetail.kube.live.patience import is_refusal
from dovetail.kube.live.reader import EPOCH, TERMINAL, Reader
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
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Group, Pod, RunningPod


class Stand(Enum):
    """Where a pod stands."""

    WAITS = auto()  # ours, to be placed; perhaps with a nominated node
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
    condition: tuple[str, str] = ("", "")  # PodScheduled=False: reason, message
    again: bool = False  # whatever is heard of it next is news
    rests: bool = False  # but not before it is recalled, unless it changes itself
    claimed: tuple[str, ...] = ()  # annotations by which it says, unplaced, which cards it has
    stamp: str = ""  # the epoch that somebody put on it
    doubt: int = 0  # the look at the lease that must show that we lead before it is bound


MOST_GONE = 20_000  # uids remembered of pods that are gone


class Mirror:
    """Pods, nodes and namespaces as they were last heard of."""

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        self._reader, self._clock = reader, clock
        self.pods: dict[str, Known] = {}  # by uid
        self.nodes: dict[str, Node] = {}
        self._gists: dict[str, bytes] = {}  # by name: what the node last said, in short
        self._other_hands: set[str] = set()  # nodes where kubelet has begun or ceased to pick the cards
        self.namespaces: dict[str, dict[str, str]] = {}
        self.gangs = Gangs()
        self._uid_of: dict[str, str] = {}  # namespace/name -> uid, of everybody who is not finished
        self._gone: OrderedDict[str, None] = OrderedDict()  # uids that were here; answers may come late
        self.problems: list[Problem] = []  # not said yet; whoever says them empties it
        self.failures: list[objects.Pod] = []  # pods that kubelet did not take in; likewise
        self.stamped: list[str] = []  # uids of pods that wait with a stamp they did not have before; likewise

    # ---- pods ---------------------------------------------------------------------------------------------------

    def hear_pods(self, batch: Iterable[Event[objects.Pod]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Changed):
                if not self._is_past(event.object):
                    happened += self._hear(event.object)
            elif isinstance(event, Deleted):
                happened += self._deleted(f"{event.ref.namespace}/{event.ref.name}", event.ref.uid)
            elif isinstance(event, Replaced):
                happened += self._all_pods(event)
        return happened

    def hear_pod(self, source: objects.Pod) -> list[Happening]:
        """A pod as the answer to a request says it is. The watch may have said more by now, its end included."""
        if source.metadata.uid in self._gone or self._is_past(source):
            return []
        return list(self._hear(source))

    def _is_past(self, source: objects.Pod) -> bool:
        known = self.pods.get(source.metadata.uid)
        return known is not None and _is_older(source.metadata.resource_version, known.version)

    def _hear(self, source: objects.Pod) -> Iterator[Happening]:
        """One pod as it is now."""
        meta, spec = source.metadata, source.spec
        key = f"{meta.namespace}/{meta.name}"
        before = self._uid_of.get(key)
        if before is not None and before != meta.uid:
            yield from self._deleted(key, before)
        if source.status.phase in TERMINAL:
            yield from self._finished(key, source)
        elif spec.node_name:
            yield from self._holds(key, source)
        elif self._reader.is_ours(source) and not meta.deletion_timestamp:
            yield from self._waits(key, source)
        elif source.status.nominated_node_name and not meta.deletion_timestamp:
            yield from self._promised(key, source)
        else:
            yield from self._pod_gone(meta.uid)
            self._uid_of[key] = meta.uid  # somebody else's concern, but there

    def forget(self, uid: str) -> None:
        """What we did about the pod came to nothing: whatever is heard of it next is new."""
        known = self.pods.get(uid)
        if known is not None and known.stand is Stand.WAITS:
            known.again = True

    def rest(self, uid: str) -> None:
        """The same, but somebody will recall it after a while: that it says by now why it waits is no news."""
        self.forget(uid)
        if self.waits(uid):
            self.pods[uid].rests = True

    def wrote(self, uid: str, version: str, stamp: str, condition: tuple[str, str]) -> None:
        """The pod as our own write has left it, which may have come after somebody's stamp."""
        known = self.pods.get(uid)
        if known is not None and known.stand is Stand.WAITS and version:
            known.version, known.condition = version, condition
            self._note_stamp(uid, stamp)

    def _note_stamp(self, uid: str, stamp: str) -> None:
        if self.pods[uid].stamp != stamp:
            self.pods[uid].stamp = stamp
            self.stamped.append(uid)

    def recall(self, pod: Pod) -> Group | None:
        """A pod that was forgotten and not heard of since, with those it waits with. None: it is not that."""
        known = self.pods.get(pod.uid)
        if known is None or known.stand is not Stand.WAITS or not known.again:
            return None
        known.again = known.rests = False
        return self.gangs.group(known.pod)

    def waits(self, uid: str) -> bool:
        known = self.pods.get(uid)
        return known is not None and known.stand is Stand.WAITS

    def holds(self, uid: str) -> bool:
        known = self.pods.get(uid)
        return known is not None and known.stand is Stand.HOLDS

    def claimed(self, uid: str) -> tuple[str, ...]:
        """Annotations by which the pod says which cards it has, though nobody has given it any yet."""
        known = self.pods.get(uid)
        return known.claimed if known is not None else ()

    def has(self, key: str) -> bool:
        """Whether a pod of this namespace/name is there and not finished, whoever schedules it."""
        return key in self._uid_of

    def may_hold(self, key: str, node: str) -> bool:
        """Whether a pod of this namespace/name is on the node, or may be put there by somebody else than us."""
        uid = self._uid_of.get(key)
        known = self.pods.get(uid) if uid is not None else None
        if known is None:
            return uid is not None
        return known.running.node == node if known.running is not None else known.stand is not Stand.WAITS

    def read(self, source: objects.Pod) -> Pod:
        return self._reader.pod(source).pod

    def _all_pods(self, event: Replaced[objects.Pod]) -> Iterator[Happening]:
        there = {source.metadata.uid for source in event.items} | {each.ref.uid for each in event.unreadable}
        for key, uid in [(key, uid) for key, uid in self._uid_of.items() if uid not in there]:
            yield from self._deleted(key, uid)
        for source in event.items:
            yield from self._hear(source)

    def _waits(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid, version = source.metadata.uid, source.metadata.resource_version
        reading = self._reader.pod(source)
        known = self.pods.get(uid)
        said, node = _condition(source), source.status.nominated_node_name
        before = known.node if known is not None else ""
        is_news = known is None or known.stand is not Stand.WAITS or (known.again and not known.rests)
        if known is not None and not is_news and known.pod == reading.pod:
            known.version, known.condition, known.node = version, said, node
            known.claimed = self._reader.claimed(source)
            self._note_stamp(uid, source.metadata.annotations.get(EPOCH, ""))
            if node != before:
                yield PodNominated(self._clock(), reading.pod, node)
            return
        self.problems += reading.problems
        claimed = self._reader.claimed(source)
        self._note(uid, Known(key, Stand.WAITS, version, reading.pod, None, node, said, claimed=claimed))
        if known is not None:
            self.pods[uid].stamp, self.pods[uid].doubt = known.stamp, known.doubt
        self._note_stamp(uid, source.metadata.annotations.get(EPOCH, ""))
        self.gangs.note(reading.pod, source, waits=True)
        if node or before:
            yield PodNominated(self._clock(), reading.pod, node)
        yield GroupArrived(self._clock(), self.gangs.group(reading.pod))

    def _holds(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid = source.metadata.uid
        running, problems = self._reader.running(source)
        known = self.pods.get(uid)
        if known is not None and known.running == running:
            known.version = source.metadata.resource_version
            return
        self.problems += problems
        version = source.metadata.resource_version
        self._note(uid, Known(key, Stand.HOLDS, version, running.pod, running))
        self.gangs.note(running.pod, source, waits=False)
        yield self._observed(running)

    def _observed(self, running: RunningPod) -> Happening:
        """Where kubelet picks the cards nobody can write down which: whatever the pod says is not so."""
        if _tells_its_cards(running) and self._kubelet_picks(running.node):
            text = f"says which cards it has, but kubelet picks them on node {running.node}; it is ignored"
            self.problems.append(Problem("warning", f"Pod {running.pod.key}", "metadata.annotations", text))
            running = replace(running, shares=None)
        return PodObserved(self._clock(), running)

    def _kubelet_picks(self, node: str) -> bool:
        known = self.nodes.get(node)
        return known is not None and known.enforcer is Enforcer.STOCK

    def _promised(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        pod, node = self._reader.pod(source).pod, source.status.nominated_node_name
        known = self.pods.get(pod.uid)
        if known is not None and known.stand is Stand.PROMISED and (known.pod, known.node) == (pod, node):
            return
        self._note(pod.uid, Known(key, Stand.PROMISED, source.metadata.resource_version, pod, None, node))
        yield PodNominated(self._clock(), pod, node)

    def _finished(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        if self.holds(source.metadata.uid) and self._reader.is_ours(source) and is_refusal(source.status):
            self.failures.append(source)
        yield from self._deleted(key, source.metadata.uid)

    def _deleted(self, key: str, uid: str) -> Iterator[Happening]:
        self._gone[uid] = None
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)
        yield from self._pod_gone(uid)
        if self._uid_of.get(key) == uid:
            del self._uid_of[key]

    def _pod_gone(self, uid: str) -> Iterator[Happening]:
        """It holds nothing and wants nothing, whether it is still there or not."""
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
        return happened + self._observed_again()

    def _observed_again(self) -> list[Happening]:
        """A pod is heard of before its node is, or somebody else hands out the cards there now."""
        names, self._other_hands = self._other_hands, set()
        running = [known.running for known in self.pods.values() if known.running is not None] if names else []
        return [self._observed(one) for one in running if one.node in names and _tells_its_cards(one)]

    def _node(self, source: objects.Node) -> Iterator[Happening]:
        """Heartbeats, and an annotation written in another order, give an equal node: that is no event."""
        gist = self._reader.gist(source)
        if self._gists.get(source.metadata.name) == gist:
            return
        node, problems = self._reader.node(source)
        self._gists[node.name] = gist
        if self.nodes.get(node.name) != node:
            picked = self._kubelet_picks(node.name)
            self.nodes[node.name] = node
            if self._kubelet_picks(node.name) != picked:
                self._other_hands.add(node.name)
            self.problems += problems
            yield NodeChanged(self._clock(), node)

    def _node_gone(self, name: str) -> Iterator[Happening]:
        self._gists.pop(name, None)
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

    def hear_pod_groups(
        self, batch: Iterable[Event[objects.PodGroup]], api_group: str, version: str = ""
    ) -> list[Happening]:
        """A PodGroup that is new or different lets its pods be tried together."""
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Deleted):
                names = self.gangs.drop_group(api_group, event.ref.namespace, event.ref.name, version)
            elif isinstance(event, (Replaced, NotServed)):
                there = event.items if isinstance(event, Replaced) else ()
                names = self.gangs.set_groups(api_group, there, version)
            elif isinstance(event, Changed):
                names = self.gangs.set_group(api_group, event.object, version)
            else:
                continue
            happened += [one for name in names for one in self._regrouped(name)]
        return happened

    def _regrouped(self, name: Name) -> list[Happening]:
        """Those who waited alone, or with others, come again as what they are now."""
        pods = [self.pods[uid].pod for uid in self.gangs.waiting(name)]
        groups = {group.name: group for group in map(self.gangs.group, pods)}
        return [GroupArrived(self._clock(), group) for group in groups.values()]


def _tells_its_cards(running: RunningPod) -> bool:
    return running.shares is not None and running.pod.wants_devices


def _is_older(version: str, than: str) -> bool:
    """resourceVersions of one resource are numbers that grow; what is none is not compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _condition(source: objects.Pod) -> tuple[str, str]:
    """What the pod says of its own scheduling already."""
    for condition in source.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""
