"""A read-only HTTP port with bounds against misuse: GET and HEAD, one request a connection, few bytes, little time.

It supports HTTP/1 as far as kubelet and Prometheus need it, and does not know what is served. aiohttp's server is not
used: it waits without limit for the last line of a request, on as many connections as there are file descriptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple, cast

MAX_REQUEST_BYTES = 16_384  # request line and headers; a ServiceAccount's token has about 1,200
MAX_CONNECTIONS = 128
MAX_SECONDS = 5.0  # from the start of the connection to the last byte of the answer
BACKLOG = 64  # connections accepted in one turn of the loop
ALLOWED = (b"GET", b"HEAD")
_END = b"\r\n\r\n"


class PortRequest(NamedTuple):
    """The parts of a request that matter here."""

    path: str
    authorization: str = ""  # the header's value
    query: str = ""  # without its "?"


class PortAnswer(NamedTuple):
    text: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "text/plain; charset=utf-8"  # its Content-Type


Serve = Callable[[PortRequest], Awaitable[PortAnswer]]


class Bad(Exception):
    """The request is not HTTP, or is not one that we answer."""

    def __init__(self, status: int, *headers: tuple[str, str]) -> None:
        super().__init__(status)
        self.answer = PortAnswer(HTTPStatus(status).phrase, status, headers)


class HttpPort:
    """Serves requests on a bounded number of connections.

    When all are taken, a new connection replaces the oldest one whose request is incomplete. A complete request fits in
    one packet, so kubelet's probe is answered even while thousands of idle connections are opened.
    """

    def __init__(
        self, routes: Mapping[str, Serve], *, seconds: float = MAX_SECONDS, most: int = MAX_CONNECTIONS
    ) -> None:
        self.routes, self.seconds, self._most = routes, seconds, most
        self._open: dict[_Connection, None] = {}  # oldest first
        self.dropped = 0  # connections closed for a new one, or at their deadline

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[asyncio.Server]:
        """Serve while the block runs. OSError: the address is not available."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), host, port, backlog=BACKLOG)
        try:
            yield server
        finally:
            server.close()
            for connection in tuple(self._open):
                connection.abort()
            await server.wait_closed()

    def __len__(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def opened(self, connection: _Connection) -> None:
        if len(self._open) >= self._most:
            oldest = next((one for one in self._open if not one.is_answered), next(iter(self._open)))
            self.drop(oldest)
        self._open[connection] = None

    def drop(self, connection: _Connection) -> None:
        self.dropped += 1
        self._open.pop(connection, None)
        connection.abort()

    def closed(self, connection: _Connection) -> None:
        self._open.pop(connection, None)


class _Connection(asyncio.Protocol):
    def __init__(self, port: HttpPort) -> None:
        self._port, self._said = port, bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self.is_answered = False  # the request is complete, or was refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(self._port.seconds, self._port.drop, self)
        self._port.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.is_answered:
            return
        self._said += data
        try:
            if len(self._said) > MAX_REQUEST_BYTES:
                raise Bad(431)
            if _END in self._said:
                self._serve()
        except Bad as error:
            self._answer(error.answer, with_body=True)

    def eof_received(self) -> bool:
        """True: the client sends no more, and waits for the answer."""
        return self.is_answered

    def connection_lost(self, error: Exception | None) -> None:
        self._port.closed(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        method, asked = read(bytes(self._said))
        serve = self._port.routes.get(asked.path)
        if serve is None:
            raise Bad(404)
        self.is_answered = True
        self._answering = asyncio.get_running_loop().create_task(self._carry_out(serve, asked, method == b"GET"))

    async def _carry_out(self, serve: Serve, asked: PortRequest, with_body: bool) -> None:
        try:
            answer = await serve(asked)
        except Exception as error:
            answer = PortAnswer(f"{type(error).__name__}", 500)
        self._answer(answer, with_body)

    def _answer(self, answer: PortAnswer, with_body: bool) -> None:
        self.is_answered = True
        body = f"{answer.text}\n".encode(errors="replace")
        headers = (
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
            *answer.headers,
        )
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *(f"{a}: {b}" for a, b in headers)]
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write("\r\n".join((*lines, "", "")).encode() + (body if with_body else b""))
            self._transport.close()  # closes when everything is sent; the deadline still holds


def read(said: bytes) -> tuple[bytes, PortRequest]:
    """Method and request. Bodies are not read: no request that we serve has one."""
    first, *lines = said.partition(_END)[0].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
        raise Bad(400)
    if words[0] not in ALLOWED:
        raise Bad(405, ("Allow", "GET, HEAD"))
    proofs = [line.partition(b":")[2] for line in lines if line.lower().startswith(b"authorization:")]
    if len(proofs) > 1:
        raise Bad(400)
    path, _, query = words[1].decode("latin-1").partition("?")
    return words[0], PortRequest(path, proofs[0].strip().decode("latin-1") if proofs else "", query)
