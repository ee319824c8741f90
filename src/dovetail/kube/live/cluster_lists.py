"""Reads a whole cluster once, for commands: all kinds that the live scheduler watches, as documents.

A kind that the API server does not serve has no objects. A kind that the caller may not read is named in the result;
nodes and pods must be readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Forbidden, Gone, NotFound
from dovetail.kube.api.typed import TypedReader, Unreadable
from dovetail.kube.conversion.groups import WORKLOADS
from dovetail.kube.conversion.reduced import SelectingByLabels, SelectingController, reduced
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import DESCRIBE_GANGS, TYPE_OF_KIND
from dovetail.kube.files.documents import Document, is_printable
from dovetail.kube.files.visible_bodies import visible_body
from dovetail.kube.live.budget_mirror import BUDGETS_PATH
from dovetail.kube.live.left_out import LeftOutObjects
from dovetail.kube.live.pod_group_watches import OTHER_KINDS, WATCHED_POD_GROUPS
from dovetail.kube.live.queue_watches import WATCHED_QUEUES
from dovetail.kube.live.selector_mirror import WATCHED
from dovetail.kube.live.topology_watches import WATCHED_TOPOLOGIES
from dovetail.kube.live.volume_mirror import PATHS
from dovetail.kube.objects.gangs import JOB_SET_GROUP
from dovetail.kube.objects.topologies import TOPOLOGY_GROUP

LISTS_AT_ONCE = 4
TRIES = 3  # of a list that became too old between two pages
SELECTING: dict[str, type[Any]] = {
    "ReplicaSet": SelectingController,
    "StatefulSet": SelectingController,
    "ReplicationController": SelectingByLabels,
}


class ListedKind(NamedTuple):
    """A kind, and where all its objects are listed."""

    kind: str
    path: str
    type: type[Any]

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def api_version(self) -> str:
        root, _, rest = self.path.removeprefix("/").partition("/")
        return rest.rpartition("/")[0] if root == "apis" else "v1"

    @property
    def resource(self) -> str:
        """As RBAC and kubectl name it: `podgroups.scheduling.x-k8s.io`."""
        plural = self.path.rpartition("/")[2]
        return f"{plural}.{self.group}" if self.group else plural


def _kind(kind: str, path: str) -> ListedKind:
    found = ListedKind(kind, path, object)
    key = (found.group, kind)
    return found._replace(type=SELECTING.get(kind) or TYPE_OF_KIND.get(key) or DESCRIBE_GANGS[key])


def _pod_group(api_group: str, version: str) -> ListedKind:
    path = OTHER_KINDS[api_group][0] if api_group in OTHER_KINDS else f"/apis/{api_group}/{version}/podgroups"
    return _kind({WORKLOADS: "Workload", JOB_SET_GROUP: "JobSet"}.get(api_group, "PodGroup"), path)


LISTED_NODES, LISTED_PODS = _kind("Node", "/api/v1/nodes"), _kind("Pod", "/api/v1/pods")
CLUSTER_KINDS = (
    LISTED_NODES,
    LISTED_PODS,
    _kind("Namespace", "/api/v1/namespaces"),
    _kind("ResourceQuota", "/api/v1/resourcequotas"),
    *(_kind(kind, path) for kind, (path, _) in WATCHED.items()),
    *(_kind(kind, path) for kind, path in PATHS.items()),
    _kind("PodDisruptionBudget", BUDGETS_PATH),
    _kind("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    *(_kind(one.kind, one.path) for one in WATCHED_QUEUES),
    *(_pod_group(api_group, version) for api_group, version in WATCHED_POD_GROUPS),
    *(_kind(one.kind, one.path) for one in WATCHED_TOPOLOGIES),
    _kind("NodeResourceTopology", f"/apis/{TOPOLOGY_GROUP}/v1alpha2/noderesourcetopologies"),
)
MUST_BE_READ = frozenset((LISTED_NODES.path, LISTED_PODS.path))
COMPLETE_WITH = frozenset(("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "PodGroup", "Workload"))


@dataclass(slots=True)
class ListedCluster:
    """Everything that could be read. The order of the documents does not depend on the order of the answers."""

    documents: tuple[Document, ...] = ()
    forbidden: list[ListedKind] = field(default_factory=list)
    left_out: LeftOutObjects = field(default_factory=LeftOutObjects)

    @property
    def complete(self) -> bool:
        """Whether an object that is not here does not exist, for kinds for whose objects pods wait."""
        return not any(kind.kind in COMPLETE_WITH for kind in self.forbidden)


async def list_cluster(
    api: Api,
    vendors: Vendors,
    kinds: Iterable[ListedKind] = CLUSTER_KINDS,
    progress: Callable[[str], None] = lambda text: None,
) -> ListedCluster:
    """List all kinds, a few at a time. Raises ApiError where nodes or pods cannot be read."""
    result, gate = ListedCluster(), asyncio.Semaphore(LISTS_AT_ONCE)
    kinds = tuple(kinds)

    async def listed(kind: ListedKind) -> list[Document]:
        async with gate:
            progress(kind.resource)
            try:
                return await _documents(api, kind, vendors, result)
            except NotFound:
                return []
            except Forbidden:
                if kind.path in MUST_BE_READ:
                    raise
                result.forbidden.append(kind)
                return []

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(listed(kind)) for kind in kinds]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    found = [document for task in running for document in task.result()]
    result.documents = once_each(found)
    result.forbidden.sort(key=kinds.index)
    return result


def once_each(documents: Iterable[Document]) -> tuple[Document, ...]:
    """By kind, namespace and name; of an object that is served in two versions, the first counts."""
    by_key: dict[tuple[str, str, str, str], Document] = {}
    for document in documents:
        meta = document.body["metadata"]
        by_key.setdefault((document.group, document.kind, meta.get("namespace", ""), meta.get("name", "")), document)
    return tuple(by_key[key] for key in sorted(by_key))


async def _documents(api: Api, kind: ListedKind, vendors: Vendors, result: ListedCluster) -> list[Document]:
    reader: TypedReader[Any] = TypedReader(kind.type)
    for attempt in range(TRIES):
        found: list[Document] = []
        unreadable: list[Unreadable] = []
        try:
            async for page in api.list_pages(kind.path, reader, version=""):
                found += [document_of(kind, item, vendors) for item in page.items if not is_past(item)]
                unreadable += page.unreadable
            for one in unreadable:
                result.left_out.add(kind.kind, one)
            return found
        except Gone:
            if attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable")


def is_past(item: Any) -> bool:
    """Whether it is a past revision of a Deployment, which selects no pods. Clusters have ten for each Deployment."""
    return isinstance(item, SelectingController) and item.spec.replicas == 0


def document_of(kind: ListedKind, item: Any, vendors: Vendors) -> Document:
    """The object as a snapshot has it."""
    body = reduced(kind.api_version, kind.kind, item, vendors)
    if not is_printable(msgspec.json.encode(body).decode()):
        body = visible_body(body)
    return Document("cluster", kind.kind, kind.api_version, body, reduced=True)
