"""An HTTP server with bounds, on the caller's event loop: routes of plain functions, TLS or not.

    server = WebServer({"POST /filter": answer}, log, certificate=CertificateFiles(chain, key))
    async with server.listening("0.0.0.0", 9443):
        ...

A handler gets the whole request and returns the whole answer. Its exception becomes one answer 500 and one line in the
log. aiohttp parses HTTP; what it leaves without a limit is limited here: connections, bytes of bodies under way, and
the seconds of each phase of a connection (`Phase`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from dovetail.kube.log import DEBUG, ERROR, Log
from dovetail.web.byte_budget import ByteBudget
from dovetail.web.certificates import Certificate

MIB = 2**20
JSON_KIND, TEXT_KIND = "application/json", "text/plain; charset=utf-8"
EVERY_ANSWER = {"Server": "dovetail", "X-Content-Type-Options": "nosniff"}
SWEEP_SECONDS = 0.5  # between two looks for connections that are over a limit


class Phase(Enum):
    """What a connection does. Each has a limit in seconds, except HANDLING: the handler limits itself."""

    IDLE = "idle"
    HEADER = "header"
    BODY = "body"
    HANDLING = "handling"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class ServingLimits:
    body_bytes: int = 8 * MIB
    bodies_bytes: int = 64 * MIB  # of all requests under way; more requests wait
    connections: int = 1024
    handshake_seconds: float = 10.0
    idle_seconds: float = 120.0  # Go's clients close an idle connection after 90 s, and should be the ones who close
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    writing_seconds: float = 30.0
    grace_seconds: float = 20.0  # for requests under way when the server ends

    def of(self, phase: Phase) -> float | None:
        return {
            Phase.IDLE: self.idle_seconds,
            Phase.HEADER: self.header_seconds,
            Phase.BODY: self.body_seconds + 1.0,  # first the request is answered with 408
            Phase.WRITING: self.writing_seconds,
        }.get(phase)


@dataclass(frozen=True, slots=True)
class WebRequest:
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # found in any case
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WebAnswer:
    body: bytes = b""
    status: int = 200
    kind: str = JSON_KIND
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def text(text: str, status: int = 200) -> WebAnswer:
        return WebAnswer(f"{text}\n".encode(errors="replace"), status, TEXT_KIND)

    @staticmethod
    def json(document: object, status: int = 200) -> WebAnswer:
        return WebAnswer(json.dumps(document).encode(), status)


Handler = Callable[[WebRequest], Awaitable[WebAnswer]]


class WebServer:
    """Serves `routes`, by method and path: `{"POST /webhook": handler}`. A route of GET answers HEAD too."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        log: Log,
        *,
        certificate: Certificate | None = None,
        limits: ServingLimits | None = None,
    ) -> None:
        """`certificate`: None = plain HTTP."""
        self.limits = limits or ServingLimits()
        self.certificate, self.log = certificate, log
        self.port = 0  # where the server listens
        self.dropped = 0  # connections closed for a new one, or at a limit
        self.ending = False
        self._answers = _Answers(self, routes)
        self._manager = _HttpConnections(self, self._answers)
        self._entrances: dict[_Entrance, None] = {}  # oldest first

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[WebServer]:
        """Serve while the block runs; then answer what is under way. OSError: the address is not available."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            if self.certificate is not None:
                await stack.enter_async_context(self.certificate.kept_fresh(self.log))
            server = await loop.create_server(lambda: _Entrance(self), host or None, port)
            self.port = server.sockets[0].getsockname()[1]
            sweeper = loop.create_task(self._sweep())
            try:
                yield self
            finally:
                server.close()
                await self._end()
                sweeper.cancel()
                with suppress(asyncio.CancelledError):
                    await sweeper
                await server.wait_closed()

    def __len__(self) -> int:
        """The number of open connections, with those whose handshake is not complete."""
        return len(self._entrances)

    def connection(self) -> _HttpConnection:
        return self._manager()

    def opened(self, entrance: _Entrance) -> None:
        """Count a connection. When all are taken, the longest idle one goes; when none is idle, the new one."""
        if len(self._entrances) >= self.limits.connections:
            idle = (one for one in self._entrances if not one.is_busy)
            self.drop(min(idle, key=lambda one: one.since, default=entrance))
        if not entrance.is_closing:
            self._entrances[entrance] = None

    def drop(self, entrance: _Entrance) -> None:
        self.dropped += 1
        entrance.abort()
        self.closed(entrance)

    def closed(self, entrance: _Entrance) -> None:
        self._entrances.pop(entrance, None)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for entrance in tuple(self._entrances):
                if entrance.is_overdue(loop.time()):
                    self.drop(entrance)

    async def _end(self) -> None:
        """Close idle connections, wait for the requests under way, then close these too."""
        self.ending = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.grace_seconds
        while self._entrances and loop.time() < until:
            for entrance in tuple(self._entrances):
                if not entrance.is_busy:
                    entrance.abort()
            await asyncio.sleep(0.02)
        await self._manager.shutdown(0.1)
        for entrance in tuple(self._entrances):
            entrance.abort()
        await asyncio.sleep(0)


class _Entrance(asyncio.Protocol):
    """A connection from its first moment: counts it, performs the TLS handshake, then hands it to HTTP."""

    def __init__(self, server: WebServer) -> None:
        self._server, self._http = server, server.connection()
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._http.gone = self._gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()
        self._server.opened(self)
        if not transport.is_closing():
            self._handshake = asyncio.get_running_loop().create_task(self._enter(transport))

    async def _enter(self, transport: asyncio.Transport) -> None:
        """Hand the connection to HTTP, with the certificate of this moment."""
        inner: asyncio.Transport | None = transport
        if (certificate := self._server.certificate) is not None:
            inner = await self._encrypted(transport, certificate.context)
        if inner is None or inner.is_closing():
            transport.abort()
            self._gone()
            return
        inner.set_protocol(self._http)
        self._http.connection_made(inner)
        if certificate is None:
            transport.resume_reading()

    async def _encrypted(self, transport: asyncio.Transport, context: ssl.SSLContext) -> asyncio.Transport | None:
        seconds = self._server.limits.handshake_seconds
        loop = asyncio.get_running_loop()
        try:
            return await loop.start_tls(
                transport, self._http, context, server_side=True, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=1
            )
        except (OSError, TimeoutError, EOFError) as error:
            self._server.log(f"a TLS handshake failed: {getattr(error, 'reason', None) or error}", DEBUG)
            return None

    def connection_lost(self, error: Exception | None) -> None:
        self._gone()  # before HTTP took over

    def _gone(self) -> None:
        self._server.closed(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def since(self) -> float:
        """When the present phase began."""
        return self._http.since

    @property
    def is_busy(self) -> bool:
        """A request is under way: at least its header is complete."""
        return self._http.phase not in (Phase.IDLE, Phase.HEADER)

    def is_overdue(self, now: float) -> bool:
        seconds = self._server.limits.of(self._http.phase)
        return seconds is not None and self._http.transport is not None and now - self._http.since > seconds


class _HttpConnections(web.Server):
    """Makes aiohttp's connections. They log nothing by themselves."""

    def __init__(self, server: WebServer, answers: _Answers) -> None:
        super().__init__(answers.answer, request_factory=answers.request)
        self._web_server = server

    def __call__(self) -> _HttpConnection:
        idle = self._web_server.limits.idle_seconds
        return _HttpConnection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=idle,
            access_log=None,
            auto_decompress=False,  # a compressed body would pass the limit
            lingering_time=1.0,
            log=self._web_server.log,
        )


