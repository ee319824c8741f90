"""Reads a cluster for `dovetail doctor`, from the API server or from files, and runs the checks."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import scheduler_profiles, settle, with_seals, with_vendors
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, NotFound
from dovetail.kube.api.kubeconfig import KubeconfigError, find
from dovetail.kube.api.typed import TypedReader
from dovetail.kube.conversion.seals import SEAL, Seals
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.settled import has_hami_plugin
from dovetail.kube.conversion.settling import SETTLE_SECONDS
from dovetail.kube.doctor.finding import Check, Finding, severity_of
from dovetail.kube.doctor.from_files import gathered
from dovetail.kube.doctor.gather import Gathered, gather
from dovetail.kube.doctor.hami import HAMI_CHECKS, HamiSummary, read_hami, summary_of
from dovetail.kube.doctor.records import RECORD_CHECKS
from dovetail.kube.doctor.rights import LOCK_RIGHT, NEEDED_RIGHTS
from dovetail.kube.doctor.survey import DEFAULT_ACCOUNT, Survey, asked_of, look
from dovetail.kube.doctor.table import CHECKS, chosen, findings
from dovetail.kube.files import documents
from dovetail.kube.files.decode import decode
from dovetail.kube.live.lease import ROOT, Lease
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import InputError, Problems, printable

T = TypeVar("T")
Doing = Callable[[str], None]
NO_KEY = "seals are not checked; name the scheduler's keys with --seal-key-file"
HAMI = "hami"


@dataclass(frozen=True, slots=True)
class Examination:
    """The options of the command line."""

    asked: ClusterOptions
    names: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    seal_key_file: str | None = None
    lease: tuple[str, str] = ("kube-system", "dovetail-scheduler")
    account: tuple[str, str] = DEFAULT_ACCOUNT
    checks: tuple[str, ...] = ()  # names, or patterns such as card-*; () = all
    origin: str = ""  # HAMI: the differences for a cluster that changes from HAMi

    @property
    def needs_more(self) -> bool:
        """Whether a check looks at more than nodes and pods."""
        records = {check.name for check in RECORD_CHECKS}
        return any(check.name not in records for check in self.table)

    @property
    def table(self) -> tuple[Check, ...]:
        """The checks to run. Raises Refused for an unknown name."""
        table = HAMI_CHECKS if self.origin == HAMI else CHECKS
        try:
            return chosen(self.checks, table)
        except LookupError as error:
            known = ", ".join(check.name for check in table)
            raise Refused(
                f"--check {printable(str(error.args[0]))}: there is no such check; known are {known}"
            ) from None


@dataclass(slots=True)
class ExaminedObjects:
    """The objects that were read."""

    nodes: list[objects.Node] = field(default_factory=list)
    pods: list[objects.Pod] = field(default_factory=list)
    others: Gathered = field(default_factory=Gathered)
    remarks: list[str] = field(default_factory=list)  # parts that could not be read


@dataclass(frozen=True, slots=True)
class Examined:
    findings: list[Finding]
    counts: dict[str, int]
    remarks: list[str]
    checks: tuple[Check, ...] = CHECKS
    summary: HamiSummary | None = None  # with --from hami


def examine(asked: Examination, doing: Doing = lambda what: None) -> Examined:
    """Read the cluster and run the checks. `doing` is told what is done.

    Raises Refused if the input is wrong or the cluster cannot be read.
    """
    doing("Reading")
    problems, checks = Problems(), asked.table
    try:
        profiles, settings = _settings(asked, problems)
        found = _from_files(asked, problems) if asked.asked.filenames else _live(asked, settings.seals, doing)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except (KubeconfigError, ApiError) as error:
        raise Refused(str(error)) from error
    except msgspec.MsgspecError as error:
        raise Refused(f"an answer of the API server cannot be read: {error}; is this its address?") from error
    if not found.nodes and not found.pods:
        raise Refused(
            "there is nothing to examine: the input holds neither nodes nor pods", *map(str, problems.found())
        )
    remarks = [*(str(one) for one in problems.found() if one.severity != "note"), *found.remarks]
    if not settings.seals and any(SEAL in pod.metadata.annotations for pod in found.pods):
        remarks.append(NO_KEY)
    doing("Examining")
    survey = _survey(asked, found, profiles, settings)
    counts = {"nodes": len(found.nodes), "pods": len(survey.seen.held)}
    result = findings(survey, checks)
    summary = summary_of(survey, result) if asked.origin == HAMI else None
    return Examined(result, counts, remarks, checks, summary)


def _settings(asked: Examination, problems: Problems) -> tuple[dict[str, Settings], Settings]:
    """The settings by scheduler name, and those of all."""
    config, settings = settle(asked.asked, problems)
    settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
    settings = with_seals(settings, asked.seal_key_file, problems)
    if asked.seal_key_file and not settings.seals:
        raise Refused(f"--seal-key-file {asked.seal_key_file}: there is no such file; without it seals are not checked")
    names = asked.names or (() if config.schedulers else tuple(settings.schedulers))
    return scheduler_profiles(config, settings, names, str(asked.asked.config)), settings


def _survey(asked: Examination, found: ExaminedObjects, profiles: dict[str, Settings], settings: Settings) -> Survey:
    now, live = time.time(), not asked.asked.filenames
    settle_seconds, sealed = SETTLE_SECONDS if live else 0.0, bool(settings.seals)
    reader = PodReader(profiles)
    seen = look(reader, found.nodes, found.pods, now=now, settle_seconds=settle_seconds, seals=sealed)
    others = found.others
    return Survey(
        seen,
        tuple(found.nodes),
        asked_of(reader, found.pods),
        others.kinds,
        complete=live,
        now=now,
        names=frozenset(profiles),
        vendors=settings.vendors,
        account=asked.account,
        version=others.version,
        missing=others.missing,
        probes=others.probes,
        served=others.served,
    )


def document(examined: Examined) -> dict[str, object]:
    """The findings as JSON."""
    severities = severity_of(examined.checks)
    summary = {} if examined.summary is None else {"from": HAMI, "differences": examined.summary._asdict()}
    return {
        "checked": {**examined.counts, "checks": [check.name for check in examined.checks]},
        **summary,
        "findings": [{**one._asdict(), "severity": severities[one.check]} for one in examined.findings],
    }


def _from_files(asked: Examination, problems: Problems) -> ExaminedObjects:
    read = documents.read(asked.asked.filenames, problems, sys.stdin.buffer)
    given = decode(read, problems)
    problems.stop_if_fatal()
    others = gathered(read, asked.account, problems)
    return ExaminedObjects(
        [item.value for item in given.of("Node")], [item.value for item in given.of("Pod")], others, others.remarks
    )


def _live(asked: Examination, seals: Seals, doing: Doing) -> ExaminedObjects:
    kubeconfig = Path(asked.kubeconfig) if asked.kubeconfig else None
    connection = find(os.environ, kubeconfig=kubeconfig, context=asked.context)
    return asyncio.run(_read(asked, Credentials(connection, environ=os.environ), seals, doing))


async def _read(asked: Examination, credentials: Credentials, seals: Seals, doing: Doing) -> ExaminedObjects:
    result = ExaminedObjects()
    async with Api(credentials) as api:
        doing("Reading nodes")
        result.nodes = await _list(api, "/api/v1/nodes", objects.Node, result)
        doing("Reading pods")
        result.pods = await _list(api, "/api/v1/pods", objects.Pod, result)
        locks = any(has_hami_plugin(node.metadata.annotations) for node in result.nodes)
        if asked.needs_more:
            rights = (*NEEDED_RIGHTS, LOCK_RIGHT) if locks else NEEDED_RIGHTS
            result.others = await gather(api, asked.account, rights, now=time.time(), doing=doing)
            result.remarks += result.others.remarks
        if asked.origin == HAMI:
            await read_hami(api, result.others.kinds, result.remarks)
        if seals:
            seals.since = await _sealed_since(api, *asked.lease, result)
    return result


async def _list(api: Api, path: str, kind: type[T], result: ExaminedObjects) -> list[T]:
    found: list[T] = []
    async for page in api.list_pages(path, TypedReader(kind), version=""):
        found += page.items
        result.remarks += (f"{kind.__name__} {one.ref} cannot be read: {one.message}" for one in page.unreadable)
    return found


async def _sealed_since(api: Api, namespace: str, name: str, result: ExaminedObjects) -> float:
    """The time when sealing began, from the scheduler's Lease; infinity if the Lease does not say."""
    try:
        body = await api.get(f"{ROOT}/namespaces/{namespace}/leases/{name}")
        return msgspec.json.decode(body, type=Lease).marks().sealed_since
    except (NotFound, Forbidden, msgspec.MsgspecError) as error:
        text = printable(str(error), 200)
        result.remarks.append(f"Lease {namespace}/{name}: {text}; pods without a seal are taken for older ones")
        return float("inf")
