"""The HTTP server for the API server and kube-scheduler: routes, bounds, TLS, certificates that are replaced."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import trustme

from dovetail.kube.log import DEBUG, ERROR, WARNING
from dovetail.web.byte_budget import ByteBudget
from dovetail.web.certificates import BadCertificate, Certificate, CertificateFiles
from dovetail.web.serving import ServingLimits, WebAnswer, WebRequest, WebServer
from tests.kube.logged import Logged

HOST = "127.0.0.1"


async def until(is_true: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.01)


async def _echo(asked: WebRequest) -> WebAnswer:
    return WebAnswer(asked.body, kind="application/octet-stream", headers={"X-Bytes": str(len(asked.body))})


async def _fail(asked: WebRequest) -> WebAnswer:
    raise ValueError("a card that nobody has")


class Gate:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.open, self.asked = asyncio.Event(), 0

    async def __call__(self, asked: WebRequest) -> WebAnswer:
        self.asked += 1
        await self.open.wait()
        return WebAnswer.text("done")


@asynccontextmanager
async def serving(
    limits: ServingLimits | None = None,
    certificate: Certificate | None = None,
    gate: Callable[[WebRequest], Awaitable[WebAnswer]] | None = None,
) -> AsyncIterator[tuple[WebServer, Logged]]:
    log = Logged()
    routes = {"POST /echo": _echo, "GET /fails": _fail, "GET /echo": _echo, "POST /gate": gate or _echo}
    async with WebServer(routes, log, certificate=certificate, limits=limits).listening(HOST, 0) as server:
        yield server, log


async def said(server: WebServer, request: bytes) -> bytes:
    """All bytes that come back on one connection until the server closes it."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("request_line", "headers", "body", "status"),
    [
        ("POST /echo", "", b"hello", 200),
        ("GET /echo?a=b", "", b"", 200),
        ("HEAD /echo", "", b"", 200),
        ("PUT /echo", "", b"", 405),
        ("DELETE /fails", "", b"", 405),
        ("GET /other", "", b"", 404),
        ("GET /fails", "", b"", 500),
        ("POST /echo", "Content-Encoding: gzip\r\n", b"hello", 415),
        ("POST /echo", "", b"x" * 65, 413),
    ],
)
async def test_statuses(request_line: str, headers: str, body: bytes, status: int) -> None:
    head = f"{request_line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    async with serving(ServingLimits(body_bytes=64)) as (server, _):
        answer = await said(server, head.encode() + body)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]


