"""`plan` with ElasticQuotas and Queues: who borrows, who gives back, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import PlanJson, Run
from tests.cli.test_preemption import cluster, given, placed, runs, stopped, wants
from tests.kube.manifests import GPU, Object, container, other, workload


def quota(namespace: str, least: int, most: int) -> Object:
    made = other("ElasticQuota", "scheduling.x-k8s.io/v1alpha1", namespace)
    made["metadata"]["namespace"] = namespace
    return {**made, "spec": {"min": {GPU: least}, "max": {GPU: most}}}


def inside(namespace: str, made: Object) -> Object:
    made["metadata"]["namespace"] = namespace
    return made


def replicas(namespace: str, count: int, gpus: int) -> Object:
    template = {"spec": {"containers": [container({GPU: gpus})]}}
    return inside(namespace, workload("Deployment", f"w{namespace}", template, replicas=count))


def by_namespace(plan: dict[str, Any], key: str) -> list[str]:
    return sorted(one["namespace"] for one in plan[key])


def test_the_second_demo_of_capacity_scheduling(tmp_path: Path, plan_json: PlanJson) -> None:
    """Ten GPUs, A owed 4 and B 6. A runs three pods of two GPUs and B three of one; B asks for three more.

    One GPU is free. For the next, a pod of A yields: 4/6. A seventh pod of B would exceed what B is owed.
    """
    a = [inside("a", runs(f"a{n}", index=2 * n, gpus=2)) for n in range(3)]
    b = [inside("b", runs(f"b{n}", index=6 + n)) for n in range(3)]
    objects = (cluster(10), quota("a", 4, 6), quota("b", 6, 8), *a, *b, replicas("b", 4, 1))
    plan = plan_json(*given(tmp_path, *objects))
    assert len(stopped(plan)) == 1
    assert by_namespace(plan, "evictions") == ["a"]
    assert "has borrowed what ElasticQuota/b/b is owed" in plan["evictions"][0]["reason"]
    assert by_namespace(plan, "placements") == ["b"] * 3
    assert [one["reason"] for one in plan["pending"]] == ["QueueBorrowing"]


def test_pods_of_one_plan_get_what_their_queues_are_owed(tmp_path: Path, plan_json: PlanJson) -> None:
    """The same demo with nothing running: A's third pod would borrow, and gives way to B. No running pod is stopped."""
    objects = (cluster(10), quota("a", 4, 6), quota("b", 6, 8), replicas("a", 3, 2), replicas("b", 7, 1))
    plan = plan_json(*given(tmp_path, *objects))
    assert by_namespace(plan, "placements") == ["a"] * 2 + ["b"] * 6
    assert by_namespace(plan, "pending") == ["a", "b"]
    assert plan["evictions"] == []


def test_without_preemption_nothing_is_reclaimed(tmp_path: Path, plan_json: PlanJson) -> None:
    objects = (cluster(2), quota("a", 1, 2), quota("b", 1, 2))
    there = (inside("a", runs("a0")), inside("a", runs("a1", index=1)), inside("b", wants("b0")))
    plan = plan_json(*given(tmp_path, *objects, *there))
    assert [name for _, name in stopped(plan)] == ["b0"]
    plan = plan_json("--no-preemption", *given(tmp_path, *objects, *there))
    assert (stopped(plan), placed(plan)) == ([], {})


def test_a_ceiling_per_gpu_model(tmp_path: Path, plan_json: PlanJson) -> None:
    """Two A100; the tenant may have one of them."""
    limit = quota("a", 0, 0)
    limit["spec"] = {"min": {"gpus/A100": 1}, "max": {"gpus/A100": 1}}
    plan = plan_json(*given(tmp_path, cluster(2), limit, replicas("a", 2, 1)))
    assert (len(plan["placements"]), [one["reason"] for one in plan["pending"]]) == (1, ["QueueCeiling"])


def test_queues_of_kai_and_volcano(tmp_path: Path, plan_json: PlanJson) -> None:
    free = {"quota": -1, "limit": -1}
    kai = other("Queue", "scheduling.run.ai/v2", "team")
    kai["spec"] = {"resources": {"gpu": {"quota": 1, "limit": 1}, "cpu": free, "memory": free}}
    volcano = other("Queue", "scheduling.volcano.sh/v1beta1", "ml", spec={"capability": {GPU: 1}})
    pods = [wants(f"k{n}") for n in range(2)] + [wants(f"v{n}") for n in range(2)]
    for one in pods[:2]:
        one["metadata"]["labels"] = {"kai.scheduler/queue": "team"}
    for one in pods[2:]:
        one["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "ml"}
    plan = plan_json(*given(tmp_path, cluster(8), kai, volcano, *pods))
    assert sorted(placed(plan)) == ["k0", "v0"]
    assert {one["reason"] for one in plan["pending"]} == {"QueueCeiling"}
    assert "queue kai/team" in plan["pending"][0]["message"]


def test_a_wrong_queue_is_an_error_of_the_input(tmp_path: Path, run: Run) -> None:
    limit = quota("a", 1, 1)
    limit["spec"]["min"] = {GPU: "many"}
    result = run("plan", *given(tmp_path, cluster(1), limit))
    assert result.exit_code == 2
    assert "spec.min.nvidia.com/gpu: 'many' is not a quantity" in result.stderr


def test_queues_of_the_configuration(tmp_path: Path, plan_json: PlanJson) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{apiVersion: dovetail.dev/v1, kind: Config, queues: [{name: ml, ceiling: {gpus: 1}}]}")
    pods = [wants(f"p{n}") for n in range(2)]
    for one in pods:
        one["metadata"]["labels"] = {"dovetail.dev/queue": "ml"}
    plan = plan_json("--config", config, *given(tmp_path, cluster(4), *pods))
    assert [one["reason"] for one in plan["pending"]] == ["QueueCeiling"]
    assert "queue ml:" in plan["pending"][0]["message"]
