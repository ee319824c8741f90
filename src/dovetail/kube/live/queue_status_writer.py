"""Writes what the pods of each queue hold into the status of its object: `used`, or `allocated` and `requested`.

Only the leader writes, only what is different, and a few objects at a time. Without the permission (deploy/optional/
queue-status) nothing is written, which the log says once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, NotFound
from dovetail.kube.api.retry import REAL, World
from dovetail.kube.conversion.queues import model_amounts, written
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.live.deployed import remedy
from dovetail.kube.live.queue_mirror import WANTED_FIELDS, QueueMirror, QueueRef
from dovetail.kube.live.queue_watches import WATCHED_QUEUES
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects.core import Quantities

STATUS_SECONDS = 2.0  # between two rounds
MAX_STATUS_WRITES = 20  # of one round
FORBIDDEN_SECONDS = 300.0  # until the next try, where it is forbidden


class Amounts(Protocol):
    @property
    def used(self) -> Mapping[str, int]: ...

    @property
    def wanted(self) -> Mapping[str, int]: ...


class StatusPatch(NamedTuple):
    """One write that is due."""

    path: str
    body: dict[str, object]


class QueueStatusWriter:
    def __init__(
        self,
        api: Api,
        mirror: QueueMirror,
        status: Callable[[str], Amounts | None],  # the engine's answer for a queue
        may_write: Callable[[], bool],  # whether we are certain to be the leader at this moment
        vendors: Vendors,
        log: Log,
        world: World = REAL,
    ) -> None:
        self._api, self._mirror, self._status, self._may_write = api, mirror, status, may_write
        self._vendors, self._log, self._world = vendors, log, world
        self._not_before: dict[str, float] = {}  # API group -> when it is tried again after a refusal
        self._first = 0  # the position in the list of queues from which the next round starts
        self.written = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._world.sleep(STATUS_SECONDS)
            await self.write_some()

    async def write_some(self) -> None:
        """Write the status of at most MAX_STATUS_WRITES objects, each queue in its turn."""
        names = self._mirror.queues
        started, sent = self._first % len(names) if names else 0, 0
        for name in (*names[started:], *names[:started]):
            if sent == MAX_STATUS_WRITES or not self._may_write():
                return
            self._first += 1
            due = self._due(name)
            if due is not None:
                sent += 1
                await self._write(*due)

    def _due(self, name: str) -> tuple[QueueRef, StatusPatch] | None:
        """The write that the queue's object needs; None = it needs none now."""
        found, status = self._mirror.source_of(name), self._status(name)
        if found is None or status is None:
            return None
        ref, source = found
        if self._not_before.get(ref.api_group, 0.0) > self._world.now():
            return None
        patch = {}
        for field, there in source.status.items():
            counted = status.wanted if field in WANTED_FIELDS else status.used
            amounts = {one: amount for one, amount in counted.items() if one in source.names}
            if amounts != model_amounts(there, self._vendors):
                patch[field] = self._quantities(source.names, there, amounts)
        return (ref, StatusPatch(_path(ref), {"status": patch})) if patch else None

    def _quantities(
        self, names: Mapping[str, str], there: Quantities, amounts: Mapping[str, int]
    ) -> dict[str, str | None]:
        """The amounts by the object's own names; null removes a resource that the object no longer names."""
        now = {names[one]: written(one, names[one], amount, self._vendors) for one, amount in amounts.items()}
        return {**dict.fromkeys((one for one in there if one not in now), None), **now}

    async def _write(self, ref: QueueRef, patch: StatusPatch) -> None:
        try:
            await self._api.patch(patch.path, patch.body)
            self.written += 1
        except NotFound:
            pass  # it is gone, or its kind has no status; the watch will tell
        except Forbidden as error:
            self._not_before[ref.api_group] = self._world.now() + FORBIDDEN_SECONDS
            hint = f"{remedy('queue-status')}, or ignore this where another scheduler writes it"
            self._log(f"the status of {ref} cannot be written: {error}; {hint}", WARNING)
        except ApiError as error:
            self._log(f"the status of {ref} is not written: {error}; it is tried again", WARNING)


def _path(ref: QueueRef) -> str:
    kind = next(one for one in WATCHED_QUEUES if one.api_group == ref.api_group)
    folder, _, plural = kind.path.rpartition("/")
    inside = f"namespaces/{ref.namespace}/" if ref.namespace else ""
    return f"{folder}/{inside}{plural}/{ref.name}/status"
