"""Which process may write: a Lease, as Kubernetes components keep it, and the epoch that distinguishes its leaders.

A Lease cannot stop a write that was already sent. A leader that takes over from one that did not release the Lease
cleanly writes its epoch on all waiting pods (kube/live/fencing.py). Such old writes then fail on their preconditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec

from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Conflict, NotFound, Unavailable
from dovetail.kube.api.retry import REAL, World
from dovetail.kube.api.typed import UNREADABLE
from dovetail.kube.live.lease import LEASE_KIND, UNMARKED, Lease, LeaseMeta, LeaseSpec, Marks
from dovetail.kube.live.times import to_microsecond
from dovetail.kube.log import ERROR, INFO, WARNING, Level, Log
from dovetail.kube.objects.problems import printable

_LEASE = msgspec.json.Decoder(Lease)


@dataclass(frozen=True, slots=True)
class Terms:
    """Durations in seconds. The lease must be longer than the deadline, and the deadline than several tries."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0

    @classmethod
    def of(cls, duration: float) -> Terms:
        """The default terms, scaled to this duration."""
        return cls(duration, duration * 2 / 3, duration * 2 / 15)


TERMS = Terms()


class Arrival(Enum):
    """How we came to hold the lease."""

    FIRST = auto()  # the lease had no holder before
    AFTER_GOODBYE = auto()  # the previous holder ended all its writes, and wrote so
    TAKEN_OVER = auto()  # the previous holder stopped renewing


class OtherNames(Exception):
    """The holder of our Lease does not schedule the pods that we were to schedule."""


