"""What the API server would have filled in, and that it is noted."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.model.pod import DeviceAsk
from dovetail.model.rules import Toleration
from tests.kube.manifests import (
    GPU,
    MEM,
    Object,
    ask_of,
    container,
    gpu_pod,
    node,
    only_pod,
    other,
    pod,
    pods_of,
    read,
    said,
    workload,
)

IGNORED = {"labels": {"hami.io/webhook": "ignore"}}


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


def test_a_count_by_the_webhook_tolerates_the_taint_as_a_stated_one_does() -> None:
    tainted = node("n", spec={"taints": [{"key": GPU, "effect": "NoSchedule"}]})
    given = read(gpu_pod(gpumem=1000), tainted)
    (found,) = pods_of(given)
    assert Toleration(GPU, "Exists", effect="NoSchedule") in found.node_rules.tolerations
    assert found.node_rules.refusal(given.nodes[0].static) == 0
    assert GPU in said(given, "note", "spec.tolerations")[0].message
    nobody = only_pod(pod("p", container({MEM: 1000}), meta=IGNORED), tainted)  # no webhook, no card, no toleration
    assert [toleration.key for toleration in nobody.node_rules.tolerations] == [MEM]


def test_what_is_labelled_so_the_webhook_passes_over() -> None:
    whole, part = pod("p", container({GPU: 1})), pod("p", container({MEM: 1000}))
    assert ask_of(whole) == DeviceAsk("NVIDIA", 1, 0, 100, 1000, plain=True)  # exclusive
    namespace = {**other("Namespace", name="default"), "metadata": {"name": "default", **IGNORED}}
    for extra, meta in (([], IGNORED), ([namespace], {})):
        alone = only_pod({**whole, "metadata": {"name": "p", **meta}}, *extra)
        assert alone.containers[0].asks == (DeviceAsk("NVIDIA", 1, 0, 100, 0, plain=True),)  # no cores are filled in
        given = read({**part, "metadata": {"name": "p", **meta}}, *extra)
        (found,) = pods_of(given)
        assert found.containers[0].asks == ()  # no count, so no GPU container
        assert found.refusal is not None  # and no pod that runs without the GPU it asks for
        assert "write nvidia.com/gpu: 1" in said(given, "error", GPU)[0].message
        assert not said(given, "note")


@pytest.mark.parametrize(
    ("spec", "meta", "filled"),
    [
        ({}, {}, True),
        ({"schedulerName": "default-scheduler"}, {}, True),
        ({"schedulerName": "hami-scheduler"}, {}, True),
        ({"schedulerName": "dovetail"}, {}, True),
        ({"schedulerName": "volcano"}, {}, False),
        ({"initContainers": [container(name="i", securityContext={"privileged": True})]}, {}, False),
        ({"initContainers": [container(name="i", securityContext={"runAsUser": 0})]}, {}, True),
        ({"schedulerName": "volcano"}, {"uid": "u-1"}, True),  # a pod that exists is read by its labels alone
    ],
)
def test_the_count_is_filled_in_where_the_webhook_would(spec: Object, meta: Object, filled: bool) -> None:
    given = read(pod("p", container({MEM: 1000}), meta=meta, **spec))
    (found,) = pods_of(given)
    assert bool(found.containers[-1].asks) is filled
    assert (found.refusal is None) is filled
    assert len(said(given, "error", GPU)) == (not filled)


def test_the_names_of_the_configuration_are_the_webhooks_too() -> None:
    source = pod("p", container({MEM: 1000}), schedulerName="ours")
    assert only_pod(source).refusal is not None
    settings = Settings(webhooks_schedulers=frozenset(("ours",)))
    assert only_pod(source, settings=settings).refusal is None


def test_the_label_of_a_pod_template_counts_and_other_namespaces_do_not() -> None:
    template = {"metadata": IGNORED, "spec": {"containers": [container({GPU: 1})]}}
    assert only_pod(workload("Deployment", "web", template)).containers[0].asks[0].compute_milli == 0
    elsewhere = {**other("Namespace"), "metadata": {"name": "raw", **IGNORED}}
    assert only_pod(pod("p", container({GPU: 1})), elsewhere).containers[0].asks[0].compute_milli == 1000
    labelled = pod("p", container({GPU: 1}), meta={"labels": {"hami.io/webhook": "on"}})
    assert only_pod(labelled).containers[0].asks[0].compute_milli == 1000


def test_limit_ranges_are_not_charged_to_pods_that_run() -> None:
    rule = limit_range(default={"cpu": "4"}, defaultRequest={"cpu": "2"})
    two = (container(name="a"), container(name="b"))
    running = pod("old", *two, nodeName="n")
    given = read(node("n"), running, pod("new", *two), rule)
    assert given.running[0].pod.resources == {}  # not 2 × 2 = 4 CPUs
    assert pods_of(given)[0].resources == {"cpu": 4000}  # 2 × 2


@pytest.mark.parametrize(("meta", "cpu"), [({"uid": "u-1"}, 0), ({}, 1250)])
def test_a_pod_read_from_a_cluster_is_as_it_is(meta: Object, cpu: int) -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}}
    kata = other(
        "RuntimeClass", "node.k8s.io/v1", "kata", overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling
    )
    source = pod("p", container({GPU: 1}), meta=meta, runtimeClassName="kata", priorityClassName="high")
    found = only_pod(source, kata, limit_range(defaultRequest={"cpu": "1"}), priority_class("high", 7))
    assert found.resources.get("cpu", 0) == cpu  # 1,000 by the LimitRange + 250 of overhead
    assert bool(found.node_rules.selector) == bool(found.node_rules.tolerations) == (cpu > 0)
    assert found.priority == 7  # written by the API server in any case; only people leave the number out
