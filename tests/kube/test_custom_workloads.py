"""Kinds of operators that make pods: expanded where their templates are plain, else named as not placed."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.files.custom_workloads import EXPANDABLE, OPAQUE
from tests.kube.manifests import GPU, MEM, Object, container, node, other, pod, pods_of, read, said, workload

TEMPLATE: Object = {"spec": {"containers": [container({GPU: 1}, image="x")]}}
CPU: Object = {"spec": {"containers": [container({"cpu": 1}, image="x")]}}


def custom(kind: str, api_version: str, name: str = "t", **spec: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


PYTORCH = custom(
    "PyTorchJob",
    "kubeflow.org/v1",
    pytorchReplicaSpecs={"Master": {"template": CPU}, "Worker": {"replicas": 3, "template": TEMPLATE}},
)
MPI = custom(
    "MPIJob",
    "kubeflow.org/v2beta1",
    mpiReplicaSpecs={"Launcher": {"template": CPU}, "Worker": {"replicas": 2, "template": TEMPLATE}},
)
VOLCANO = custom(
    "Job", "batch.volcano.sh/v1alpha1", tasks=[{"name": "w", "replicas": 4, "template": TEMPLATE}], minAvailable=3
)
JOB_SET = custom(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    replicatedJobs=[
        {"name": "d", "template": {"spec": {"template": CPU}}},
        {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 2, "template": TEMPLATE}}},
    ],
)
LWS = custom(
    "LeaderWorkerSet",
    "leaderworkerset.x-k8s.io/v1",
    replicas=2,
    leaderWorkerTemplate={"size": 3, "leaderTemplate": CPU, "workerTemplate": TEMPLATE},
)
RAY_SPEC: Object = {
    "headGroupSpec": {"template": CPU},
    "workerGroupSpecs": [
        {"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE},
        {"groupName": "least", "minReplicas": 1, "template": TEMPLATE},
    ],
}
RAY = custom("RayCluster", "ray.io/v1", **RAY_SPEC)
MADE = [
    (PYTORCH, ["t-master-0", "t-worker-0", "t-worker-1", "t-worker-2"]),
    (MPI, ["t-launcher-0", "t-worker-0", "t-worker-1"]),
    (VOLCANO, ["t-w-0", "t-w-1", "t-w-2", "t-w-3"]),
    (JOB_SET, ["t-d-0", "t-w-0", "t-w-1", "t-w-2", "t-w-3"]),  # 1 + 2 × min(3, 2)
    (LWS, ["t-0", "t-1", "t-worker-0", "t-worker-1", "t-worker-2", "t-worker-3"]),  # 2 × (1 + 2)
    (RAY, ["t-gpu-0", "t-gpu-1", "t-gpu-2", "t-gpu-3", "t-head-0", "t-least-0"]),  # 1 + 2 × 2 + 1
    (custom("RayJob", "ray.io/v1", rayClusterSpec={"headGroupSpec": {"template": CPU}}), ["t-head-0"]),
    (custom("RayService", "ray.io/v1", rayClusterConfig={"headGroupSpec": {"template": CPU}}), ["t-head-0"]),
    (custom("Rollout", "argoproj.io/v1alpha1", replicas=2, template=TEMPLATE), ["t-0", "t-1"]),
    (custom("CloneSet", "apps.kruise.io/v1alpha1", template=TEMPLATE), ["t-0"]),
    (custom("Notebook", "kubeflow.org/v1", template=TEMPLATE), ["t-0"]),
    (custom("Service", "serving.knative.dev/v1", template=TEMPLATE), ["t-0"]),
    (
        custom("InferenceService", "serving.kserve.io/v1beta1", predictor={"minReplicas": 2, **TEMPLATE["spec"]}),
        ["t-predictor-0", "t-predictor-1"],
    ),
    (workload("ReplicationController", "t", TEMPLATE, replicas=2) | {"apiVersion": "v1"}, ["t-0", "t-1"]),
]


@pytest.mark.parametrize(("source", "names"), MADE, ids=[source["kind"] for source, _ in MADE])
def test_plain_templates_are_expanded(source: Object, names: list[str]) -> None:
    given = read(source)
    assert sorted(found.name for found in pods_of(given)) == names
    assert (given.ignored, given.not_placed, said(given, "warning")) == ({}, (), [])
    gpus = [found for found in pods_of(given) if found.wants_devices]
    assert all(found.owner == f"{source['kind']}/default/t" for found in gpus)


def test_a_volcano_job_is_a_gang() -> None:
    (group,) = read(VOLCANO).groups
    assert (len(group.pods), group.minimum) == (4, 3)
    whole = custom("Job", "batch.volcano.sh/v1alpha1", tasks=[{"name": "w", "replicas": 4, "template": TEMPLATE}])
    (group,) = read(whole).groups
    assert group.minimum == 4  # all of them, by default
    (single,) = {group.minimum for group in read(PYTORCH).groups}
    assert single == 1


def test_a_gang_label_in_a_template_counts() -> None:
    labelled = {**TEMPLATE, "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}
    specs = {"Worker": {"replicas": 2, "template": labelled}}
    source = custom("PyTorchJob", "kubeflow.org/v1", pytorchReplicaSpecs=specs)
    (group,) = read(source, other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", spec={"minMember": 2})).groups
    assert (len(group.pods), group.minimum) == (2, 2)


def owned(kind: str, name: str) -> Object:
    return pod(name, meta={"ownerReferences": [{"kind": kind, "name": "t", "controller": True}]}, nodeName="n")


def test_pods_that_exist_are_not_made_twice() -> None:
    there = [owned("PyTorchJob", "t-worker-0"), owned("PyTorchJob", "t-master-0"), pod("t-worker-9", nodeName="n")]
    assert [found.name for found in pods_of(read(node("n"), PYTORCH, *there))] == ["t-worker-1", "t-worker-2"]
    leaders = [owned("StatefulSet", name) for name in ("t-0", "t-0-1", "t-0-2", "t-1", "t-1-1")]  # 5 of 6
    assert len(pods_of(read(node("n"), LWS, *leaders))) == 1


def test_where_its_own_jobs_are_in_the_input_they_count_alone() -> None:
    job = workload("Job", "t-w-0", TEMPLATE, parallelism=2)
    job["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "t", "controller": True}]
    assert [found.name for found in pods_of(read(JOB_SET, job))] == ["t-w-0-0", "t-w-0-1"]


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (custom("JobSet", "jobset.x-k8s.io/v1alpha2", suspend=True), "spec.suspend"),
        ({**PYTORCH, "spec": {**PYTORCH["spec"], "runPolicy": {"suspend": True}}}, "spec.runPolicy.suspend"),
        ({**PYTORCH, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}, "status"),
        ({**VOLCANO, "status": {"state": {"phase": "Completed"}}}, "status"),
    ],
)
def test_what_is_suspended_or_finished_makes_none(source: Object, field: str) -> None:
    given = read(source)
    assert pods_of(given) == []
    assert given.not_placed == ()
    assert len(said(given, "note", field)) == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (custom("TrainJob", "trainer.kubeflow.org/v1alpha1", runtimeRef={"name": "torch"}), "TrainingRuntime"),
        (custom("InferenceService", "serving.kserve.io/v1beta1", predictor={"model": {}}), "ServingRuntime"),
        (custom("SparkApplication", "sparkoperator.k8s.io/v1beta2"), "executors"),
        (custom("Workflow", "argoproj.io/v1alpha1", templates=[]), "workflow"),
        (custom("JobSet", "jobset.x-k8s.io/v1alpha2"), "spec.replicatedJobs is missing"),
        (
            custom("PyTorchJob", "kubeflow.org/v1", pytorchReplicaSpecs={"Worker": {}}),
            "Worker.template.spec is missing",
        ),
        (custom("RayCluster", "ray.io/v1", headGroupSpec=3), "headGroupSpec.template.spec is missing"),
        (custom("Job", "batch.volcano.sh/v1alpha1", tasks=[{"replicas": -1, "template": TEMPLATE}]), "between 0 and"),
        (custom("Rollout", "argoproj.io/v1alpha1", replica=2, template=TEMPLATE), "did you mean replicas?"),
        (custom("Job", "batch.volcano.sh/v1alpha1", tasks=[], minAvailble=1), "did you mean minAvailable?"),
        (custom("Thing", "example.com/v1", deep=[{"er": TEMPLATE}]), "spec.deep[0].er.spec"),
        (workload("Deploymnt", "t", TEMPLATE), "an unknown kind with a pod template (spec.template.spec)"),
    ],
)
def test_what_is_not_plain_is_named(source: Object, why: str) -> None:
    given = read(source)
    (one,) = given.not_placed
    assert (one.kind, one.namespace, one.name) == (source["kind"], "default", "t")
    assert why in one.why
    assert (given.ignored, pods_of(given)) == ({}, [])


@pytest.mark.parametrize(
    "source",
    [
        other("ConfigMap", data={"containers": "x"}),
        other("PodTemplate", template=TEMPLATE),
        custom("NodePool", "karpenter.sh/v1", template={"spec": {"requirements": []}}),
        custom("WorkflowTemplate", "argoproj.io/v1alpha1", templates=[{"containers": [{"name": "a", "image": "b"}]}]),
        custom("Thing", "example.com/v1", containers=[]),
        custom("Thing", "example.com/v1", containers=["a"]),
    ],
)
def test_what_makes_no_pods_is_ignored_quietly(source: Object) -> None:
    given = read(source)
    assert given.ignored == {source["kind"]: 1}
    assert (given.not_placed, given.problems) == ((), ())


def test_mistakes_in_their_templates_are_named_by_their_paths() -> None:
    wrong = {"spec": {"containers": [container({GPU: 1, MEM: 8})], "nodeSelecter": {}}}
    source = custom("PyTorchJob", "kubeflow.org/v1", pytorchReplicaSpecs={"Worker": {"template": wrong}})
    fields = sorted(problem.field for problem in said(read(source), "warning"))
    at = "spec.pytorchReplicaSpecs.Worker.template.spec"
    assert fields == [f"{at}.containers[0].resources.limits.nvidia.com/gpumem", f"{at}.nodeSelecter"]


def test_a_large_object_of_an_unknown_kind_is_searched_in_part() -> None:
    for many, found in ((1_000, 1), (50_000, 0)):
        given = read(custom("Thing", "example.com/v1", many=[{"a": {}} for _ in range(many)], last=TEMPLATE))
        assert len(given.not_placed) == found


def test_no_kind_is_both_expanded_and_opaque() -> None:
    assert not set(EXPANDABLE) & set(OPAQUE)
