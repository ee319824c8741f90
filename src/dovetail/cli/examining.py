"""Reads a cluster for `dovetail doctor`, from the API server or from files, and runs the checks."""

from __future__ import annotations

import asyncio
import os
import sys
import time
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
from dovetail.kube.conversion.settling import SETTLE_SECONDS
from dovetail.kube.files import documents
from dovetail.kube.files.decode import decode
from dovetail.kube.live.checkup import CHECKS, Finding, findings, look
from dovetail.kube.live.lease import ROOT, Lease
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import InputError, Problems, printable

T = TypeVar("T")
NO_KEY = "seals are not checked; name the scheduler's keys with --seal-key-file"


@dataclass(frozen=True, slots=True)
class Examination:
    """The options of the command line."""

    asked: ClusterOptions
    names: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    seal_key_file: str | None = None
    lease: tuple[str, str] = ("kube-system", "dovetail-scheduler")


@dataclass(slots=True)
class ExaminedObjects:
    """The objects that were read."""

    nodes: list[objects.Node] = field(default_factory=list)
    pods: list[objects.Pod] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # parts that could not be read


@dataclass(frozen=True, slots=True)
class Examined:
    findings: list[Finding]
    counts: dict[str, int]
    remarks: list[str]


def examine(asked: Examination) -> Examined:
    """Read the cluster and run the checks. Raises Refused if the input is wrong or the cluster cannot be read."""
    problems = Problems()
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        settings = with_seals(settings, asked.seal_key_file, problems)
        if asked.seal_key_file and not settings.seals:
            raise Refused(
                f"--seal-key-file {asked.seal_key_file}: there is no such file; without it seals are not checked"
            )
        names = asked.names or (() if config.schedulers else tuple(settings.schedulers))
        profiles = scheduler_profiles(config, settings, names, str(asked.asked.config))
        found = _from_files(asked.asked, problems) if asked.asked.filenames else _live(asked, settings.seals)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except (KubeconfigError, ApiError) as error:
        raise Refused(str(error)) from error
    if not found.nodes and not found.pods:
        raise Refused(
            "there is nothing to examine: the input holds neither nodes nor pods", *map(str, problems.found())
        )
    remarks = [*(str(one) for one in problems.found() if one.severity != "note"), *found.remarks]
    if not settings.seals and any(SEAL in pod.metadata.annotations for pod in found.pods):
        remarks.append(NO_KEY)
    seen = look(
        PodReader(profiles),
        found.nodes,
        found.pods,
        now=time.time(),
        settle_seconds=0.0 if asked.asked.filenames else SETTLE_SECONDS,
        seals=bool(settings.seals),
    )
    return Examined(findings(seen), {"nodes": len(found.nodes), "pods": len(seen.held)}, remarks)


def document(examined: Examined) -> dict[str, object]:
    """The findings as JSON."""
    return {
        "checked": {**examined.counts, "checks": [check.name for check in CHECKS]},
        "findings": [finding._asdict() for finding in examined.findings],
    }


def _from_files(asked: ClusterOptions, problems: Problems) -> ExaminedObjects:
    given = decode(documents.read(asked.filenames, problems, sys.stdin.buffer), problems)
    problems.stop_if_fatal()
    return ExaminedObjects([item.value for item in given.of("Node")], [item.value for item in given.of("Pod")])


def _live(asked: Examination, seals: Seals) -> ExaminedObjects:
    kubeconfig = Path(asked.kubeconfig) if asked.kubeconfig else None
    connection = find(os.environ, kubeconfig=kubeconfig, context=asked.context)
    return asyncio.run(_read(asked, Credentials(connection, environ=os.environ), seals))


async def _read(asked: Examination, credentials: Credentials, seals: Seals) -> ExaminedObjects:
    result = ExaminedObjects()
    async with Api(credentials) as api:
        result.nodes = await _list(api, "/api/v1/nodes", objects.Node, result)
        result.pods = await _list(api, "/api/v1/pods", objects.Pod, result)
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
