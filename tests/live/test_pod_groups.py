"""Kubernetes' own PodGroups on an API server that serves them; by default none does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.access import component, grant_dovetail
from tools.controlplane.client import Object
from tools.controlplane.plane import ControlPlane, Options

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
SERVED = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)


@pytest.fixture
def gang_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane of its own: the gates are off on that of the other tests."""
    if control_plane.version != (1, 36):
        pytest.skip("v1alpha2 is of 1.36 alone")
    with ControlPlane(control_plane.binaries, Options(api_server=SERVED)) as plane:
        yield plane


def member(name: str) -> Object:
    return objects.pod(name, objects.gpu_limits(1), schedulingGroup={"podGroupName": "gang"})


def test_members_wait_for_their_pod_group_and_for_each_other(gang_plane: ControlPlane) -> None:
    api = gang_plane.client()
    api.create(objects.node("n", gpus=1))
    with scheduling(gang_plane):
        grant_dovetail(api, component("pod-group-status"))
        api.create(member("a"))
        said = reason(api, "a")
        assert said["reason"] == "GroupUnknown"
        assert "PodGroup default/gang (scheduling.k8s.io) does not exist" in said["message"]
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "gang"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        api.ask("POST", GROUPS, group)
        api.wait_until(lambda: "1 of 2 members of default/gang" in reason(api, "a")["message"], "a knows its group", 30)
        api.create(member("b"))

        def scheduled() -> str:
            status = api.ask("GET", f"{GROUPS}/gang").get("status", {})
            (said,) = [one for one in status.get("conditions", []) if one["type"] == "PodGroupScheduled"] or [{}]
            return f"{said.get('status')} {said.get('reason')}: {said.get('message')}"

        short = "False Unschedulable: 1 of 2 members of default/gang fit, 2 must start together"
        api.wait_until(lambda: scheduled().startswith(short), "the PodGroup says why", 30)
        api.create(objects.node("m", gpus=1))
        assert sorted(placed(api, "a", "b")) == ["m", "n"]
        api.wait_until(lambda: scheduled().startswith("True Scheduled"), "the PodGroup says that it is placed", 30)
