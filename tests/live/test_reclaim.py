"""Borrowed GPUs come back, on a real control plane: quotas per GPU model, and capacity scheduling's demos."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness
from tests.live.test_pod_groups_crd import crd, make_group, member
from tests.live.test_queues import QUOTAS, crds, make
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

pytestmark = pytest.mark.slow
WHOLE = objects.gpu_limits(1, cores=100)
SOON = 60.0
CONFIG = """\
apiVersion: dovetail.dev/v1
kind: Config
queues:
  - {name: a, namespaces: [a], guarantee: {gpus/A100: 4, gpus/T4: 0}}
  - {name: b, namespaces: [b], guarantee: {gpus/A100: 4, gpus/T4: 8}}
"""


KOORDINATOR = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
Q = "quota.scheduling.koordinator.sh/"


def namespaces(api: Client, *names: str) -> None:
    for name in names:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def bound(api: Client, namespace: str) -> dict[str, str]:
    """Pods of the namespace that have a node and are not ending -> their node."""
    pods = [one for one in api.list("Pod", namespace=namespace) if not one["metadata"].get("deletionTimestamp")]
    return {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName")}


def gone_or_ending(api: Client, namespace: str, names: list[str]) -> set[str]:
    return set(names) - bound(api, namespace).keys()


def test_a_quota_per_model_is_reclaimed_within_seconds(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """A is owed 4 of 8 A100 and no T4, B the rest. A borrows everything; B's pods for A100 take four A100 back."""
    api.create(objects.node("big", objects.cards("big", 8, model="NVIDIA A100-SXM4-80GB")))
    api.create(objects.node("small", objects.cards("small", 8, model="NVIDIA Tesla T4")))
    namespaces(api, "a", "b")
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    mine = [f"a{n}" for n in range(16)]
    with scheduling(plane, "--config", str(config)), Witness(api) as witness:
        for name in mine:
            api.create(objects.pod(name, WHOLE, namespace="a"))
        api.wait_until(lambda: len(bound(api, "a")) == 16, "A has borrowed all GPUs", SOON)
        before = bound(api, "a")
        only = {"nvidia.com/use-gputype": "A100"}
        began = time.monotonic()
        for number in range(4):
            api.create(objects.pod(f"b{number}", WHOLE, namespace="b", annotations=only))
        api.wait_until(lambda: len(gone_or_ending(api, "a", mine)) == 4, "four pods of A are stopped", 10)
        print(f"four evictions {time.monotonic() - began:.2f} s after B's first pod was sent")
        api.wait_until(lambda: len(bound(api, "b")) == 4, "B has what it is owed", SOON)
        stopped = gone_or_ending(api, "a", mine)
        assert {before[name] for name in stopped} == {"big"}  # a T4 would not help
        assert len(stopped) == 4
        api.create(objects.pod("b4", WHOLE, namespace="b", annotations=only))
        time.sleep(3)  # nothing happens: B has its four A100, and so has A
        assert gone_or_ending(api, "a", mine) == stopped
        assert "b4" not in bound(api, "b")
    assert witness.wrong == []


def test_capacity_schedulings_first_demo(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """8 CPUs, two ElasticQuotas of min 4 and max 6. app1 asks for 4 × 2: 3 run. app2 asks for 2 × 2: 2 and 2 run."""
    api.create(objects.node("n", resources={"cpu": "8"}))
    namespaces(api, "app1", "app2")
    with crds(api):
        for name in ("app1", "app2"):
            path = QUOTAS.replace("/default/", f"/{name}/")
            make(api, path, "ElasticQuota", "quota", min={"cpu": 4}, max={"cpu": 6})
        with scheduling(plane):
            for number in range(4):
                api.create(objects.pod(f"one{number}", {"cpu": "2"}, namespace="app1"))
            api.wait_until(lambda: len(bound(api, "app1")) == 3, "three of app1 run", SOON)
            for number in range(2):
                api.create(objects.pod(f"two{number}", {"cpu": "2"}, namespace="app2"))
            api.wait_until(lambda: len(bound(api, "app2")) == 2, "both of app2 run", SOON)
            time.sleep(2)
            assert len(bound(api, "app1")) == 2


def test_capacity_schedulings_third_demo(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """q1 and q2 are owed nothing, q3 one GPU. A pod of q2 with a high priority does not evict q1's; one of q3 does."""
    api.create(objects.node("n", gpus=1))
    api.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "top"}, "value": 1000}
    )
    namespaces(api, "q1", "q2", "q3")
    with crds(api):
        for name, least in (("q1", 0), ("q2", 0), ("q3", 1)):
            path = QUOTAS.replace("/default/", f"/{name}/")
            make(api, path, "ElasticQuota", "quota", min={"nvidia.com/gpu": least}, max={"nvidia.com/gpu": 2})
        with scheduling(plane):
            api.create(objects.pod("borrows", WHOLE, namespace="q1"))
            api.wait_until(lambda: bound(api, "q1"), "q1 borrows", SOON)
            api.create(objects.pod("urgent", WHOLE, namespace="q2", priorityClassName="top"))
            time.sleep(3)
            assert bound(api, "q1")
            api.create(objects.pod("owed", WHOLE, namespace="q3"))
            api.wait_until(lambda: bound(api, "q3"), "q3 has what it is owed", SOON)
            assert not bound(api, "q1")
            assert not bound(api, "q2")


