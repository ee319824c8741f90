"""GPU memory with a unit, in `plan`: understood, charged to the card and to the quota, never placed without a card."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import GPU, MEM, Object, card, container, node, other, pod

HAMI = node("n", card("GPU-a", memory=81920), allocatable={GPU: "10"})
STOCK = node("n", labels={"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "81920"}, allocatable={GPU: "1"})


def text(*objects: Object) -> str:
    return "\n---\n".join(json.dumps(item) for item in objects)


def quota(hard: str | int) -> Object:
    return other("ResourceQuota", name="q", spec={"hard": {"limits.nvidia.com/gpumem": hard}})


def asking(memory: str | int, name: str = "p") -> Object:
    return pod(name, container({GPU: 1, MEM: memory}))


@pytest.mark.parametrize(("written", "mib"), [("16Gi", 16384), ("8000Mi", 8000)])
def test_the_card_is_charged_in_mib_and_a_note_says_so(plan_json: PlanJson, run: Run, written: str, mib: int) -> None:
    given = text(HAMI, asking(written))
    plan = plan_json("-f", "-", stdin=given)
    assert [device["memory_mib"] for device in plan["placements"][0]["devices"]] == [mib]
    assert any(f"{written} is read as {mib:,} MiB" in note for note in plan["notes"])
    result = run("plan", "-f", "-", stdin=given)
    assert (result.exit_code, plan["warnings"]) == (0, [])
    assert f"{written} is read as {mib:,} MiB per card" in result.stderr  # not only with -o wide


@pytest.mark.parametrize(
    ("hard", "waits"), [(2000, True), ("2Gi", True), ("16k", True), (16384, False), ("16Gi", False)]
)
def test_the_quota_is_charged_in_mib(plan_json: PlanJson, hard: str | int, waits: bool) -> None:
    plan = plan_json("-f", "-", stdin=text(HAMI, quota(hard), asking("16Gi")))
    assert plan["summary"]["pending"] == waits
    if waits:
        assert plan["pending"][0]["reason"] == "QuotaExceeded"


@pytest.mark.parametrize("quotas", [(), (quota(2000),)])
def test_a_stock_node_takes_no_part_of_a_card_however_it_is_written(
    plan_json: PlanJson, quotas: tuple[Object, ...]
) -> None:
    """It used to be placed as a pod without GPUs, and kubelet gave it a card that was free in our books."""
    for memory in ("16Gi", 16384):
        plan = plan_json("-f", "-", stdin=text(STOCK, *quotas, asking(memory)))
        assert plan["summary"]["placed"] == 0


def test_a_few_mib_are_warned_of_and_bytes_without_a_unit_are_refused(plan_json: PlanJson, run: Run) -> None:
    plan = plan_json("-f", "-", stdin=text(HAMI, asking(8)))
    assert ["hardly meant" in warning for warning in plan["warnings"]] == [True]
    bytes_ = text(HAMI, asking(17179869184))
    assert run("plan", "-f", "-", stdin=bytes_).exit_code == 2
    plan = plan_json("-f", "-", stdin=bytes_)
    assert plan["pending"][0]["reason"] == "InvalidRequest"
    assert "write 16384Mi" in plan["pending"][0]["message"]
