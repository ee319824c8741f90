"""Deletes all objects of all kinds that were not there at the start, so that each test begins with the same state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tools.controlplane.client import MERGE, ApiError, Client, Object

ROUNDS = 60
SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
# Objects that the API server itself creates and corrects.
ITS_OWN = frozenset({"apiservices", "componentstatuses", "ipaddresses", "servicecidrs"})
FIRST = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "customresourcedefinitions")
FEW = 3  # more objects than this are deleted with one request


@dataclass(frozen=True, order=True)
class Resource:
    root: str  # /api/v1 or /apis/group/version
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        folder = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.root}{folder}/{self.plural}{'/' + name if name else ''}"


Place = tuple[Resource, str, str]  # resource, namespace, name


class Slate:
    """Remembers the objects that exist now. `clean()` goes back to this state."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources = sorted(discover(client), key=lambda r: (r.plural not in FIRST, r))
        self._kept = {place for resource in self._resources for place, _ in self._present(resource)}

    def clean(self) -> None:
        for attempt in range(ROUNDS):
            left = [
                found for resource in self._resources for found in self._present(resource) if not self._keeps(found[0])
            ]
            if not left:
                return
            self._delete(left, by_force=attempt > 0)
        raise RuntimeError(f"could not be deleted: {[place for place, _ in left][:5]}")

    def _keeps(self, place: Place) -> bool:
        resource, namespace, name = place
        if resource.plural == "namespaces":
            return name in SYSTEM_NAMESPACES
        is_its_own = namespace == "kube-system" and name.startswith(
            ("apiserver-", "extension-apiserver-", "kube-apiserver-")
        )
        is_system = name.startswith(("system:", "system-"))
        return place in self._kept or is_its_own or is_system or (namespace, name) == ("default", "kubernetes")

    def _present(self, resource: Resource) -> Iterator[tuple[Place, Object]]:
        """The objects of a resource. A list with resourceVersion=0 would be faster, but may be outdated."""
        path = f"{resource.root}/{resource.plural}"
        status, said = self._client.request("GET", path)
        if status != 200:  # a kind that this version lists but does not serve
            return
        for item in said["items"]:
            meta = item["metadata"]
            yield (resource, meta.get("namespace", ""), meta["name"]), item

    def _delete(self, left: list[tuple[Place, Object]], by_force: bool) -> None:
        groups: dict[tuple[Resource, str], list[tuple[str, Object]]] = defaultdict(list)
        for (resource, namespace, name), item in left:
            groups[resource, namespace].append((name, item))
        # namespaces with objects; if a namespace is removed first, its remaining objects cannot be changed
        full = {namespace for _, namespace in groups}
        for (resource, namespace), items in groups.items():
            if by_force:
                for name, item in items:
                    if resource.plural != "namespaces" or name not in full:
                        self._release(resource.path(namespace, name), item)
            keeps_some = any((resource, namespace) == (kept[0], kept[1]) for kept in self._kept)
            if len(items) > FEW and not keeps_some and resource.plural != "namespaces":
                self._try("DELETE", resource.path(namespace))
            else:
                for name, _ in items:
                    self._try("DELETE", resource.path(namespace, name))

    def _release(self, path: str, item: Object) -> None:
        """Remove the finalizers of an object: no controller is here to handle them."""
        if item["metadata"].get("finalizers"):
            self._try("PATCH", path, {"metadata": {"finalizers": None}})
        if item.get("spec", {}).get("finalizers") and item["metadata"].get("deletionTimestamp"):  # a namespace
            self._try("PUT", f"{path}/finalize", {**item, "spec": {**item["spec"], "finalizers": []}})

    def _try(self, verb: str, path: str, body: Object | None = None) -> None:
        """Send a request. 404 and 409 are ignored: the object was deleted or changed; the next round handles it."""
        query = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"} if verb == "DELETE" else {}
        content = MERGE if verb == "PATCH" else "application/json"
        status, said = self._client.request(verb, path, body, content, **query)
        if status >= 400 and status not in (404, 409):
            raise ApiError(status, said, f"{verb} {path}")


def discover(client: Client) -> Iterator[Resource]:
    """Every resource that can be listed and deleted, in its preferred version. No object is listed twice."""
    groups = client.ask("GET", "/apis")["groups"]
    roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    for root in roots:
        if root.startswith("/apis/events.k8s.io/"):
            continue  # these are the objects of /api/v1
        for resource in client.ask("GET", root)["resources"]:
            verbs, plural = resource["verbs"], resource["name"]
            if {"list", "delete"} <= set(verbs) and plural not in ITS_OWN:
                yield Resource(root, plural, resource["namespaced"])
