"""`plan` with priorities: which running pods would be stopped, for whom, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import GPU, Object, container, other, pod, workload

HIGH = other("PriorityClass", "scheduling.k8s.io/v1", "high", value=1000)
LOW = other("PriorityClass", "scheduling.k8s.io/v1", "low", value=10)


def cluster(*gpus: int) -> Object:
    cards = [{"model": "A100", "count": count, "memory": "80Gi"} for count in gpus]
    pools = [{"name": f"n{n}", "gpus": card} for n, card in enumerate(cards)]
    return {"apiVersion": "dovetail.dev/v1", "kind": "Cluster", "nodes": pools}


def runs(name: str, node: str = "n0", index: int = 0, gpus: int = 1, **fields: Any) -> Object:
    """A running pod that holds the cards from `index` on."""
    cards = "".join(f"GPU-{node}-{index + n},NVIDIA,81920,100:" for n in range(gpus))
    meta = {"uid": f"u-{name}", "annotations": {"hami.io/vgpu-devices-allocated": f"{cards};"}}
    return pod(name, container({GPU: gpus}), meta=meta, nodeName=node, **fields)


def wants(name: str, gpus: int = 1, **fields: Any) -> Object:
    return pod(name, container({GPU: gpus}), **fields)


def given(folder: Path, *objects: Object) -> list[str]:
    path = folder / "input.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return ["-f", str(path)]


def stopped(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["pod"], one["by"]["pod"]) for one in plan["evictions"]]


def placed(plan: dict[str, Any]) -> dict[str, str]:
    return {one["pod"]: one["node"] for one in plan["placements"]}


def test_a_pod_of_a_higher_priority_takes_the_place_of_one_of_a_lower(tmp_path: Path, plan_json: PlanJson) -> None:
    objects = (cluster(2), HIGH, runs("a"), runs("b", index=1, priority=5), wants("new", priorityClassName="high"))
    plan = plan_json(*given(tmp_path, *objects))
    assert plan["evictions"] == [
        {
            "namespace": "default",
            "pod": "a",
            "node": "n0",
            "by": {"namespace": "default", "pod": "new"},
            "reason": "yields to a pod of a higher priority",
            "breaks_budget": False,
        }
    ]
    assert plan["summary"]["evicted"] == 1
    assert placed(plan) == {"new": "n0"}
    (node,) = plan["nodes"]
    assert node["pods"] == {"before": 2, "after": 2}
    assert [card["pods"] for card in node["devices"]] == [["default/new"], ["default/b"]]


def test_the_table_has_a_section_and_the_exit_code_is_that_of_placed_pods(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), HIGH, runs("a"), wants("new", priorityClassName="high"))
    result = run("plan", *objects)
    assert result.exit_code == 0
    assert "EVICTED (1)" in result.stdout
    assert "default    a    n0    default/new  yields to a pod of a higher priority" in result.stdout
    assert "1 placed, 0 pending · evicted: 1 ·" in result.stdout
    result = run("plan", "--no-preemption", *objects)
    assert result.exit_code == 3
    assert "EVICTED" not in result.stdout


def test_equal_priorities_and_never_stop_no_pod(tmp_path: Path, plan_json: PlanJson) -> None:
    same = given(tmp_path, cluster(1), runs("a", priority=10), LOW, wants("new", priorityClassName="low"))
    assert stopped(plan_json(*same)) == []


def test_no_more_pods_are_stopped_than_the_place_needs(tmp_path: Path, plan_json: PlanJson) -> None:
    """Four cards with one pod each; the new pod wants two, so two of them yield: those of the lowest priority."""
    there = [runs(name, index=n, priority=n) for n, name in enumerate("abcd")]
    plan = plan_json(*given(tmp_path, cluster(4), HIGH, *there, wants("new", 2, priorityClassName="high")))
    assert sorted(stopped(plan)) == [("a", "new"), ("b", "new")]


def test_free_cards_are_used_before_pods_are_stopped(tmp_path: Path, plan_json: PlanJson) -> None:
    """The more important pod is decided first: with one free card it needs one victim. The other pod then waits."""
    objects = (cluster(2), HIGH, LOW, runs("a", priority=20))
    more = (wants("big", 2, priorityClassName="high"), wants("small", priorityClassName="low"))
    plan = plan_json(*given(tmp_path, *objects, *more))
    assert stopped(plan) == [("a", "big")]
    assert [one["pod"] for one in plan["pending"]] == ["small"]


def test_a_gang_takes_places_on_several_nodes(tmp_path: Path, plan_json: PlanJson) -> None:
    label = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
    group = other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", spec={"minMember": 2})
    members = [pod(f"m{n}", container({GPU: 1}), meta=label, priorityClassName="high") for n in range(2)]
    objects = (cluster(1, 1), HIGH, group, runs("a"), runs("b", "n1"), *members)
    plan = plan_json(*given(tmp_path, *objects))
    assert sorted(name for name, _ in stopped(plan)) == ["a", "b"]
    assert sorted(placed(plan).values()) == ["n0", "n1"]


def test_replicas_that_are_stopped_are_folded(tmp_path: Path, run: Run) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "j", "controller": True}
    there = [runs(f"sweep-{n}", index=n) for n in range(4)]
    for one in there:
        one["metadata"]["ownerReferences"] = [owner]
    done = workload("Job", "sweep", parallelism=4)
    done["metadata"]["uid"] = "j"
    text = run(
        "plan", *given(tmp_path, cluster(4), HIGH, done, *there, wants("new", 4, priorityClassName="high"))
    ).stdout
    assert "EVICTED (4)" in text
    assert "sweep-0 … -3 (4)" in text


def test_explain_of_a_pod_that_takes_a_place(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), HIGH, runs("a"), wants("new", priorityClassName="high"))
    result = run("explain", "new", *objects)
    assert result.exit_code == 0
    assert "default/new: placed" in result.stdout


def test_with_room_for_all_the_plan_is_that_without_preemption(tmp_path: Path, plan_json: PlanJson) -> None:
    """Priorities alone change nothing: the same pods go to the same cards."""
    there = [runs(f"r{n}", f"n{n}") for n in range(3)]
    ranks = [{"priorityClassName": "high"}, {"priorityClassName": "low"}, {}]
    more = [wants(f"p{n}", 1 + n % 2, **ranks[n % 3]) for n in range(9)]
    objects = given(tmp_path, cluster(8, 4, 6), HIGH, LOW, *there, *more)
    assert plan_json(*objects) == plan_json("--no-preemption", *objects)
