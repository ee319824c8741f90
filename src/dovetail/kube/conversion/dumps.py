"""Dumps of a cluster at several moments → its history: what `kubectl get nodes,pods -A -o json` printed, or snapshots.

Pods are merged by UID; the newest form counts. All of them, also those that have ended, are then read as if they waited
for a node: so they are read by the same code as everything else, and members of a gang are found. A dump without a time
of its own is as old as the latest time in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from dovetail.kube.conversion.assigned import has_record
from dovetail.kube.conversion.preemption import placed_at, started_at
from dovetail.kube.conversion.reading import TERMINAL
from dovetail.kube.conversion.settings import WEBHOOK
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.conversion.workloads import MADE_BY_OPERATORS
from dovetail.kube.files import snapshot
from dovetail.kube.files.decode import WITHOUT_NAMESPACE, convert
from dovetail.kube.files.documents import Document
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Pod
from dovetail.whatif.history import ClusterHistory, PastPod, in_order, terms_of
from dovetail.whatif.situation import Situation

Json = dict[str, Any]
TIMES = frozenset(("lastTransitionTime", "lastHeartbeatTime", "lastProbeTime", "startTime", "startedAt", "finishedAt"))
MAKE_PODS = frozenset((*MADE_BY_OPERATORS, "DaemonSet", "ReplicationController"))  # their pods are in the dumps
READ_OF_STATUS = ("qosClass", "resources", "allocatedResources", "containerStatuses", "initContainerStatuses")
STATIC = "made by its node (a static pod), not by a scheduler"
NEVER_CREATED = "has no metadata.creationTimestamp: when it came is not known"
NO_END = "has ended, and no time in its status says when"
NOT_READ = "could not be read"
AGAIN = ":"  # between the name of a pod and a number, if an earlier pod had the name; it is in no name of a pod


class PodTimes(NamedTuple):
    """What the newest dump with the pod says of its life. Seconds since the epoch; 0 = not known."""

    title: str  # namespace/name
    arrived: float
    placed: float
    node: str
    ended: bool
    gone: float
    seen: float
    missing: bool  # in a later dump


@dataclass(slots=True)
class MergedDumps:
    """Documents in which all pods wait, and the times of the pods by UID."""

    documents: tuple[Document, ...] = ()
    times: dict[str, PodTimes] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # why -> namespace/name

    def leave_out(self, why: str, title: str) -> None:
        self.left_out.setdefault(why, []).append(title)


class _Dump(NamedTuple):
    """The objects of one file, or of the live cluster."""

    taken: float
    source: str
    documents: tuple[Document, ...]
    namespaces: frozenset[str]  # of its pods
    whole: bool  # it is known to have the pods of all namespaces

    def covers(self, namespace: str) -> bool:
        """Whether a pod of this namespace that is not in it did not exist then."""
        return self.whole or len(self.namespaces) > 1 or namespace in self.namespaces


class _LeftOut(ValueError):
    """Why a pod is not in the history."""


def merged(
    documents: Sequence[Document], vendors: Vendors, problems: Problems, now: float | None = None
) -> MergedDumps:
    """Merge the dumps. One dump is one file; `now`: when the live cluster was read, whose objects are in no file."""
    dumps = sorted(_dumps(documents, problems, now), key=lambda one: (one.taken, one.source))
    result = MergedDumps()
    newest: dict[tuple[str, ...], Document] = {}  # of everything but pods
    pods: dict[str, tuple[Document, float]] = {}  # UID -> its newest form, and when it was seen
    for dump in dumps:
        for one in dump.documents:
            if one.kind == "Pod":
                pods[_uid(one)] = (one, dump.taken)
            elif one.kind not in MAKE_PODS:
                newest[one.group, one.kind, _namespace(one), one.name] = one
    names: dict[str, int] = {}
    waiting = []
    for uid, (document, seen) in sorted(pods.items(), key=lambda item: _age(item[1][0], item[0])):
        missing = any(dump.taken > seen and dump.covers(_namespace(document)) for dump in dumps)
        try:
            result.times[uid] = read = _times(document, seen, missing, problems)
        except _LeftOut as error:
            result.leave_out(str(error), f"{_namespace(document)}/{document.name}")
            continue
        names[read.title] = number = names.get(read.title, 0) + 1
        waiting.append(_as_waiting(document, uid, number, vendors))
    rest = (_still_there(newest[key]) for key in sorted(newest))
    result.documents = (*(replace(one, reduced=True) for one in rest), *waiting)
    return result


def _dumps(documents: Sequence[Document], problems: Problems, now: float | None) -> Iterator[_Dump]:
    by_source: dict[str, list[Document]] = {}
    for one in documents:
        by_source.setdefault(one.place.rpartition("#")[0], []).append(one)
    for source, found in by_source.items():
        marked = snapshot.marked(found, problems)
        taken = marked.markers[0].time if marked.markers else None if source else now
        spaces = frozenset(_namespace(one) for one in marked.documents if one.kind == "Pod")
        yield _Dump(_latest(found) if taken is None else taken, source, marked.documents, spaces, taken is not None)


def _latest(documents: Collection[Document]) -> float:
    """The latest time in these objects at which something happened."""
    made = (_meta(one).get("creationTimestamp") for one in documents)
    texts = chain(made, (text for one in documents for text in _said(one.body.get("status"))))
    return max((seconds_of(text) or 0.0 for text in texts if isinstance(text, str)), default=0.0)


def _said(status: Any) -> Iterator[Any]:
    """The times in a status."""
    left = [status]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield from (part[key] for key in TIMES & part.keys())
            left += (value for value in part.values() if isinstance(value, (dict, list)))
        elif isinstance(part, list):
            left += part


def _times(document: Document, seen: float, missing: bool, problems: Problems) -> PodTimes:
    """The times of a pod. Raises _LeftOut."""
    pod = convert(document.body, objects.Pod, document.where, problems)
    if pod is None:
        raise _LeftOut(NOT_READ)
    meta, status = pod.metadata, pod.status
    title = f"{_namespace(document)}/{document.name}"
    arrived = seconds_of(meta.creation_timestamp) if meta.creation_timestamp else None
    if any(owner.kind == "Node" for owner in meta.owner_references):
        raise _LeftOut(STATIC)
    if arrived is None:
        raise _LeftOut(NEVER_CREATED)
    ended = status.phase in TERMINAL
    gone = _end_of(status) if ended else 0.0
    if ended and not gone:
        raise _LeftOut(NO_END)
    if missing and not ended:
        deleted = seconds_of(meta.deletion_timestamp) if meta.deletion_timestamp else None
        gone = max(deleted or 0.0, seen)
    placed = placed_at(status) or started_at(status) or (arrived if pod.spec.node_name else 0.0)
    return PodTimes(title, arrived, placed, pod.spec.node_name, ended, gone, seen, missing)


def _end_of(status: objects.PodStatus) -> float:
    """When the last container of a pod ended; of a pod without containers, when a condition last changed."""
    states = (one.state.terminated for one in status.container_statuses)
    ends = [seconds_of(one.finished_at) or 0.0 for one in states if one is not None and one.finished_at]
    changes = (seconds_of(one.last_transition_time) or 0.0 for one in status.conditions if one.last_transition_time)
    return max(ends, default=0.0) or max(changes, default=0.0)


def _as_waiting(document: Document, uid: str, number: int, vendors: Vendors) -> Document:
    """The pod without a node and without an end. The second pod of a name gets another one."""
    body, meta, spec = document.body, dict(_meta(document)), dict(document.body.get("spec") or {})
    if spec.pop("nodeName", "") and has_record(meta.get("annotations") or {}, vendors):  # so its webhook let it in
        meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != WEBHOOK}
    meta.pop("deletionTimestamp", None)
    name = document.name if number == 1 else f"{document.name}{AGAIN}{number}"
    status = {key: value for key, value in (body.get("status") or {}).items() if key in READ_OF_STATUS}
    changed = {**body, "metadata": {**meta, "name": name, "uid": uid}, "spec": spec, "status": status}
    return replace(document, body=changed, reduced=True)


def _still_there(document: Document) -> Document:
    """A Namespace that was being deleted counts as one that was not: its pods had come before."""
    if document.kind != "Namespace":
        return document
    meta = {key: value for key, value in _meta(document).items() if key != "deletionTimestamp"}
    return replace(document, body={**document.body, "metadata": meta})


def history_of(given: Situation, dumps: MergedDumps) -> ClusterHistory:
    """The history, from the pods as they were read and their times."""
    read = {pod.uid: pod for group in given.groups for pod in group.pods}
    for uid, times in dumps.times.items():
        if uid not in read:
            dumps.leave_out(NOT_READ, times.title)
    pods = (_past(read[uid], times) for uid, times in dumps.times.items() if uid in read)
    gangs = {group.name: terms_of(group) for group in given.groups if group.pods[0].group == group.name}
    left_out = {why: tuple(sorted(dumps.left_out[why])) for why in sorted(dumps.left_out)}
    return ClusterHistory(given.nodes, in_order(pods), gangs, left_out)


def _past(pod: Pod, times: PodTimes) -> PastPod:
    gone = max(times.gone, times.placed, times.arrived) if times.gone else None
    return PastPod(
        pod=pod,
        arrived=times.arrived,
        seen=max(times.seen, times.arrived, times.placed),
        placed=max(times.placed, times.arrived) if times.placed else None,
        node=times.node,
        gone=gone,
        gone_since=times.missing and not times.ended,
    )


def _meta(document: Document) -> Mapping[str, Any]:
    meta = document.body.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _namespace(document: Document) -> str:
    return "" if document.kind in WITHOUT_NAMESPACE else str(_meta(document).get("namespace") or "default")


def _uid(document: Document) -> str:
    return document.uid or f"{_namespace(document)}/{document.name}"


def _age(document: Document, uid: str) -> tuple[str, str, str, str]:
    """Pods of one name in the order in which they were created."""
    return _namespace(document), document.name, str(_meta(document).get("creationTimestamp") or ""), uid
