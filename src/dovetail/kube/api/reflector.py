"""List, then watch, for ever: one resource of the API server as a stream of batches. Keeps no objects.

After any trouble it goes on from the last resourceVersion; where the server no longer knows that, it lists again. A
consumer that takes `Replaced` for what it says never misses anything. Equal versions of an object are not told apart
here: decoded objects compare equal where nothing that we read has changed (annotations in another order, say).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dovetail.kube.api.client import PAGE, Api
from dovetail.kube.api.errors import ApiError, Gone, NotFound
from dovetail.kube.api.kubeconfig import ConfigError
from dovetail.kube.api.retry import BACKOFF, REAL, Backoff, World
from dovetail.kube.api.typed import Reader, Unreadable
from dovetail.kube.api.watch import Event, Garbled, Heard, Lines, NotServed, Replaced, WatchReader

T = TypeVar("T")
Batch = list[Event[T]]
Deliver = Callable[[Batch[T]], Awaitable[None] | None]
SHORT = 1.0  # seconds; a watch that ends sooner is a failure, whatever it said


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a reflector is, in seconds."""

    watch: float = 300.0  # a watch ends after one to two times this, and the next one begins
    quiet: float = 150.0  # no byte for so long: the connection is dead. Servers send a bookmark a minute
    recheck: float = 60.0  # between two looks for a resource that is not served
    backoff: Backoff = BACKOFF


PACE = Pace()


@dataclass(frozen=True, slots=True)
class Health:
    """How a reflector is, for readiness and metrics."""

    synced: bool  # a whole list was delivered once
    served: bool  # the server knows the resource
    connected: bool  # a watch is open
    quiet: float  # seconds since the server last said anything; under a minute or two in an idle cluster
    failures: int  # in a row
    lists: int  # since the start; grows when watches are lost
    error: str  # the last one, kept when all is well again; "" = never


class _Again(Exception):
    """The watch is over before its time."""


class Reflector(Generic[T]):
    """One resource, as typed objects. `await run()` in a task of its own; cancel it to stop."""

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
        pace: Pace = PACE,
        world: World = REAL,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`params` may hold fieldSelector and labelSelector. `deliver` gets every batch; if it returns an awaitable,
        that is waited for, and the server with it. `first_version` "" = list the newest state in pages of `limit`.
        `report` gets a line whenever something went wrong."""
        self.path = path
        self.version = ""  # resourceVersion we have seen; "" = none
        self._api, self._deliver, self._params = api, deliver, dict(params or {})
        self._limit, self._first = limit, first_version
        self._pace, self._world, self._report = pace, world, report
        self._reader = Reader(kind)
        self._watching: WatchReader[T] = WatchReader(self._reader)
        self._must_list, self._newest = True, False
        self._synced = asyncio.Event()
        self._served, self._connected = True, False
        self._heard_at = self._began = world.now()
        self._failures = self._lists = 0
        self._error = ""
        self._garbled_at: str | None = None

    async def synced(self) -> None:
        """Returns once the first list was delivered, or is known not to exist."""
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
            failures=self._failures,
            lists=self._lists,
            error=self._error,
        )

    async def run(self) -> None:
        """Until cancelled. What `deliver` raises is raised."""
        while True:
            try:
                if self._must_list:
                    await self._list()
                await self._watch()
                continue
            except NotFound as error:
                if self._must_list:
                    await self._not_served(error)
                    continue
                self._must_list = True  # the CRD went while we watched; the list will say so
                trouble: Exception = error
            except Gone as error:
                self._must_list, trouble = True, error
            except (ApiError, ConfigError, Garbled, _Again) as error:
                trouble = error
            await self._recover(trouble)

    async def _list(self) -> None:
        """All objects, as one `Replaced`."""
        items: list[T] = []
        unreadable: list[Unreadable] = []
        version = "" if self._newest else self.version or self._first
        try:
            async for page in self._api.list_pages(
                self.path, self._reader, version=version, limit=self._limit, params=self._params
            ):
                items += page.items
                unreadable += page.unreadable
                self.version, self._heard_at = page.version, self._world.now()
        except ApiError as error:
            # The server answered, but not from that version: it knows it no more, or (restored) not yet.
            self._newest = self._newest or error.code == 410 or error.code >= 500
            if isinstance(error, Gone):
                self._limit = 0  # pages came too slowly for their token: take all at once
            raise
        self._newest = self._must_list = False
        self._served = True
        self._lists += 1
        self._watching.start(unreadable)
        await self._hand_over([Replaced(items, unreadable)])
        self._synced.set()

    async def _watch(self) -> None:
        """Changes since the last version, until the server ends the watch in good order."""
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
            try:
                while chunk := await read():
                    self._heard_at = self._world.now()
                    whole = lines.feed(chunk)
                    if whole:
                        await self._take(self._watching.read(whole))
            finally:
                self._connected = False
        if self._is_young():
            raise _Again("the server ended the watch at once")
        self._failures = 0

    async def _take(self, heard: Heard[T]) -> None:
        if heard.events:
            await self._hand_over(heard.events)
        if heard.version:
            self.version, self._garbled_at = heard.version, None
            if not self._is_young():
                self._failures = 0
        if heard.error is not None:
            self._must_list = True
            raise _Again(f"the server ended the watch: {heard.error.code} {heard.error.reason}: {heard.error.message}")
        if heard.garbled:
            # Once may be the network; the server will say it again. Twice at the same place is the object itself.
            self._must_list = self._garbled_at == self.version
            self._garbled_at = self.version
            raise _Again(heard.garbled)

    def _is_young(self) -> bool:
        """Watches that die young say nothing of the server's health: while they do, waits grow."""
        return self._world.now() - self._began < SHORT

    async def _hand_over(self, batch: Batch[T]) -> None:
        waiting = self._deliver(batch)
        if waiting is not None:
            await waiting

    async def _not_served(self, error: NotFound) -> None:
        """Nothing to list: say so once, and look again now and then."""
        if self._served:
            self._served, self.version = False, ""
            self._error = str(error)
            self._report(f"{self.path}: not served: {error}")
            self._watching.start(())
            await self._hand_over([NotServed()])
        self._heard_at = self._world.now()
        self._synced.set()
        await self._world.sleep(self._pace.recheck)

    async def _recover(self, trouble: Exception) -> None:
        self._failures += 1
        self._error = str(trouble)
        then = "listing again" if self._must_list else "going on from there"
        self._report(f"{self.path} at {self.version or 'the start'}: {trouble}; {then}")
        asked = trouble.retry_after if isinstance(trouble, ApiError) else None
        await self._world.sleep(self._pace.backoff.wait(self._failures, self._world.chance(), asked))
