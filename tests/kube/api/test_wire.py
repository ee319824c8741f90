"""Writes over kept connections: servers that misbehave, and who may use a connection again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Throttled, Unavailable
from dovetail.kube.api.kubeconfig import Connection, KubeconfigError
from dovetail.kube.api.wire import Broken, Wire

OK = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Reads a request, then does what it is told; the last thing again and again."""

    def __init__(self, *script: bytes | Reply) -> None:
        self.script, self.requests, self.connections, self.url = list(script), [b""], 0, ""
        self.requests.clear()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if isinstance(step, bytes):
                    writer.write(step)
                else:
                    await step(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    raise ConnectionError


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK[:-1])
    await writer.drain()
    raise ConnectionError


async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends where the connection does."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    await writer.drain()
    raise ConnectionError


@asynccontextmanager
async def serving(*script: bytes | Reply) -> AsyncIterator[Server]:
    made = Server(*script)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


def api_of(server: Server, **more: object) -> Api:
    return Api(Credentials(Connection(server.url, "a test")), timeout=0.5, **more)  # type: ignore[arg-type]


async def test_one_connection_serves_one_request_after_another() -> None:
    async with serving(OK) as server, api_of(server) as api:
        for _ in range(3):
            assert await api.post("/x", {"a": 1}, {"fieldManager": "a b"}) == b"{}"
        assert server.connections == 1
    assert server.requests[0].startswith(b"POST /x?fieldManager=a%20b HTTP/1.1\r\n")
    assert server.requests[0].endswith(b'\r\n\r\n{"a":1}')


async def test_requests_at_once_have_a_connection_each_up_to_the_most() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(OK)

    async with serving(slow) as server, api_of(server, connections=3) as api:
        await asyncio.gather(*(api.post("/x", {}) for _ in range(9)))
        assert (server.connections, len(server.requests)) == (3, 9)


@pytest.mark.parametrize("step", [drop, half, hang, b"nonsense\r\n\r\n"])
async def test_a_broken_answer_is_unavailable_and_may_have_happened(step: bytes | Reply) -> None:
    async with serving(step, OK) as server, api_of(server) as api:
        with pytest.raises(Unavailable) as caught:
            await api.post("/x", {})
        assert caught.value.sent
        assert await api.post("/x", {}) == b"{}"  # on a new connection
        assert server.connections == 2


async def test_nobody_there_did_nothing() -> None:
    async with serving(OK) as server:
        pass
    async with api_of(server) as api:
        with pytest.raises(Unavailable) as caught:
            await api.post("/x", {})
        assert not caught.value.sent


async def test_an_answer_may_end_with_its_connection() -> None:
    async with serving(goodbye, OK) as server, api_of(server) as api:
        assert await api.post("/x", {}) == b"all of it"
        await api.post("/x", {})
        assert server.connections == 2


async def test_a_server_that_wants_to_close_is_not_asked_again_on_that_connection() -> None:
    closing = OK.replace(b"\r\nContent-Length", b"\r\nConnection: close\r\nContent-Length")
    async with serving(closing) as server, api_of(server) as api:
        await api.post("/x", {})
        await api.post("/x", {})
        assert server.connections == 2


async def test_who_is_cancelled_leaves_no_answer_to_the_next() -> None:
    async with serving(hang, OK) as server, api_of(server) as api:
        task = asyncio.create_task(api.post("/x", {}))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await api.post("/x", {}) == b"{}"
        assert server.connections == 2


async def test_an_idle_connection_is_not_kept_for_ever() -> None:
    async with serving(OK) as server:
        wire = Wire(server.url, keep=0.0)
        message = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
        await wire.ask(message, None, 1.0)
        await wire.ask(message, None, 1.0)
        assert server.connections == 2
        wire.close()


async def test_connections_of_a_burst_are_ended_while_one_serves_all_later_requests() -> None:
    """Each has 256 KiB for reading. The connection used last is used next, so the others stay idle."""
    async with serving(OK) as server:
        wire = Wire(server.url, keep=0.2)
        message = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
        await asyncio.gather(*(wire.ask(message, None, 10.0) for _ in range(5)))
        assert len(wire._idle) == server.connections == 5
        await asyncio.sleep(0.3)
        await wire.ask(message, None, 10.0)
        assert len(wire._idle) == 1
        wire.close()


async def test_closing_ends_who_waits() -> None:
    async with serving(hang) as server:
        wire = Wire(server.url)
        task = asyncio.create_task(wire.ask(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", None, 30.0))
        while not server.requests:
            await asyncio.sleep(0.01)
        wire.close()
        with pytest.raises(Broken):
            await task


async def test_throttling_says_for_how_long() -> None:
    slow_down = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"
    async with serving(slow_down) as server, api_of(server) as api:
        with pytest.raises(Throttled) as caught:
            await api.patch("/x", {})
        assert caught.value.retry_after == 3.0


async def test_a_server_below_a_path_is_asked_below_it() -> None:
    async with serving(OK) as server:
        connection = Connection(server.url + "/k8s/clusters/c-1", "a test")
        async with Api(Credentials(connection)) as api:
            await api.put("/api/v1/x", {})
        assert server.requests[0].startswith(b"PUT /k8s/clusters/c-1/api/v1/x HTTP/1.1\r\n")


async def test_a_token_cannot_smuggle_a_header() -> None:
    async with serving(OK) as server:
        async with Api(Credentials(Connection(server.url, "a test", token="a\r\nX-Other: b"))) as api:
            with pytest.raises(KubeconfigError, match="line break"):
                await api.post("/x", {})
        assert server.requests == []
