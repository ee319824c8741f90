"""Runs the live scheduler for the command line: settings, logs, signals, and the port for health and metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail import kernel_cache, own_folder
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.logs import Logger
from dovetail.cli.settings import scheduler_profiles, settle, with_seals, with_vendors
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import KubeconfigError, find
from dovetail.kube.live.election import Terms
from dovetail.kube.live.service import LiveScheduler, Lost, Options
from dovetail.kube.live.warm import Workshop
from dovetail.kube.log import ERROR, WARNING, Level
from dovetail.kube.objects.problems import InputError, Problems

DEFAULT_NAME = "dovetail"
STOPPED, LOST = 0, 1
BESIDE = 40  # connections for watches, conditions and events, in addition to those that bind


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options of the command line."""

    asked: ClusterOptions
    names: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    hami_lock: str = "auto"
    lease: tuple[str, str] = ("kube-system", "dovetail-scheduler")
    lease_seconds: int = 15
    nodes: tuple[str, ...] = ()
    peer_namespaces: tuple[str, ...] = ()
    any_names: bool = False
    seal_key_file: str | None = None
    identity: str | None = None
    settle_seconds: float = 30.0
    audit_seconds: float = 60.0
    binds_at_once: int = 64
    listen: str = ""
    metrics_auth: str = "none"
    json_logs: bool = False
    log_level: str = "info"
    interpreted: bool = False


def run(asked: LiveOptions) -> int:
    log = Logger(Level[asked.log_level.upper()], as_json=asked.json_logs)
    problems = Problems()
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        settings = with_seals(settings, asked.seal_key_file, problems)
        profiles = scheduler_profiles(
            config, settings, asked.names or _default_names(config.schedulers), str(asked.asked.config)
        )
        connection = find(os.environ, kubeconfig=asked.kubeconfig, context=asked.context)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except KubeconfigError as error:
        raise Refused(str(error)) from error
    for problem in problems.found():
        log(str(problem), WARNING, object=problem.where, field=problem.field)
    for doubt in connection.doubts:
        log(doubt, max(WARNING, Level[asked.log_level.upper()]))  # printed at every level
    options = Options(
        identity=asked.identity or socket.gethostname(),
        profiles=profiles,
        arguments=config.policy_arguments,
        namespace=asked.lease[0],
        lease=asked.lease[1],
        terms=Terms.of(asked.lease_seconds),
        hami_lock=asked.hami_lock,
        at_once=asked.binds_at_once,
        settle_seconds=asked.settle_seconds,
        audit_seconds=asked.audit_seconds,
        device_resources=tuple(settings.vendors.by_count),
        nodes=tuple(map(_label, asked.nodes)),
        peer_namespaces=asked.peer_namespaces,
        any_names=asked.any_names,
    )
    try:
        return asyncio.run(_serve(asked, Credentials(connection, environ=os.environ), options, log))
    except (ApiError, KubeconfigError) as error:
        raise Refused(str(error)) from error


def _label(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign) or any(mark in text for mark in ", "):
        raise Refused(f"--node-selector: {text!r} is not KEY=VALUE, such as pool=research")
    return key, value


def _default_names(configured: Any) -> tuple[str, ...]:
    return () if configured else (DEFAULT_NAME,)


async def _serve(asked: LiveOptions, credentials: Credentials, options: Options, log: Logger) -> int:
    make = None if asked.interpreted else Workshop(kernel_cache.prepare_for_now()).make
    for notice in own_folder.notices():
        log(notice, WARNING)
    async with Api(credentials, connections=asked.binds_at_once + BESIDE) as api:
        service = LiveScheduler(api, options, now=time.time, log=log, make_kernels=make)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        log(f"starting as {', '.join(options.profiles)}; the API server is {credentials.connection.server}")
        async with _listening(asked, api, service, log):
            try:
                await service.run()
            except Lost as error:
                log(f"stopped: {error}", ERROR)
                return LOST
    log("stopped")
    log.flush()
    return STOPPED


def _listening(asked: LiveOptions, api: Api, service: LiveScheduler, log: Logger) -> Any:
    from dovetail.kube.live.health import listening
    from dovetail.kube.live.metrics_auth import Reviews

    host, _, port = asked.listen.rpartition(":")
    if asked.listen and not port.isdecimal():
        raise Refused(f"--listen: {asked.listen!r} is not HOST:PORT, such as 127.0.0.1:9396")
    reviews = Reviews(api, log) if asked.metrics_auth == "apiserver" else None
    return listening(host or "127.0.0.1", int(port) if asked.listen else None, service, log, reviews)
