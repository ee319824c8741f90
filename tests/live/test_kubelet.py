"""The stand-in kubelet does to pods what other tests take for granted."""

from __future__ import annotations

from functools import partial

import pytest

from tools.controlplane.client import Client, Object
from tools.controlplane.hami_plugin import LOCK, PHASE, TO_ALLOCATE
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, condition, deployment, gpu_limits, node, pod, pod_spec
from tools.controlplane.plane import ControlPlane

DEVICES = "GPU-a-0,NVIDIA,4096,30:;"


def bind(api: Client, name: str, **spec: object) -> None:
    api.create(pod(name, **spec))  # type: ignore[arg-type]
    assert api.bind(name, "a")[0] == 201


def in_phase(api: Client, name: str, phase: str) -> Object:
    return api.wait_until(lambda: (p := api.get("Pod", name))["status"]["phase"] == phase and p, f"{name} is {phase}")


def locked_by(name: str) -> dict[str, str]:
    return {HANDSHAKE: "Requesting_2026-01-01 00:00:00", LOCK: f"2026-01-01T00:00:00Z,default,{name}"}


def allocating(name: str) -> Object:
    return pod(name, gpu_limits(1, 4096, 30), annotations={TO_ALLOCATE: DEVICES, PHASE: "allocating"})


def test_a_bound_pod_runs(api: Client, kubelet: Kubelet) -> None:
    api.create(node("a"))
    bind(api, "p")
    ready = condition(in_phase(api, "p", "Running"), "Ready")
    assert ready is not None
    assert ready["status"] == "True"


def test_a_deleted_pod_goes_once_its_kubelet_says_so(api: Client, kubelet: Kubelet) -> None:
    api.create(node("a"))
    bind(api, "p")
    in_phase(api, "p", "Running")
    kubelet.kill("a")
    api.delete("Pod", "p")
    assert api.get("Pod", "p")["metadata"]["deletionTimestamp"]
    kubelet.revive("a")
    api.wait_until(lambda: api.find("Pod", "p") is None, "the pod is gone")


def test_delays_are_kept(api: Client, kubelet: Kubelet) -> None:
    kubelet.start_delay = kubelet.stop_delay = 3600
    api.create(node("a"))
    bind(api, "slow")
    api.wait_until(lambda: kubelet.under_way == 1, "the kubelet has seen the pod")
    kubelet.start_delay = 0
    bind(api, "quick")
    in_phase(api, "quick", "Running")
    assert api.get("Pod", "slow")["status"]["phase"] == "Pending"
    api.delete("Pod", "quick")
    assert api.get("Pod", "quick")["metadata"]["deletionTimestamp"]


def test_a_pod_on_a_node_that_is_not_there_waits(api: Client, kubelet: Kubelet) -> None:
    bind(api, "p")  # the API server does not mind
    api.create(node("b"))
    api.create(pod("q"))
    api.bind("q", "b")
    in_phase(api, "q", "Running")
    assert api.get("Pod", "p")["status"]["phase"] == "Pending"
    api.create(node("a"))
    in_phase(api, "p", "Running")


def test_it_refuses_pods_as_it_is_told(api: Client, kubelet: Kubelet) -> None:
    kubelet.refuse("p")
    kubelet.refuse(
        lambda pod: pod["metadata"]["labels"].get("bad") == "yes", "UnexpectedAdmissionError", "Allocate failed"
    )
    api.create(node("a"))
    bind(api, "p")
    bind(api, "q", labels={"bad": "yes"})
    assert in_phase(api, "p", "Failed")["status"]["reason"] == "OutOfcpu"
    said = in_phase(api, "q", "Failed")["status"]
    assert (said["reason"], said["message"]) == ("UnexpectedAdmissionError", "Allocate failed")
    kubelet.admit_all()
    bind(api, "r", labels={"bad": "yes"})
    in_phase(api, "r", "Running")


