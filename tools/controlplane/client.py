"""A small synchronous client of the API server. It shares no code with dovetail's own client, which it checks."""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

Object = dict[str, Any]
Result = TypeVar("Result")

# Admission plugins read these objects from informers, which trail a create (plugin/pkg/admission of Kubernetes:
# priority, runtimeclass, resourcequota).
NOT_SEEN_YET = ("no PriorityClass with name", "RuntimeClass", "status unknown for quota")
ADMISSION_LAG = 10.0  # seconds
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"

# kind -> (API group and version, plural, in a namespace)
KINDS: dict[str, tuple[str, str, bool]] = {
    "Binding": ("v1", "bindings", True),
    "ConfigMap": ("v1", "configmaps", True),
    "Event": ("v1", "events", True),
    "Namespace": ("v1", "namespaces", False),
    "Node": ("v1", "nodes", False),
    "PersistentVolume": ("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims", True),
    "Pod": ("v1", "pods", True),
    "ResourceQuota": ("v1", "resourcequotas", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "Deployment": ("apps/v1", "deployments", True),
    "ReplicaSet": ("apps/v1", "replicasets", True),
    "ReplicationController": ("v1", "replicationcontrollers", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "CronJob": ("batch/v1", "cronjobs", True),
    "Job": ("batch/v1", "jobs", True),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets", True),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses", False),
    "CSINode": ("storage.k8s.io/v1", "csinodes", False),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses", False),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies", True),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
}


class ApiError(Exception):
    """The API server refused the request."""

    def __init__(self, status: int, said: Any, request: str) -> None:
        message = said.get("message", said) if isinstance(said, dict) else said
        super().__init__(f"{request}: {status} {message}")
        self.status = status
        self.body = said
        self.may_pass_later = status == 403 and any(words in str(message) for words in NOT_SEEN_YET)


@dataclass(frozen=True)
class Access:
    """What is needed to reach the API server as one user."""

    port: int
    token: str | None  # None: anonymous
    authority: Path  # the server's certificate, which must match


def path_of(kind: str, name: str = "", namespace: str | None = "default", part: str = "") -> str:
    """The path of an object or a list: `path_of("Pod", "a", part="status")`; namespace=None is all namespaces."""
    version, plural, in_namespace = KINDS[kind]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    folder = f"/namespaces/{namespace}" if in_namespace and namespace is not None else ""
    return "/".join(word for word in (f"{root}{folder}/{plural}", name, part) if word)


