"""The one way in which commands obtain a cluster: from files, a snapshot, the API server, or files beside a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from dovetail.cli.errors import Refused, extra
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.terminal import say
from dovetail.kube.api.kubeconfig import Connection, KubeconfigError, find
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files import documents, snapshot
from dovetail.kube.files.documents import Document
from dovetail.kube.files.snapshot import SnapshotMarker
from dovetail.kube.objects.problems import Problems

CLUSTER_SCOPED = frozenset({"Node", "Namespace", "PriorityClass", "RuntimeClass", "Queue"})
VIEWER = "deploy/optional/viewer/objects.yaml grants all that these commands read"


@dataclass(frozen=True, slots=True)
class GatheredInput:
    """The documents of all sources."""

    documents: tuple[Document, ...]
    complete: bool = False  # it contains a whole cluster: what is not in it does not exist
    taken: float | None = None  # when the snapshot was taken; None = now
    schedulers: tuple[str, ...] = ()  # whose waiting pods are placed; () = those of all schedulers

    def settings(self, settings: Settings) -> Settings:
        names = frozenset(self.schedulers) or settings.schedulers
        return dataclasses.replace(settings, schedulers=names)


def clock() -> float:
    """Seconds since the epoch. SOURCE_DATE_EPOCH replaces the clock, for output that can be repeated."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    return float(fixed) if fixed.isdigit() else time.time()


def gather(asked: ClusterOptions, settings: Settings, problems: Problems, stdin: IO[bytes]) -> GatheredInput:
    """Read all sources. Raises Refused if the cluster cannot be read, InputError if a file cannot."""
    if not asked.filenames and not asked.live:
        raise Refused("no cluster to read: name manifests or a snapshot with -f, or say --live")
    given = snapshot.marked(documents.read(asked.filenames, problems, stdin), problems)
    problems.stop_if_fatal()
    if asked.live and given.markers:
        raise Refused("--live and a snapshot are two clusters; leave one out")
    found = given.documents
    if asked.namespace:
        found = tuple(_in_namespace(document, asked.namespace) for document in found)
    if asked.live:
        cluster = read_live(asked, settings.vendors)
        return of_cluster(asked, settings, snapshot.together(cluster.documents, found), cluster.marker)
    if given.markers:
        marker = given.markers[0]
        return dataclasses.replace(of_cluster(asked, settings, found, marker), taken=marker.time)
    return GatheredInput(found)


def of_cluster(
    asked: ClusterOptions, settings: Settings, found: tuple[Document, ...], marker: SnapshotMarker, tell: bool = True
) -> GatheredInput:
    """A whole cluster, without the pods that wait for other schedulers. `tell`: say how many these are."""
    configured = () if settings.schedulers == Settings().schedulers else tuple(sorted(settings.schedulers))
    names = asked.scheduler_names or configured or tuple(marker.schedulers) or tuple(settings.schedulers)
    kept = tuple(one for one in found if not waits_for_another(one, names))
    left_out = len(found) - len(kept)
    if left_out and tell:
        them = "1 pod waits" if left_out == 1 else f"{left_out:,} pods wait"
        say(f"{them} for other schedulers than {', '.join(sorted(names))}, and is left out (--scheduler-name)")
    return GatheredInput(kept, marker.complete, schedulers=names)


def waits_for_another(document: Document, names: Iterable[str]) -> bool:
    """Whether it is a pod of the cluster without a node, which another scheduler is to place."""
    if document.kind != "Pod" or not document.reduced:
        return False
    spec = document.body.get("spec")
    if not isinstance(spec, dict) or spec.get("nodeName"):
        return False
    phase = document.body.get("status", {}).get("phase", "")
    return phase not in ("Succeeded", "Failed") and spec.get("schedulerName", "default-scheduler") not in names


@dataclass(frozen=True, slots=True)
class ReadCluster:
    documents: tuple[Document, ...]
    marker: SnapshotMarker


def connection_of(kubeconfig: str | None, context: str | None) -> Connection:
    """The connection that the options select. Raises Refused."""
    need_live_extra()
    try:
        return find(os.environ, kubeconfig=Path(kubeconfig) if kubeconfig else None, context=context)
    except KubeconfigError as error:
        raise Refused(f"{error}; or read a snapshot or manifests with -f FILE") from error


def need_live_extra() -> None:
    """Raise Refused if the package that talks to API servers is not installed."""
    with extra("live"):
        import aiohttp  # noqa: F401


def read_live(asked: ClusterOptions, vendors: Vendors, doing: Callable[[str], None] = lambda text: None) -> ReadCluster:
    """Everything of the cluster that Dovetail reads. Raises Refused with the missing right, or what else is wrong."""
    connection = connection_of(asked.kubeconfig, asked.context)
    from dovetail.kube.api.auth import Credentials
    from dovetail.kube.api.client import Api
    from dovetail.kube.live.cluster_lists import ListedCluster, list_cluster

    async def listed() -> tuple[ListedCluster, tuple[str, ...]]:
        async with Api(Credentials(connection, environ=os.environ)) as api:
            return await list_cluster(api, vendors, progress=doing), await running_schedulers(api)

    with refusals():
        found, names = asyncio.run(listed())
    for line in found.left_out.lines():
        say(line)
    missing = [kind.resource for kind in found.forbidden]
    if missing:
        say(f"you may not list {', '.join(missing)}: taken as if there were none; {VIEWER}")
    marker = SnapshotMarker(snapshot.second_of(clock()), found.complete, missing, list(names))
    return ReadCluster(found.documents, marker)


class refusals:
    """Turn errors of the API server and the kubeconfig into Refused, with what to do."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from dovetail.kube.api.errors import ApiError, Forbidden

        if isinstance(error, Forbidden):
            raise Refused(str(error), VIEWER) from error
        if isinstance(error, (ApiError, KubeconfigError)):
            raise Refused(str(error)) from error


async def running_schedulers(api: object) -> tuple[str, ...]:
    """The scheduler names of the Dovetails on the cluster, by their Leases; () where they cannot be read."""
    from dovetail.kube.api.client import Api
    from dovetail.kube.api.errors import Forbidden, NotFound
    from dovetail.kube.live.lease import ROOT, LeaseList, Marks

    assert isinstance(api, Api)
    try:
        body = await api.get(f"{ROOT}/leases", {"labelSelector": f"{Marks.LABEL}=true"})
        leases = msgspec.json.decode(body, type=LeaseList).items
    except (NotFound, Forbidden, msgspec.MsgspecError):
        return ()
    return tuple(sorted({name for lease in leases for name in lease.marks().names}))


def _in_namespace(document: Document, namespace: str) -> Document:
    metadata = document.body.get("metadata")
    if document.reduced or document.kind in CLUSTER_SCOPED:
        return document
    if not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return dataclasses.replace(document, body={**document.body, "metadata": {**metadata, "namespace": namespace}})
