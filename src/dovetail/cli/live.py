"""Runs the live scheduler for the command line: settings, logs, signals, and the port for health and metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dovetail import kernel_cache, own_folder
from dovetail.cli.errors import Refused
from dovetail.cli.measured_load import signal_options
from dovetail.cli.output.logs import Logger
from dovetail.cli.scheduler_options import LiveOptions
from dovetail.cli.settings import scheduler_profiles, settle, with_seals, with_vendors
from dovetail.cli.webhook import address, check_names, pod_webhook, serving_webhook
from dovetail.config import Config, PreemptionConfig, TracingConfig
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import KubeconfigError, find
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.journal.recorder import NoJournal
from dovetail.kube.journal.writer import MIB, Limits
from dovetail.kube.live import heap
from dovetail.kube.live.election import Terms
from dovetail.kube.live.hami_lock import OLD
from dovetail.kube.live.journaled import JournalOptions
from dovetail.kube.live.metrics.hami import HamiMetricsOptions
from dovetail.kube.live.metrics.webhook import webhook_metrics
from dovetail.kube.live.rights import PreemptionOptions
from dovetail.kube.live.service import LiveScheduler, Lost, Options
from dovetail.kube.live.tracing import tracing
from dovetail.kube.live.warm import Workshop
from dovetail.kube.live.webhook_view import LiveCluster
from dovetail.kube.log import ERROR, INFO, WARNING, Level
from dovetail.kube.objects.problems import InputError, Problems

STOPPED, LOST = 0, 1
BESIDE = 40  # connections for watches, conditions and events, in addition to those that bind


# What is served beside the scheduler, while it runs.
Beside = Callable[[LiveScheduler, Logger], AbstractAsyncContextManager[None]]


def run(asked: LiveOptions, beside: Beside | None = None) -> int:
    log = Logger(Level[asked.log_level.upper()], as_json=asked.json_logs)
    problems = Problems()
    check_names(asked.webhook)
    _listen_address(asked.listen)
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        settings = with_seals(settings, asked.seal_key_file, problems)
        profiles = scheduler_profiles(
            config,
            settings,
            asked.names or _default_names(config.schedulers, asked.default_name),
            str(asked.asked.config),
        )
        connection = find(os.environ, kubeconfig=asked.kubeconfig, context=asked.context)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except KubeconfigError as error:
        raise Refused(str(error)) from error
    for problem in problems.found():
        log(str(problem), INFO if problem.severity == "note" else WARNING, object=problem.where, field=problem.field)
    for doubt in connection.doubts:
        log(doubt, max(WARNING, Level[asked.log_level.upper()]))  # printed at every level
    options = _options(asked, config, settings, profiles)
    try:
        hami = hami_metrics_options(config, asked.hami_metrics, settings.vendors)
        observed = ObservedOptions(hami, beside, config.tracing)
        return asyncio.run(_serve(asked, Credentials(connection, environ=os.environ), options, observed, log))
    except (ApiError, KubeconfigError) as error:
        raise Refused(str(error)) from error
    except NoJournal as error:
        raise Refused(f"--journal: {error}") from error


def _options(asked: LiveOptions, config: Config, settings: Settings, profiles: Mapping[str, Settings]) -> Options:
    return Options(
        identity=asked.identity or socket.gethostname(),
        profiles=profiles,
        arguments=config.policy_arguments,
        namespace=asked.lease[0],
        lease=asked.lease[1],
        terms=Terms.of(asked.lease_seconds),
        hami_lock=asked.hami_lock,
        hami_lock_seconds=OLD if asked.hami_lock_seconds is None else asked.hami_lock_seconds,
        at_once=asked.binds_at_once,
        settle_seconds=asked.settle_seconds,
        audit_seconds=asked.audit_seconds,
        device_resources=tuple(settings.vendors.by_count),
        nodes=tuple(map(_label, asked.nodes)),
        peer_namespaces=asked.peer_namespaces,
        any_names=asked.any_names,
        journal=journal_in(asked.journal),
        **_of_config(config, asked.preempts),
    )


def _of_config(config: Config, preempts: bool) -> dict[str, Any]:
    """The options that only the configuration file has."""
    preemption = preemption_options(config.preemption, preempts)
    after = config.gangs.release_after_seconds
    release_after = None if after == "never" else after
    return {"preemption": preemption, "signals": signal_options(config.signals), "release_after": release_after}


def journal_in(asked: tuple[str, int, float] | None) -> JournalOptions | None:
    if asked is None:
        return None
    folder, mib, days = asked
    return JournalOptions(Path(folder), Limits(mib * MIB, days * 86_400.0))


def preemption_options(config: PreemptionConfig, wanted: bool) -> PreemptionOptions:
    enabled = config.enabled and wanted
    return PreemptionOptions(
        enabled, config.other_schedulers, config.minimum_run_seconds, config.keep_places_after_seconds
    )


def _label(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign) or any(mark in text for mark in ", "):
        raise Refused(f"--node-selector: {text!r} is not KEY=VALUE, such as pool=research")
    return key, value


def _default_names(configured: Any, name: str) -> tuple[str, ...]:
    return () if configured else (name,)


@dataclass(frozen=True, slots=True)
class ObservedOptions:
    """What the scheduler shows of itself, and what is served beside it."""

    hami: HamiMetricsOptions
    beside: Beside | None
    tracing: TracingConfig


def hami_metrics_options(config: Config, wanted: str | None, vendors: Vendors) -> HamiMetricsOptions:
    """`wanted`: off, on or legacy of the command line, which goes before the configuration."""
    word = wanted or config.metrics.hami
    return HamiMetricsOptions(word != "off", word == "legacy", config.metrics.hami_cards, vendors)


async def _serve(
    asked: LiveOptions, credentials: Credentials, options: Options, observed: ObservedOptions, log: Logger
) -> int:
    heap.keep_compact()
    make = None if asked.interpreted else Workshop(kernel_cache.prepare_for_now()).make
    for notice in own_folder.notices():
        log(notice, WARNING)
    async with Api(credentials, connections=asked.binds_at_once + BESIDE, timeout=asked.api_seconds) as api:
        service = LiveScheduler(api, options, now=time.time, log=log, make_kernels=make)
        service.tracing = traces = tracing(observed.tracing.endpoint, observed.tracing.sample, os.environ, log)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        log(f"starting as {', '.join(options.profiles)}; the API server is {credentials.connection.server}")
        webhook = pod_webhook(asked.webhook, options.profiles, LiveCluster(service))
        if asked.webhook.webhook_listen:
            service.more_metrics += (partial(webhook_metrics, webhook.counts),)
        serving = serving_webhook(asked.webhook, webhook, api, log)
        beside = observed.beside(service, log) if observed.beside is not None else nullcontext()
        async with _listening(asked, api, service, observed, log), beside, serving:
            try:
                await service.run()
            except Lost as error:
                log(f"stopped: {error}", ERROR)
                return LOST
    if traces is not None:
        traces.close()
    log("stopped")
    log.flush()
    return STOPPED


def _listen_address(text: str) -> tuple[str, int | None]:
    """Host and port of --listen; no port = nothing is served. Raises Refused."""
    host, port = address(text, "--listen", "127.0.0.1:9396") if text else ("", None)
    return host or "127.0.0.1", port


def _listening(asked: LiveOptions, api: Api, service: LiveScheduler, observed: ObservedOptions, log: Logger) -> Any:
    from dovetail.kube.live.health import listening
    from dovetail.kube.live.metrics_auth import Reviews

    host, port = _listen_address(asked.listen)
    reviews = Reviews(api, log) if asked.metrics_auth == "apiserver" else None
    return listening(host, port, service, log, reviews, observed.hami)
