"""PodGroups of a CRD on the real control plane: gangs are never split, whatever comes, goes, restarts or dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.live.dovetail_process import scheduling
from tests.live.test_reflector import pod_group_crd
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE
from tools.controlplane.plane import ControlPlane

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = pod_group_crd()["metadata"]["name"]
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
LABEL = "scheduling.x-k8s.io/pod-group"
WHOLE = objects.gpu_limits(1, memory=15360, cores=100)
SOON = 20.0  # seconds; two or three are usual
LEASE = ("--lease-seconds", "120")  # the same process has to live through a restart of the API server


@contextmanager
def crd(api: Client) -> Iterator[None]:
    api.ask("POST", CRDS, pod_group_crd())
    try:
        yield
    finally:
        api.ask("DELETE", f"{CRDS}/{CRD}")


def member(name: str, group: str = "gang") -> Object:
    return objects.pod(name, WHOLE, labels={LABEL: group})


def make_group(api: Client, minimum: int, name: str = "gang") -> None:
    body = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum},
    }

    def made() -> bool:
        status, said = api.request("POST", GROUPS, body)
        assert status in (201, 404, 503), said  # until the CRD is established
        return status == 201

    api.wait_until(made, "the CRD is established", SOON)


def bound(api: Client) -> list[str]:
    return sorted(item["metadata"]["name"] for item in api.list("Pod") if item["spec"].get("nodeName"))


def says(api: Client, name: str, text: str) -> None:
    api.wait_until(lambda: text in reason(api, name)["message"], f"{name} says {text!r}", SOON)


def test_a_job_before_its_group_and_its_crd(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("n", gpus=2))
    with scheduling(plane) as dovetail:
        assert dovetail.words().count("PodGroups are not served of") == 1
        for name in ("a", "b"):
            api.create(member(name))
        says(api, "a", "the API server does not serve scheduling.x-k8s.io PodGroups; install the CRD")
        assert reason(api, "a")["reason"] == "GroupUnknown"
        began = time.monotonic()
        with crd(api):
            says(api, "b", "PodGroup default/gang (scheduling.x-k8s.io) does not exist; create it or remove the label")
            print(f"a CRD is served after {time.monotonic() - began:.1f} s")
            make_group(api, 2)
            assert placed(api, "a", "b") == ["n", "n"]
            print(f"its gang is placed after {time.monotonic() - began:.1f} s")


def test_a_group_deleted_before_its_pods(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("n", gpus=1))
    with crd(api), scheduling(plane):
        make_group(api, 2)
        for name in ("a", "b"):
            api.create(member(name))
        says(api, "a", "1 of 2 members of default/gang fit, 2 must start together; the next finds 0/1 nodes")
        api.ask("DELETE", f"{GROUPS}/gang")
        says(api, "a", "does not exist")
        api.create(objects.node("m", gpus=4))
        api.create(objects.pod("later", WHOLE))
        placed(api, "later")  # whatever could be placed has been
        assert bound(api) == ["later"]


def test_conditions_follow_the_members(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("n", gpus=3))
    with crd(api), scheduling(plane):
        make_group(api, 4)
        for number in range(3):
            api.create(member(f"m{number}"))
        for number in range(3):
            says(api, f"m{number}", "3 of 4 members of default/gang are there, 1 more must be created")
        began = time.monotonic()
        api.create(member("m3"))
        for number in range(4):
            says(api, f"m{number}", "3 of 4 members of default/gang fit, 4 must start together; the next finds 0/1")
        print(f"all four say so after {time.monotonic() - began:.1f} s")
        api.delete("Pod", "m3")
        says(api, "m0", "3 of 4 members of default/gang are there")


def test_an_api_server_that_restarts_splits_no_gang(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """The group first, then its five pods, in the moment in which watches come back; there is room for four."""
    api.create(objects.node("n", gpus=4))
    with crd(api), scheduling(plane, *LEASE) as dovetail:
        make_group(api, 2, "known")  # the kind is served and watched
        for turn in range(3):
            plane.restart_api_server(grace=0)
            make_group(api, 5, f"g{turn}")
            for number in range(5):
                api.create(member(f"g{turn}-{number}", f"g{turn}"))
            for number in range(5):
                says(api, f"g{turn}-{number}", f"4 of 5 members of default/g{turn} fit, 5 must start together")
            assert bound(api) == []
        assert dovetail.process is not None
        assert dovetail.process.running()


def test_a_gang_killed_between_its_binds_is_completed_first(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Two of two cards, one bind at a time behind HAMi's lock; an urgent pod comes while the scheduler is away."""
    kubelet.hami = True
    kubelet.start_delay = 4.0  # seconds that the lock is held: the second bind waits as long
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    api.create(body)
    api.create(objects.node("a", gpus=2, annotations={HANDSHAKE: "Requesting_2026.01.01 00:00:00"}))
    with crd(api), scheduling(plane, "--no-preemption") as dovetail:
        make_group(api, 2)
        for name in ("g-0", "g-1"):
            api.create(member(name))
        api.wait_until(lambda: len(bound(api)) == 1, "one of two is bound", 30)
        dovetail.kill()
        assert len(bound(api)) == 1
        kubelet.start_delay = 0.0
        api.create(objects.pod("urgent", WHOLE, priorityClassName="urgent"))
        dovetail.start()
        api.wait_until(lambda: len(bound(api)) == 2, "the gang is whole", 60)
        says(api, "urgent", "0/1 nodes are available")
        assert bound(api) == ["g-0", "g-1"]