async def test_a_chunked_body_has_the_same_limit() -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"20\r\n" + b"x" * 32 + b"\r\n"
    async with serving(ServingLimits(body_bytes=64)) as (server, _):
        assert (await said(server, head + chunk * 2 + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")  # 64 bytes
        assert (await said(server, head + chunk * 3 + b"0\r\n\r\n")).startswith(b"HTTP/1.1 413")  # 96 bytes


async def test_what_is_not_http_is_answered_400_and_not_in_the_log() -> None:
    async with serving() as (server, log):
        assert (await said(server, b"\x16\x03\x01\x02\x00\r\n\r\n")).startswith(b"HTTP/1.0 400")
        assert log == []


async def test_a_failed_handler_is_one_answer_and_one_line() -> None:
    async with serving() as (server, log), aiohttp.ClientSession() as client:
        for _ in range(2):  # the connection and the server live on
            async with client.get(f"http://{HOST}:{server.port}/fails") as answer:
                assert (answer.status, await answer.text()) == (500, "Internal Server Error\n")
    assert log == ["GET /fails failed: ValueError: a card that nobody has"] * 2
    assert [level for level, _, _ in log.records] == [ERROR, DEBUG, ERROR, DEBUG]
    assert "in _fail" in log.records[1][1]


async def test_time_limits_of_header_and_body() -> None:
    limits = ServingLimits(header_seconds=0.2, body_seconds=0.2)
    async with serving(limits) as (server, _):
        assert await said(server, b"POST /echo HTTP/1.1\r\nHost") == b""
        late = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell"
        assert (await said(server, late)).startswith(b"HTTP/1.1 408")
        whole = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
        assert (await said(server, whole)).endswith(b"\r\n\r\nx")


async def test_an_idle_connection_is_closed_at_its_limit() -> None:
    async with serving(ServingLimits(idle_seconds=0.2)) as (server, _):
        assert await said(server, b"") == b""
        answer = await said(server, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
        assert answer.endswith(b"x")  # answered, then closed without being asked


async def test_a_new_connection_replaces_the_longest_idle_one() -> None:
    gate = Gate()
    async with serving(ServingLimits(connections=2), gate=gate) as (server, _):
        busy = asyncio.create_task(said(server, b"POST /gate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        await until(lambda: gate.asked == 1)
        idle = asyncio.create_task(said(server, b""))
        await until(lambda: len(server) == 2)
        request = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
        assert (await said(server, request)).endswith(b"x")
        assert await idle == b""
        gate.open.set()
        assert (await busy).endswith(b"done\n")
        assert server.dropped == 1


async def test_when_all_connections_are_busy_the_new_one_is_closed() -> None:
    gate = Gate()
    async with serving(ServingLimits(connections=1), gate=gate) as (server, _):
        busy = asyncio.create_task(said(server, b"POST /gate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        await until(lambda: gate.asked == 1)
        assert await said(server, b"") == b""
        gate.open.set()
        assert (await busy).endswith(b"done\n")


async def test_the_end_answers_what_is_under_way() -> None:
    gate, answers = Gate(), []
    request = b"POST /gate HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(gate=gate) as (server, _):
        under_way = [asyncio.create_task(said(server, request)) for _ in range(5)]
        idle = asyncio.create_task(said(server, b""))
        await until(lambda: gate.asked == 5 and len(server) == 6)
        asyncio.get_running_loop().call_later(0.1, gate.open.set)
    answers = [await one for one in under_way]
    assert all(one.startswith(b"HTTP/1.1 200") and b"Connection: close" in one for one in answers)
    assert await idle == b""
    with pytest.raises(ConnectionRefusedError):
        await said(server, request)


async def test_the_end_does_not_wait_for_ever() -> None:
    async with serving(ServingLimits(grace_seconds=0.1), gate=Gate()) as (server, _):
        never = asyncio.create_task(said(server, b"POST /gate HTTP/1.1\r\nHost: x\r\n\r\n"))
        await until(lambda: len(server) == 1)
    assert await never == b""
    assert len(server) == 0


async def test_bodies_wait_for_the_memory_of_others() -> None:
    budget = ByteBudget(10)
    await budget.take(8)
    waiting = [asyncio.create_task(budget.take(size)) for size in (6, 4, 1)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)  # 1 would fit, and waits for its turn
    waiting[0].cancel()
    await asyncio.sleep(0)
    budget.give(8)  # 10 free: 4 and 1 fit
    await asyncio.gather(*waiting[1:])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(budget.take(6), 0.01)  # 5 are free
    await budget.take(5)


class Pair:
    """A certificate's two files, and who trusts them."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        self.issue()

    def issue(self) -> None:
        issued = self.authority.issue_cert(HOST)
        self.put(b"".join(pem.bytes() for pem in issued.cert_chain_pems), issued.private_key_pem.bytes())

    def put(self, chain: bytes, key: bytes) -> None:
        for path, content in ((self.chain, chain), (self.key, key)):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            os.replace(fresh, path)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def served(self, poll_seconds: float = 0.02) -> CertificateFiles:
        return CertificateFiles(self.chain, self.key, poll_seconds)


async def _serial(server: WebServer, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that a new connection gets."""
    _, writer = await asyncio.open_connection(HOST, server.port, ssl=context)
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_tls_only(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    async with serving(certificate=pair.served()) as (server, log):
        async with aiohttp.ClientSession() as client:
            url = f"https://{HOST}:{server.port}/echo"
            async with client.post(url, data=b"x" * 200_000, ssl=pair.client()) as answer:
                assert (answer.status, len(await answer.read())) == (200, 200_000)
        assert await said(server, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx") == b""  # plain HTTP
        await until(lambda: len(server) == 0)
        assert log == []
    assert pair.served().context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_handshake_has_a_limit(tmp_path: Path) -> None:
    async with serving(ServingLimits(handshake_seconds=0.2), Pair(tmp_path).served()) as (server, _):
        assert await said(server, b"\x16\x03\x01") == b""
        await until(lambda: len(server) == 0)


async def test_a_certificate_replaced_on_disk_is_served_without_a_dropped_request(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    done = 0
    failed: list[Exception] = []

    async def load(client: aiohttp.ClientSession, url: str, context: ssl.SSLContext) -> None:
        nonlocal done
        while not over.is_set():
            try:
                async with client.post(url, data=b"review", ssl=context, timeout=aiohttp.ClientTimeout(60)) as answer:
                    assert await answer.read() == b"review"
                done += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                failed.append(error)

    over = asyncio.Event()
    async with serving(certificate=pair.served()) as (server, log):
        first = await _serial(server, pair.client())
        url = f"https://{HOST}:{server.port}/echo"
        async with (
            aiohttp.ClientSession() as kept,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as fresh,
            asyncio.TaskGroup() as tasks,
        ):
            for client in (kept, kept, fresh, fresh):
                tasks.create_task(load(client, url, pair.client()))
            await until(lambda: done > 20)
            pair.issue()
            await until(lambda: any("new certificate" in line for line in log))
            second, before = await _serial(server, pair.client()), done
            await until(lambda: done > before + 20)
            over.set()
    assert first != second
    assert failed == []


async def test_a_broken_pair_keeps_the_old_one_and_is_said_once(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    certificate, log = pair.served(), Logged()
    good = certificate.pair
    other = trustme.CA().issue_cert(HOST).private_key_pem.bytes()
    pair.put(good.chain, other)
    certificate.look(log)
    assert log == []  # perhaps the certificate is written next
    certificate.look(log)
    certificate.look(log)
    assert log == [
        f"{pair.chain}, {pair.key}: the certificate and the key do not load: the key belongs to another certificate; "
        "the previous certificate stays in use"
    ]
    assert log.records[0][0] == WARNING
    pair.key.unlink()
    certificate.look(log)
    certificate.look(log)
    assert "No such file" in log[1]
    assert certificate.pair == good
    pair.issue()
    certificate.look(log)
    assert certificate.pair != good
    assert log[2].endswith("the new certificate is served")


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_files_that_hold_no_certificate(tmp_path: Path, text: bytes) -> None:
    pair = Pair(tmp_path)
    pair.put(text, pair.key.read_bytes())
    with pytest.raises(BadCertificate, match="do not load"):
        pair.served()


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    pair = Pair(tmp_path).served().pair
    assert "PRIVATE" not in repr(pair)
