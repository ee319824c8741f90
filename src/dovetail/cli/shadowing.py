"""Runs the shadow for the command line, and reports what it has seen."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.cli.errors import Refused
from dovetail.cli.journals import JournalReader
from dovetail.cli.live import BESIDE, journal_in
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.logs import Logger
from dovetail.cli.settings import scheduler_profiles, settle, with_vendors
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import KubeconfigError, find
from dovetail.kube.journal.recorder import NoJournal
from dovetail.kube.live.rights import PreemptionOptions
from dovetail.kube.live.service import Lost, Options
from dovetail.kube.live.shadow import ShadowScheduler
from dovetail.kube.log import WARNING, Level
from dovetail.kube.objects.problems import InputError, Problems
from dovetail.model.calls import Offered, PlacedPod
from dovetail.whatif.happenings import happenings
from dovetail.whatif.worlds import WorldsReport, compare_worlds


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    asked: ClusterOptions
    names: tuple[str, ...]
    kubeconfig: Path | None
    context: str | None
    journal: tuple[str | None, int, float]  # folder, MiB, days
    report_every: float
    json_logs: bool = False


@dataclass(frozen=True, slots=True)
class ShadowReport:
    worlds: WorldsReport | None
    offered: int  # pods that were tried when they arrived
    at_once: int  # that had a place in the cluster as it was at that moment
    later: int  # that had one later, while they waited for the other scheduler


def report_of(folder: str) -> ShadowReport:
    """The report of a journal that a shadow has written. Raises Refused."""
    journal = JournalReader.of(folder)
    first: dict[str, bool] = {}
    later: set[str] = set()
    for recorded in journal.all():
        if isinstance(recorded.call, Offered):
            placed = {one.uid for one in recorded.outcomes if isinstance(one, PlacedPod)}
            for pod in recorded.call.group.pods:
                if first.setdefault(pod.uid, pod.uid in placed) is False and pod.uid in placed:
                    later.add(pod.uid)
    settings = journal.files[0].header.settings
    worlds = compare_worlds(lambda: happenings(journal.parts()), settings, settings, lambda pod: pod)
    return ShadowReport(worlds, len(first), sum(first.values()), len(later))


def run(asked: ShadowOptions, tell: Callable[[ShadowReport], None]) -> int:
    """Watch until asked to stop; `tell` prints a report at intervals and at the end."""
    log, problems = Logger(Level.INFO, as_json=asked.json_logs), Problems()
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        profiles = scheduler_profiles(config, settings, asked.names, str(asked.asked.config))
        connection = find(os.environ, kubeconfig=asked.kubeconfig, context=asked.context)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except KubeconfigError as error:
        raise Refused(str(error)) from error
    for problem in problems.found():
        log(str(problem), WARNING, object=problem.where, field=problem.field)
    with tempfile.TemporaryDirectory(prefix="dovetail-shadow-") as spare:
        folder, mib, days = asked.journal
        kept = folder or spare
        options = Options(
            identity="shadow",
            profiles=profiles,
            arguments=config.policy_arguments,
            device_resources=tuple(settings.vendors.by_count),
            preemption=PreemptionOptions(enabled=False),
            release_after=None,
            journal=journal_in((kept, mib, days)),
        )
        try:
            asyncio.run(_serve(asked, Credentials(connection, environ=os.environ), options, log, kept, tell))
        except (ApiError, KubeconfigError) as error:
            raise Refused(str(error)) from error
        except NoJournal as error:
            raise Refused(f"--journal: {error}") from error
        _tell(kept, tell, log)
    return 0


async def _serve(
    asked: ShadowOptions,
    credentials: Credentials,
    options: Options,
    log: Logger,
    folder: str,
    tell: Callable[[ShadowReport], None],
) -> None:
    async with Api(credentials, connections=BESIDE) as api:
        service = ShadowScheduler(api, options, now=time.time, log=log)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        reports = asyncio.create_task(_report(asked.report_every, folder, tell, log))
        try:
            await service.run()
        except Lost as error:
            log(f"stopped: {error}")
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)


async def _report(every: float, folder: str, tell: Callable[[ShadowReport], None], log: Logger) -> None:
    while every:
        await asyncio.sleep(every)
        await asyncio.to_thread(_tell, folder, tell, log)


def _tell(folder: str, tell: Callable[[ShadowReport], None], log: Logger) -> None:
    try:
        tell(report_of(folder))
    except Refused as error:
        log(f"no report yet: {'; '.join(error.lines)}", WARNING)