class Client:
    """The verbs of the API. Safe for threads: each thread has its own connection."""

    def __init__(self, access: Access, timeout: float = 30.0) -> None:
        self.access = access
        self.timeout = timeout
        self._mine = threading.local()
        self._open: list[http.client.HTTPSConnection] = []
        self._trust: ssl.SSLContext | None = None

    def request(
        self, verb: str, path: str, body: Any = None, content: str = "application/json", **query: Any
    ) -> tuple[int, Any]:
        """The status and the decoded response, whatever they are."""
        response = self._send(self._connection(), verb, path, body, content, query)
        text = response.read()
        is_json = "json" in response.headers.get("Content-Type", "")
        return response.status, json.loads(text) if is_json and text else text.decode(errors="replace")

    def status(self, verb: str, path: str, body: Any = None, content: str = "application/json", **query: Any) -> int:
        """The status only: the response is read, and not decoded."""
        response = self._send(self._connection(), verb, path, body, content, query)
        response.read()
        return response.status

    def ask(self, verb: str, path: str, body: Any = None, content: str = "application/json", **query: Any) -> Any:
        """The response. Raises ApiError for a status of 400 or more."""
        status, said = self.request(verb, path, body, content, **query)
        if status >= 400:
            raise ApiError(status, said, f"{verb} {path}")
        return said

    def create(self, item: Object, **query: Any) -> Object:
        """Create an object. A pod whose PriorityClass was created just before is tried again, as a Job would do."""
        meta = item["metadata"]
        path = path_of(item["kind"], namespace=meta.get("namespace", "default"))
        end = time.monotonic() + ADMISSION_LAG
        while True:
            try:
                return self._object(self.ask("POST", path, item, **query))
            except ApiError as refused:
                if not refused.may_pass_later or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        return self._object(self.ask("GET", path_of(kind, name, namespace)))

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """The object, or None if it does not exist."""
        status, said = self.request("GET", path_of(kind, name, namespace))
        if status == 404:
            return None
        if status >= 400:
            raise ApiError(status, said, f"GET {kind} {name}")
        return self._object(said)

    def list(self, kind: str, namespace: str | None = "default", **query: Any) -> list[Object]:
        """The objects.

        `labelSelector="app=web"`, `fieldSelector="spec.nodeName=a"`; namespace=None is all namespaces.
        """
        items: list[Object] = self.ask("GET", path_of(kind, namespace=namespace), **query)["items"]
        return items

    def patch(
        self, kind: str, name: str, change: Object, namespace: str = "default", part: str = "", content: str = MERGE
    ) -> Object:
        return self._object(self.ask("PATCH", path_of(kind, name, namespace, part), change, content))

    def delete(self, kind: str, name: str, namespace: str = "default", **query: Any) -> None:
        """Delete an object; no error if it does not exist. `gracePeriodSeconds=0`, `propagationPolicy="Background"`."""
        status, said = self.request("DELETE", path_of(kind, name, namespace), **query)
        if status >= 400 and status != 404:
            raise ApiError(status, said, f"DELETE {kind} {name}")

    def bind(self, pod: str, node: str, namespace: str = "default", **metadata: Any) -> tuple[int, Any]:
        """POST pods/x/binding. `uid`, `resourceVersion`, `annotations` and `labels` go into its metadata."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {"name": pod, "namespace": namespace, **metadata}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return self.request("POST", path_of("Pod", pod, namespace, "binding"), body)

    def watch(
        self, kind: str, version: str | None = None, namespace: str | None = "default", seconds: int = 60, **query: Any
    ) -> Iterator[Object]:
        """Events ({"type": …, "object": …}) until the server closes the watch. Raises ApiError for a status of 4xx."""
        for line in self.watch_lines(kind, version, namespace, seconds, **query):
            yield json.loads(line)

    def watch_lines(
        self, kind: str, version: str | None = None, namespace: str | None = "default", seconds: int = 60, **query: Any
    ) -> Iterator[bytes]:
        """The lines of a watch, not decoded."""
        if version is not None:
            query["resourceVersion"] = version
        query |= {"watch": "true", "timeoutSeconds": seconds}
        connection = self._connect(seconds + 10)
        try:
            response = self._send(connection, "GET", path_of(kind, namespace=namespace), None, "", query)
            if response.status >= 400:
                raise ApiError(response.status, json.loads(response.read()), f"WATCH {kind}")
            while line := response.readline():
                yield line
        except http.client.HTTPException as error:  # a killed server ends a stream in the middle
            raise ConnectionError(f"WATCH {kind}: {type(error).__name__}") from error
        finally:
            connection.close()

    @staticmethod
    def wait_until(true: Callable[[], Result | Literal[False] | None], what: str = "", seconds: float = 60.0) -> Result:
        """Return the first true result of `true()`. Raises TimeoutError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (result := true()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {what or 'what was waited for'}")
            time.sleep(0.05)
        return result

    def close(self) -> None:
        """Close the connections of all threads. A later request opens a new one."""
        while self._open:
            self._open.pop().close()
        self._mine = threading.local()

    def _send(
        self, connection: http.client.HTTPSConnection, verb: str, path: str, body: Any, content: str, query: Object
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json"}
        if self.access.token is not None:
            headers["Authorization"] = f"Bearer {self.access.token}"
        if body is not None:
            headers["Content-Type"] = content
        url = f"{path}?{urlencode(query)}" if query else path
        try:
            connection.request(verb, url, json.dumps(body) if body is not None else None, headers)
            return connection.getresponse()
        except BaseException:
            connection.close()  # the connection may still hold a late response
            raise

    def _connection(self) -> http.client.HTTPSConnection:
        """This thread's connection; opened again if the server has closed it."""
        connection: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._connect(self.timeout)
            self._open.append(connection)
        elif connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # readable without a request: the server closed the connection
        return connection

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        if self._trust is None:
            self._trust = ssl.create_default_context(cafile=str(self.access.authority))
        return http.client.HTTPSConnection("127.0.0.1", self.access.port, timeout=timeout, context=self._trust)

    @staticmethod
    def _object(said: Any) -> Object:
        assert isinstance(said, dict), said
        return said