def test_capacity_schedulings_second_demo(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """10 GPUs, A owed 4 (at most 6), B owed 6 (at most 8). A has 6, B 3; B asks for 3 more: 4 and 6, no further."""
    api.create(objects.node("n", gpus=10))
    namespaces(api, "a", "b")
    with crds(api):
        for name, least, most in (("a", 4, 6), ("b", 6, 8)):
            path = QUOTAS.replace("/default/", f"/{name}/")
            make(api, path, "ElasticQuota", "quota", min={"nvidia.com/gpu": least}, max={"nvidia.com/gpu": most})
        with scheduling(plane):
            for number in range(3):
                api.create(objects.pod(f"a{number}", objects.gpu_limits(2, cores=100), namespace="a"))
            api.wait_until(lambda: len(bound(api, "a")) == 3, "A has 6 GPUs", SOON)
            for number in range(2):
                api.create(objects.pod(f"b{number}", objects.gpu_limits(3, cores=100), namespace="b"))
            api.wait_until(lambda: len(bound(api, "b")) == 2, "B has 6 GPUs", SOON)
            api.create(objects.pod("b2", WHOLE, namespace="b"))
            time.sleep(3)
            assert len(bound(api, "a")) == 2
            assert len(bound(api, "b")) == 2


def test_coschedulings_demos(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Room for 3, six pods: with minMember 3, 3 run and 3 wait; with minMember 4, none runs.

    Two gangs of 3 that arrive interleaved on 4 GPUs: one runs whole, and the other when the first has ended.
    """
    api.create(objects.node("n", gpus=3))
    with crd(api), scheduling(plane):
        make_group(api, 4, "four")
        for number in range(6):
            api.create(member(f"four{number}", "four"))
        time.sleep(3)
        assert bound(api, "default") == {}
        for number in range(6):
            api.delete("Pod", f"four{number}")
        make_group(api, 3, "three")
        for number in range(6):
            api.create(member(f"three{number}", "three"))
        api.wait_until(lambda: len(bound(api, "default")) == 3, "three run", SOON)
        for number in range(6):
            api.delete("Pod", f"three{number}")
        api.create(objects.node("m", gpus=1))
        make_group(api, 3, "x")
        make_group(api, 3, "y")
        for number in range(3):
            api.create(member(f"x{number}", "x"))
            api.create(member(f"y{number}", "y"))
        api.wait_until(lambda: len(bound(api, "default")) == 3, "one gang runs", SOON)
        (first,) = {name[0] for name in bound(api, "default")}
        for number in range(3):
            api.delete("Pod", f"{first}{number}")
        second = "y" if first == "x" else "x"
        wanted = {f"{second}{n}" for n in range(3)}
        api.wait_until(lambda: bound(api, "default").keys() == wanted, "then the other", SOON)


def test_koordinators_runtime_quotas_come_true(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """100 CPUs, pods of 5. Weight, request, min: 40, 5, 10; 60, 20, 15; 50, 40, 20; 80, 70, 15 -> 5, 20, 35.4, 39.6.

    The vector of Koordinator's runtime_quota_calculator_test.go, in milli. The last quota comes first, has room for all
    of its 70 CPUs, and gives 30 or 35 back. Pods that are stopped do not come back, so the last two have 7 or 8 pods.
    """
    api.create(objects.node("n", resources={"cpu": "100"}))
    quotas = {"node1": (40, 1, 10), "node2": (60, 4, 15), "node3": (50, 8, 20), "node4": (80, 14, 15)}
    with crds(api):
        for name, (weight, _, least) in quotas.items():
            meta = {
                "annotations": {f"{Q}shared-weight": f'{{"cpu": "{weight}"}}'},
                "labels": {f"{Q}is-parent": "false"},
            }
            make(api, KOORDINATOR, "ElasticQuota", name, meta=meta, min={"cpu": least}, max={"cpu": 100})
        with scheduling(plane), Witness(api) as witness:
            for name, (_, count, _) in reversed(quotas.items()):
                for number in range(count):
                    api.create(objects.pod(f"{name}-{number}", {"cpu": "5"}, labels={f"{Q}name": name}))
                api.wait_until(partial(_has_pods, api, name), f"{name} has a pod that runs", SOON)
            wanted = [(1, 4, 7, 7), (1, 4, 7, 8), (1, 4, 8, 7)]
            api.wait_until(lambda: tuple(_counts(api).values()) in wanted, f"{wanted} pods run", SOON)
            time.sleep(3)  # it stays like this
            assert tuple(_counts(api).values()) in wanted
    assert witness.wrong == []


def _counts(api: Client) -> dict[str, int]:
    """By quota: pods that have a node and are not ending."""
    names = [name.rpartition("-")[0] for name in bound(api, "default")]
    return {quota: names.count(quota) for quota in ("node1", "node2", "node3", "node4")}


def _has_pods(api: Client, quota: str) -> bool:
    return _counts(api)[quota] > 0
