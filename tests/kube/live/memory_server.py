"""An API server in memory: objects by path, lists, watches, patches and Bindings; without admission and rights.

`ServerApi` is dovetail's client of it, and `ServerClient` that of the tests: the same verbs as over a connection.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import aiohttp

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api, Json, Params, Request
from dovetail.kube.api.errors import error_of
from dovetail.kube.api.kubeconfig import Connection
from dovetail.kube.api.pages import Heard
from tools.controlplane.client import ApiError, Object, path_of

_PATH = re.compile(
    r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+)(?=/[a-z]+/|/[a-z]+$))?/([a-z]+)(?:/([^/]+))?(?:/(.+))?"
)
SERVED = frozenset(
    (
        *(f"/api/v1/{name}" for name in ("namespaces", "nodes", "pods", "resourcequotas", "services")),
        *(f"/api/v1/{name}" for name in ("persistentvolumeclaims", "persistentvolumes", "replicationcontrollers")),
        *(f"/apis/storage.k8s.io/v1/{name}" for name in ("storageclasses", "csinodes", "csidrivers")),
        *(f"/apis/storage.k8s.io/v1/{name}" for name in ("csistoragecapacities", "volumeattachments")),
        *("/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets", "/apis/policy/v1/poddisruptionbudgets"),
        *("/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/coordination.k8s.io/v1/leases"),
        "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    )
)
Key = tuple[str, str]  # namespace, name


class Refused(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}


class MemoryServer:
    """What exists, and who watches it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, Object]] = {path: {} for path in SERVED}
        self._watches: dict[str, list[tuple[asyncio.Event, list[bytes]]]] = {path: [] for path in SERVED}
        self._version = 0

    def answer(self, verb: str, path: str, body: Any = None) -> Object:
        """Raises Refused."""
        if path == "/version":
            return {"major": "1", "minor": "36"}
        found = _PATH.fullmatch(unquote(path))
        if found is None:
            raise Refused(404, "NotFound", f"no {path}")
        root, namespace, plural, name, part = (each or "" for each in found.groups())
        kind = f"{root}/{plural}"
        if plural == "events":
            return {}
        if kind not in self.objects:
            raise Refused(404, "NotFound", f"{kind} is not served")
        if verb == "GET" and not name:
            there = self.objects[kind].items()
            items = [item for key, item in there if not namespace or key[0] == namespace]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        if verb == "POST" and part == "binding":
            return self._bind(kind, (namespace, name), body)
        if verb == "POST":
            return self._create(kind, namespace, body)
        item = self.objects[kind].get((namespace, name))
        if item is None:
            raise Refused(404, "NotFound", f"no {kind} {namespace}/{name}")
        if verb == "GET":
            return item
        if verb == "DELETE":
            return self._delete(kind, (namespace, name), item)
        self._check(item, body)
        changed = (
            _merged(item, body) if verb == "PATCH" else {**body, "metadata": {**item["metadata"], **body["metadata"]}}
        )
        return self._put(kind, (namespace, name), changed, "MODIFIED")

    def _create(self, kind: str, namespace: str, body: Object) -> Object:
        key = (namespace, body["metadata"]["name"])
        if key in self.objects[kind]:
            raise Refused(409, "AlreadyExists", f"{key} exists")
        if namespace and "leases" not in kind and ("", namespace) not in self.objects["/api/v1/namespaces"]:
            raise Refused(404, "NotFound", f"no namespace {namespace}")
        made = json.loads(json.dumps(body))
        uid = f"00000000-0000-4000-8000-{self._version:012x}"
        made["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        if namespace:
            made["metadata"]["namespace"] = namespace
        return self._put(kind, key, made, "ADDED")

    def _bind(self, kind: str, key: Key, body: Object) -> Object:
        item = self.objects[kind].get(key)
        if item is None:
            raise Refused(404, "NotFound", f"no pod {key}")
        self._check(item, body)
        if item["spec"].get("nodeName"):
            raise Refused(409, "Conflict", f"{key} is bound")
        meta = {name: body["metadata"][name] for name in ("annotations", "labels") if name in body["metadata"]}
        change = {"metadata": meta, "spec": {"nodeName": body["target"]["name"]}, "status": {"phase": "Running"}}
        self._put(kind, key, _merged(item, change), "MODIFIED")
        return {}

    def _delete(self, kind: str, key: Key, item: Object) -> Object:
        if kind == "/api/v1/namespaces":
            ending = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}}
            return self._put(kind, key, _merged(item, ending), "MODIFIED")
        return self.remove(kind, key)

    def remove(self, kind: str, key: Key) -> Object:
        item = self.objects[kind].pop(key)
        self._tell(kind, "DELETED", item)
        return item

    def end_namespaces(self) -> None:
        """Delete what is in namespaces that are being deleted, and then these."""
        namespaces = self.objects["/api/v1/namespaces"]
        ending = {key[1] for key, item in namespaces.items() if "deletionTimestamp" in item["metadata"]}
        for kind, there in self.objects.items() if ending else ():
            for key in [key for key in there if key[0] in ending]:
                self.remove(kind, key)
        for name in sorted(ending):
            self.remove("/api/v1/namespaces", ("", name))

    def _check(self, item: Object, body: Object) -> None:
        """The preconditions in a write."""
        for field in ("uid", "resourceVersion"):
            if body.get("metadata", {}).get(field, item["metadata"][field]) != item["metadata"][field]:
                raise Refused(409, "Conflict", f"{field} differs")

    def _put(self, kind: str, key: Key, item: Object, how: str) -> Object:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind][key] = item
        self._tell(kind, how, item)
        return item

    def _tell(self, kind: str, how: str, item: Object) -> None:
        if how == "DELETED":
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
        if self._watches[kind]:
            line = json.dumps({"type": how, "object": item}).encode() + b"\n"
            for news, lines in self._watches[kind]:
                lines.append(line)
                news.set()

    @asynccontextmanager
    async def watch(self, kind: str) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """What happens from now on."""
        if kind not in self.objects:
            raise error_of(404, b'{"reason": "NotFound"}', f"GET {kind}", None)
        news, lines = asyncio.Event(), list[bytes]()

        async def read() -> bytes:
            await news.wait()
            news.clear()
            heard = b"".join(lines)
            lines.clear()
            return heard

        self._watches[kind].append((news, lines))
        try:
            yield read
        finally:
            self._watches[kind].remove((news, lines))


