"""Lists, then watches, without end: one resource of the API server as a stream of batches. Keeps no objects.

After a failure it continues from the last resourceVersion. If the server no longer knows that version, it lists again.
A consumer that handles `Replaced` correctly never misses a change. Versions of an object that differ only in fields
that we do not read are not filtered here: their decoded objects compare equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dovetail.kube.api.client import PAGE, Api
from dovetail.kube.api.errors import ApiError, Forbidden, Gone, NotFound, Unavailable
from dovetail.kube.api.kubeconfig import KubeconfigError
from dovetail.kube.api.retry import REAL, Backoff, World
from dovetail.kube.api.typed import TypedReader, Unreadable, is_older
from dovetail.kube.api.watch import Event, Garbled, Heard, Lines, NotServed, Replaced, WatchReader
from dovetail.kube.log import DEBUG, WARNING, Log, silent

T = TypeVar("T")
Batch = list[Event[T]]
Deliver = Callable[[Batch[T]], Awaitable[None] | None]
SHORT = 1.0  # seconds; a watch that ends sooner counts as a failure
DEFAULT_BACKOFF = Backoff(longest=2.0)  # also the longest time that the view stays old after the server is back
REMIND = 300.0  # seconds between two reports of a continuing failure


@dataclass(frozen=True, slots=True)
class Pace:
    """The intervals of a reflector, in seconds."""

    watch: float = 300.0  # a watch ends after one to two times this, and the next one begins
    # Without a byte for so long, the connection counts as dead; servers send a bookmark each minute.
    quiet: float = 150.0
    recheck: float = 60.0  # between two checks for a resource that is not served
    hurry: float = 2.0  # the same where objects of it are needed
    backoff: Backoff = DEFAULT_BACKOFF


DEFAULT_PACE = Pace()


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a reflector, for readiness and metrics."""

    synced: bool  # a complete list was delivered once
    served: bool  # the server has the resource; for an optional one, we may also read it
    connected: bool  # a watch is open
    quiet: float  # seconds since the last byte from the server; under a minute or two in an idle cluster
    age: float  # seconds since a watch last showed that nothing is missed: since its last byte, or since it broke
    failures: int  # in a row
    lists: int  # since the start; grows when watches are lost
    broken: int  # lists and watches that failed, since the start
    error: str  # the last one, kept after recovery; "" = never


class _Again(Exception):
    """The watch ended too early."""


