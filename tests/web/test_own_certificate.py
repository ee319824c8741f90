"""The webhook's own certificate, without a cluster: what keeps it fresh ends with the process."""

from __future__ import annotations

import asyncio
from typing import cast

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
    assert len([line for line in log if "the webhook's own certificate" in line]) == 1