def test_heartbeats_change_the_node(api: Client, kubelet: Kubelet) -> None:
    before = api.create(node("a"))
    kubelet.heartbeat_every = 0.05
    api.wait_until(lambda: kubelet.heartbeats > 2, "heartbeats")
    after = api.get("Node", "a")
    assert after["status"]["allocatable"] == before["status"]["allocatable"]
    assert [entry["type"] for entry in after["status"]["conditions"]] == ["Ready"]


def test_extended_resources_of_the_capacity_become_allocatable(api: Client, kubelet: Kubelet) -> None:
    kubelet.advertises = True
    api.create(node("a"))

    def offers(amount: str | None) -> bool:
        return bool(api.get("Node", "a")["status"]["allocatable"].get("example.com/dongle") == amount)

    for amount in ("3", None):
        api.patch("Node", "a", {"status": {"capacity": {"example.com/dongle": amount}}}, part="status")
        api.wait_until(partial(offers, amount), f"{amount} dongles")


def test_a_pod_is_gone_when_its_pre_stop_hook_has_slept(api: Client, kubelet: Kubelet) -> None:
    api.create(node("a"))
    made = pod("p", terminationGracePeriodSeconds=600)
    made["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 600}}}
    api.create(made)
    api.bind("p", "a")
    bind(api, "q")
    for name in ("p", "q"):
        in_phase(api, name, "Running")
        api.delete("Pod", name, gracePeriodSeconds=700)
    api.wait_until(lambda: api.find("Pod", "q") is None, "the pod without a hook is gone")
    assert api.get("Pod", "p")["metadata"]["deletionTimestamp"]


def test_it_goes_on_after_the_api_server_was_away(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    api.create(node("a"))
    bind(api, "p")
    in_phase(api, "p", "Running")
    plane.stop_api_server(grace=0)
    plane.start_api_server()
    bind(api, "q")
    in_phase(api, "q", "Running")


def test_a_rollout_runs_from_end_to_end(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    plane.start_controller_manager()
    plane.start_scheduler()
    api.create(node("a"))
    api.create(deployment("web", 3, pod_spec({"cpu": 1}, scheduler="default-scheduler")))
    api.wait_until(lambda: api.get("Deployment", "web")["status"].get("readyReplicas") == 3, "three ready replicas")
    api.delete("Deployment", "web", propagationPolicy="Foreground")
    api.wait_until(lambda: api.list("Pod") == [], "the pods are gone")


def test_hamis_plugin_marks_the_pod_and_unlocks_the_node(api: Client, kubelet: Kubelet) -> None:
    kubelet.hami = True
    api.create(node("a", gpus=1, annotations=locked_by("p")))
    api.create(allocating("p"))
    api.bind("p", "a")
    notes = in_phase(api, "p", "Running")["metadata"]["annotations"]
    assert notes == {PHASE: "success", TO_ALLOCATE: ";"}
    assert LOCK not in api.get("Node", "a")["metadata"]["annotations"]
    assert kubelet.complaints == []


def test_hamis_plugin_complains_when_the_lock_is_for_another_pod(api: Client, kubelet: Kubelet) -> None:
    kubelet.hami = True
    api.create(node("a", gpus=1, annotations=locked_by("other")))
    api.create(allocating("p"))
    api.bind("p", "a")
    failed = in_phase(api, "p", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert failed["metadata"]["annotations"][PHASE] == "failed"
    assert api.get("Node", "a")["metadata"]["annotations"][LOCK].endswith(",other")
    assert len(kubelet.complaints) == 1


def test_kwok_can_stand_in_instead(plane: ControlPlane, api: Client) -> None:
    if not plane.binaries.has("kwok"):
        pytest.skip("KWOK is not built: `python -m tools.build --kwok`")
    plane.start_kwok()
    api.create(node("a"))
    bind(api, "p")
    in_phase(api, "p", "Running")
    api.delete("Pod", "p")
    api.wait_until(lambda: api.find("Pod", "p") is None, "the pod is gone")
