"""Where a node's cards come from: HAMi's register, feature-discovery labels, or a bare count; and who enforces."""

from __future__ import annotations

import json

import pytest

from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node, Taint
from tests.kube.manifests import GPU, REGISTER, Object, card, node, read, said


def only(source: Object) -> Node:
    (found,) = read(source).nodes
    return found


def test_json_register_with_everything_hami_leaves_out() -> None:
    bare = {"id": "GPU-1", "index": 1, "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-A100"}
    found = only(node("n", {**card("GPU-0"), "mode": "hami-core"}, bare))
    assert found.devices == (
        Device("GPU-0", 0, "NVIDIA", "NVIDIA A100-SXM4-80GB", 8000),
        Device("GPU-1", 1, "NVIDIA", "NVIDIA-A100", 8192, healthy=False),  # a missing health is false
    )
    assert found.enforcer is Enforcer.HAMI
    assert found.allocatable[GPU] == 20  # 2 cards × 10 slots, as allocatable does not say


def test_legacy_register_with_seven_and_nine_fields() -> None:
    text = "GPU-a,10,8192,100,NVIDIA-Tesla T4,1,true:GPU-b,5,4096,150,NVIDIA-T4,0,false,3,mig:"
    found = only(node("n", annotations={REGISTER: text}))
    assert found.devices == (
        Device("GPU-a", 0, "NVIDIA", "NVIDIA-Tesla T4", 8192, numa=1),
        Device("GPU-b", 3, "NVIDIA", "NVIDIA-T4", 4096, 1500, 5, healthy=False, mode="mig"),
    )


def test_the_doubled_prefix_of_2025_is_cleaned() -> None:
    assert only(node("n", card("a", "NVIDIA-NVIDIA H20-3e"))).devices[0].model == "NVIDIA H20-3e"


@pytest.mark.parametrize(
    "entry",
    [
        {"count": 10},
        {"id": ""},
        {"id": "a,b"},
        {"id": "x", "count": -1},
        {"id": "x", "devmem": 2**40},
        {"id": "x", "devcore": "100"},
        {"id": "x", "index": 1.5},
        {"id": "x", "numa": -1.0},
        {"id": "x", "numa": -2},
        {"id": "x", "health": "yes"},
        {"id": "x", "type": 7},
        {"id": "good"},  # a duplicate
        "nonsense",
        None,
    ],
)
def test_a_broken_entry_is_skipped_with_a_warning_and_the_others_stay(entry: object) -> None:
    given = read(node("n", annotations={REGISTER: json.dumps([card("good"), entry])}))
    assert [device.uuid for device in given.nodes[0].devices] == ["good"]
    (warning,) = said(given, "warning", f"{REGISTER}[1]")
    assert warning.where == "m.json#1 Node n"


def test_a_machine_without_numa_says_minus_1() -> None:
    register = json.dumps([{**card("a"), "numa": -1}, {**card("b"), "numa": 1}])
    assert [device.numa for device in only(node("n", annotations={REGISTER: register})).devices] == [0, 1]


@pytest.mark.parametrize("text", ["[", "{}", "nonsense", "null]", "a,b,c:", "[[[["])
def test_an_unreadable_register_is_a_warning(text: str) -> None:
    given = read(node("n", annotations={REGISTER: text}))
    assert given.nodes[0].devices == ()
    assert any(REGISTER in warning.field for warning in said(given, "warning"))


def test_pair_scores_are_symmetric_and_a_missing_pair_is_0() -> None:
    score = [
        {"uuid": "a", "score": {"b": 600, "c": 20}},
        {"uuid": "b", "score": {"a": 600}},
        {"uuid": "c", "score": {"a": 30}},
    ]
    annotations = {"hami.io/node-nvidia-score": json.dumps(score)}
    given = read(node("n", card("a"), card("b"), card("c"), annotations=annotations))
    assert given.nodes[0].links == ((0, 600, 0), (600, 0, 0), (0, 0, 0))
    assert said(given, "warning", "node-nvidia-score")  # a and c disagree: 20 and 30


def test_cordoned_cards() -> None:
    given = read(node("n", card("dev-0"), card("dev-1"), annotations={"hami.io/device-cordon": "dev-1, ,gone"}))
    assert [device.cordoned for device in given.nodes[0].devices] == [False, True]
    assert "gone" in said(given, "warning", "device-cordon")[0].message


def labels(product: str = "NVIDIA-A100-SXM4-80GB", count: int = 4, **more: str) -> Object:
    named = {f"nvidia.com/gpu.{key.replace('_', '-')}": value for key, value in more.items()}
    return {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.count": str(count),
        **named,
    }


