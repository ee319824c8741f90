"""Requests to the API server: bytes in, bytes out, typed errors.

Connections are kept: a `Wire` for writes, which are small and many, and an aiohttp session for reads, watches and
proxies. Requests are not retried here, except once after 401 with fresh credentials. Only the caller knows whether a
write may happen twice (`retry.retrying`).
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from dovetail import __version__
from dovetail.kube.api.auth import Credentials, Proof
from dovetail.kube.api.errors import Unauthorized, Unavailable, error_of
from dovetail.kube.api.kubeconfig import KubeconfigError
from dovetail.kube.api.pages import Ahead, Heard
from dovetail.kube.api.request_counts import RequestCounts
from dovetail.kube.api.typed import UNREADABLE, Page, TypedReader
from dovetail.kube.api.wire import Broken, Wire
from dovetail.kube.objects.problems import printable

T = TypeVar("T")
Json = bytes | bytearray
Params = Mapping[str, str]
Patch = Literal["merge", "strategic", "apply", "json"]
PATCHES: dict[Patch, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
    "json": "application/json-patch+json",
}
# Not compressed: compressing a list takes an API server longer than sending it.
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"dovetail/{__version__}"}
READ_AHEAD = 2**18  # bytes that are buffered ahead of the reader, twice over, before TCP slows the server down
PAGE = 500  # objects
CONNECT = 10.0  # seconds
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Prints as method and path."""

    method: str
    path: str  # as sent: "/api/v1/namespaces/ml/pods/web-0/binding"
    params: Params | None = None
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Api:
    """One API server. `async with Api(Credentials(connection)) as api: …`"""

    def __init__(self, credentials: Credentials, *, connections: int = 64, timeout: float = 30.0) -> None:
        self.credentials, self.counts = credentials, RequestCounts()
        self._connections, self._seconds = connections, timeout
        self._opened: aiohttp.ClientSession | None = None
        self._streams: set[aiohttp.ClientResponse] = set()
        self._wire: Wire | None = None
        # The headers that are the same for every request with this proof.
        self._heads: tuple[Proof | None, bytes] = (None, b"")
        self._was_proven = False  # credentials were available once

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; watches end with Unavailable."""
        session, self._opened = self._opened, None
        for response in self._streams:  # otherwise aiohttp would let their readers wait forever
            response.content.set_exception(aiohttp.ClientConnectionError("closed by ourselves"))
        if self._wire is not None:
            self._wire.close()
        if session is not None:
            await session.close()

    async def get(self, path: str, params: Params | None = None) -> Json:
        return await self._whole(Request("GET", path, params))

    async def get_at_most(self, path: str, params: Params | None, most: int) -> Json:
        """As `get`, for servers that are not trusted with our memory: Unavailable if the answer has more bytes."""
        request = Request("GET", path, params)

        def heard(whole: bytearray) -> bool:
            if len(whole) > most:
                raise Unavailable(f"{request}: the answer is larger than {most:,} bytes")
            return False

        return await self._whole(request, None, heard)

    async def post(self, path: str, body: object, params: Params | None = None) -> Json:
        """`body` is JSON as bytes, or anything that msgspec encodes (a Struct, a dict)."""
        return await self._whole(Request("POST", path, params, encoded(body)))

    async def put(self, path: str, body: object, params: Params | None = None) -> Json:
        return await self._whole(Request("PUT", path, params, encoded(body)))

    async def patch(self, path: str, body: object, kind: Patch = "merge", params: Params | None = None) -> Json:
        """`apply` needs params {"fieldManager": …}, and {"force": "true"} to take fields over."""
        return await self._whole(Request("PATCH", path, params, encoded(body), PATCHES[kind]))

    async def delete(self, path: str, body: object = None, params: Params | None = None) -> Json:
        """`body` may be DeleteOptions with preconditions."""
        return await self._whole(Request("DELETE", path, params, None if body is None else encoded(body)))

    async def list_pages(
        self, path: str, reader: TypedReader[T], *, version: str = "0", limit: int = PAGE, params: Params | None = None
    ) -> AsyncGenerator[Page[T], None]:
        """The list, page by page.

        `version` "0" = the server's watch cache, as it is; "" = the newest state; any other = a state that is not
        older. Raises Gone when the list became too old between two pages: then drop what was yielded. `limit` 0 = no
        pages. Servers ignore it for version "0".
        """
        fixed = {**(params or {}), **({"limit": str(limit)} if limit else {})}
        asked = [self._ask_page(path, {**fixed, **_not_older_than(version)})]
        try:
            while True:
                token = await asked[0].rest
                if token:
                    asked.append(self._ask_page(path, {**fixed, "continue": token}))
                page = _read_page(reader, await asked[0].body, path)
                del asked[0]  # free its bytes before other tasks run: they are not needed any more
                yield page
                if not page.rest:
                    return
                if page.rest != token:  # the start of the page named no token, or another one
                    _drop(asked)
                    asked = [self._ask_page(path, {**fixed, "continue": page.rest})]
        finally:
            _drop(asked)

    def _ask_page(self, path: str, params: Params) -> Ahead:
        request, timeout = Request("GET", path, params), _timeout(total=None, quiet=self._seconds)
        return Ahead(lambda heard: self._whole(request, timeout, heard))

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params | None = None, *, quiet: float
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Open an answer without end.

        Yields `read`, which returns all available bytes, b"" at the end, and raises Unavailable when the connection
        breaks. After `quiet` seconds without a byte the connection counts as dead.
        """
        request = Request("GET", path, params)
        response = await self._ask(request, _timeout(total=None, quiet=quiet))

        async def read() -> bytes:
            try:
                return await response.content.readany()
            except BROKEN as error:
                raise _unavailable(request, error) from error

        self._streams.add(response)
        try:
            yield read
        finally:
            self._streams.discard(response)
            _cut(response)

    async def _whole(
        self, request: Request, timeout: aiohttp.ClientTimeout | None = None, heard: Heard | None = None
    ) -> Json:
        """The whole answer. The buffer grows in place, so that a long list is in memory once, not twice."""
        if request.body is not None and self.credentials.connection.proxy is None:
            return await self._write(request, request.body)
        response = await self._ask(request, timeout or _timeout(total=self._seconds, quiet=None))
        try:
            return await _content(response, heard)
        except BROKEN as error:
            raise _unavailable(request, error) from error
        finally:
            response.release()

    async def _write(self, request: Request, body: bytes) -> bytes:
        """As `_ask`, over a `Wire`."""
        proof = await self._proof(request)
        try:
            return await self._try_to_write(request, body, proof)
        except Unauthorized:
            fresh = await self._proof(request, rejected=proof)
        return await self._try_to_write(request, body, fresh)

    async def _proof(self, request: Request, rejected: Proof | None = None) -> Proof:
        """Our credentials.

        Credentials that were never available are a configuration error. Those that were available may be out of reach
        for a while.
        """
        try:
            if rejected is not None:
                await self.credentials.refresh(rejected)
            proof = await self.credentials.proof()
        except (KubeconfigError, OSError) as error:
            if not self._was_proven:
                raise
            raise Unavailable(f"{request}: no credentials: {printable(str(error), 600)}", sent=False) from error
        self._was_proven = True
        return proof

    async def _try_to_write(self, request: Request, body: bytes, proof: Proof) -> bytes:
        if self._wire is None:
            connection = self.credentials.connection
            self._wire = Wire(connection.server, most=self._connections, server_name=connection.server_name)
        if self._heads[0] is not proof:
            self._heads = (proof, _head({**HEADERS, "Host": self._wire.host_header}, proof[0]))
        message = b"%b %b HTTP/1.1\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            request.method.encode(),
            _target(self._wire.prefix, request),
            self._heads[1],
            request.content_type.encode(),
            len(body),
            body,
        )
        began, code = perf_counter(), 0
        try:
            answer = await self._wire.ask(message, proof[1], self._seconds)
            code = answer.status
        except Broken as error:
            raise Unavailable(f"{request}: {printable(str(error), 300)}", sent=error.sent) from error
        finally:
            self._count(request, code, began)
        if answer.status < 300:
            return answer.body
        raise error_of(answer.status, answer.body, str(request), answer.header(b"retry-after"))

    async def _ask(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """An answer of 2xx whose body is still to be read. After one 401, the credentials are read again."""
        proof = await self._proof(request)
        try:
            return await self._try(request, proof, timeout)
        except Unauthorized:
            fresh = await self._proof(request, rejected=proof)
        return await self._try(request, fresh, timeout)

    async def _try(self, request: Request, proof: Proof, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        (headers, tls), connection = proof, self.credentials.connection
        began, code = perf_counter(), 0
        if request.body is not None:
            headers = (*headers, ("Content-Type", request.content_type))
        try:
            response = await self._session().request(
                request.method,
                URL(connection.server + request.path, encoded=True),
                params=request.params,
                data=request.body,
                headers=headers,
                ssl=True if tls is None else tls,
                server_hostname=connection.server_name if tls is not None else None,
                proxy=connection.proxy,
                timeout=timeout,
                allow_redirects=False,
            )
            code = response.status
            if code < 300:
                return response
            async with response:
                said = await _content(response)
        except BROKEN as error:
            raise _unavailable(request, error) from error
        finally:
            self._count(request, code, began)
        raise error_of(response.status, said, str(request), response.headers.get("Retry-After"))

    def _count(self, request: Request, code: int, began: float) -> None:
        self.counts.note(request.method, request.path, request.params, code, perf_counter() - began)

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=60.0, socket_factory=_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=HEADERS,
                read_bufsize=READ_AHEAD,
            )
        return self._opened


def encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _not_older_than(version: str) -> dict[str, str]:
    """Parameters that ask for a state not older than `version`.

    With a limit and without resourceVersionMatch, servers answer with the state *at* that version (KEP-2523). The
    following pages name no version: their token contains it, and servers refuse both.
    """
    return {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"} if version else {}


def _head(fixed: Params, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"{name}: {value}" for name, value in (*fixed.items(), *headers)]
    return "".join(f"{line}\r\n" for line in lines).encode()


def _target(prefix: str, request: Request) -> bytes:
    query = f"?{urlencode(request.params, quote_via=quote)}" if request.params else ""
    target = f"{prefix}{request.path}{query}".encode()
    if not target.isascii() or any(sign in target for sign in b" \r\n\0"):
        raise ValueError(f"{request} cannot go over the wire")
    return target


def _timeout(*, total: float | None, quiet: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=CONNECT, sock_read=quiet)


async def _content(response: aiohttp.ClientResponse, heard: Heard | None = None) -> Json:
    whole = bytearray()
    while chunk := await response.content.readany():
        whole += chunk
        if heard is not None and heard(whole):
            heard = None
    return whole


def _drop(asked: Iterable[Ahead]) -> None:
    for page in asked:
        page.drop()


def _read_page(reader: TypedReader[T], body: Json, path: str) -> Page[T]:
    try:
        return reader.page(body)
    except UNREADABLE as error:
        raise Unavailable(f"GET {path}: the answer is no list: {printable(str(error), 300)}") from None


def _cut(response: aiohttp.ClientResponse) -> None:
    """Close the connection of an unfinished answer. A regular TLS close would first wait for the server."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that detects within half a minute that the other machine is gone."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _unavailable(request: Request, error: BaseException) -> Unavailable:
    """The error for a connection that failed or broke."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        said = f"{error.certificate_error}; correct certificate-authority or tls-server-name in the kubeconfig"
        return Unavailable(f"{request}: the server's certificate is not believed: {said}", sent=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        why = error.os_error.strerror or error.os_error
        return Unavailable(f"{request}: cannot connect to {error.host}:{error.port}: {why}", sent=False)
    if isinstance(error, (aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)):
        return Unavailable(f"{request}: cannot connect: {error}", sent=False)
    said = str(error) or type(error).__name__
    return Unavailable(f"{request}: the connection broke: {printable(said, 300)}")
