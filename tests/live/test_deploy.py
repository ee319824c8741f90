"""What is shipped in deploy/ is accepted by a real API server, and allows the scheduler no more than it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.plane import ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.glob("*.yaml")))
def test_the_manifests_apply(name: str, plane: ControlPlane, api: Client) -> None:
    said = plane.kubectl("apply", "-f", str(DEPLOY / name))
    objects: list[Object] = [item for item in yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")) if item]
    assert len([line for line in said.splitlines() if line.endswith(("created", "configured"))]) == len(objects)
    again = plane.kubectl("apply", "-f", str(DEPLOY / name))
    assert all(line.endswith("unchanged") for line in again.splitlines() if "flowschema" not in line.lower())
    plane.kubectl("delete", "-f", str(DEPLOY / name))


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("DELETE", "/api/v1/namespaces/default/pods/x"),
        ("DELETE", "/api/v1/nodes/x"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
        ("GET", "/api/v1/configmaps"),
    ],
)
def test_the_scheduler_may_not(verb: str, path: str, dovetail_api: Client) -> None:
    with pytest.raises(ApiError) as refused:
        dovetail_api.ask(verb, path)
    assert refused.value.status == 403
