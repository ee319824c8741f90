"""Runs the live scheduler for the command line: settings, logs, signals, a port for health and metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from dovetail import kernel_cache
from dovetail.cli.errors import Refused
from dovetail.cli.options import Asked
from dovetail.cli.settings import scheduler_profiles, settle, with_vendors
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import ConfigError, find
from dovetail.kube.live.election import Terms
from dovetail.kube.live.service import Lost, Options, Service
from dovetail.kube.live.warm import warm
from dovetail.kube.problems import InputError, Problems, printable

DEFAULT_NAME = "dovetail"
STOPPED, LOST = 0, 1
BESIDE = 40  # connections for watches, conditions and events beside those that bind


@dataclass(frozen=True, slots=True)
class Run:
    """What the command line says."""

    asked: Asked
    names: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    hami_lock: str = "auto"
    lease: tuple[str, str] = ("kube-system", "dovetail-scheduler")
    lease_seconds: int = 15
    identity: str | None = None
    binds_at_once: int = 64
    listen: str = ""
    json_logs: bool = False
    interpreted: bool = False


class Log:
    """One line per thing worth knowing, on stderr. Repeats of a line within ten seconds are counted, not printed."""

    def __init__(self, as_json: bool) -> None:
        self._json, self._last, self._repeats, self._at = as_json, "", 0, 0.0

    def __call__(self, text: str) -> None:
        now = time.time()
        if text == self._last and now - self._at < 10:
            self._repeats += 1
            return
        if self._repeats:
            self._print(now, f"(and {self._repeats} times more)")
        self._last, self._repeats, self._at = text, 0, now
        self._print(now, text)

    def _print(self, now: float, text: str) -> None:
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = printable(text, 2_000)
        line = msgspec.json.encode({"time": stamp, "message": text}).decode() if self._json else f"{stamp} {text}"
        print(line, file=sys.stderr, flush=True)


def run(asked: Run) -> int:
    log = Log(asked.json_logs)
    problems = Problems()
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        profiles = scheduler_profiles(
            config, settings, asked.names or _default_names(config.schedulers), str(asked.asked.config)
        )
        connection = find(os.environ, kubeconfig=asked.kubeconfig, context=asked.context)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except ConfigError as error:
        raise Refused(str(error)) from error
    for problem in problems.found():
        log(str(problem))
    options = Options(
        identity=asked.identity or socket.gethostname(),
        profiles=profiles,
        arguments=config.policy_arguments,
        namespace=asked.lease[0],
        lease=asked.lease[1],
        terms=Terms.of(asked.lease_seconds),
        hami_lock=asked.hami_lock,
        at_once=asked.binds_at_once,
        device_resources=tuple(settings.vendors.by_count),
    )
    try:
        return asyncio.run(_serve(asked, Credentials(connection, environ=os.environ), options, log))
    except (ApiError, ConfigError) as error:
        raise Refused(str(error)) from error


def _default_names(configured: Any) -> tuple[str, ...]:
    return () if configured else (DEFAULT_NAME,)


async def _serve(asked: Run, credentials: Credentials, options: Options, log: Log) -> int:
    cached = kernel_cache.prepare()

    def compile_kernels() -> bool:
        if not asked.interpreted:
            warm(options.profiles.values(), options.arguments, cached)
        return not asked.interpreted

    async with Api(credentials, connections=asked.binds_at_once + BESIDE) as api:
        service = Service(api, options, now=time.time, log=log, compile_kernels=compile_kernels)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        log(f"serving {', '.join(options.profiles)} on {credentials.connection.server}")
        async with _listening(asked.listen, service, log):
            try:
                await service.run()
            except Lost as error:
                log(f"stopped: {error}")
                return LOST
    log("stopped")
    return STOPPED


def _listening(listen: str, service: Service, log: Log) -> Any:
    from dovetail.kube.live.health import listening

    host, _, port = listen.rpartition(":")
    if listen and not port.isdecimal():
        raise Refused(f"--listen: {listen!r} is not HOST:PORT, such as 127.0.0.1:9396")
    return listening(host or "127.0.0.1", int(port) if listen else None, service, log)
