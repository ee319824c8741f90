"""What a pod takes from a node by Kubernetes' formula, where it may go, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.reason import Reason
from dovetail.model.rules import AffinityTerm, Requirement, Toleration
from tests.kube.manifests import Object, container, only_pod, pod, read, said

MIB = 1 << 20


def cpu(amount: str, **fields: Any) -> Object:
    return container({}, {"cpu": amount}, **fields)


def test_app_containers_add_up_and_an_init_container_runs_alone() -> None:
    assert only_pod(pod("p", cpu("1"), cpu("500m"))).resources["cpu"] == 1500
    assert only_pod(pod("p", cpu("1"), initContainers=[cpu("3")])).resources["cpu"] == 3000  # max(1, 3)
    assert only_pod(pod("p", cpu("2"), cpu("2"), initContainers=[cpu("3")])).resources["cpu"] == 4000  # max(4, 3)


def test_a_sidecar_runs_beside_later_init_containers_and_the_app() -> None:
    sidecar = cpu("1", restartPolicy="Always")
    assert only_pod(pod("p", cpu("2"), initContainers=[sidecar, cpu("4")])).resources["cpu"] == 5000  # max(1+2, 1+4)
    assert only_pod(pod("p", cpu("2"), initContainers=[cpu("4"), sidecar])).resources["cpu"] == 4000  # max(2+1, 4)
    assert only_pod(pod("p", cpu("4"), initContainers=[cpu("4"), sidecar])).resources["cpu"] == 5000  # max(4+1, 4)


def test_overhead_is_added_and_pod_level_resources_replace_the_sum() -> None:
    found = only_pod(pod("p", cpu("1"), overhead={"cpu": "250m", "memory": "100Mi"}))
    assert found.resources == {"cpu": 1250, "memory": 100 * MIB}
    assert found.scored_memory == 300 * MIB  # 200 for the container that asks for none, and overhead
    level = only_pod(pod("p", cpu("1"), resources={"requests": {"cpu": "3"}, "limits": {"memory": "1Gi"}}))
    assert level.resources == {"cpu": 3000, "memory": 1 << 30}


def test_requests_default_to_limits_and_scores_count_100m_and_200_mib() -> None:
    assert only_pod(pod("p", container({"cpu": "2"}))).resources == {"cpu": 2000}
    found = only_pod(pod("p", container(), container({}, {"cpu": "1", "memory": "1Mi"})))
    assert (found.scored_cpu_milli, found.scored_memory) == (1100, 201 * MIB)


def test_counted_resources_storage_and_huge_pages() -> None:
    limits = {"example.com/dongle": "2", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}
    found = only_pod(pod("p", container(limits)))
    assert found.resources == {"example.com/dongle": 2, "ephemeral-storage": 1 << 30, "hugepages-2Mi": 4 * MIB}


@pytest.mark.parametrize("amount", ["-1", "1.5", "x", "9" * 30, "1e30"])
def test_a_wrong_amount_refuses_the_pod_and_names_the_field(amount: str) -> None:
    source = pod("p", container({"example.com/dongle": amount}))
    refusal = only_pod(source).refusal
    assert refusal is not None
    assert refusal.reason is Reason.INVALID_REQUEST
    assert said(read(source), "error", "spec.containers[0].resources.limits.example.com/dongle")


def test_where_a_pod_may_go() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    fields = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms + fields}}
    }
    tolerations = [{"key": "gpu", "operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]
    rules = only_pod(pod(nodeSelector={"b": "2", "a": "1"}, affinity=affinity, tolerations=tolerations)).node_rules
    assert rules.selector == (("a", "1"), ("b", "2"))
    assert rules.affinity == (
        AffinityTerm((Requirement("zone", "In", ("a",)),)),
        AffinityTerm((), (Requirement("metadata.name", "In", ("n",)),)),
    )
    assert rules.tolerations == (Toleration("gpu", "Exists"), Toleration("a", "Equal", "b", "NoSchedule"))


@pytest.mark.parametrize(
    "row",
    [
        {"key": "a", "operator": "Is", "values": ["1"]},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Gt", "values": ["x"]},
        {"operator": "Exists"},
    ],
)
def test_an_affinity_that_makes_no_sense_is_refused(row: Object) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [row]}]}
    source = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    refusal = only_pod(source).refusal
    assert refusal is not None
    assert refusal.reason is Reason.INVALID_REQUEST


def test_claims_and_gates_are_refused_with_their_own_reasons() -> None:
    claims = only_pod(pod(resourceClaims=[{"name": "gpu"}])).refusal
    gated = only_pod(pod(schedulingGates=[{"name": "quota.example.com/wait"}])).refusal
    assert claims is not None
    assert claims.reason is Reason.RESOURCE_CLAIMS
    assert gated is not None
    assert gated.reason is Reason.SCHEDULING_GATED
    assert "quota.example.com/wait" in gated.message
