"""Objects on which the scheduler failed: each is named, counted and set aside alone; all others continue.

An exception here is a programming error, or an object of an unforeseen form. The object waits until it changes, or
until the next try; the pause between tries doubles. Meanwhile a running pod stays charged, and a node takes no new
pods.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.engine.faults import Subject, mend, simplified
from dovetail.kube.live.bare import bare_pod
from dovetail.kube.live.tell import Note, ScheduledCondition
from dovetail.kube.live.words import cut
from dovetail.kube.log import DEBUG, ERROR
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import printable
from dovetail.model.events import (
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    NodeGone,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
    VolumesChanged,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason, name, sentence

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0  # seconds between two tries of an unchanged object
MAX_REMEMBERED = 1_000  # objects; the oldest is forgotten, and tried again only when it changes
MAX_FRAMES = 12  # stack frames in the log


class Fault(NamedTuple):
    """An object that could not be read. `source` is the pod, if the object is a pod."""

    kind: str
    name: str
    error: Exception
    source: objects.Pod | None = None


@dataclass(slots=True)
class _Record:
    """The failures of one object."""

    said: str
    times: int = 0
    again: dict[str, Callable[[], Any]] = field(default_factory=dict)  # pod uid, or "" -> how to try it again
    is_timed: bool = False  # a timer will try again: one timer for each object, however often it fails meanwhile

    @property
    def pause(self) -> float:
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.times - 1, 10))


class SetAside:
    def __init__(self, driver: Driver, again: Callable[[Pod], None]) -> None:
        """`again` offers a pod that pauses after a failure, if it still waits."""
        self._again = again
        self._driver, self._scheduler, self._mirror = driver, driver.scheduler, driver.mirror
        self.total = 0  # exceptions, for the metric
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()  # kind, name
        self._scheduler.faults.tell = self._engine_failed

    def __len__(self) -> int:
        """The number of failed objects that are remembered."""
        return len(self._records)

    def has(self, kind: str, key: str) -> bool:
        """Whether the object failed, and is remembered."""
        return (kind, key) in self._records

    # ---- objects that could not be read -------------------------------------------------------------------------

    def unread(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            record = self._note(fault.kind, fault.name, fault.error)
            source = fault.source
            if source is None:
                continue
            if not source.spec.node_name and source.metadata.uid:
                self._tell(bare_pod(source), record, _scheduled(source))
            self._later(record, "", partial(self._driver.hear_pod, source))

    # ---- objects on which the engine failed ---------------------------------------------------------------------

    def _engine_failed(self, subject: Subject, error: Exception) -> None:
        """Note a failure inside the engine, which has already removed the object."""
        if isinstance(subject, Group):
            self._group(subject, error)
        elif isinstance(subject, Node):
            record = self._note("Node", subject.name, error)
            self._later(record, "", partial(self._offer_node, subject))
        else:
            self._note("Pod", subject.pod.key, error)

    def _group(self, group: Group, error: Exception) -> None:
        in_gang = group.pods[0].group == group.name
        record = self._note("PodGroup" if in_gang else "Pod", group.title, error)
        for pod in group.pods:
            self._driver.on_the_way.pop(pod.uid, None)
            self._mirror.known.rest(pod.uid)
            known = self._mirror.pods.get(pod.uid)
            self._tell(pod, record, known.condition if known is not None else ("", ""))
            self._later(record, pod.uid, partial(self._again, pod))

    def _offer_node(self, node: Node) -> None:
        if self._mirror.nodes.get(node.name) is node:
            self._driver.happened((NodeChanged(self._driver.now(), node),))

    def group(self, group: Group, error: Exception) -> None:
        """Set a group aside: deciding it, or carrying out the decision, failed outside the engine."""
        self._disturbed(f"{group.title} was set aside")
        self._scheduler.faults.group(group, error)

    def pod(self, pod: Pod, error: Exception, what: str) -> None:
        """Note a failure about the pod that does not affect its placement."""
        self._note(what, pod.key, error)

    def other(self, what: str, error: Exception) -> None:
        """Note a failure in work that belongs to no single object."""
        self._disturbed(f"{what} failed")
        mend(self._scheduler.ledger, ())
        self._note(what, "", error)

    def _disturbed(self, reason: str) -> None:
        """Tell the journal: the engine's state is about to be changed past its doors."""
        if self._driver.recorder is not None:
            self._driver.recorder.disturbed(reason)

    def event(self, event: Event, error: Exception) -> tuple[Effect, ...]:
        """Handle an exception of `Scheduler.handle`: remove the event's object, and repair the ledger."""
        match event:
            case GroupArrived(_, group):
                self.group(group, error)
            case PodObserved(at, running):
                mend(self._scheduler.ledger, (running.pod.uid,))
                self._note("Pod", running.pod.key, error)
                return self._first_that_works([PodObserved(at, less) for less in simplified(running)])
            case PodGone(_, uid):
                self._drop((uid,), error)
            case PodsGone(_, uids):
                self._drop(uids, error)
            case PodNominated(_, pod, _):
                self._scheduler.nominated.forget(pod.uid)
                mend(self._scheduler.ledger, ())
                self._note("Pod", pod.key, error)
            case NodeChanged(_, node):
                self._scheduler.faults.node(node, None, error)
            case NodeGone(_, name_):
                self._scheduler.faults.node(Node(name_), None, error)
            case VolumesChanged(at, facts, gone) if len(facts) + len(gone) > 1:
                singly = [VolumesChanged(at, (fact,)) for fact in facts]
                singly += [VolumesChanged(at, (), (fact,)) for fact in gone]
                return tuple(effect for one in singly for effect in self.handle(one))
            case _:
                mend(self._scheduler.ledger, ())
                self._note(type(event).__name__, _subject(event), error)
        return ()

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """As `Scheduler.handle`; an exception affects only the object of the event."""
        try:
            return self._scheduler.handle(event)
        except Exception as error:
            return self.event(event, error)

    def _first_that_works(self, events: list[PodObserved]) -> tuple[Effect, ...]:
        for event in events:
            try:
                return self._scheduler.handle(event)
            except Exception:
                mend(self._scheduler.ledger, (event.running.pod.uid,))
        return ()

    def _drop(self, uids: Iterable[str], error: Exception) -> None:
        """Remove these pods: they are gone, although the event failed."""
        for uid in uids:
            group = self._scheduler.waiting.group_of(uid)
            if group is not None:
                self._scheduler.waiting.drop_pod(uid)
            self._scheduler.nominated.forget(uid)
        mend(self._scheduler.ledger, tuple(uids))
        self._note("Pod", ", ".join(uids), error)

    # ---- what people see ----------------------------------------------------------------------------------------

    def _note(self, kind: str, key: str, error: Exception) -> _Record:
        """Count the failure; log it unless it is the same as the last one of this object."""
        self.total += 1
        self._driver.audit.demand()
        said = printable(f"{type(error).__name__}: {error}", 300)
        record = self._records.pop((kind, key), None) or _Record("")
        self._records[kind, key] = record
        if len(self._records) > MAX_REMEMBERED:
            self._records.popitem(last=False)
        record.times += 1
        if record.said != said:
            record.said = said
            text = f"{kind} {printable(key, 300)} is set aside, as the scheduler failed on it: {said}"
            self._driver.log(text, ERROR, object=f"{kind} {key}")
            self._driver.log(f"{kind} {printable(key, 300)}: {_stack(error)}", DEBUG, object=f"{kind} {key}")
        return record

    def _tell(self, pod: Pod, record: _Record, before: tuple[str, str]) -> None:
        """Report the failure in the pod's condition, with a reason of our own: no other node would help."""
        text = cut(f"{sentence(Reason.SET_ASIDE)}: {record.said}; it is tried again when it changes, or later.")
        condition = ScheduledCondition(name(Reason.SET_ASIDE), text)
        if before != condition:
            self._driver.teller.waits(pod, condition)
            self._driver.teller.note(Note(pod, condition.reason, text, warning=True))

    def _later(self, record: _Record, uid: str, again: Callable[[], Any]) -> None:
        record.again[uid] = again
        if not record.is_timed:
            record.is_timed = True
            asyncio.get_running_loop().call_later(record.pause, self._try_again, record)

    def _try_again(self, record: _Record) -> None:
        record.is_timed = False
        calls, record.again = record.again, {}
        for call in calls.values():
            call()


def _scheduled(source: objects.Pod) -> tuple[str, str]:
    for condition in source.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""


def _subject(event: Event) -> str:
    """The object of the event, for the log."""
    named = [str(getattr(event, field)) for field in ("kind", "namespace", "name", "uid") if hasattr(event, field)]
    return "/".join(part for part in named if part)


def _stack(error: Exception) -> str:
    """The stack on one line, innermost frame last."""
    frames = extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " > ".join(f"{frame.filename.rpartition('dovetail/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
