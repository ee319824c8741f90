"""`plan` and objects beyond a bound: the pod is pending with its reason, the others are placed, the exit code is 3."""

from __future__ import annotations

import json

from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import GPU, MEM, Object, card, container, node, other, pod

SHARED = node("n", card("GPU-a", memory=81920), allocatable={GPU: "10"})
STOCK = node("s", labels={"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "81920"}, allocatable={GPU: "2"})


def text(*objects: Object) -> str:
    return "\n---\n".join(json.dumps(item) for item in objects)


def test_two_billion_cards(run: Run, plan_json: PlanJson) -> None:
    """It was a MemoryError and exit code 70."""
    given = text(SHARED, pod("huge", container({GPU: "2147483647"})), pod("small", container({GPU: 1, MEM: 100})))
    plan = plan_json("-f", "-", stdin=given)
    assert [row["pod"] for row in plan["placements"]] == ["small"]
    [pending] = plan["pending"]
    assert (pending["pod"], pending["reason"]) == ("huge", "LimitExceeded")
    field = "spec.containers[0].resources.limits.nvidia.com/gpu"
    said = f"{field}: 2,147,483,647 cards are asked for by one container; at most 256 are read (docs/limits.md)"
    assert said in pending["message"]
    result = run("plan", "-f", "-", stdin=given)
    assert result.exit_code == 3
    assert "at most 256 are read" in result.output
    explained = run("explain", "huge", "-f", "-", stdin=given)
    assert explained.exit_code in (0, 3)
    assert "at most 256 are read" in explained.output


def test_28_000_resources(run: Run, plan_json: PlanJson) -> None:
    many = {f"example.com/r{n}": 1 for n in range(28_000)}
    plan = plan_json("-f", "-", stdin=text(SHARED, pod("many", container(many))))
    assert [row["reason"] for row in plan["pending"]] == ["LimitExceeded"]
    assert "28,000 different resources are named; at most 64 are read" in plan["pending"][0]["message"]


def test_a_gang_that_needs_too_many_members(plan_json: PlanJson) -> None:
    member = pod("p", container({GPU: 1, MEM: 100}), meta={"labels": {"scheduling.x-k8s.io/pod-group": "g"}})
    group = other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", spec={"minMember": 2**31 - 1})
    plan = plan_json("-f", "-", stdin=text(SHARED, member, group))
    assert [row["reason"] for row in plan["pending"]] == ["LimitExceeded"]
    assert "2,147,483,647 pods must be placed together; at most 10,000 are read" in plan["pending"][0]["message"]


def test_gpu_memory_on_a_stock_node_is_held_against_the_quota(plan_json: PlanJson) -> None:
    """`gpumem: 16Gi` under 2,000 MiB: no part of a card is promised there, and a whole card of 81,920 MiB is too
    much. Under 100,000 MiB one whole card fits, and a second does not: 2 × 81,920 = 163,840."""
    parts = [pod(f"part-{n}", container({GPU: 1, MEM: "16Gi"})) for n in range(4)]
    whole = [pod(f"whole-{n}", container({GPU: 1})) for n in range(4)]
    for hard, placed in ((2_000, []), (100_000, ["whole-0"]), (10**6, ["whole-0", "whole-1"])):
        quota = other("ResourceQuota", name="q", spec={"hard": {"limits.nvidia.com/gpumem": hard}})
        plan = plan_json("-f", "-", stdin=text(STOCK, quota, *parts, *whole))
        assert [row["pod"] for row in plan["placements"]] == placed, hard
