"""The port for health and metrics: what it answers, and what it takes from whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dovetail.kube.live.port import MAX_REQUEST_BYTES, HttpPort, PortAnswer, PortRequest

pytestmark = pytest.mark.asyncio
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _say(asked: PortRequest) -> PortAnswer:
    return PortAnswer(f"{asked.path} {asked.authorization}".strip())


async def _fail(asked: PortRequest) -> PortAnswer:
    raise RuntimeError("a secret")


async def _never(asked: PortRequest) -> PortAnswer:
    await asyncio.sleep(60)
    return PortAnswer("late")


class Visitor:
    def __init__(self, port: HttpPort, number: int) -> None:
        self.port, self._number = port, number
        self._streams: list[Streams] = []

    async def open(self, said: bytes = b"") -> Streams:
        streams = await asyncio.open_connection("127.0.0.1", self._number)
        self._streams.append(streams)
        streams[1].write(said)
        return streams

    async def ask(self, said: bytes) -> str:
        """All that comes back until the connection is closed."""
        reader, _ = await self.open(said)
        return (await asyncio.wait_for(reader.read(), 10)).decode()

    async def close(self) -> None:
        for _, writer in self._streams:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def visiting(seconds: float = 5.0, most: int = 128) -> AsyncIterator[Visitor]:
    port = HttpPort({"/healthz": _say, "/fails": _fail, "/never": _never}, seconds=seconds, most=most)
    async with port.listening("127.0.0.1", 0) as server:
        visitor = Visitor(port, server.sockets[0].getsockname()[1])
        try:
            yield visitor
        finally:
            await visitor.close()


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/healthz\n"),
        (b"GET /healthz?verbose=1 HTTP/1.0\r\n\r\n", 200, "/healthz\n"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200, ""),
        (b"GET /healthz HTTP/1.1\r\nauthorization: Bearer abc\r\n\r\n", 200, "/healthz Bearer abc\n"),
        (b"GET /other HTTP/1.1\r\n\r\n", 404, "Not Found\n"),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 405, "Method Not Allowed\n"),
        (b"PUT /healthz HTTP/1.1\r\n\r\n", 405, "Method Not Allowed\n"),
        (b"DELETE /healthz HTTP/1.1\r\n\r\n", 405, "Method Not Allowed\n"),
        (b"GET /fails HTTP/1.1\r\n\r\n", 500, "RuntimeError\n"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "Bad Request\n"),  # TLS
        (b"GET healthz HTTP/1.1\r\n\r\n", 400, "Bad Request\n"),
        (b"GET /healthz HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400, "Bad Request\n"),
        (b"GET /healthz HTTP/1.1\r\nx: " + b"x" * MAX_REQUEST_BYTES, 431, "Request Header Fields Too Large\n"),
    ],
)
async def test_what_it_answers(said: bytes, status: int, body: str) -> None:
    async with visiting() as visitor:
        head, _, rest = (await visitor.ask(said)).partition("\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ")
        assert rest == body
        assert "Connection: close" in head
        assert ("Allow: GET, HEAD" in head) is (status == 405)


async def test_a_request_may_come_in_pieces() -> None:
    async with visiting() as visitor:
        reader, writer = await visitor.open()
        for piece in (b"GET /heal", b"thz HTTP/1.1\r", b"\n\r", b"\n"):
            writer.write(piece)
            await asyncio.sleep(0.01)
        assert b"200 OK" in await asyncio.wait_for(reader.read(), 10)


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /never HTTP/1.1\r\n\r\n"])
async def test_a_connection_ends_when_its_time_is_over(said: bytes) -> None:
    async with visiting(seconds=0.2) as visitor:
        reader, _ = await visitor.open(said)
        assert await _rest(reader) == b""
        assert (len(visitor.port), visitor.port.dropped) == (0, 1)


async def test_a_byte_now_and_then_does_not_prolong_it() -> None:
    async with visiting(seconds=0.3) as visitor:
        reader, writer = await visitor.open(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(20):  # 20 × 0.05 s = 1 s, beyond its 0.3 s
            writer.write(b"x: y\r\n")
            await asyncio.sleep(0.05)
        assert await _rest(reader) == b""
        assert len(visitor.port) == 0


async def test_new_connections_take_the_place_of_the_oldest_half_open_ones() -> None:
    """4 places: one is being answered, three are half-open; the next two connections end two of these."""
    async with visiting(most=4) as visitor:
        served, _ = await visitor.open(b"GET /never HTTP/1.1\r\n\r\n")
        first = [await visitor.open(b"GET /") for _ in range(3)]
        await _until(lambda: len(visitor.port) == 4)
        for _ in range(2):
            assert "200 OK" in await visitor.ask(b"GET /healthz HTTP/1.1\r\n\r\n")
            await _until(lambda: len(visitor.port) <= 3)
            await visitor.open(b"GET /")
            await _until(lambda: len(visitor.port) == 4)
        assert [await _rest(reader) for reader, _ in first[:2]] == [b"", b""]
        assert not first[2][0].at_eof()
        assert not served.at_eof()  # a request that came in full keeps its place


async def test_four_thousand_half_open_connections_do_not_keep_a_probe_waiting() -> None:
    async with visiting() as visitor:
        loop, waits = asyncio.get_running_loop(), []
        for number in range(4_000):
            await visitor.open(b"GET /metrics HTTP/1.1\r\n")
            assert len(visitor.port) <= 128
            if number % 200 == 199:
                began = loop.time()
                assert "200 OK" in await visitor.ask(b"GET /healthz HTTP/1.1\r\n\r\n")
                waits.append(loop.time() - began)
        assert max(waits) < 10.0, waits  # ten times kubelet's own limit; 1 to 3 ms on an idle machine
        assert visitor.port.dropped >= 4_000 - 128


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side ends the connection, by whatever packet."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)
