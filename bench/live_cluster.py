"""A control plane under load: creates and deletes thousands of objects at once, sends heartbeats, and watches.

The watch is independent of what is measured: it runs in the benchmark's own process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Conflict, NotFound
from dovetail.kube.api.kubeconfig import from_files
from dovetail.kube.api.retry import retrying
from dovetail.kube.api.typed import version_of
from dovetail.kube.api.watch import Lines
from tools.controlplane.client import Object
from tools.controlplane.objects import ready
from tools.controlplane.plane import ControlPlane

AT_ONCE = 48
SAY_EVERY = 2.0  # seconds
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def client(plane: ControlPlane, user: str = "admin") -> AsyncIterator[Api]:
    async with Api(Credentials(from_files([plane.kubeconfig(user)])), connections=AT_ONCE + 32, timeout=120.0) as api:
        yield api


async def at_once(what: str, calls: Iterable[Callable[[], Awaitable[Any]]], total: int) -> None:
    """Make many calls, AT_ONCE at a time, and print the progress."""
    began = said = time.monotonic()
    done, rest = 0, iter(calls)

    async def work() -> None:
        nonlocal done, said
        for call in rest:
            await retrying(call, tries=8)
            done += 1
            if time.monotonic() - said > SAY_EVERY:
                said = time.monotonic()
                say(f"  {what}: {done} of {total}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    say(f"  {what}: {done} in {time.monotonic() - began:.1f} s")


async def create(api: Api, path: str, items: Iterable[Object], total: int, what: str) -> None:
    async def one(item: Object) -> None:
        with suppress(Conflict):  # a retry of a write whose response was lost
            await api.post(path, item)

    await at_once(f"creating {what}", (partial(one, item) for item in items), total)


async def delete_pods(api: Api, prefix: str = "") -> None:
    names = [name for name in await names_of(api, PODS) if name.startswith(prefix)]

    async def one(name: str) -> None:
        with suppress(NotFound):
            await api.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    await at_once("deleting pods", (partial(one, name) for name in names), len(names))


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    name: str
    resource_version: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """The fields of an object that the benchmark reads."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct, frozen=True):
    items: list[Seen]


_EVENTS, _SEEN, _LISTED = msgspec.json.Decoder(_Event), msgspec.json.Decoder(Seen), msgspec.json.Decoder(_List)


async def listed(api: Api, path: str) -> list[Seen]:
    return _LISTED.decode(await api.get(path)).items


async def names_of(api: Api, path: str) -> list[str]:
    return [item.metadata.name for item in await listed(api, path)]


class Sight:
    """When each pod was first seen with a node, and first seen with PodScheduled=False."""

    def __init__(self) -> None:
        self.bound: dict[str, float] = {}  # name -> when
        self.waits: dict[str, float] = {}
        self.gone: set[str] = set()  # maintained by the code that deletes pods
        self.deleted: dict[str, float] = {}  # name -> when the watch showed that it is gone
        self.news = asyncio.Event()
        self.trouble: Exception | None = None
        self.first_bound: Callable[[], None] = lambda: None

    async def until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if self.trouble is not None:
                raise self.trouble
            self.news.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), left)

    async def watch(self, api: Api, version: str) -> None:
        """Watch pods. If the API server drops the watch because it is slow, continue from the last resource version."""
        params = {"watch": "true", "timeoutSeconds": "3600"}
        try:
            while True:
                lines = Lines()
                async with api.stream("/api/v1/pods", {**params, "resourceVersion": version}, quiet=3600) as read:
                    while chunk := await read():
                        whole = lines.feed(chunk)
                        if whole:
                            version = self._hear(whole, time.monotonic()) or version
                say("  the server dropped the benchmark's own watch, which goes on")
        except Exception as error:
            self.trouble = error
            self.news.set()

    def _hear(self, lines: bytes, now: float) -> str:
        version = ""
        for event in _EVENTS.decode_lines(lines):
            if event.type not in ("ADDED", "MODIFIED", "DELETED"):
                continue
            pod = _SEEN.decode(event.object)
            if event.type == "DELETED":
                self.deleted[pod.metadata.name] = now
                continue
            version = pod.metadata.resource_version
            name = pod.metadata.name
            if pod.spec.node_name and name not in self.bound:
                if not self.bound:
                    self.first_bound()
                self.bound[name] = now
            elif any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions):
                self.waits.setdefault(name, now)
        self.news.set()
        return version


@asynccontextmanager
async def watching(plane: ControlPlane) -> AsyncIterator[Sight]:
    """Watch from now until the block ends."""
    async with client(plane) as api:
        sight = Sight()
        version = version_of(await api.get("/api/v1/pods", {"limit": "1"}))
        task = asyncio.create_task(sight.watch(api, version))
        try:
            yield sight
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def heartbeats(plane: ControlPlane, count: int, a_second: float) -> AsyncIterator[None]:
    """Update the status of one node after the other, `a_second` per second, while the block runs."""
    async with client(plane) as api:

        async def beat(n: int) -> None:
            said = {key: value for key, value in ready().items() if key != "lastTransitionTime"}
            with suppress(Exception):
                await api.patch(f"{NODES}/node-{n:05d}/status", {"status": {"conditions": [said]}}, "strategic")

        async def all_the_time() -> None:
            under_way: set[asyncio.Task[None]] = set()
            n, due = 0, time.monotonic()
            while True:
                task = asyncio.create_task(beat(n % count))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                n, due = n + 1, due + 1 / a_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        task = asyncio.create_task(all_the_time())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
