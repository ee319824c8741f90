"""Fields that Kubernetes does not know are named with the likely one; those that it knows never are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.kube.files.documents import read as read_files
from dovetail.kube.files.known_fields import MOST_UNKNOWN, check_object, table
from dovetail.kube.objects.problems import Problems
from tests.kube.manifests import Object, container, other, pod, read, said, workload
from tools import fields as generator

T4: Object = {"model": "T4", "count": 1, "memory": 15360}
OWNERS = {"node": "Cluster", "nodes[0].gpu": "Pool", "nodes[0].gpus.slot": "Gpus"}


def unknown(*objects: Object) -> dict[str, str]:
    """field -> what is said of it."""
    return {p.field: p.message for p in said(read(*objects), "warning") if "is no field of" in p.message}


@pytest.mark.parametrize(
    ("source", "field", "likely"),
    [
        (pod("p", container(resource={})), "spec.containers[0].resource", "resources"),
        (pod("p", nodeSelecter={"a": "b"}), "spec.nodeSelecter", "nodeSelector"),
        (pod("p", nodeselector={"a": "b"}), "spec.nodeselector", "nodeSelector"),
        ({**workload("Deployment"), "replicas": 3}, "replicas", "spec.replicas"),
        (workload("Deployment", nodeSelector={"a": "b"}), "spec.nodeSelector", "spec.template.spec.nodeSelector"),
        (
            pod("p", {"name": "main", "limits": {"cpu": 1}}),
            "spec.containers[0].limits",
            "spec.containers[0].resources.limits",
        ),
        (pod("p", container(tolerations=[])), "spec.containers[0].tolerations", "spec.tolerations"),
        (pod("p", meta={"annotation": {}}), "metadata.annotation", "annotations"),
        (workload("Job", paralellism=4), "spec.paralellism", "parallelism"),
        (pod("p", toleration=[{"key": "a"}]), "spec.toleration", "tolerations"),
        (pod("p", tolerations=[{"keys": "a"}]), "spec.tolerations[0].keys", "key"),
        (other("Node", status={"allocateable": {"cpu": 1}}), "status.allocateable", "allocatable"),
        (other("ResourceQuota", spec={"hards": {}}), "spec.hards", "hard"),
    ],
)
def test_the_field_and_the_likely_one_are_named(source: Object, field: str, likely: str) -> None:
    found = unknown(source)
    assert list(found) == [field]
    assert found[field].endswith(f"; did you mean {likely}?")


@pytest.mark.parametrize("api_version", ["scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"])
def test_a_gang_without_its_minimum_is_named(api_version: str) -> None:
    (message,) = unknown(other("PodGroup", api_version, "g", spec={"minMembers": 4})).values()
    assert message.endswith("did you mean minMember?")
    for right in ({"minMember": 4}, {"minTaskMember": {"a": 1}, "minResources": {}}, {"scheduleTimeoutSeconds": 9}):
        assert unknown(other("PodGroup", api_version, "g", spec=right)) == {}


@pytest.mark.parametrize(
    ("fields", "field", "likely"),
    [
        ({"node": []}, "node", "nodes"),
        ({"nodes": [{"name": "n", "gpu": {}}]}, "nodes[0].gpu", "gpus"),
        ({"nodes": [{"name": "n", "gpus": {**T4, "slot": 2}}]}, "nodes[0].gpus.slot", "slots"),
    ],
)
def test_a_slip_in_a_cluster_file(fields: Object, field: str, likely: str) -> None:
    """A node whose GPUs stood under `gpu` had none, and nothing was said."""
    cluster = {"apiVersion": "dovetail.dev/v1", "kind": "Cluster", **fields}
    assert unknown(cluster) == {
        field: f"is no field of a {OWNERS[field]}, so that it changes nothing; did you mean {likely}?"
    }


def test_a_cluster_file_with_all_its_fields_is_right() -> None:
    gpus = {**T4, "slots": 2, "compute": 100, "numa": 0, "links": "nvlink", "vendor": "NVIDIA"}
    some = {"cpu": 1, "memory": "1Gi", "storage": "1Gi", "pods": 3, "extended": {}, "enforcer": "hami", "labels": {}}
    node = {"name": "n", "count": 2, "taints": [], **some, "gpus": [gpus]}
    assert (
        unknown({"apiVersion": "dovetail.dev/v1", "kind": "Cluster", "metadata": {"name": "c"}, "nodes": [node]}) == {}
    )


def test_a_field_like_no_other_is_named_without_a_guess() -> None:
    (message,) = unknown(pod("p", zzz=1)).values()
    assert message == "is no field of a PodSpec, so that kubectl refuses it"


FULL_POD: dict[str, Any] = {
    "activeDeadlineSeconds": 1,
    "dnsPolicy": "None",
    "ephemeralContainers": [{"name": "e", "targetContainerName": "main"}],
    "securityContext": {"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}, {"name": "c", "configMap": {"items": [{"key": "a"}]}}],
    "terminationGracePeriodSeconds": 5,
    "hostAliases": [{"ip": "::1", "hostnames": ["a"]}],
    "topologySpreadConstraints": [],
    "schedulingGates": [],
}


def test_what_kubernetes_knows_and_we_do_not_read_is_right() -> None:
    probe = {"httpGet": {"path": "/", "port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}, "periodSeconds": 3}
    main = container(
        livenessProbe=probe,
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "x"}],
        lifecycle={"preStop": {"exec": {"command": ["true"]}}},
    )
    assert unknown(pod("p", main, meta={"labels": {"any": "x"}}, nodeSelector={"any": "thing"}, **FULL_POD)) == {}
    claims = [{"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    assert (
        unknown(
            workload("StatefulSet", "a", serviceName="s", volumeClaimTemplates=claims),
            workload("Deployment", "b", strategy=strategy, selector={"matchLabels": {"a": "b"}}, minReadySeconds=3),
            workload("Job", "c", backoffLimit=3, ttlSecondsAfterFinished=60, podFailurePolicy={"rules": []}),
            other("ResourceQuota", spec={"hard": {"requests.nvidia.com/gpu": 3}}),
            other("Namespace", spec={"finalizers": []}),
        )
        == {}
    )


def test_an_object_from_a_cluster_is_not_looked_at() -> None:
    """The API server has dropped what it does not know; what is left may be newer than our table."""
    assert unknown(pod("p", fieldOfTomorrow=1, meta={"uid": "u-1"})) == {}
    assert len(unknown(pod("p", fieldOfTomorrow=1))) == 1


def test_ten_thousand_unknown_fields_are_a_few_lines() -> None:
    spec: Object = {f"nodeSelector{number}": number for number in range(10_000)}
    given = read(pod("p", **spec))
    assert len(unknown(pod("p", **spec))) == MOST_UNKNOWN
    assert "9,980 more fields" in said(given, "warning")[-1].message


def _holds_objects(file: Path) -> bool:
    """Not a file of Helm, kustomize or Prometheus: these are no objects of Kubernetes, or not yet."""
    return "templates" not in file.parts and file.read_text(encoding="utf-8").count("\nkind: ") > 0


def test_the_shipped_examples_have_none() -> None:
    problems = Problems()
    root = Path(__file__).parents[2]
    manifests = [file for file in (root / "deploy").rglob("*.yaml") if _holds_objects(file)]
    assert len(manifests) > 20
    for document in read_files([str(root / "examples"), *map(str, sorted(manifests))], problems):
        check_object(document.body, document.api_version, document.kind, document.where, problems)
    assert [str(problem) for problem in problems.found() if "is no field" in problem.message] == []


def test_the_table_is_that_of_the_pinned_kubernetes() -> None:
    try:
        text = generator.made()
    except generator.NoSource as error:
        pytest.skip(str(error))
    assert generator.TABLE.read_text(encoding="utf-8") == text, "run `python -m tools.fields`"


def test_the_table_is_small_and_whole() -> None:
    assert generator.TABLE.stat().st_size < 32_768
    types = table().types
    assert {held for row in types.values() for held in row.values() if held} <= set(types)
    assert types["PodSpec"]["containers"] == "Container"
    assert ("", "ConfigMap") in table().builtin
    assert json.loads(generator.TABLE.read_text(encoding="utf-8"))["version"].startswith("v1.36.")
