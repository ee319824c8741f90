"""Certificates of the webhook under load: replaced on disk, and made, shared and renewed by two replicas."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from dovetail.kube.admission.own_authority import utc_now
from dovetail.kube.admission.webhook import PodWebhook, WebhookOptions
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.kubeconfig import find
from dovetail.kube.conversion.settings import Settings
from dovetail.web.certificates import Certificate, CertificateFiles
from dovetail.web.own_certificate import OwnCertificate, OwnCertificateOptions
from dovetail.web.serving import WebServer
from dovetail.web.webhook import WEBHOOK_LIMITS, webhook_routes
from tests.kube.logged import Logged
from tests.live.test_webhook import pod, wait_until_asked
from tools.controlplane import webhook
from tools.controlplane.client import ApiError, Client
from tools.controlplane.plane import ControlPlane

NAMES = ("dovetail-webhook.kube-system.svc", "localhost")


@asynccontextmanager
async def served(certificate: Certificate, log: Logged) -> AsyncIterator[WebServer]:
    hook = PodWebhook(WebhookOptions("dovetail", {"dovetail": Settings()}))
    server = WebServer(webhook_routes(hook), log, certificate=certificate, limits=WEBHOOK_LIMITS)
    async with server.listening("127.0.0.1", 0):
        yield server


@dataclass
class Load:
    """Pods that are created one after another, without being stored."""

    api: Client
    over: bool = False
    created: int = 0
    failed: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.over:
            try:
                made = self.api.create(pod(f"p-{self.created}"), dryRun="All")
                assert made["spec"]["schedulerName"] == "dovetail"
                self.created += 1
            except ApiError as error:
                self.failed.append(str(error))

    async def more(self, count: int = 20) -> None:
        """Wait until so many more pods were created."""
        goal = self.created + count
        await until(lambda: self.created >= goal or bool(self.failed))


async def until(is_true: Callable[[], bool], seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def under_load(api: Client) -> AsyncIterator[Load]:
    load = Load(api)
    task = asyncio.create_task(asyncio.to_thread(load.run))
    try:
        yield load
    finally:
        load.over = True
        await task


async def _serial(api: Client, port: int) -> str:
    """The serial number of the certificate that a new connection gets. It must be trusted as the API server trusts it.

    The API server keeps its connections for a while, so its own requests do not show what a new one gets.
    """
    (configured, *_) = api.get("MutatingWebhookConfiguration", webhook.NAME, "")["webhooks"]
    client = configured["clientConfig"]
    context = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
    name = urlsplit(client["url"]).hostname
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()


async def test_a_certificate_replaced_on_disk_is_served_without_a_dropped_request(
    plane: ControlPlane, api: Client, tmp_path: Path
) -> None:
    authority, chain, key, log = trustme.CA(), tmp_path / "tls.crt", tmp_path / "tls.key", Logged()

    def issue() -> None:
        issued = authority.issue_cert("127.0.0.1")
        chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)

    issue()
    async with served(CertificateFiles(chain, key, poll_seconds=0.1), log) as server:
        api.create(webhook.configuration([server.port], authority.cert_pem.bytes()))
        await asyncio.to_thread(wait_until_asked, api)
        async with under_load(api) as load:
            await load.more()
            first = await _serial(api, server.port)
            issue()
            await until(lambda: any("new certificate" in line for line in log))
            assert await _serial(api, server.port) != first
            await load.more()
    assert load.failed == []


async def test_two_replicas_share_and_renew_their_own_certificate_without_a_dropped_request(
    plane: ControlPlane, api: Client
) -> None:
    webhook.grant_webhook(api)
    connection = find({}, kubeconfig=plane.kubeconfig("dovetail"))
    log = Logged()
    options = OwnCertificateOptions("kube-system", "dovetail-webhook-tls", NAMES, webhook.NAME, bundle_seconds=2.0)
    clock = [utc_now() - timedelta(days=61)]  # of the first generation's 90 days: today it is due since a day
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            shipped_rights = await stack.enter_async_context(Api(Credentials(connection, environ={})))
            replicas.append(OwnCertificate(shipped_rights, options, log, now=lambda: clock[0]))
        servers = [await stack.enter_async_context(served(one, log)) for one in replicas]
        api.create(webhook.configuration([server.port for server in servers], host="localhost"))
        await asyncio.gather(*(one.look() for one in replicas))  # both find the Secret empty; one of them wins
        assert replicas[0].pair == replicas[1].pair
        await asyncio.to_thread(wait_until_asked, api)  # the API server asks both, and trusts both
        async with under_load(api) as load:
            await load.more()
            first, other = [await _serial(api, server.port) for server in servers]
            assert first == other
            clock[0] = utc_now()
            await replicas[0].look()
            await load.more()
            second, other = [await _serial(api, server.port) for server in servers]
            assert (second != first, other) == (True, first)  # the other has not looked yet: both are trusted
            await replicas[1].look()
            await load.more()
            assert [await _serial(api, server.port) for server in servers] == [second, second]
    assert load.failed == []
    assert not [line for line in log if "certificate:" in line and "serves" not in line], log
