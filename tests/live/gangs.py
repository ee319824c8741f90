"""For tests of gangs: PodGroups of CRDs, and a witness that sees every moment in which a gang is below its minimum."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.faults import Alongside
from tests.live.test_reflector import pod_group_crd
from tools.controlplane.access import component, grant_dovetail
from tools.controlplane.client import ApiError, Client, Object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COSCHEDULING, KOORDINATOR, VOLCANO = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh"
LABELS = {COSCHEDULING: "scheduling.x-k8s.io/pod-group", KOORDINATOR: "pod-group.scheduling.sigs.k8s.io"}
APPROVED = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"


def pod_group_kind(api_group: str, version: str = "v1alpha1") -> Object:
    """The CRD of a kind of PodGroup, with a status."""
    made = pod_group_crd()
    made["metadata"] = {"name": f"podgroups.{api_group}", "annotations": {"api-approved.kubernetes.io": APPROVED}}
    made["spec"]["group"] = api_group
    made["spec"]["versions"][0] |= {"name": version, "subresources": {"status": {}}}
    return made


@contextmanager
def pod_group_kinds(api: Client, *api_groups: str, version: str = "v1alpha1", rights: bool = True) -> Iterator[None]:
    """Serve these kinds of PodGroups. `rights`: Dovetail may write their status."""
    made = [pod_group_kind(one, version) for one in api_groups]
    for one in made:
        api.ask("POST", CRDS, one)
    if rights:
        grant_dovetail(api, component("pod-group-status"))
    try:
        yield
    finally:
        for one in made:
            path = f"{CRDS}/{one['metadata']['name']}"
            api.ask("DELETE", path)
            api.wait_until(lambda path=path: api.status("GET", path) == 404, f"{path} is gone", 30)  # type: ignore[misc]


def group_path(api_group: str, name: str = "", version: str = "v1alpha1") -> str:
    return f"/apis/{api_group}/{version}/namespaces/default/podgroups{'/' * bool(name)}{name}"


def make_pod_group(api: Client, api_group: str, name: str, version: str = "v1alpha1", **spec: Any) -> None:
    body = {"apiVersion": f"{api_group}/{version}", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}

    def made() -> bool:
        status, said = api.request("POST", group_path(api_group, version=version), body)
        assert status in (201, 404, 503), said  # until the CRD is established
        return status == 201

    api.wait_until(made, f"PodGroup {name} exists", 30)


def status_of(api: Client, api_group: str, name: str, version: str = "v1alpha1") -> Object:
    found: Object = api.ask("GET", group_path(api_group, name, version)).get("status") or {}
    return found


def said_about(api: Client, name: str) -> list[tuple[str, str]]:
    """Reason and message of all events about a PodGroup."""
    found = [one for one in api.list("Event") if one["involvedObject"].get("kind") == "PodGroup"]
    return [(one["reason"], one["message"]) for one in found if one["involvedObject"]["name"] == name]


class GangWitness(Alongside):
    """Follows the pods' watch: for how long a gang had a node for some members, but for fewer than its minimum.

    `minimums` may grow while it looks. A member that ends holds no node any more for this witness. A pod that succeeded
    is not missing.
    """

    def __init__(self, api: Client, label: str) -> None:
        super().__init__()
        self._api, self._label = api, label
        self.minimums: dict[str, int] = {}  # gang -> minMember
        self._bound: dict[str, set[str]] = {}  # gang -> uids
        self._since: dict[str, float] = {}  # gangs below their minimum now
        self.below: list[tuple[str, float]] = []  # gang, seconds
        self.whole: set[str] = set()  # gangs that had their minimum at some time

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = version or self._list()
                for event in self._api.watch("Pod", version, seconds=2, allowWatchBookmarks="true"):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._hear(event["object"], event["type"] == "DELETED")
            except (OSError, ApiError, ValueError):
                version = ""
                time.sleep(0.1)

    def _list(self) -> str:
        said = self._api.ask("GET", "/api/v1/namespaces/default/pods")
        there = {item["metadata"]["uid"] for item in said["items"]}
        for gang, bound in self._bound.items():
            bound &= there
            self._judge(gang)
        for item in said["items"]:
            self._hear(item, gone=False)
        return str(said["metadata"]["resourceVersion"])

    def _hear(self, item: Object, gone: bool) -> None:
        gang = (item["metadata"].get("labels") or {}).get(self._label, "")
        if gang not in self.minimums:
            return
        bound = self._bound.setdefault(gang, set())
        ends = gone or item["metadata"].get("deletionTimestamp") or item["status"].get("phase") == "Failed"
        if item["spec"].get("nodeName") and not ends:
            bound.add(item["metadata"]["uid"])
        else:
            bound.discard(item["metadata"]["uid"])
        self._judge(gang)

    def _judge(self, gang: str) -> None:
        bound = self._bound[gang]
        if len(bound) >= self.minimums[gang]:
            self.whole.add(gang)
        if 0 < len(bound) < self.minimums[gang]:
            self._since.setdefault(gang, time.monotonic())
        elif gang in self._since:
            self.below.append((gang, time.monotonic() - self._since.pop(gang)))

    def now_below(self) -> list[str]:
        return list(self._since)

    def longest(self) -> float:
        """Seconds; also of gangs that are below their minimum still."""
        now = time.monotonic()
        return max((*(seconds for _, seconds in self.below), *(now - at for at in self._since.values())), default=0.0)
