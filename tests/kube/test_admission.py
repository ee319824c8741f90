"""What the API server would have filled in, and that it is noted."""

from __future__ import annotations

from typing import Any

from dovetail.model.rules import Toleration
from tests.kube.manifests import GPU, Object, container, node, only_pod, other, pod, read, said, workload


def priority_class(name: str, value: int, **fields: Any) -> Object:
    return other("PriorityClass", "scheduling.k8s.io/v1", name, value=value, **fields)


def test_priority_by_class_by_default_and_by_itself() -> None:
    high, low = priority_class("high", 1000), priority_class("low", 5, globalDefault=True)
    assert only_pod(pod(priorityClassName="high"), high, low).priority == 1000
    assert only_pod(pod(), high, low).priority == 5
    assert only_pod(pod(priorityClassName="high", priority=7), high).priority == 7
    assert only_pod(pod(priorityClassName="system-node-critical")).priority == 2_000_001_000
    assert "1000" in said(read(pod(priorityClassName="high"), high), "note", "spec.priority")[0].message


def test_a_class_that_is_not_there_is_warned_of() -> None:
    given = read(pod(priorityClassName="high"))
    assert said(given, "warning", "spec.priorityClassName")
    assert given.groups[0].pods[0].priority == 0


def limit_range(**item: Any) -> Object:
    return other("LimitRange", spec={"limits": [{"type": "Container", **item}]})


def test_limit_ranges_fill_in_requests_and_limits() -> None:
    rule = limit_range(default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "250m"})
    assert only_pod(pod(), rule).resources == {"cpu": 250, "memory": 1 << 30}  # memory: the request follows the default
    stated = only_pod(pod("p", container({"cpu": "2"})), rule)
    assert stated.resources["cpu"] == 2000  # a request defaults to the container's own limit first
    given = read(pod(), rule)
    assert said(given, "note", "spec.containers[0].resources.requests.cpu")
    assert only_pod(pod(), limit_range(max={"cpu": "3"})).resources == {"cpu": 3000}


def test_limit_ranges_hold_in_their_namespace_only() -> None:
    rule = limit_range(defaultRequest={"cpu": "250m"})
    assert only_pod(pod(meta={"namespace": "other"}), rule).resources == {}


def test_runtime_class_brings_overhead_selector_and_tolerations() -> None:
    kata = other(
        "RuntimeClass",
        "node.k8s.io/v1",
        "kata",
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling={"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    )
    found = only_pod(pod("p", container({}, {"cpu": "1"}), runtimeClassName="kata"), kata)
    assert found.resources == {"cpu": 1250}
    assert found.node_rules.selector == (("kata", "yes"),)
    assert found.node_rules.tolerations == (Toleration("kata", "Exists"),)
    assert said(read(pod(runtimeClassName="none")), "warning", "spec.runtimeClassName")


def test_extended_resources_tolerate_the_taint_of_their_name() -> None:
    found = only_pod(pod("p", container({GPU: 1, "cpu": 1})))
    assert found.node_rules.tolerations == (Toleration(GPU, "Exists", effect="NoSchedule"),)
    tainted = node("n", spec={"taints": [{"key": GPU, "effect": "NoSchedule"}]})
    assert said(read(pod("p", container({GPU: 1})), tainted), "note", "spec.tolerations")
    assert not said(read(pod("p", container({GPU: 1}))), "note", "spec.tolerations")  # no taint, no noise


def test_replicas_are_noted_once() -> None:
    template = {"spec": {"containers": [container({GPU: 1})]}}
    notes = said(read(workload("Deployment", "web", template, replicas=50)), "note")
    fields = [note.field for note in notes]
    assert fields == ["spec.template.spec.containers[0].resources.limits.nvidia.com/gpucores"]
