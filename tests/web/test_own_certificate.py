"""The webhook's certificate in a Secret, without a cluster: its renewal, by Dovetail or by cert-manager."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any, cast

from cryptography import x509

from dovetail.kube.admission.own_authority import WRITTEN_BY_CERT_MANAGER, Generation, make_generation, utc_now
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Unavailable
from dovetail.web.own_certificate import OwnCertificate, OwnCertificateOptions
from tests.kube.logged import Logged

OPTIONS = OwnCertificateOptions("dovetail", "dovetail-webhook-certificate", ("webhook",), "", look_seconds=0.0)


class SilentServer:
    """Answers no request. The client takes the first cancellation for its own time-out."""

    def __init__(self) -> None:
        self.asked, self.missed = asyncio.Event(), 0

    async def get(self, path: str) -> bytes:
        self.asked.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            if self.missed:
                raise
            self.missed += 1
            raise Unavailable("no answer in time") from None


async def test_a_request_that_misses_the_end_of_the_process_does_not_hold_it_up() -> None:
    server = SilentServer()
    certificate = OwnCertificate(cast(Api, server), OPTIONS, Logged())
    async with asyncio.timeout(30) as patience:
        async with certificate.kept_fresh(Logged()):
            await server.asked.wait()
    assert (server.missed, patience.expired()) == (1, False)


class OddServer:
    """Answers with the login page of a proxy."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, path: str) -> bytes:
        self.asked += 1
        return b"<html>Log in</html>"


async def test_an_answer_that_cannot_be_read_does_not_end_the_renewal() -> None:
    server, log = OddServer(), Logged()
    certificate = OwnCertificate(cast(Api, server), OPTIONS, log)
    async with certificate.kept_fresh(log), asyncio.timeout(30):
        while server.asked < 3:
            await asyncio.sleep(0)
    assert len([line for line in log if "the webhook's certificate" in line]) == 1


NAMES = ("dovetail-webhook.kube-system.svc",)
SHARED = OwnCertificateOptions("kube-system", "tls", NAMES, "dovetail-webhook", bundle_seconds=0.0)


class SecretAndConfiguration:
    """The two objects, and the writes to them."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] = {"metadata": {"name": "tls"}}
        self.webhook: dict[str, Any] = {"name": "pods.dovetail.dev", "clientConfig": {}}
        self.writes: list[str] = []

    async def get(self, path: str) -> bytes:
        return json.dumps(self.secret if "/secrets/" in path else {"webhooks": [self.webhook]}).encode()

    async def put(self, path: str, body: dict[str, Any]) -> bytes:
        self.writes.append("Secret")
        self.secret = body
        return b"{}"

    async def patch(self, path: str, body: bytes, kind: str) -> bytes:
        self.writes.append("MutatingWebhookConfiguration")
        self.webhook["clientConfig"]["caBundle"] = json.loads(body)[-1]["value"]
        return b"{}"

    def issued(self, made: Generation, **data: str | None) -> None:
        """cert-manager writes this certificate."""
        self.secret = {
            "metadata": {"name": "tls", "annotations": {WRITTEN_BY_CERT_MANAGER: "dovetail-webhook"}},
            "data": {key: value for key, value in {**made.secret_data(), **data}.items() if value is not None},
        }

    @property
    def authorities(self) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(base64.b64decode(self.webhook["clientConfig"]["caBundle"]))


def authority_of(made: Generation) -> x509.Certificate:
    return x509.load_pem_x509_certificates(made.bundle)[0]


async def test_what_cert_manager_writes_is_served_and_never_overwritten() -> None:
    """It takes the Secret over, renews, and changes its authority: at each moment the served one is trusted."""
    server, log = SecretAndConfiguration(), Logged()
    certificate = OwnCertificate(cast(Api, server), SHARED, log)
    await certificate.look()
    own = server.authorities
    assert (len(own), server.writes) == (1, ["Secret", "MutatingWebhookConfiguration"])
    # Long due by Dovetail's rule, and for other names: that is cert-manager's affair.
    first = make_generation(("other.svc",), utc_now() - timedelta(days=80), timedelta(days=90))
    server.issued(first)
    await certificate.look()
    assert certificate.pair.chain == first.chain
    assert server.authorities == [authority_of(first), *own]
    server.writes.clear()
    for _ in range(2):
        await certificate.look()
    assert server.writes == []
    second = make_generation(NAMES, utc_now(), timedelta(days=90))
    server.issued(second)
    await certificate.look()
    assert certificate.pair.chain == second.chain
    assert server.authorities == [authority_of(second), authority_of(first), *own]
    assert server.writes == ["MutatingWebhookConfiguration"]
    assert "the webhook serves cert-manager's certificate" in log[-1]


async def test_what_the_ca_injector_wrote_stays() -> None:
    server = SecretAndConfiguration()
    made = make_generation(NAMES, utc_now(), timedelta(days=90))
    server.issued(made)
    server.webhook["clientConfig"]["caBundle"] = base64.b64encode(b"\n" + made.bundle).decode()
    certificate = OwnCertificate(cast(Api, server), SHARED, Logged())
    await certificate.look()
    assert (certificate.pair.chain, server.writes) == (made.chain, [])


async def test_a_secret_of_cert_manager_without_a_certificate_or_without_an_authority() -> None:
    """Not issued yet: the one before stays. A public issuer writes no authority, so there is none to trust."""
    server, log = SecretAndConfiguration(), Logged()
    certificate = OwnCertificate(cast(Api, server), SHARED, log)
    before = certificate.pair.chain
    made = make_generation(NAMES, utc_now(), timedelta(days=90))
    server.issued(made, **{"tls.crt": None, "ca.crt": None})
    await certificate.look()
    assert (certificate.pair.chain, server.writes) == (before, [])
    assert "cert-manager has not written tls.crt and tls.key yet" in log[-1]
    server.issued(made, **{"ca.crt": None})
    await certificate.look()
    assert (certificate.pair.chain, server.writes) == (made.chain, [])
