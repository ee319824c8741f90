"""The history of a cluster as values: which pods came, got a node and ended, and when. Traces are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dovetail.model.events import GroupArrived, NodeChanged, PodGone, PodObserved, PodsGone
from dovetail.model.gang import GangTerms
from dovetail.model.node import Node
from dovetail.model.order import numbered
from dovetail.model.pod import POD_GROUP, Group, Pod, RunningPod, group_title
from dovetail.whatif.hypothesis import Happening, Took

LATEST_CREATION = 250_000_000_000.0  # of a pod; a later one is a mark for "not known"


@dataclass(frozen=True, slots=True)
class PastPod:
    """A pod, and what is known of its life. All times are seconds since the epoch."""

    pod: Pod
    arrived: float
    seen: float  # when it was last seen
    placed: float | None = None  # when it got its node; None = it has had none
    node: str = ""
    gone: float | None = None  # when it ended; None = it had not when it was last seen
    gone_since: bool = False  # it ended at an unknown time after `gone`, when it was last seen


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    nodes: tuple[Node, ...]  # every node that was seen, as it was last, by name
    pods: tuple[PastPod, ...]  # by arrival, namespace, name, UID
    gangs: Mapping[str, GangTerms]  # Group.name -> its minimum, roles and rule
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # why objects are not in it -> their names


def in_order(pods: Iterable[PastPod]) -> tuple[PastPod, ...]:
    return tuple(sorted(pods, key=lambda one: (one.arrived, one.pod.namespace, one.pod.name, one.pod.uid)))


def terms_of(group: Group) -> GangTerms:
    return GangTerms(group.minimum, group.roles, group.topology)


def history_of(events: Iterable[Happening]) -> ClusterHistory:
    """The history of a recorded run. A pod that arrives again after its binding failed is the same pod."""
    record = _EventsSoFar()
    for event in events:
        record.take(event)
    pods = (one if one.gone is not None else replace(one, seen=record.now) for one in record.pods.values())
    nodes = tuple(record.nodes[name] for name in sorted(record.nodes))
    return ClusterHistory(nodes, in_order(pods), record.gangs)


@dataclass(slots=True)
class _EventsSoFar:
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, PastPod] = field(default_factory=dict)  # by UID
    gangs: dict[str, GangTerms] = field(default_factory=dict)
    now: float = 0.0

    def take(self, event: Happening) -> None:
        self.now = max(self.now, event.at)
        match event:
            case NodeChanged(_, node):
                self.nodes[node.name] = node
            case GroupArrived(at, group):
                self._arrive(at, group)
            case Took(at, uid, node):
                self._place(uid, at, node)
            case PodObserved(at, running):
                self._observe(at, running)
            case PodGone(at, uid):
                self._end(at, (uid,))
            case PodsGone(at, uids):
                self._end(at, uids)

    def _arrive(self, at: float, group: Group) -> None:
        for pod in group.pods:
            if pod.group == group.name:
                self.gangs[group.name] = terms_of(group)
            known = self.pods.get(pod.uid)
            if known is None:
                self.pods[pod.uid] = PastPod(pod, _created(pod, at), at)
            elif known.gone is not None:
                self.pods[pod.uid] = replace(known, pod=pod, placed=None, node="", gone=None)
            else:
                self.pods[pod.uid] = replace(known, pod=pod)

    def _observe(self, at: float, running: RunningPod) -> None:
        pod = running.pod
        placed = running.placed or running.started or at
        if pod.uid not in self.pods:
            self.pods[pod.uid] = PastPod(pod, min(_created(pod, at), placed), at)
        self._place(pod.uid, placed, running.node)

    def _place(self, uid: str, at: float, node: str) -> None:
        known = self.pods.get(uid)
        if known is not None and known.placed is None:
            self.pods[uid] = replace(known, placed=max(at, known.arrived), node=node)

    def _end(self, at: float, uids: Iterable[str]) -> None:
        for uid in uids:
            known = self.pods.get(uid)
            if known is not None and known.gone is None:
                self.pods[uid] = replace(known, gone=at, seen=at)


def _created(pod: Pod, at: float) -> float:
    """When the pod was created, if it says; else when it was first heard of."""
    return pod.created if 0 < pod.created < LATEST_CREATION else at


def anonymous(history: ClusterHistory) -> ClusterHistory:
    """The history with other names of namespaces, pods and gangs, in the same order; names of nodes stay."""
    pods = [one.pod for one in history.pods]
    spaces = numbered("ns", {pod.namespace for pod in pods})
    names = numbered("pod", {pod.name for pod in pods})
    gangs = numbered("object", {*history.gangs, *(pod.group for pod in pods if pod.group)})

    def gang_key(key: str, namespace: str) -> str:
        return f"{POD_GROUP}{spaces.get(namespace, namespace)}/{gangs[key]}@" if key else ""

    def renamed(past: PastPod) -> PastPod:
        pod = past.pod
        group = gang_key(pod.group, pod.namespace)
        return replace(past, pod=replace(pod, namespace=spaces[pod.namespace], name=names[pod.name], group=group))

    where = {pod.group: pod.namespace for pod in pods if pod.group}
    terms = {gang_key(key, where.get(key, _namespace(key))): one for key, one in history.gangs.items()}
    left_out = {why: _hidden(some) for why, some in history.left_out.items()}
    return replace(history, pods=tuple(map(renamed, history.pods)), gangs=terms, left_out=left_out)


def _namespace(key: str) -> str:
    return group_title(key).partition("/")[0]


def _hidden(names: Sequence[str]) -> tuple[str, ...]:
    """As many names that say nothing."""
    return tuple(f"left-out-{number}" for number in range(1, len(names) + 1))