class Reflector(Generic[T]):
    """One resource, as typed objects. `await run()` in a separate task; cancel it to stop."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[T],
        deliver: Deliver[T],
        *,
        params: Mapping[str, str] | None = None,
        limit: int = PAGE,
        first_version: str = "0",
        pace: Pace = DEFAULT_PACE,
        world: World = REAL,
        report: Log = silent,
        on_watch: Callable[[bool], None] = lambda is_open: None,
        on_begin: Callable[[], None] = lambda: None,
        wanted: Callable[[], bool] | None = None,
        without: str = "",
    ) -> None:
        """`deliver` gets every batch; if it returns an awaitable, the reflector, and so the server, waits for it.

        `params` may hold fieldSelector and labelSelector. `first_version` "" = list the newest state in pages of
        `limit`. `report` gets a line when something fails, and one when a watch works again. `on_watch` gets True when
        a watch opens, and False when a list or a watch fails. `on_begin` is called before each list and watch request.
        `wanted`: whether a resource that is not served is needed soon. `without`: what does not work while the resource
        may not be read. Where it is given, a forbidden resource is treated as one that is not served.
        """
        self.path = path
        self.version = ""  # the last resourceVersion seen; "" = none
        self._api, self._deliver, self._params = api, deliver, dict(params or {})
        self._limit, self._first = limit, first_version
        self._pace, self._world, self._report = pace, world, report
        self._reader = TypedReader(kind)
        self._watching: WatchReader[T] = WatchReader(self._reader)
        self._must_list, self._newest = True, False
        self._synced = asyncio.Event()
        self._served, self._connected = True, False
        self._heard_at = self._began = world.now()
        self._lived_at = world.now()  # when a watch last showed that nothing is missed
        self._broke_at: float | None = None  # None = no failure
        self._reported_at = 0.0
        self._failures = self._lists = self._broken = 0
        self._reached = True  # the last failure was an answer of the server
        self._error = ""
        self._garbled_at: str | None = None
        self._on_watch, self._on_begin, self._wanted, self._without = on_watch, on_begin, wanted, without
        self._absent: tuple[type[ApiError], ...] = (NotFound, Forbidden) if without else (NotFound,)
        self._task: asyncio.Task[Any] | None = None  # the task that runs us
        self._renewing = False

    async def synced(self) -> None:
        """Wait until the first list was delivered, or the resource is known not to exist."""
        await self._synced.wait()

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Objects that exist but could not be read, as of now."""
        return tuple(self._watching.unreadable.values())

    def health(self) -> Health:
        return Health(
            synced=self._synced.is_set(),
            served=self._served,
            connected=self._connected,
            quiet=self._world.now() - self._heard_at,
            age=self._world.now() - self._lived_at,
            failures=self._failures,
            lists=self._lists,
            broken=self._broken,
            error=self._error,
        )

    def renew(self) -> None:
        """Begin the watch again from the last version: its connection may be dead without an error."""
        if self._connected and self._task is not None and not self._renewing:
            self._renewing = True
            self._task.cancel()

    async def run(self) -> None:
        """Run until cancelled. Exceptions of `deliver` are raised."""
        self._task = asyncio.current_task()
        while True:
            try:
                if self._must_list:
                    await self._list()
                await self._watch()
                continue
            except self._absent as error:
                if self._must_list:
                    await self._not_served(error)
                    continue
                # The CRD or the permission was removed during the watch; the list will show which.
                self._must_list = True
                trouble: Exception = error
            except asyncio.CancelledError:
                if not self._renewing or (self._task is not None and self._task.uncancel() > 0):
                    raise
                self._renewing = False
                continue
            except Gone as error:
                self._must_list, trouble = True, error
            except (ApiError, KubeconfigError, Garbled, _Again) as error:
                trouble = error
            await self._recover(trouble)

    async def _list(self) -> None:
        """Deliver all objects as one `Replaced`."""
        self._on_begin()
        items: list[T] = []
        unreadable: list[Unreadable] = []
        version, listed = "" if self._newest else self.version or self._first, ""
        try:
            async for page in self._api.list_pages(
                self.path, self._reader, version=version, limit=self._limit, params=self._params
            ):
                items += page.items
                unreadable += page.unreadable
                listed, self._heard_at = page.version, self._world.now()
                if version and is_older(listed, self.version):
                    raise Unavailable(f"a list at {listed} is older than what was seen at {self.version}", code=504)
        except ApiError as error:
            # The server answered, but no longer has that version, or (after a restore) does not have it yet.
            self._newest = self._newest or error.code == 410 or error.code >= 500
            if isinstance(error, Gone):
                self._limit = 0  # the pages came too slowly for their token: request all at once
            raise
        rewound = is_older(listed, self.version)  # from a list of the newest state: there is nothing newer to wait for
        if rewound:
            self._report(
                f"{self.path}: the newest state is {listed}, after {self.version}: was etcd restored?", WARNING
            )
        if self._without and not self._served:
            self._report(f"{self.path}: can be read now", path=self.path)
        self.version, self._newest, self._must_list, self._served = listed, False, False, True
        self._lists += 1
        self._watching.start(unreadable)
        await self._hand_over([Replaced(items, unreadable, rewound)])
        self._synced.set()

    async def _watch(self) -> None:
        """Deliver changes since the last version, until the server ends the watch normally."""
        self._on_begin()
        self._began, seconds = self._world.now(), self._pace.watch * (1 + self._world.chance())
        params = {
            **self._params,
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        lines = Lines()
        async with self._api.stream(self.path, params, quiet=min(self._pace.quiet, seconds + 15)) as read:
            self._connected, self._heard_at = True, self._world.now()
            self._on_watch(True)
            settled = asyncio.get_running_loop().call_later(SHORT, self._lives)  # an idle resource sends nothing
            try:
                while chunk := await read():
                    self._heard_at = self._world.now()
                    whole = lines.feed(chunk)
                    if whole:
                        await self._take(self._watching.read(whole))
            finally:
                settled.cancel()
                self._connected = False
        if self._is_young():
            raise _Again("the server ended the watch at once")
        self._failures = 0
        self._lives()

    async def _take(self, heard: Heard[T]) -> None:
        if heard.events:
            await self._hand_over(heard.events)
        if heard.version:
            self.version, self._garbled_at, self._lived_at = heard.version, None, self._world.now()
            if not self._is_young():
                self._failures = 0
                self._lives()
        if heard.error is not None:
            self._must_list = True
            raise _Again(f"the server ended the watch: {heard.error.code} {heard.error.reason}: {heard.error.message}")
        if heard.garbled:
            # One failure may be the network: the server sends it again. A second one at this version is the object.
            self._must_list = self._garbled_at == self.version
            self._garbled_at = self.version
            raise _Again(heard.garbled)

    def _lives(self) -> None:
        """Note that the watch is open and stays open: nothing is missed."""
        self._lived_at = self._world.now()
        if self._broke_at is not None:
            self._report(f"{self.path}: watching again, after {self._lived_at - self._broke_at:.1f} s", path=self.path)
            self._broke_at = None

    def _is_young(self) -> bool:
        """Whether the watch was opened less than SHORT seconds ago.

        Watches that end early do not show that the server works: meanwhile the pauses grow.
        """
        return self._world.now() - self._began < SHORT

    async def _hand_over(self, batch: Batch[T]) -> None:
        waiting = self._deliver(batch)
        if waiting is not None:
            await waiting

    async def _not_served(self, error: ApiError) -> None:
        """Report once that the resource is not served, and check again at intervals."""
        if self._served:
            self._served, self.version = False, ""
            self._error = str(error)
            if isinstance(error, NotFound):
                self._report(f"{self.path}: not served: {error}", DEBUG, path=self.path)
            else:
                self._report(f"{self.path}: {error}; until then {self._without}", WARNING, path=self.path)
            self._watching.start(())
            await self._hand_over([NotServed()])
        self._heard_at = self._lived_at = self._world.now()
        self._broke_at = None
        self._synced.set()
        waited = 0.0
        while waited < self._pace.recheck and not (waited and self._wanted is not None and self._wanted()):
            step = self._pace.recheck if self._wanted is None else min(self._pace.hurry, self._pace.recheck)
            await self._world.sleep(step)
            waited += step

    async def _recover(self, trouble: Exception) -> None:
        """Pause, longer each time. The failure is reported at first, and at intervals while it continues.

        A server that answers again after it was unreachable is asked again soon. At first it refuses all requests,
        because it does not know its roles yet, then it refuses the old version. Each of these would otherwise wait as
        long as the outage lasted.
        """
        reached = not isinstance(trouble, ApiError) or trouble.code > 0
        if reached and not self._reached:
            self._failures = 0
        self._reached = reached
        self._failures, self._broken = self._failures + 1, self._broken + 1
        self._error = str(trouble)
        self._on_watch(False)
        now, then = self._world.now(), "listing again" if self._must_list else "going on from there"
        if self._broke_at is None or now - self._reported_at > REMIND:
            self._report(f"{self.path} at {self.version or 'the start'}: {trouble}; {then}", WARNING, path=self.path)
            self._reported_at = now
        self._broke_at = now if self._broke_at is None else self._broke_at
        asked = trouble.retry_after if isinstance(trouble, ApiError) else None
        await self._world.sleep(self._pace.backoff.wait(self._failures, self._world.chance(), asked))
