"""Nodes and running pods whose annotations flicker, come late, or are edited: no card is given twice (ADR 13)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from tests.live.assigned import ALLOCATED, faults
from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import create_all
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, REGISTER, card, cards, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

WHOLE = gpu_limits(1, memory=15360, cores=100)
STOCK = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.count": "4"}
_numbers = itertools.count()


def register(api: Client, name: str, value: list[Object] | str | None) -> None:
    text = json.dumps(value) if isinstance(value, list) else value
    api.patch("Node", name, {"metadata": {"annotations": {REGISTER: text}}})


def allocatable(api: Client, name: str, count: int) -> None:
    amounts = {GPU: str(count)}
    api.patch("Node", name, {"status": {"capacity": amounts, "allocatable": amounts}}, part="status")


def bound(api: Client) -> list[str]:
    """GPU pods that have a node."""
    pods = (item for item in api.list("Pod") if item["spec"].get("nodeName"))
    return sorted(item["metadata"]["name"] for item in pods if not item["metadata"]["name"].startswith("canary"))


def until(api: Client, check: Callable[[], bool], what: str) -> None:
    api.wait_until(check, what, 30)


def all_seen(api: Client, dovetail: Dovetail, unsettled: int) -> None:
    """Until the scheduler has seen the nodes as they are, and has decided what follows from it."""
    until(api, lambda: dovetail.metric("dovetail_nodes_unsettled") == unsettled, f"{unsettled} nodes not settled")
    for _ in range(2):  # two turns of the loop
        name = f"canary-{next(_numbers)}"
        api.create(pod(name, {"cpu": "1m"}))
        until(api, lambda name=name: bool(api.get("Pod", name)["spec"].get("nodeName")), f"{name} is bound")  # type: ignore[misc]


@pytest.fixture
def dovetail(plane: ControlPlane, kubelet: Kubelet) -> Iterator[Dovetail]:
    with scheduling(plane, "--settle-seconds", "600") as process:
        yield process
        assert "Traceback" not in process.words()


@pytest.mark.parametrize("away", [None, "", "[{broken"])
def test_a_register_that_flickers(api: Client, dovetail: Dovetail, away: str | None) -> None:
    api.create(node("a", gpus=4))
    create_all(api, (pod(f"p{number}", WHOLE) for number in range(8)))
    until(api, lambda: len(bound(api)) == 4, "four of eight pods are bound")
    for _ in range(3):
        register(api, "a", away)
        all_seen(api, dovetail, unsettled=int(away != "[{broken"))
        register(api, "a", cards("a", 4))
        all_seen(api, dovetail, unsettled=0)
    assert len(bound(api)) == 4
    assert faults(api) == []
    assert "(assumed)" not in dovetail.words()


def test_a_count_that_comes_before_its_register(api: Client, dovetail: Dovetail) -> None:
    create_all(api, (pod(f"p{number}", gpu_limits(1)) for number in range(12)))
    api.create(node("a", resources={GPU: "40"}))
    all_seen(api, dovetail, unsettled=1)
    assert bound(api) == []
    register(api, "a", cards("a", 4))
    until(api, lambda: len(bound(api)) == 4, "four of twelve pods are bound")
    all_seen(api, dovetail, unsettled=0)
    assert len(bound(api)) == 4
    assert faults(api) == []


def test_a_stock_node_that_loses_a_card_and_gets_a_register(api: Client, dovetail: Dovetail) -> None:
    api.create(node("a", resources={GPU: "4"}, labels=STOCK))
    create_all(api, (pod(f"p{number}", gpu_limits(1)) for number in range(6)))
    until(api, lambda: len(bound(api)) == 4, "four of six pods are bound")
    for count in (3, 4, 0, 4):
        allocatable(api, "a", count)
        all_seen(api, dovetail, unsettled=0)
        assert len(bound(api)) == 4
    register(api, "a", cards("a", 4))
    allocatable(api, "a", 40)
    all_seen(api, dovetail, unsettled=0)
    assert len(bound(api)) == 4


def test_a_node_deleted_without_its_register_comes_back_with_it(api: Client, dovetail: Dovetail) -> None:
    api.create(node("a", gpus=4))
    create_all(api, (pod(f"p{number}", WHOLE) for number in range(4)))
    until(api, lambda: len(bound(api)) == 4, "four pods are bound")
    for name in ("p0", "p1"):
        api.delete("Pod", name, gracePeriodSeconds=0)
    register(api, "a", None)
    all_seen(api, dovetail, unsettled=1)
    api.delete("Node", "a")
    until(api, lambda: dovetail.metric("dovetail_nodes") == 0, "the node is gone")
    api.create(node("a", gpus=4))
    create_all(api, (pod(f"q{number}", WHOLE) for number in range(4)))
    until(api, lambda: len(bound(api)) == 4, "two more pods are bound")
    all_seen(api, dovetail, unsettled=0)
    assert len(bound(api)) == 4
    assert faults(api) == []


def test_a_label_for_hamis_webhook_frees_no_card(api: Client, dovetail: Dovetail) -> None:
    api.create(node("a", gpus=1))
    api.create(pod("old", {GPU_MEMORY: 15360, GPU_CORES: 100}))
    until(api, lambda: bound(api) == ["old"], "the pod is bound")
    api.create(pod("new", WHOLE))
    api.patch("Pod", "old", {"metadata": {"labels": {"hami.io/webhook": "ignore"}}})
    all_seen(api, dovetail, unsettled=0)
    assert bound(api) == ["old"]
    dovetail.kill()
    dovetail.start()
    all_seen(api, dovetail, unsettled=0)
    assert bound(api) == ["old"]


def test_a_node_whose_count_is_0_takes_no_pod(api: Client, dovetail: Dovetail) -> None:
    api.create(node("a", gpus=4))
    allocatable(api, "a", 0)
    all_seen(api, dovetail, unsettled=1)
    api.create(pod("p", gpu_limits(1, memory=1000)))
    all_seen(api, dovetail, unsettled=1)
    assert bound(api) == []
    allocatable(api, "a", 40)
    until(api, lambda: bound(api) == ["p"], "the pod is bound once the plugin is back")


def test_records_that_are_edited(api: Client, dovetail: Dovetail) -> None:
    """While it runs, the scheduler keeps what it bound; after a restart what was written for the plugin serves."""
    api.create(node("a", gpus=2))
    create_all(api, (pod(f"p{number}", WHOLE) for number in range(2)))
    until(api, lambda: len(bound(api)) == 2, "both pods are bound")
    api.create(pod("w", WHOLE))
    for text in ("GPU-a-0,NVIDIA,0,0:;", "GPU-nowhere,NVIDIA,15360,100:;", None):
        api.patch("Pod", "p0", {"metadata": {"annotations": {ALLOCATED: text}}})
        all_seen(api, dovetail, unsettled=0)
        assert bound(api) == ["p0", "p1"]
    assert dovetail.metric("dovetail_records_changed_total") >= 1
    dovetail.kill()
    dovetail.start()
    all_seen(api, dovetail, unsettled=0)
    assert bound(api) == ["p0", "p1"]
    api.delete("Pod", "p1", gracePeriodSeconds=0)
    until(api, lambda: bound(api) == ["p0", "w"], "the waiting pod gets the card that is free")
    to_allocate = api.get("Pod", "p0")["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"]
    assert api.get("Pod", "w")["metadata"]["annotations"][ALLOCATED] != to_allocate


def test_a_node_under_a_new_name(api: Client, dovetail: Dovetail) -> None:
    api.create(node("a", gpus=1))
    api.create(pod("p", WHOLE))
    until(api, lambda: bound(api) == ["p"], "the pod is bound")
    api.delete("Node", "a")
    api.create(node("b", gpus=[card("GPU-a-0")]))
    api.create(pod("w", WHOLE))
    all_seen(api, dovetail, unsettled=1)
    assert bound(api) == ["p"]
    api.delete("Pod", "p", gracePeriodSeconds=0)
    until(api, lambda: bound(api) == ["w"], "the card is given once its pod is gone")
