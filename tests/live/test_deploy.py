"""What is shipped in deploy/ is accepted by a real API server, and allows the scheduler no more than it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.live.dovetail_process import scheduling
from tools.controlplane.access import DEPLOY, grant_dovetail
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

CRDS = sorted(path.name for path in (DEPLOY / "crds").glob("*.yaml"))


@pytest.mark.parametrize("name", CRDS)
def test_the_definitions_of_other_projects_apply(name: str, plane: ControlPlane, api: Client) -> None:
    path = DEPLOY / "crds" / name
    said = plane.kubectl("apply", "-f", str(path))
    assert len([line for line in said.splitlines() if line.endswith("created")]) == len(_objects(path))
    again = plane.kubectl("apply", "-f", str(path))
    assert all(line.endswith("unchanged") for line in again.splitlines())
    plane.kubectl("delete", "-f", str(path))


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("DELETE", "/api/v1/namespaces/default/pods"),  # one pod: the admission policy says which
        ("POST", "/api/v1/namespaces/default/pods"),
        ("DELETE", "/api/v1/nodes/x"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
        ("GET", "/api/v1/configmaps"),
        ("PATCH", "/api/v1/namespaces/default/pods/x"),
    ],
)
def test_the_scheduler_may_not(verb: str, path: str, dovetail_api: Client) -> None:
    with pytest.raises(ApiError) as refused:
        dovetail_api.ask(verb, path)
    assert refused.value.status == 403


def test_what_is_optional_is_not_applied_with_the_rest() -> None:
    """Rights that few need are components, which are asked for by name."""
    roles = [item for item in _objects(DEPLOY / "rbac.yaml") if item["kind"] in ("ClusterRole", "Role")]
    written = [
        (resource, verb)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    ]
    assert sorted(written) == [
        ("events", "create"),
        ("leases", "create"),
        ("leases", "update"),
        ("persistentvolumeclaims", "patch"),
        ("persistentvolumes", "patch"),
        ("pods", "delete"),
        ("pods/binding", "create"),
        ("pods/eviction", "create"),
        ("pods/status", "patch"),
    ]
    assert {"hami-lock", "metrics-auth"} <= {path.name for path in (DEPLOY / "optional").iterdir()}


def _objects(manifest: Path) -> list[Object]:
    return [item for item in yaml.safe_load_all(manifest.read_text(encoding="utf-8")) if item]


LATER_RIGHTS = ("services", "replicasets", "leases")  # in rules of the ClusterRole that older versions do not have


def test_the_roles_of_an_older_version_do_not_stop_scheduling(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    items = _objects(DEPLOY / "rbac.yaml")
    for item in items:
        if item["kind"] == "ClusterRole":
            item["rules"] = [rule for rule in item["rules"] if not set(LATER_RIGHTS) & set(rule["resources"])]
        if item["kind"] == "Role":
            item["rules"] = [
                {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "list"]} for rule in item["rules"]
            ]
    older = tmp_path / "rbac.yaml"
    older.write_text(yaml.safe_dump_all(items), encoding="utf-8")
    grant_dovetail(api, older)
    api.create(node("a", gpus=1))
    with scheduling(plane) as dovetail:
        api.create(pod("p", gpu_limits(1)))
        api.wait_until(lambda: api.get("Pod", "p")["spec"].get("nodeName") == "a", "the pod is bound")
        status, text = dovetail.get("/readyz")
        assert status == 200
        assert "other Dovetails cannot be looked for" in text
        words = dovetail.words()
    for resource in ("services", "replicationcontrollers", "replicasets", "statefulsets", "leases"):
        assert f'lacks verb "list" on resource "{resource}"' in words
