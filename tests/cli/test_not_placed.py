"""Objects whose pods cannot be planned are named, with exit code 3; they used to be said not to matter."""

from __future__ import annotations

import json

from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import GPU, Object, card, container, node, other, pod

TEMPLATE: Object = {"spec": {"containers": [container({GPU: 1})]}}
TRAIN_JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "llm", "namespace": "ml"},
    "spec": {"runtimeRef": {"name": "torch"}},
}
PYTORCH: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "resnet"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
}
CLUSTER = node("n", card("GPU-a"), card("GPU-b"), allocatable={GPU: "20"})


def text(*objects: Object) -> str:
    return "\n---\n".join(json.dumps(item) for item in objects)


def test_a_kind_that_cannot_be_planned_is_named_with_exit_code_3(run: Run, plan_json: PlanJson) -> None:
    given = text(CLUSTER, pod("p"), TRAIN_JOB, other("ConfigMap"))
    plan = plan_json("-f", "-", stdin=given)
    assert plan["ignored"] == {"ConfigMap": 1}
    (one,) = plan["not_placed"]
    assert (one["kind"], one["namespace"], one["name"]) == ("TrainJob", "ml", "llm")
    result = run("plan", "-f", "-", stdin=given)
    assert result.exit_code == 3
    assert "NOT PLACED (1)" in result.stdout
    (row,) = [line for line in result.stdout.splitlines() if "TrainJob" in line]
    assert "makes pods: its pods come from a TrainingRuntime" in row
    wide = run("plan", "-o", "wide", "-f", "-", stdin=given)
    assert "do not matter for placing: 1 ConfigMap" in wide.stderr


def test_a_plain_kind_is_placed(run: Run, plan_json: PlanJson) -> None:
    given = text(CLUSTER, PYTORCH)
    plan = plan_json("-f", "-", stdin=given)
    assert [one["pod"] for one in plan["placements"]] == ["resnet-worker-0", "resnet-worker-1"]
    assert run("plan", "-f", "-", stdin=given).exit_code == 0
    assert run("explain", "resnet-worker-0", "-f", "-", stdin=given).exit_code == 0