class Election:
    """Acquires and keeps the Lease.

    Call `acquire`, then run `keep` in a task. When `keep` ends, we must not write any more.
    """

    def __init__(
        self,
        api: Api,
        identity: str,
        *,
        name: str,
        namespace: str,
        terms: Terms = TERMS,
        marks: Marks = UNMARKED,
        any_names: bool = False,  # wait also for a holder that serves other scheduler names than ours
        now: Callable[[], float],
        log: Log,
        world: World = REAL,
    ) -> None:
        self._api, self.identity, self._name = api, identity, name
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._terms, self._now, self._log, self._world = namespace, terms, now, log, world
        self._marks, self._any_names = marks, any_names
        self.says: Callable[[str], None] = lambda text: None  # called with what we wait for
        self._their_names: tuple[str, ...] = ()  # scheduler names of the Lease as last seen; () = not known
        self._seen: tuple[LeaseSpec, float] | None = None  # the record, and since when it is unchanged, by our clock
        self._held: Lease | None = None
        self.arrival: Arrival | None = None
        self._reigns = False
        self._renewed = -1e9  # when the last successful renewal was sent, by our own clock
        self._looks = self._looked = 0  # renewals sent; the last of them that showed that we lead
        self._doubt = asyncio.Event()

    def is_sure(self) -> bool:
        """Whether no other process can hold the lease yet: we renew it well before it expires."""
        return self._reigns and self._world.now() - self._renewed < self._terms.deadline

    def doubt(self) -> int:
        """Check the lease at once, because another process may hold it.

        Returns the check's number, for `has_looked`.
        """
        self._doubt.set()
        return self._looks + 1

    def has_looked(self, number: int) -> bool:
        """Whether that check of the lease, or a later one, showed that we lead."""
        return self._looked >= number

    @property
    def lease(self) -> Lease:
        """Our Lease as last written."""
        assert self._held is not None
        meta = LeaseMeta(self._name, self._namespace, "", self._marks.metadata()["annotations"])
        return Lease(meta, self._held.spec)

    @property
    def epoch(self) -> str:
        """The epoch: different for every leadership."""
        assert self._held is not None
        return f"{self._held.spec.lease_transitions or 0}.{self.identity}"[:253]

    async def acquire(self) -> Arrival:
        """Wait until the lease is ours.

        Raises OtherNames if its holder serves other names and `any_names` is not set.
        """
        said, served_at = "", self._world.now()
        while True:
            try:
                if await self._try():
                    assert self.arrival is not None
                    return self.arrival
                text, level = self._why_not()
            except ApiError as error:
                text, level = f"lease: {error.message}", WARNING
            if text != said:
                self._log(text, level)
                self.says(text)
                said = text
            if level is not ERROR:
                served_at = self._world.now()
            elif not self._any_names and self._world.now() - served_at > 2 * self._terms.duration:
                raise OtherNames(text)
            await self._world.sleep(self._until_next_look())

    def _until_next_look(self) -> float:
        """Seconds for which a waiting process sleeps.

        Four looks for each renewal of the holder, and one when the Lease runs out: pods wait for the next leader no
        longer than the Lease and about a second.
        """
        usual = self._terms.retry / 4 * (1 + 0.2 * self._world.chance())
        if self._seen is None:
            return usual
        spec, since = self._seen
        left = since + self._patience(spec) - self._world.now()
        return min(usual, left) if left > 0 else usual

    def _patience(self, spec: LeaseSpec) -> float:
        """Seconds for which a Lease holds after its last renewal, by what its holder wrote."""
        return float(spec.lease_duration_seconds or self._terms.duration)

    def _why_not(self) -> tuple[str, Level]:
        """Which process holds the Lease, and which of our pods it leaves waiting.

        Older Dovetails do not write their names.
        """
        text = f"waiting for the lease, held by {self._seen[0].holder_identity if self._seen else ''}"
        left = [name for name in self._marks.names if self._their_names and name not in self._their_names]
        if not left:
            return text, INFO
        theirs = printable(", ".join(self._their_names), 300)
        fix = "Serve the same --scheduler-name in both, or give this one its own --lease-name and --node-selector"
        return f"{text}, which schedules {theirs}: pods of {', '.join(left)} are not scheduled. {fix}", ERROR

    async def keep(self) -> None:
        """Renew until that fails for too long, or another process holds the lease. After this, `is_sure` is False."""
        try:
            await self._keep()
        finally:
            self._reigns = False

    async def _keep(self) -> None:
        while True:
            await self._pause()
            try:
                async with asyncio.timeout(max(self._terms.retry, self._terms.deadline / 2)):
                    self._looks += 1
                    if not await self._renew():
                        self._log("the lease is another's now", ERROR)
                        return
                    self._looked = self._looks
            except (ApiError, TimeoutError) as error:
                if not self.is_sure():
                    said = error.message if isinstance(error, ApiError) else "no answer"
                    self._log(f"the lease could not be renewed for {self._terms.deadline:.0f} s: {said}", ERROR)
                    return

    async def _pause(self) -> None:
        """Wait until the next renewal is due, or a doubt is raised.

        Doubts are not answered one by one: any client that may patch pods can raise them.
        """
        await self._world.sleep(max(0.0, self._renewed + self._terms.retry / 20 - self._world.now()))
        waits = {asyncio.create_task(self._doubt.wait()), asyncio.create_task(self._sleep())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._doubt.clear()
            for wait in waits:
                wait.cancel()

    async def _sleep(self) -> None:
        await self._world.sleep(self._terms.retry)

    async def release(self, clean: bool = True) -> None:
        """End the lease now: this process writes no more.

        `clean`: all our writes have ended, and no write of our predecessor can succeed. Then the next holder need not
        fence. Otherwise our name stays on the lease.
        """
        self._reigns = False
        if self._held is None:
            return
        holder = "" if clean else self._held.spec.holder_identity
        spec = msgspec.structs.replace(self._held.spec, holder_identity=holder, lease_duration_seconds=1)
        try:
            await self._put(self._held.metadata.resource_version, spec)
        except ApiError as error:
            self._log(f"the lease could not be released: {error.message}", WARNING)

    async def _try(self) -> bool:
        try:
            lease = _read(await self._api.get(f"{self._leases}/{self._name}"))
        except NotFound:
            return await self._create()
        self._their_names = lease.marks().names
        if self._seen is None or self._seen[0] != lease.spec:
            self._seen = (lease.spec, self._world.now())
        holder = lease.spec.holder_identity or ""
        if holder not in ("", self.identity) and self._world.now() - self._seen[1] < self._patience(lease.spec):
            return False  # our own name means that this process was killed and has restarted
        self._marks = self._marks.sealing_after(lease.metadata.annotations, self._now())
        try:
            await self._put(lease.metadata.resource_version, self._spec(self._next_reign()))
        except Conflict:
            return False
        self.arrival, self._reigns = Arrival.TAKEN_OVER if holder else Arrival.AFTER_GOODBYE, True
        return True

    async def _create(self) -> bool:
        self._marks = self._marks.sealing_after({}, self._now())
        meta = {"name": self._name, "namespace": self._namespace, **self._marks.metadata()}
        body = {"metadata": meta, "spec": self._spec(self._next_reign())}
        sent = self._world.now()
        try:
            self._held = _read(await self._api.post(self._leases, {**LEASE_KIND, **body}))
        except Conflict:
            return False
        self._renewed = sent
        self.arrival, self._reigns = Arrival.FIRST, True
        return True

    def _next_reign(self) -> int:
        """The next transition number. It continues from the Lease that we saw, even if that was deleted since."""
        return (self._seen[0].lease_transitions or 0) + 1 if self._seen is not None else 0

    async def _renew(self) -> bool:
        assert self._held is not None
        spec = msgspec.structs.replace(self._held.spec, renew_time=to_microsecond(self._now()))
        try:
            await self._put(self._held.metadata.resource_version, spec)
            return True
        except Conflict:  # our own write whose answer was lost, or another process
            lease = _read(await self._api.get(f"{self._leases}/{self._name}"))
            # Another process of the same identity has counted one more.
            mine = (self.identity, self._held.spec.lease_transitions)
            if (lease.spec.holder_identity, lease.spec.lease_transitions) != mine:
                return False
            self._held = lease
            return True
        except NotFound:  # it was deleted, and any process may acquire it next
            return False

    async def _put(self, version: str, spec: LeaseSpec) -> None:
        named = {"name": self._name, "namespace": self._namespace, "resourceVersion": version}
        meta = {**named, **self._marks.metadata()}
        body: dict[str, Any] = {**LEASE_KIND, "metadata": meta, "spec": spec}
        sent = self._world.now()
        self._held = _read(await self._api.put(f"{self._leases}/{self._name}", body))
        self._renewed = sent

    def _spec(self, transitions: int) -> LeaseSpec:
        now = to_microsecond(self._now())
        return LeaseSpec(self.identity, int(self._terms.duration), now, now, transitions)


def _read(body: Json) -> Lease:
    try:
        return _LEASE.decode(body)
    except UNREADABLE as error:
        raise Unavailable(f"the lease cannot be read: {printable(str(error), 300)}") from None


def only_while(may_write: Callable[[], bool]) -> None:
    """Raise if we may not write; the last check before a write is sent."""
    if not may_write():
        raise Unavailable("the lease was not renewed in time", sent=False)


async def either(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for at most `seconds`. (`wait_for` of Python 3.11 may lose a cancellation.)"""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
