"""Nodes with a vendor's own plugin: whole cards of any vendor, each promised once, and parts of cards never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PlanJson
from tests.kube.manifests import GPU, Object, container, node, pod

A10 = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "23028"}
SHARED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


def asking(name: str, **limits: int) -> Object:
    """A pod that asks for NVIDIA's resources: asking("p", gpu=1, gpumem=4096)."""
    return pod(name, container({f"nvidia.com/{key}": value for key, value in limits.items()}))


@pytest.fixture
def plan(plan_json: PlanJson, tmp_path: Path) -> Any:
    """`plan(objects, device_config)` → ({pod: node}, {pod: reason}, the whole plan)."""

    def invoke(objects: list[Object], nvidia: Object | None = None) -> tuple[dict[str, str], dict[str, str], Any]:
        config = tmp_path / "device-config.yaml"
        config.write_text(json.dumps({"nvidia": nvidia or {}}))
        text = "\n".join(json.dumps(item) for item in objects)
        found = plan_json("-f", "-", "--device-config", config, stdin=text)
        placed = {row["pod"]: row["node"] for row in found["placements"]}
        return placed, {row["pod"]: row["reason"] for row in found["pending"]}, found

    return invoke


@pytest.mark.parametrize(
    "count", ["nvidia.com/gpu", "amd.com/gpu", "hygon.com/dcunum", "huawei.com/Ascend910B4", "aws.amazon.com/neuron"]
)
def test_whole_cards_of_every_vendor_until_none_is_left(plan: Any, count: str) -> None:
    three = [pod(name, container({count: cards})) for name, cards in (("a", 1), ("b", 2), ("c", 2))]
    placed, pending, _ = plan([node("n", allocatable={count: "4"}), *three])
    assert placed == {"a": "n", "b": "n"}  # 1 + 2 of 4 cards
    assert pending == {"c": "CardTimeSlicingExhausted"}  # 4 − 3 = 1 < 2


def test_parts_of_other_vendors_cards_are_refused(plan: Any) -> None:
    part = pod("part", container({"amd.com/gpu": 1, "amd.com/gpumem": 1000}))
    assert plan([node("n", allocatable={"amd.com/gpu": "4"}), part])[1] == {"part": "WholeCardsOnly"}


@pytest.mark.parametrize("labels", [{**A10, "nvidia.com/gpu.count": "2"}, {}])
def test_hamis_default_memory_does_not_make_a_part_of_a_whole_card(plan: Any, labels: Object) -> None:
    plain = node("n", labels=labels, allocatable={GPU: "2"})
    placed, pending, found = plan(
        [plain, asking("whole", gpu=1), asking("part", gpu=1, gpumem=4096)], {"defaultMemory": 4096}
    )
    assert (placed, pending) == ({"whole": "n"}, {"part": "WholeCardsOnly"})
    [device] = found["placements"][0]["devices"]
    assert device["memory_mib"] == (23028 if labels else 0)  # all of the card, not 4,096; 0 = nobody knows


def test_default_cores_do_not_either_and_all_of_both_is_a_whole_card(plan: Any) -> None:
    pods = [asking("all", gpu=1, gpucores=100), asking("some", gpu=1, gpucores=50), asking("shares", gpu=1, gpucores=0)]
    placed, pending, _ = plan([node("n", allocatable={GPU: "4"}), asking("plain", gpu=1), *pods], {"defaultCores": 20})
    assert placed == {"all": "n", "plain": "n"}
    assert pending == {"some": "WholeCardsOnly", "shares": "WholeCardsOnly"}


def test_hami_nodes_still_give_the_default_part(plan: Any) -> None:
    hami = node("n", {"id": "GPU-0", "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA A10", "health": True})
    pods = [asking(name, gpu=1, gpucores=30) for name in "abc"]
    placed, pending, _ = plan([hami, *pods], {"defaultMemory": 4096})
    assert placed == {"a": "n", "b": "n"}  # 2 × 4,096 = 8,192 MiB
    assert pending == {"c": "CardInsufficientMemory"}


def test_a_card_of_a_renamed_resource_is_promised_once(plan: Any) -> None:
    labelled = node("n", labels={**A10, "nvidia.com/gpu.count": "1"}, allocatable={GPU: "1"})
    renamed = {"resourceCountName": "hami.io/vgpu", "resourceMemoryName": "hami.io/vgpumem"}
    pods = [asking("counted", gpu=1), pod("hami", container({"hami.io/vgpu": 1}))]
    placed, pending, found = plan([labelled, *pods], renamed)
    assert (placed, pending) == ({"counted": "n"}, {"hami": "NodeUnregistered"})  # there is one card
    assert any("hami.io/vgpu: is not there" in warning for warning in found["warnings"])


def test_time_slices_of_their_own_name_are_not_cards_as_well(plan: Any) -> None:
    labelled = node(
        "n", labels={**A10, **SHARED, "nvidia.com/gpu.count": "2"}, allocatable={"nvidia.com/gpu.shared": "8"}
    )
    pods = [asking("whole", gpu=2), asking("slices", **{"gpu.shared": 8})]
    placed, pending, _ = plan([labelled, *pods])
    assert (placed, pending) == ({"slices": "n"}, {"whole": "NodeUnregistered"})  # 2 × 4 slices are all there is


def test_a_lone_count_label_promises_nothing(plan: Any) -> None:
    placed, pending, found = plan([node("n", labels={"nvidia.com/gpu.count": "2"}), asking("p", gpu=1)])
    assert (placed, pending) == ({}, {"p": "NodeUnregistered"})
    assert not any("None" in warning for warning in found["warnings"])
    assert any("the labels count 2" in warning for warning in found["warnings"])
