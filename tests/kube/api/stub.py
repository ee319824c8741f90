"""An API server on loopback that does as it is told, a clock that does not wait, and a consumer of batches."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.kubeconfig import Connection
from dovetail.kube.api.reflector import Batch, Pace, Reflector
from dovetail.kube.api.retry import World
from dovetail.kube.api.typed import Unreadable
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.objects import core as objects
from tests.kube.logged import Logged

PODS = "/api/v1/pods"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Step = Callable[[web.Request, web.StreamResponse], Awaitable[None]]
Json = dict[str, Any]


def pod(name: str, version: int = 1, **spec: Any) -> Json:
    """A pod as the API server says it."""
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [], **spec}}


def event(kind: str, what: Json) -> bytes:
    return json.dumps({"type": kind, "object": what}, ensure_ascii=False).encode() + b"\n"


def added(what: Json) -> bytes:
    return event("ADDED", what)


def modified(what: Json) -> bytes:
    return event("MODIFIED", what)


def deleted(what: Json) -> bytes:
    return event("DELETED", what)


def bookmark(version: int) -> bytes:
    """As the API server sends it: a pod without name and spec."""
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def failure(code: int, reason: str = "", message: str = "", **details: Any) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **({"details": details} if details else {}),
    }


def says(body: object, status: int = 200, **headers: str) -> Answer:
    """An answer with this JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(
            body=json.dumps(body).encode(), status=status, headers=sent, content_type="application/json"
        )

    return answer


def refuses(code: int, reason: str = "", message: str = "", **headers: str) -> Answer:
    return says(failure(code, reason, message), code, **headers)


def lists(*items: Json, version: int = 1, rest: str = "") -> Answer:
    return says({"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": rest}, "items": items})


def streams(*parts: bytes | Step) -> Answer:
    """A watch that sends the parts, each as a chunk of its own, and ends in good order."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            if isinstance(part, bytes):
                await response.write(part)
            else:
                await part(request, response)
        return response

    return answer


async def drops(request: web.Request, response: web.StreamResponse | None = None) -> Any:
    """The connection breaks: a step of a stream, or instead of an answer."""
    await asyncio.sleep(0.01)  # what was written goes out first
    assert request.transport is not None
    request.transport.abort()
    return response or web.Response()


async def hangs(request: web.Request, response: web.StreamResponse) -> None:
    await asyncio.Event().wait()


class Stub:
    """The server. Answers to lists, watches and the rest are taken in order; the last one is given again and again."""

    def __init__(self) -> None:
        self.lists: list[Answer] = [lists()]
        self.watches: list[Answer] = [streams(hangs)]
        self.others: list[Answer] = [says({})]
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        if request.query.get("watch"):
            script = self.watches
        elif request.method == "GET" and request.path == PODS:
            script = self.lists
        else:
            script = self.others
        answer = script.pop(0) if len(script) > 1 else script[0]
        return await answer(request)

    def asked(self, *, watch: bool) -> list[Mapping[str, str]]:
        """The queries of all lists, or of all watches."""
        return [request.query for request in self.seen if bool(request.query.get("watch")) == watch]


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Stub]:
    stub = Stub()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", stub.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    port = runner.addresses[0][1]
    stub.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield stub
    finally:
        await runner.cleanup()


def api_of(stub: Stub, world: World | None = None, **more: Any) -> Api:
    return Api(Credentials(Connection(stub.url, "a test", **more), world=world or World()))


@dataclass
class Clock:
    """Time passes only by sleeping, and sleeping takes none."""

    at: float = 1000.0
    slept: list[float] = field(default_factory=list)

    @property
    def world(self) -> World:
        return World(now=lambda: self.at, sleep=self.sleep, chance=lambda: 0.0)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds
        await asyncio.sleep(0)


class Consumer:
    """Knows the pods that the batches tell of, as a scheduler would."""

    def __init__(self) -> None:
        self.pods: dict[str, objects.Pod] = {}  # name -> pod
        self.batches: list[Batch[objects.Pod]] = []
        self.reports = Logged()
        self._news = asyncio.Event()

    def deliver(self, batch: Batch[objects.Pod]) -> None:
        self.batches.append(batch)
        for each in batch:
            if isinstance(each, Replaced):
                kept = {bad.ref.name: self.pods[bad.ref.name] for bad in each.unreadable if bad.ref.name in self.pods}
                self.pods = {**kept, **{item.metadata.name: item for item in each.items}}
            elif isinstance(each, Changed):
                self.pods[each.object.metadata.name] = each.object
            elif isinstance(each, Deleted):
                self.pods.pop(each.ref.name, None)
            else:
                assert isinstance(each, (Unreadable, NotServed))
                if isinstance(each, NotServed):
                    self.pods = {}
        self._news.set()

    @property
    def names(self) -> list[str]:
        return sorted(self.pods)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds after some batch."""
        async with asyncio.timeout(20):
            while not holds():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def reflecting(
    stub: Stub, clock: Clock | None = None, pace: Pace | None = None, **more: Any
) -> AsyncIterator[tuple[Reflector[objects.Pod], Consumer]]:
    """A reflector of the stub's pods, running."""
    consumer = Consumer()
    world = (clock or Clock()).world
    async with api_of(stub) as api:
        reflector = Reflector(
            api,
            PODS,
            objects.Pod,
            more.pop("deliver", consumer.deliver),
            pace=pace or Pace(),
            world=world,
            report=consumer.reports,
            **more,
        )
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, consumer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