class _HttpConnection(RequestHandler):
    """aiohttp's connection, with the phase that it is in."""

    def __init__(self, manager: web.Server, *, log: Log, **options: Any) -> None:
        super().__init__(manager, **options)
        self._log = log
        self.phase, self.since = Phase.IDLE, self._loop.time()
        self.gone: Callable[[], None] = lambda: None

    def enter(self, phase: Phase) -> None:
        self.phase, self.since = phase, self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.IDLE:
            self.enter(Phase.HEADER)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.gone()

    async def finish_response(self, request: Any, resp: Any, start_time: float | None) -> Any:
        self.enter(Phase.WRITING)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.enter(Phase.IDLE)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What is not HTTP: the client is answered with 400."""
        self._log(f"a request is not HTTP: {kw.get('exc_info')}"[:500], DEBUG)


class _Answers:
    """Between aiohttp's requests and our handlers."""

    def __init__(self, server: WebServer, routes: Mapping[str, Handler]) -> None:
        self._server, self._routes = server, dict(routes)
        self._paths = {route.partition(" ")[2] for route in routes}
        self._budget = ByteBudget(max(server.limits.bodies_bytes, server.limits.body_bytes))

    def request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        loop, most = asyncio.get_running_loop(), self._server.limits.body_bytes
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await self._carry_out(request)
        response = web.Response(
            body=answer.body,
            status=answer.status,
            headers={
                "Content-Type": answer.kind,
                "Server": "dovetail",
                "X-Content-Type-Options": "nosniff",
                **answer.headers,
            },
        )
        if self._server.ending or (answer.status >= 400 and not request.content.at_eof()):
            response.force_close()
        return response

    async def _carry_out(self, request: web.BaseRequest) -> WebAnswer:
        handler = self._routes.get(f"{'GET' if request.method == 'HEAD' else request.method} {request.path}")
        if handler is None:
            return _refused(405 if request.path in self._paths else 404)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return _refused(415, "a body without Content-Encoding is expected")
        size, most = request.content_length, self._server.limits.body_bytes
        if size is not None and size > most:
            return _refused(413, f"the body has {size:,} bytes; at most {most:,} are read")
        reserved = most if size is None and request.can_read_body else size or 0
        connection = request.protocol
        assert isinstance(connection, _HttpConnection)
        connection.enter(Phase.BODY)
        try:
            async with asyncio.timeout(self._server.limits.body_seconds) as limit:
                await self._budget.take(reserved)
        except TimeoutError:
            return _refused(503, "too many requests are under way")
        try:
            deadline = limit.when() or 0.0
            return await self._with_body(request, handler, connection, deadline)
        finally:
            self._budget.give(reserved)

    async def _with_body(
        self, request: web.BaseRequest, handler: Handler, connection: _HttpConnection, deadline: float
    ) -> WebAnswer:
        try:
            async with asyncio.timeout_at(deadline):
                body = await request.read()
        except TimeoutError:
            return _refused(408, "the body did not arrive in time")
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"at most {self._server.limits.body_bytes:,} bytes of a body are read")
        except (RequestPayloadError, web.HTTPException):
            return _refused(400, "the body is not as its headers say")
        connection.enter(Phase.HANDLING)
        asked = WebRequest(request.method, request.path, body, request.headers, request.query)
        try:
            return await handler(asked)
        except Exception as error:
            self._server.log(f"{asked.method} {asked.path} failed: {type(error).__name__}: {error}"[:1000], ERROR)
            self._server.log(traceback.format_exc(), DEBUG)
            return _refused(500)


def _refused(status: int, why: str = "") -> WebAnswer:
    return WebAnswer.text(why or HTTPStatus(status).phrase, status)
