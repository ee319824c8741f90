"""Reports to people: the pod's condition, and Events. Binds go first, and only changes are written.

A condition says why a pod waits. It is written where it differs from the pod's present condition, by few writers while
pods are being bound. Events are sent while nothing is being bound. In a long burst, the oldest events are sent slowly
meanwhile, and events are dropped when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Forbidden, Throttled, Unavailable
from dovetail.kube.api.retry import BACKOFF, REAL, World
from dovetail.kube.live.binding import pod_path
from dovetail.kube.live.election import only_while
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


@dataclass(frozen=True, slots=True)
class Note:
    """An Event about a pod."""

    pod: Pod
    reason: str
    text: str
    warning: bool = False
    action: str = "Scheduling"
    once: str = ""  # a name by which the API server refuses a second copy, also after a restart


@dataclass(slots=True)
class _Writing:
    """A condition that is being written."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    last: bool = False  # the pod is about to be bound: write no other condition after this one


class Teller:
    def __init__(
        self,
        api: Api,
        instance: str,
        *,
        written: Callable[[str, Json, ScheduledCondition], None],  # uid, the pod as it is now, its condition now
        may_write: Callable[[], bool],  # whether we are certain to be the leader at this moment
        busy: Callable[[], bool],  # whether a pod is being bound
        now: Callable[[], float],
        log: Log,
        world: World = REAL,
    ) -> None:
        self._api, self._instance, self._written = api, instance[:128], written
        self._may_write, self._busy, self._now, self._log, self._world = may_write, busy, now, log, world
        self._conditions: Turns[tuple[Pod, ScheduledCondition]] = Turns()  # by uid, the newest condition only
        self._under_way: dict[str, _Writing] = {}
        self._events: Turns[tuple[float, Note]] = Turns()  # by number
        self._more, self._more_events = asyncio.Event(), asyncio.Event()
        self.sent = self.dropped = self.conditions_written = self._noted = 0

    def waits(self, pod: Pod, condition: ScheduledCondition) -> None:
        """Queue this condition for the pod; it replaces an older one in the queue."""
        self._conditions.put(pod.namespace, pod.uid, (pod, condition))
        self._more.set()

    def forget(self, uid: str) -> None:
        self._conditions.discard(uid)

    def note(self, note: Note) -> None:
        if len(self._events) == MOST_EVENTS:
            self.dropped += 1
            self._events.drop_one()
        self._noted += 1
        self._events.put(note.pod.namespace, str(self._noted), (self._now(), note))
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
        while (self._conditions or self._events or self._under_way) and self._world.now() < deadline:
            await self._world.sleep(0.02)

    # ---- conditions ---------------------------------------------------------------------------------------------

    async def _write_conditions(self, rank: int) -> None:
        while True:
            if rank >= WRITERS_WHILE_BINDING and self._conditions and self._busy():
                await self._world.sleep(0.05)
                continue
            # If another writer has an older condition of the pod, the next one stays queued, where `forget` finds it.
            uid = self._conditions.first(but=self._under_way)
            if uid is None:
                self._more.clear()
                await self._more.wait()
                continue
            pod, condition = self._conditions.pop(uid)
            writing = self._under_way[uid] = _Writing()
            try:
                if not await self._write(pod, condition, writing) and not writing.last:
                    self._put_back(pod, condition)
            finally:
                del self._under_way[uid]
                writing.done.set()
                self._more.set()

    def _put_back(self, pod: Pod, condition: ScheduledCondition) -> None:
        """Queue the condition again, unless a newer one is queued."""
        if pod.uid not in self._conditions:
            self._conditions.put(pod.namespace, pod.uid, (pod, condition))

    async def _write(self, pod: Pod, condition: ScheduledCondition, writing: _Writing) -> bool:
        """Write the condition. False: it is unknown whether it was written."""
        path = f"{pod_path(pod.namespace, pod.name)}/status"
        said: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": to_second(self._now()),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [said]}}
        for failures in range(1, 6):
            try:
                only_while(self._may_write)
                answer = await self._api.patch(path, body, "strategic")
                self.conditions_written += 1
                self._written(pod.uid, answer, condition)
                return True
            except (Throttled, Unavailable) as error:
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
                if writing.last or pod.uid in self._conditions:
                    return True  # a newer condition is queued, or none is wanted any more
            except ApiError as error:
                if error.code not in (404, 409):  # 404, 409: the pod is gone, or is another one
                    self._log(f"condition of {pod.key}: {error.message}", WARNING, pod=pod.key)
                return True
            except Exception as error:  # a failure for one pod must not stop the others
                self._log(f"condition of {pod.key}: {type(error).__name__}: {error}", ERROR, pod=pod.key)
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
            at, _ = self._events.get(number)
            if self._busy() or not self._may_write():
                is_young = self._now() - at < MAX_EVENT_DELAY
                await self._world.sleep(0.05 if is_young else TRICKLE)
                if is_young or number not in self._events or not self._may_write():
                    continue
            await self._send(*self._events.pop(number))

    async def _send(self, at: float, note: Note) -> None:
        pod, name = note.pod, note.once or f"{int(at * 1e9):x}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:200].rstrip('-.')}.{name}", "namespace": pod.namespace},
            "eventTime": to_microsecond(at),
            "reportingController": pod.scheduler or CONTROLLER,
            "reportingInstance": self._instance,
            "action": note.action,
            "reason": note.reason,
            "type": "Warning" if note.warning else "Normal",
            "note": cut(note.text),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
            },
        }
        try:
            await self._api.post(f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events", msgspec.json.encode(body))
            self.sent += 1
        except (Throttled, Unavailable) as error:
            self.dropped += 1
            await self._world.sleep(BACKOFF.wait(2, self._world.chance(), error.retry_after))
        except ApiError as error:
            self.dropped += 1
            namespace_ends = isinstance(error, Forbidden) and error.namespace_ends
            if error.code not in (404, 409) and not namespace_ends:
                self._log(f"event about {pod.key}: {error.message}", WARNING, pod=pod.key)
        except Exception as error:
            self.dropped += 1
            self._log(f"event about {pod.key}: {type(error).__name__}: {error}", ERROR, pod=pod.key)
