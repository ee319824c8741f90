"""Runs the live scheduler behind kube-scheduler's extender protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dovetail.cli.errors import Refused
from dovetail.cli.hami_flags import address
from dovetail.cli.live import run as run_scheduler
from dovetail.cli.output.logs import Logger
from dovetail.cli.scheduler_options import LiveOptions
from dovetail.kube.extender.extender import Extender, ExtenderOptions
from dovetail.kube.live.service import LiveScheduler
from dovetail.web.certificates import BadCertificate, CertificateFiles
from dovetail.web.extender import LIMITS, ExtenderRoutes
from dovetail.web.serving import WebServer


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Where the extender is served."""

    bind: str
    cert_file: str | None = None
    key_file: str | None = None


def run(asked: LiveOptions, serving: ServingOptions, options: ExtenderOptions) -> int:
    host, port = address("--http_bind", serving.bind)
    certificate = _certificate(serving)

    @asynccontextmanager
    async def served(service: LiveScheduler, log: Logger) -> AsyncIterator[None]:
        extender = Extender(service, options, log)
        service.more_metrics += (extender.page,)
        server = WebServer(ExtenderRoutes(extender, service).by_path(), log, certificate=certificate, limits=LIMITS)
        try:
            listening = server.listening(host, port)
            await listening.__aenter__()
        except OSError as error:
            raise Refused(f"--http_bind {serving.bind}: {error.strerror or error}") from error
        log(
            f"extender on http{'s' * (certificate is not None)}://{serving.bind}: /filter, /prioritize, /bind, /preempt"
        )
        working = asyncio.create_task(extender.run())
        try:
            yield
        finally:
            extender.close()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await listening.__aexit__(None, None, None)

    return run_scheduler(asked, served)


def _certificate(serving: ServingOptions) -> CertificateFiles | None:
    if not serving.cert_file and not serving.key_file:
        return None
    if not serving.cert_file or not serving.key_file:
        missing = "--key_file" if serving.cert_file else "--cert_file"
        raise Refused(f"{missing} is missing: TLS needs --cert_file and --key_file; plain HTTP needs neither")
    try:
        return CertificateFiles(Path(serving.cert_file), Path(serving.key_file))
    except BadCertificate as error:
        raise Refused(str(error)) from error
