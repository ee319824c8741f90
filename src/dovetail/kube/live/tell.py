"""Reports to people: the pod's condition, and Events. Binds go first, and only changes are written.

A condition says why a pod waits. It is written where it differs from the pod's present condition, by few writers while
pods are being bound. Events are sent while nothing is being bound. In a long burst, the oldest events are sent slowly
meanwhile, and events are dropped when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Forbidden, Throttled, Unavailable
from dovetail.kube.api.retry import BACKOFF, REAL, World
from dovetail.kube.live.binding import pod_path
from dovetail.kube.live.election import only_while
from dovetail.kube.live.pod_group_objects import PodGroupObject
from dovetail.kube.live.times import to_microsecond, to_second
from dovetail.kube.live.turns import Turns
from dovetail.kube.live.words import cut
from dovetail.kube.log import ERROR, WARNING, Log
from dovetail.model.pod import Pod

CONTROLLER = "dovetail"  # reporting controller of events about a pod that names no scheduler
MOST_EVENTS = 5_000  # waiting to be sent
WRITERS = 8  # conditions being written at the same time
WRITERS_WHILE_BINDING = 2  # of these, while pods are being bound
EVENT_WRITERS = 2
MAX_EVENT_DELAY = 10.0  # seconds that an event waits for binds to finish; then it is sent between them
TRICKLE = 0.1  # seconds between two such events of a writer


class ScheduledCondition(NamedTuple):
    reason: str
    message: str


class EventSubject(NamedTuple):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of_pod_group(cls, group: PodGroupObject) -> EventSubject:
        name = group.name
        version = f"{name.api_group}/{group.version}"
        return cls(version, "PodGroup", name.namespace, name.name, group.source.metadata.uid)


@dataclass(frozen=True, slots=True)
class Note:
    """An Event about a pod, or about its PodGroup."""

    pod: Pod
    reason: str
    text: str
    warning: bool = False
    action: str = "Scheduling"
    related: Pod | None = None  # the other pod that the event is about
    about: EventSubject | None = None  # the object that the event is about, if it is not the pod
    once: str = ""  # a name by which the API server refuses a second copy, also after a restart


class _WaitingEvent(NamedTuple):
    """What an Event says. Without its pod: thousands may wait, and each would keep a large spec in memory."""

    at: float
    regarding: dict[str, str]
    controller: str
    reason: str
    text: str
    warning: bool
    action: str
    name: str
    related: dict[str, str] | None  # the other pod that the event is about


@dataclass(slots=True)
class _Writing:
    """A condition, a nomination or both that are being written."""

    condition: ScheduledCondition | None = None
    node: str | None = None  # the nominated node; "" = none any more; None = it is not written
    done: asyncio.Event = field(default_factory=asyncio.Event)
    last: bool = False  # the pod is about to be bound: write no other condition after this one


class Teller:
    def __init__(
        self,
        api: Api,
        instance: str,
        *,
        # uid, the pod as it is now, its condition and nominated node now; None = that was not written
        written: Callable[[str, Json, ScheduledCondition | None, str | None], None],
        may_write: Callable[[], bool],  # whether we are certain to be the leader at this moment
        busy: Callable[[], bool],  # whether a pod is being bound or evicted
        now: Callable[[], float],
        log: Log,
        world: World = REAL,
    ) -> None:
        self._api, self._instance, self._written = api, instance[:128], written
        self._may_write, self._busy, self._now, self._log, self._world = may_write, busy, now, log, world
        self._conditions: Turns[tuple[Pod, ScheduledCondition]] = Turns()  # by uid, the newest condition only
        self._nominations: Turns[tuple[Pod, str]] = Turns()  # likewise, the newest node only
        self._under_way: dict[str, _Writing] = {}
        self._events: Turns[_WaitingEvent] = Turns()  # by number
        self._more, self._more_events = asyncio.Event(), asyncio.Event()
        self.sent = self.dropped = self.conditions_written = self._noted = 0
        self.writes_conditions = True  # False = another scheduler writes conditions and nominations of pods
        self.event_names: Mapping[str, str] = {}  # reason of an event -> the reason under which it is sent

    def waits(self, pod: Pod, condition: ScheduledCondition) -> None:
        """Queue this condition for the pod; it replaces an older one in the queue."""
        if not self.writes_conditions:
            return
        self._conditions.put(pod.namespace, pod.uid, (pod, condition))
        self._more.set()

    def nominate(self, pod: Pod, node: str) -> None:
        """Queue the pod's nominated node; "" = it has none any more. Nominations are written before conditions."""
        if not self.writes_conditions:
            return
        self._nominations.put(pod.namespace, pod.uid, (pod, node))
        self._more.set()

    def is_nominating(self, uid: str) -> bool:
        """Whether a nomination of the pod is queued or being written."""
        writing = self._under_way.get(uid)
        return uid in self._nominations or (writing is not None and writing.node is not None)

    async def nominated(self, uids: Iterable[str]) -> None:
        """Wait until all queued nominations of these pods are written, or given up."""
        for uid in uids:
            while self.is_nominating(uid):
                writing = self._under_way.get(uid)
                await (writing.done.wait() if writing is not None else self._world.sleep(0.005))

    def forget(self, uid: str) -> None:
        self._conditions.discard(uid)
        self._nominations.discard(uid)

    def note(self, note: Note) -> None:
        if len(self._events) == MOST_EVENTS:
            self.dropped += 1
            self._events.drop_one()
        self._noted += 1
        if note.reason in self.event_names:
            note = replace(note, reason=self.event_names[note.reason])
        self._events.put(note.pod.namespace, str(self._noted), _waiting_event(self._now(), note))
        self._more_events.set()

    async def settled(self, uid: str) -> None:
        """Wait until no condition of the pod is being written; its queued conditions are dropped."""
        self.forget(uid)
        writing = self._under_way.get(uid)
        if writing is not None:
            writing.last = True
            await writing.done.wait()

    async def run(self) -> None:
        """Write conditions and events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for rank in range(WRITERS):
                tasks.create_task(self._write_conditions(rank))
            for _ in range(EVENT_WRITERS):
                tasks.create_task(self._send_events())

    async def flush(self, seconds: float) -> None:
        """Send what is left, for at most `seconds`."""
        deadline = self._world.now() + seconds
        while self._has_work() and self._world.now() < deadline:
            await self._world.sleep(0.02)

    def _has_work(self) -> bool:
        return bool(self._conditions or self._nominations or self._events or self._under_way)

    # ---- conditions ---------------------------------------------------------------------------------------------

    async def _write_conditions(self, rank: int) -> None:
        while True:
            if rank >= WRITERS_WHILE_BINDING and self._conditions and not self._nominations and self._busy():
                await self._world.sleep(0.05)
                continue
            # If another writer has an older condition of the pod, the next one stays queued, where `forget` finds it.
            uid = self._nominations.first(but=self._under_way) or self._conditions.first(but=self._under_way)
            if uid is None:
                self._more.clear()
                await self._more.wait()
                continue
            pod, writing = self._begin(uid)
            try:
                if not await self._write(pod, writing) and not writing.last:
                    self._put_back(pod, writing)
            finally:
                del self._under_way[uid]
                writing.done.set()
                self._more.set()

    def _begin(self, uid: str) -> tuple[Pod, _Writing]:
        """Take what is queued for the pod: one write for both."""
        writing = self._under_way[uid] = _Writing()
        if uid in self._conditions:
            pod, writing.condition = self._conditions.pop(uid)
        if uid in self._nominations:
            pod, writing.node = self._nominations.pop(uid)
        return pod, writing

    def _put_back(self, pod: Pod, writing: _Writing) -> None:
        """Queue again what was not written, unless something newer is queued."""
        if writing.condition is not None and pod.uid not in self._conditions:
            self._conditions.put(pod.namespace, pod.uid, (pod, writing.condition))
        if writing.node is not None and pod.uid not in self._nominations:
            self._nominations.put(pod.namespace, pod.uid, (pod, writing.node))

    def _is_replaced(self, uid: str, writing: _Writing) -> bool:
        """Whether something newer is queued in place of all that this write contains."""
        return (writing.condition is None or uid in self._conditions) and (
            writing.node is None or uid in self._nominations
        )

    def _body(self, pod: Pod, writing: _Writing) -> dict[str, Any]:
        status: dict[str, Any] = {}
        if writing.node is not None:
            status["nominatedNodeName"] = writing.node or None
        if writing.condition is not None:
            said = {"type": "PodScheduled", "status": "False", "lastTransitionTime": to_second(self._now())}
            status["conditions"] = [{**said, **writing.condition._asdict()}]
        return {"metadata": {"uid": pod.uid}, "status": status}

    async def _write(self, pod: Pod, writing: _Writing) -> bool:
        """Write what is to be written. False: it is unknown whether it was."""
        path, body = f"{pod_path(pod.namespace, pod.name)}/status", self._body(pod, writing)
        for failures in range(1, 6):
            try:
                only_while(self._may_write)
                answer = await self._api.patch(path, body, "strategic")
                self.conditions_written += 1
                self._written(pod.uid, answer, writing.condition, writing.node)
                return True
            except (Throttled, Unavailable) as error:
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
                if writing.last or self._is_replaced(pod.uid, writing):
                    return True  # a newer condition is queued, or none is wanted any more
            except ApiError as error:
                if error.code not in (404, 409):  # 404, 409: the pod is gone, or is another one
                    self._log(f"condition of {pod.key}: {error.message}", WARNING, pod=pod.key, uid=pod.uid)
                return True
            except Exception as error:  # a failure for one pod must not stop the others
                self._log(f"condition of {pod.key}: {type(error).__name__}: {error}", ERROR, pod=pod.key, uid=pod.uid)
                return True
        return False

    # ---- events -------------------------------------------------------------------------------------------------

    async def _send_events(self) -> None:
        while True:
            number = self._events.first()
            if number is None:
                self._more_events.clear()
                await self._more_events.wait()
                continue
            at = self._events.get(number).at
            if self._busy() or not self._may_write():
                is_young = self._now() - at < MAX_EVENT_DELAY
                await self._world.sleep(0.05 if is_young else TRICKLE)
                if is_young or number not in self._events or not self._may_write():
                    continue
            await self._send(self._events.pop(number))

    async def _send(self, event: _WaitingEvent) -> None:
        namespace, name = event.regarding["namespace"], event.regarding["name"]
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200].rstrip('-.')}.{event.name}", "namespace": namespace},
            "eventTime": to_microsecond(event.at),
            "reportingController": event.controller,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "type": "Warning" if event.warning else "Normal",
            "note": event.text,
            "regarding": event.regarding,
        }
        if event.related is not None:
            body["related"] = event.related
        key = f"{namespace}/{name}"
        try:
            await self._api.post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", msgspec.json.encode(body))
            self.sent += 1
        except (Throttled, Unavailable) as error:
            self.dropped += 1
            await self._world.sleep(BACKOFF.wait(2, self._world.chance(), error.retry_after))
        except ApiError as error:
            self.dropped += 1
            namespace_ends = isinstance(error, Forbidden) and error.namespace_ends
            if error.code not in (404, 409) and not namespace_ends:
                self._log(f"event about {key}: {error.message}", WARNING, pod=key)
        except Exception as error:
            self.dropped += 1
            self._log(f"event about {key}: {type(error).__name__}: {error}", ERROR, pod=key)


def _reference(pod: Pod) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}


def _waiting_event(at: float, note: Note) -> _WaitingEvent:
    pod, name = note.pod, note.once or f"{int(at * 1e9):x}"
    related = _reference(note.related) if note.related is not None else None
    said = (note.reason, cut(note.text), note.warning, note.action)
    regarding = _reference(pod)
    if note.about is not None:
        version, *rest = note.about
        regarding = {"apiVersion": version, **dict(zip(("kind", "namespace", "name", "uid"), rest, strict=True))}
    return _WaitingEvent(at, regarding, pod.scheduler or CONTROLLER, *said, name, related)