def _merged(item: Any, change: Any) -> Any:
    """A merge patch. Lists of conditions are merged by their type, as in a strategic one."""
    if not isinstance(change, dict):
        return change
    made = dict(item) if isinstance(item, dict) else {}
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif key == "conditions":
            types = {one["type"] for one in value}
            made[key] = [*(one for one in made.get(key, ()) if one["type"] not in types), *value]
        else:
            made[key] = _merged(made.get(key), value)
    return made


class ServerApi(Api):
    """dovetail's client of a server in memory."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(Credentials(Connection("http://in-memory", "a test")))
        self._server = server

    async def _whole(
        self, request: Request, timeout: aiohttp.ClientTimeout | None = None, heard: Heard | None = None
    ) -> Json:
        await asyncio.sleep(0)  # as other tasks run while an answer is waited for
        try:
            body = None if request.body is None else json.loads(request.body)
            whole = bytearray(json.dumps(self._server.answer(request.method, request.path, body)).encode())
        except Refused as refused:
            said = json.dumps(refused.body).encode()
            raise error_of(refused.status, said, str(request), None) from None
        if heard is not None:
            heard(whole)
        return whole

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params | None = None, *, quiet: float
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        async with self._server.watch(path) as read:
            yield read


class ServerClient:
    """The tests' client of a server in memory: the verbs of tools/controlplane that a churn uses."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def request(self, verb: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        if verb == "DELETE" and path.endswith("/pods"):  # all of a namespace
            namespace = path.split("/")[-2]
            for key in [key for key in self._server.objects["/api/v1/pods"] if key[0] == namespace]:
                self._server.remove("/api/v1/pods", key)
            return 200, {}
        try:
            return 200, self._server.answer(verb, path, body)
        except Refused as refused:
            return refused.status, refused.body

    def create(self, item: Object) -> Object:
        status, said = self.request("POST", path_of(item["kind"], namespace=item["metadata"].get("namespace")), item)
        if status >= 400:
            raise ApiError(status, said, f"POST {item['kind']}")
        made: Object = said
        return made

    def patch(self, kind: str, name: str, change: Object, namespace: str = "default") -> Object:
        status, said = self.request("PATCH", path_of(kind, name, namespace), change)
        if status >= 400:
            raise ApiError(status, said, f"PATCH {kind} {name}")
        made: Object = said
        return made

    def delete(self, kind: str, name: str, namespace: str = "default", **query: Any) -> None:
        self.request("DELETE", path_of(kind, name, namespace))

    def list(self, kind: str, namespace: str | None = None, fieldSelector: str = "") -> list[Object]:
        """`fieldSelector`: spec.nodeName only."""
        node = fieldSelector.partition("=")[2]
        items = self._server.answer("GET", path_of(kind, namespace=namespace))["items"]
        return [item for item in items if not node or item["spec"].get("nodeName") == node]