def test_feature_discovery_labels_give_whole_cards_of_a_stock_node() -> None:
    found = only(node("n", labels=labels(), allocatable={GPU: "4"}))
    assert [device.uuid for device in found.devices] == ["n/gpu-0", "n/gpu-1", "n/gpu-2", "n/gpu-3"]
    assert found.devices[0] == Device("n/gpu-0", 0, "NVIDIA", "NVIDIA-A100-SXM4-80GB", 81920, slots=1)
    assert found.enforcer is Enforcer.STOCK


def test_replicas_are_never_more_cards() -> None:
    shared = labels("Tesla-T4-SHARED", 2, replicas="4", sharing_strategy="time-slicing")
    found = only(node("n", labels=shared, allocatable={GPU: "8"}))  # 8 // 4 = 2 cards
    assert [(device.model, device.slots) for device in found.devices] == [("Tesla-T4", 1)] * 2
    broken = only(node("n", labels=shared, allocatable={GPU: "4"}))  # one card lost its replicas: 4 // 4 = 1
    assert len(broken.devices) == 1


def test_mig_nodes_are_known_as_such() -> None:
    assert only(node("n", labels=labels("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 7), allocatable={GPU: "7"})).mig
    assert only(node("n", labels=labels() | {"nvidia.com/mig-1g.5gb.count": "3"}, allocatable={GPU: "3"})).mig
    assert only(node("n", labels=labels(), allocatable={GPU: "3", "nvidia.com/mig-1g.5gb": "7"})).mig
    assert not only(node("n", labels=labels() | {"nvidia.com/mig-1g.5gb.count": "0"}, allocatable={GPU: "4"})).mig


def test_a_count_without_labels_is_cards_of_unknown_memory() -> None:
    given = read(node("n", allocatable={GPU: "2"}))
    assert [(device.model, device.memory_mib) for device in given.nodes[0].devices] == [("NVIDIA", 0)] * 2
    assert said(given, "warning", GPU)


def test_the_enforcer_can_be_stated_and_a_wrong_one_promises_least() -> None:
    ours = only(node("n", labels=labels(), allocatable={GPU: "4"}, annotations={"dovetail.dev/enforcer": "dovetail"}))
    assert (ours.enforcer, ours.devices[0].slots) == (Enforcer.DOVETAIL, 10)
    given = read(node("n", card("a"), annotations={"dovetail.dev/enforcer": "hamii"}))
    assert given.nodes[0].enforcer is Enforcer.STOCK
    assert "dovetail, hami, stock" in said(given, "error", "dovetail.dev/enforcer")[0].message


def test_capacity_and_taints() -> None:
    source = node("n", spec={"unschedulable": True, "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]})
    source["status"] = {"capacity": {"cpu": "3900m", "memory": "1Gi", "x.y/z": "2"}}
    found = only(source)
    assert found.allocatable == {"cpu": 3900, "memory": 1 << 30, "x.y/z": 2, "pods": 110}
    assert (found.taints, found.unschedulable) == ((Taint("a", "b", "NoSchedule"),), True)


@pytest.mark.parametrize(
    ("status", "taint", "warned"),
    [
        ("True", "", False),
        ("False", "", True),
        ("Unknown", "", True),
        ("Unknown", "node.kubernetes.io/unreachable", False),
        ("False", "node.kubernetes.io/not-ready", False),
        ("False", "dedicated", True),
    ],
)
def test_a_node_that_is_not_ready_and_not_tainted_is_warned_of(status: str, taint: str, warned: bool) -> None:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    given = read(node("n", spec={"taints": taints}, conditions=[{"type": "Ready", "status": status}]))
    assert bool(said(given, "warning", "status.conditions.Ready")) is warned


def test_a_wrong_amount_counts_as_none_and_is_named() -> None:
    given = read(node("n", allocatable={"cpu": "-4", "memory": "lots"}))
    assert "cpu" not in given.nodes[0].allocatable
    assert said(given, "error", "status.allocatable.cpu")
    assert said(given, "error", "status.allocatable.memory")


def test_other_vendors_register_too() -> None:
    annotations = {"hami.io/node-register-Ascend910B3": json.dumps([card("npu-0", "910B3", 65536)])}
    found = only(node("n", annotations=annotations))
    assert (found.devices[0].vendor, found.devices[0].model) == ("Ascend910B3", "910B3")
    assert found.allocatable["huawei.com/Ascend910B3"] == 10
