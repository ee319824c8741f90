"""Small requests with small answers, hundreds a second: kept HTTP/1.1 connections, one request at a time on each.

A general client uses five times as much CPU time for a Binding (ADR 11). Lists, watches and everything through a proxy
use the general client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from dovetail.kube.api.http1 import Garbage, HttpResponse, Parser

KEEP = 50.0  # seconds for which an idle connection is kept; API servers close theirs after 90
CONNECT = 10.0  # seconds
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))


class Broken(Exception):
    """No answer came. `sent` False = the server certainly did nothing."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Wire:
    """Connections to one server, at most `most` at once; further requests wait."""

    def __init__(
        self,
        server: str,
        *,
        most: int = 64,
        server_name: str | None = None,
        keep: float = KEEP,
        connect: float = CONNECT,
    ) -> None:
        url = urlsplit(server)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._name, self._keep, self._connect_seconds = server_name, keep, connect
        self.host_header, self.prefix = url.netloc.rpartition("@")[2], url.path.rstrip("/")
        self._room = asyncio.Semaphore(most)
        self._idle: list[tuple[_Line, float]] = []  # with the time since which it is idle
        self._busy: set[_Line] = set()
        self._tls: ssl.SSLContext | None = None

    async def ask(self, message: bytes, tls: ssl.SSLContext | None, seconds: float) -> HttpResponse:
        """Send a whole request and wait for its whole answer. Raises Broken."""
        async with self._room:
            line = self._kept(tls) or await self._connect(tls)
            self._busy.add(line)
            try:
                answer = await line.ask(message, seconds)
            except BaseException:
                line.abort()
                raise
            finally:
                self._busy.discard(line)
            if answer.reusable and tls is self._tls:
                self._idle.append((line, line.loop.time()))
            else:
                line.abort()
            self._drop_old()
            return answer

    def close(self) -> None:
        for line, _ in self._idle:
            line.abort()
        self._idle.clear()
        for line in self._busy:
            line.abort()

    def _drop_old(self) -> None:
        """End connections that were idle for too long. A burst opens many, and each has 256 KiB for reading."""
        while self._idle and not self._is_usable(*self._idle[0]):
            self._idle.pop(0)[0].abort()

    def _is_usable(self, line: _Line, idle_since: float) -> bool:
        return line.is_open and line.loop.time() - idle_since < self._keep

    def _kept(self, tls: ssl.SSLContext | None) -> _Line | None:
        if tls is not self._tls:  # other certificates: the open connections were made with the old ones
            for line, _ in self._idle:
                line.abort()
            self._idle.clear()
            self._tls = tls
        while self._idle:
            line, since = self._idle.pop()
            if self._is_usable(line, since):
                return line
            line.abort()
        return None

    async def _connect(self, tls: ssl.SSLContext | None) -> _Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, line = await loop.create_connection(
                    lambda: _Line(loop),
                    self._host,
                    self._port,
                    ssl=tls,
                    server_hostname=(self._name or self._host) if tls is not None else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError:
            raise Broken(f"no connection within {self._connect_seconds:.0f} s", sent=False) from None
        except ssl.SSLCertVerificationError as error:
            raise Broken(
                f"the server's certificate is not believed: {error}; correct certificate-authority or tls-server-name "
                "in the kubeconfig",
                sent=False,
            ) from error
        except OSError as error:
            raise Broken(f"cannot connect: {error}", sent=False) from error
        return line


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = Parser()
        self._answer: asyncio.Future[HttpResponse] | None = None
        self.is_open = False

    async def ask(self, message: bytes, seconds: float) -> HttpResponse:
        assert self._transport is not None
        assert self._answer is None
        answer: asyncio.Future[HttpResponse] = self.loop.create_future()
        self._answer = answer
        alarm = self.loop.call_later(seconds, self._fail, "no answer in time")
        try:
            self._transport.write(message)
            return await answer
        finally:
            alarm.cancel()
            self._answer = None

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._fail("closed by ourselves")

    # ---- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True
        _notice_death(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # bytes without a request: the connection cannot be used any more
            self.abort()
            return
        try:
            answer = self._parser.feed(data)
        except Garbage as error:
            self._fail(f"the answer cannot be read: {error}")
            return
        if answer is not None:
            self._give(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        answer = self._parser.end() if error is None else None
        if answer is not None:
            self._give(answer)
        else:
            self._fail(f"the connection broke: {error or 'closed by the server'}")

    def _give(self, answer: HttpResponse) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fail(self, message: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(message, sent=True))


def _notice_death(made: socket.socket) -> None:
    """Have the socket detect within half a minute that the other machine is gone."""
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            option = getattr(socket, name, None)
            if option is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
