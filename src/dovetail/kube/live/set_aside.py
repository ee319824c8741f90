"""Objects on which the scheduler failed: each is named, counted and set aside by itself; all others go on.

An exception here is a programming error, or an object that nobody thought of. The object waits until it changes, or
until the next try after a pause that doubles. A pod that runs stays charged, and a node takes no new pods meanwhile.
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
from dovetail.kube.live.tell import Condition, Note
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

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0  # seconds between two tries of an object that does not change
MAX_REMEMBERED = 1_000  # objects; the oldest is forgotten, and tried again only when it changes
MAX_FRAMES = 12  # of a stack in the log


class Fault(NamedTuple):
    """An object that could not be read. `source` is the pod, where it is one."""

    kind: str
    name: str
    error: Exception
    source: objects.Pod | None = None


@dataclass(slots=True)
class _Record:
    """Of one object."""

    said: str
    times: int = 0
    again: dict[str, Callable[[], Any]] = field(default_factory=dict)  # pod uid, or "" -> how to try it again
    is_timed: bool = False  # a timer will do so: one for each object, however often it fails meanwhile

    @property
    def pause(self) -> float:
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.times - 1, 10))


class SetAside:
    def __init__(self, driver: Driver, again: Callable[[Pod], None]) -> None:
        """`again` asks for a pod that rests, if it still waits."""
        self._again = again
        self._driver, self._scheduler, self._mirror = driver, driver.scheduler, driver.mirror
        self.total = 0  # exceptions met, for the metric
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()  # kind, name
        self._scheduler.faults.tell = self._engine_failed

    def __len__(self) -> int:
        """Objects that failed and are remembered."""
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
        """The engine has taken it out already."""
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
            self._mirror.rest(pod.uid)
            known = self._mirror.pods.get(pod.uid)
            self._tell(pod, record, known.condition if known is not None else ("", ""))
            self._later(record, pod.uid, partial(self._again, pod))

    def _offer_node(self, node: Node) -> None:
        if self._mirror.nodes.get(node.name) is node:
            self._driver.happened((NodeChanged(self._driver.now(), node),))

    def group(self, group: Group, error: Exception) -> None:
        """Deciding it, or carrying out what was decided, failed outside the engine."""
        self._scheduler.faults.group(group, error)

    def pod(self, pod: Pod, error: Exception, what: str) -> None:
        """Something about the pod failed that does not decide where it goes."""
        self._note(what, pod.key, error)

    def other(self, what: str, error: Exception) -> None:
        """A part of the scheduler's work that no single object stands for."""
        mend(self._scheduler.ledger, ())
        self._note(what, "", error)

    def event(self, event: Event, error: Exception) -> tuple[Effect, ...]:
        """`Scheduler.handle` raised: its object is taken out, and the ledger is put right."""
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
        """As `Scheduler.handle`; an exception costs only the object that the event is about."""
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
        """They are gone all the same."""
        for uid in uids:
            group = self._scheduler.waiting.group_of(uid)
            if group is not None:
                self._scheduler.waiting.drop_pod(uid)
            self._scheduler.nominated.forget(uid)
        mend(self._scheduler.ledger, tuple(uids))
        self._note("Pod", ", ".join(uids), error)

    # ---- what people see ----------------------------------------------------------------------------------------

    def _note(self, kind: str, key: str, error: Exception) -> _Record:
        """Count it, and log it where it is not what was said of this object the last time."""
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
        """The pod says so, by a word of our own: no other node would help."""
        text = cut(f"{sentence(Reason.SET_ASIDE)}: {record.said}; it is tried again when it changes, or later.")
        condition = Condition(name(Reason.SET_ASIDE), text)
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
    """Which object the event is about, for the log."""
    named = [str(getattr(event, field)) for field in ("kind", "namespace", "name", "uid") if hasattr(event, field)]
    return "/".join(part for part in named if part)


def _stack(error: Exception) -> str:
    """Innermost frame last, on one line."""
    frames = extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " > ".join(f"{frame.filename.rpartition('dovetail/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
