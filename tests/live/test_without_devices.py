"""Pods without devices on a real control plane, with the shipped rights: away from cards, and spread by default."""

from __future__ import annotations

from collections import Counter

from tests.live.dovetail_process import scheduling
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

ZONE = "topology.kubernetes.io/zone"


def nodes_of(api: Client, pods: int) -> Counter[str]:
    def bound() -> Counter[str] | None:
        found = [item["spec"].get("nodeName") for item in api.list("Pod")]
        return Counter(found) if len(found) == pods and all(found) else None

    return api.wait_until(bound, f"{pods} pods are bound", 60)


def test_replicas_are_spread_over_zones_as_by_kube_scheduler(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """Twelve over zones of one and three nodes: 4 and 8, as Kubernetes' Multi-AZ specs want it."""
    plane.start_controller_manager()
    for name, zone in zip("abcd", "ewww", strict=True):
        api.create(objects.node(name, labels={ZONE: zone}))
    with scheduling(plane):
        api.create(objects.deployment("web", 12, objects.pod_spec({"cpu": "100m"})))
        found = nodes_of(api, 12)
    assert (found["a"], found.total()) == (4, 12)


def test_pods_without_devices_leave_the_gpu_node_free(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Ten 1-CPU pods beside four empty CPU nodes and a GPU node in use; then a GPU pod finds CPU there."""
    api.create(objects.node("gpu", gpus=4, resources={"cpu": "8"}))
    for number in range(4):
        api.create(objects.node(f"cpu-{number}", resources={"cpu": "8"}))
    with scheduling(plane):
        api.create(objects.pod("busy", {**objects.gpu_limits(1, 1000), "cpu": 1}))
        assert nodes_of(api, 1) == {"gpu": 1}
        for number in range(10):
            api.create(objects.pod(f"p{number}", {"cpu": 1}))
        found = nodes_of(api, 11)
        assert found["gpu"] == 1
        assert sorted(found[f"cpu-{number}"] for number in range(4)) == [2, 2, 3, 3]
        api.create(objects.pod("late", {**objects.gpu_limits(1, 1000), "cpu": 7}))
        assert nodes_of(api, 12)["gpu"] == 2
