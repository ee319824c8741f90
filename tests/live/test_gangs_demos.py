"""The demos of Koordinator's gang scheduling and of Coscheduling on the real control plane."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import yaml

from tests.live.dovetail_process import scheduling
from tests.live.gangs import (
    COSCHEDULING,
    KOORDINATOR,
    LABELS,
    VOLCANO,
    make_pod_group,
    pod_group_kinds,
    said_about,
    status_of,
)
from tests.live.test_scheduling import reason
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU
from tools.controlplane.plane import ControlPlane

EXAMPLE = Path(__file__).parents[2] / "examples" / "koordinator"
DONGLE = "example.com/dongle"
SOON = 30.0
AT_ONCE = 10.0  # seconds; ten times the goal of a gang's start when room appears


def documents(name: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text(encoding="utf-8")))


def vgpu_job(replicas: int) -> Object:
    """The write-up's Deployment, with its scheduler's name."""
    (made,) = documents("vgpu-job-3.yaml")
    made["metadata"] |= {"name": "vgpu-job", "namespace": "default"}
    made["spec"]["replicas"] = replicas
    made["spec"]["template"]["spec"] |= {"schedulerName": "koord-scheduler", "terminationGracePeriodSeconds": 0}
    return made


def profile(folder: Path) -> str:
    """koord-scheduler is a profile with Koordinator's NodeResourcesFitPlus."""
    config = yaml.safe_load((EXAMPLE / "config" / "dovetail.yaml").read_text(encoding="utf-8"))
    config["schedulers"] = {"koord-scheduler": {"nodePolicy": "fit-plus"}}
    path = folder / "koordinator.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def per_node(api: Client) -> list[int]:
    bound = [item["spec"]["nodeName"] for item in api.list("Pod") if item["spec"].get("nodeName")]
    return sorted(Counter(bound).values(), reverse=True)


def bound_at(api: Client, count: int, seconds: float = SOON) -> float:
    """Wait until so many pods have a node; seconds from now."""
    began = time.monotonic()
    api.wait_until(lambda: sum(per_node(api)) == count, f"{count} pods have a node", seconds)
    return time.monotonic() - began


def test_the_koordinator_write_up(plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path) -> None:
    for node in documents("cluster.yaml"):
        api.create(node)
    plane.start_controller_manager()
    (group,) = documents("gang.yaml")
    with pod_group_kinds(api, KOORDINATOR), scheduling(plane, "--config", profile(tmp_path)):
        make_pod_group(api, KOORDINATOR, group["metadata"]["name"], **group["spec"])
        api.create(vgpu_job(3))
        bound_at(api, 3)
        assert per_node(api) == [3]  # 6 of the 8 dongles of one node
        api.wait_until(lambda: status_of(api, KOORDINATOR, "gang-example").get("phase") == "Running", "it runs", SOON)
        api.patch("Deployment", "vgpu-job", {"spec": {"replicas": 5}})
        bound_at(api, 5)
        assert per_node(api) == [4, 1]  # four fill their node
        api.wait_until(lambda: status_of(api, KOORDINATOR, "gang-example").get("running") == 5, "five run", SOON)


def test_with_room_for_two_none_starts_and_with_room_for_three_all_do(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """One node with 4 dongles: two pods of two dongles fit, three are needed."""
    nodes = {node["metadata"]["name"]: node for node in documents("cluster.yaml")}
    small, large = nodes["minikube-m02"], nodes["minikube-m03"]
    small["status"]["allocatable"][DONGLE] = "4"
    api.create(small)
    plane.start_controller_manager()
    with pod_group_kinds(api, KOORDINATOR), scheduling(plane, "--config", profile(tmp_path)):
        make_pod_group(api, KOORDINATOR, "gang-example", minMember=3, scheduleTimeoutSeconds=10)
        api.create(vgpu_job(3))
        api.wait_until(lambda: said_about(api, "gang-example"), "the PodGroup says why", SOON)
        ((kind, text),) = said_about(api, "gang-example")
        assert kind == "Unschedulable"
        assert text.startswith("2 of 3 members of default/gang-example fit, 3 must start together; the next finds 0/1")
        assert status_of(api, KOORDINATOR, "gang-example")["phase"] == "Scheduling"
        time.sleep(12)  # longer than its time-out: nothing was bound, so nothing is released
        assert per_node(api) == []
        api.create(large)
        took = bound_at(api, 3, AT_ONCE)
        print(f"room appeared; all 3 had a node after {took:.2f} s (goal: 1 s)")
        api.wait_until(lambda: len(said_about(api, "gang-example")) == 2, "the PodGroup says that it is placed", SOON)


def test_coscheduling_three_of_six(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Room for 3, a ReplicaSet of 6: with minMember 4 none runs, with minMember 3 three run and three wait."""
    api.create(objects.node("n", resources={DONGLE: "6"}))
    plane.start_controller_manager()
    template = objects.pod("job", {DONGLE: 2}, labels={"app": "job", LABELS[COSCHEDULING]: "pg"})
    with pod_group_kinds(api, COSCHEDULING), scheduling(plane):
        make_pod_group(api, COSCHEDULING, "pg", minMember=4)
        api.create(objects.deployment("job", 6, template))
        pods = api.wait_until(lambda: len(found := api.list("Pod")) == 6 and found, "six pods", SOON)
        first = pods[0]["metadata"]["name"]
        api.wait_until(lambda: "3 of 6 members" in reason(api, first)["message"], "a member says so", SOON)
        assert per_node(api) == []
        api.ask(
            "PATCH",
            f"/apis/{COSCHEDULING}/v1alpha1/namespaces/default/podgroups/pg",
            {"spec": {"minMember": 3}},
            "application/merge-patch+json",
        )
        bound_at(api, 3)

        def shown() -> bool:
            status = status_of(api, COSCHEDULING, "pg")
            return (status.get("phase"), status.get("scheduled")) == ("Running", 3)

        api.wait_until(shown, "the PodGroup runs", SOON)
        api.create(objects.node("m", resources={DONGLE: "4"}))
        bound_at(api, 5)  # surplus members start when there is room


def test_a_volcano_pod_group_is_admitted_before_its_pods_exist(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """Volcano's controller creates pods when the phase is Inqueue. Three cards are asked for, the cluster has two."""
    api.create(objects.node("n", gpus=2))
    needs = {"minMember": 3, "minResources": {GPU: "3"}, "queue": "default"}

    def shows(phase: str) -> None:
        found = f"the phase is {phase}"
        api.wait_until(lambda: status_of(api, VOLCANO, "job", "v1beta1").get("phase") == phase, found, SOON)

    with pod_group_kinds(api, VOLCANO, version="v1beta1"), scheduling(plane):
        make_pod_group(api, VOLCANO, "job", "v1beta1", **needs)
        shows("Pending")
        (said,) = status_of(api, VOLCANO, "job", "v1beta1")["conditions"]
        assert said["type"] == "Unschedulable"
        assert said["message"] == "spec.minResources: 3 of nvidia.com/gpu are asked for, all nodes have 2"
        api.create(objects.node("m", gpus=1))
        shows("Inqueue")
        for number in range(3):
            notes = {"scheduling.k8s.io/group-name": "job"}
            api.create(objects.pod(f"job-{number}", objects.gpu_limits(1), annotations=notes))
        bound_at(api, 3)
        shows("Running")
        api.wait_until(lambda: status_of(api, VOLCANO, "job", "v1beta1").get("running") == 3, "three run", SOON)
        (said,) = status_of(api, VOLCANO, "job", "v1beta1")["conditions"]
        assert said["type"] == "Scheduled"
