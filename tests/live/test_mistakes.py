"""Mistakes in requests, live: an event on the pod says what is wrong; GPU memory with a unit is charged in MiB."""

from __future__ import annotations

from tests.live.assigned import pieces
from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import node_of, placed, reason
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.plane import ControlPlane

GPU, MEMORY = objects.GPU, objects.GPU_MEMORY


def events(api: Client, name: str, word: str) -> list[Object]:
    """About the pod, with this reason, once there are any."""

    def told() -> list[Object]:
        return [e for e in api.list("Event") if e["reason"] == word and e["involvedObject"]["name"] == name]

    return api.wait_until(told, f"an event {word} about {name}", 30)


def test_memory_with_a_unit_is_charged_in_mib_and_said(plane: ControlPlane, api: Client) -> None:
    """The API server stores 8192Mi as 8Gi and 8000 as 8k."""
    api.create(objects.node("a", objects.cards("a", 1, 16384)))
    with scheduling(plane):
        api.create(objects.pod("gibi", {GPU: 1, MEMORY: "8192Mi"}))
        placed(api, "gibi")
        api.create(objects.pod("plain", {GPU: 1, MEMORY: 8000}))
        placed(api, "plain")
        assert [piece.memory for name in ("gibi", "plain") for piece in pieces(api.get("Pod", name))] == [8192, 8000]
        (event,) = events(api, "gibi", "RequestRead")
        assert event["type"] == "Normal"
        assert "8Gi is read as 8,192 MiB per card" in event["message"]
        api.create(objects.pod("third", {GPU: 1, MEMORY: "1Gi"}))  # 16,384 − 8,192 − 8,000 = 192 are left
        assert reason(api, "third")["reason"] == "Unschedulable"


def test_a_quota_counts_memory_with_a_unit(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", objects.cards("a", 1, 81920)))
    meta = {"name": "gpu", "namespace": "default"}
    hard = {"limits.nvidia.com/gpumem": "2000"}
    api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    with scheduling(plane):
        api.create(objects.pod("large", {GPU: 1, MEMORY: "16Gi"}))
        assert reason(api, "large")["reason"] == "QuotaExceeded"
        api.create(objects.pod("small", {GPU: 1, MEMORY: "1Gi"}))
        placed(api, "small")


def test_a_stock_node_takes_no_part_of_a_card_with_a_unit(plane: ControlPlane, api: Client) -> None:
    """It was bound as a pod without GPUs, and kubelet would have given it a card that was free in our books."""
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "15360"}
    api.create(objects.node("a", labels=labels, resources={GPU: "1"}))  # without labels it settles after 30 s only
    with scheduling(plane):
        api.create(objects.pod("part", {GPU: 1, MEMORY: "16Gi"}))
        assert reason(api, "part")["reason"] == "Unschedulable"
        api.create(objects.pod("whole", {GPU: 1}))
        placed(api, "whole")
        assert node_of(api, "part") == ""


def test_nonsense_is_an_event_and_a_condition_and_no_place(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    with scheduling(plane):
        api.create(objects.pod("bytes", {GPU: 1, MEMORY: "17179869184"}))
        (event,) = events(api, "bytes", "InvalidRequest")
        assert event["type"] == "Warning"
        field = "spec.containers[0].resources.limits.nvidia.com/gpumem: "
        assert event["message"].startswith(f"{field}17179869184 is a plain number")
        assert "write 16384Mi" in event["message"]
        said = reason(api, "bytes")
        assert said["reason"] == "InvalidRequest"
        assert "write 16384Mi" in said["message"]
        assert node_of(api, "bytes") == ""


def test_a_slip_is_an_event_once_also_after_a_restart(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    slip = {"hami.io/gpu-schedular-policy": "binpack"}
    wanted = {GPU: 1, MEMORY: 99_999}  # no card has as much: it waits
    with scheduling(plane) as dovetail:
        api.create(objects.pod("p", wanted, annotations=slip))
        (event,) = events(api, "p", "DoubtfulRequest")
        assert event["type"] == "Warning"
        assert event["message"].endswith("did you mean hami.io/gpu-scheduler-policy?")
        dovetail.kill()
        dovetail.start()
        api.create(objects.pod("q", wanted, annotations=slip))
        events(api, "q", "DoubtfulRequest")  # by then that of p was sent again, and refused
        assert len(events(api, "p", "DoubtfulRequest")) == 1
