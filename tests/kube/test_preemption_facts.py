"""What files and watches say of a pod for preemption: QoS, preemption policy, tolerance, times, disruption budgets."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kube.conversion.preemption import (
    MINIMUM_PRIORITY,
    TOLERATION_SECONDS,
    placed_at,
    qos_of,
    started_at,
    tolerance_of,
)
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.gang import Role
from dovetail.model.pod import Qos, Tolerance
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from dovetail.whatif.situation import EngineOptions, start
from tests.kube.manifests import Object, node, read

FULL = {"limits": {"cpu": "1", "memory": "1Gi"}}


def spec(*resources: Object, **more: object) -> objects.PodSpec:
    containers = [{"name": f"c{n}", "resources": each} for n, each in enumerate(resources)]
    return msgspec.convert({"containers": containers, **more}, objects.PodSpec)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], Qos.BEST_EFFORT),
        ([{"limits": {"nvidia.com/gpu": "1"}}], Qos.BEST_EFFORT),  # only CPU and memory count
        ([{"requests": {"cpu": "0"}}], Qos.BEST_EFFORT),
        ([{"requests": {"cpu": "100m"}}], Qos.BURSTABLE),
        ([FULL], Qos.GUARANTEED),  # requests are those of the limits
        ([{**FULL, "requests": {"cpu": "1000m", "memory": "1024Mi"}}], Qos.GUARANTEED),
        ([{**FULL, "requests": {"cpu": "500m"}}], Qos.BURSTABLE),
        ([FULL, {}], Qos.BURSTABLE),  # the second container has no limits
        ([{"limits": {"cpu": "1"}}], Qos.BURSTABLE),
    ],
)
def test_the_qos_class_is_that_of_kubernetes(resources: list[Object], expected: Qos) -> None:
    assert qos_of(spec(*resources)) is expected


def test_pod_level_resources_decide_alone() -> None:
    assert qos_of(spec({}, resources=FULL)) is Qos.GUARANTEED
    assert qos_of(spec(FULL, resources={"requests": {"cpu": "1"}})) is Qos.BURSTABLE
    assert qos_of(spec(FULL, initContainers=[{"name": "init"}])) is Qos.BURSTABLE


def klass(**annotations: str) -> objects.PriorityClass:
    notes = {{"least": MINIMUM_PRIORITY, "seconds": TOLERATION_SECONDS}[key]: text for key, text in annotations.items()}
    return msgspec.convert({"metadata": {"name": "batch", "annotations": notes}, "value": 100}, objects.PriorityClass)


def test_what_a_priority_class_tolerates() -> None:
    problems = Problems()
    assert tolerance_of(klass(), "", problems) is None
    assert tolerance_of(klass(least="1000", seconds="60"), "", problems) == Tolerance(1000, 60.0)
    assert tolerance_of(klass(seconds="-1"), "", problems) == Tolerance(101, -1.0)  # the class's value + 1
    assert tolerance_of(klass(least="1000"), "", problems) == Tolerance(1000, 0.0)
    assert problems.found() == ()
    assert tolerance_of(klass(least="many", seconds="60"), "PriorityClass batch", problems) is None
    (said,) = problems.found()
    assert (said.severity, said.field) == ("warning", f"metadata.annotations.{MINIMUM_PRIORITY}")


def test_times_of_a_running_pod() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}]
    status = msgspec.convert({"conditions": conditions, "startTime": "1970-01-01T00:02:00Z"}, objects.PodStatus)
    assert (placed_at(status), started_at(status)) == (60.0, 120.0)
    assert (placed_at(objects.PodStatus()), started_at(objects.PodStatus())) == (0.0, 0.0)


def running(name: str, **more: Object) -> Object:
    meta = {"name": name, "namespace": "ml", "uid": name, "labels": {"app": "web"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "n", "containers": [{"name": "c"}], **more.get("spec", {})},
        "status": more.get("status", {}),
    }


def budget(status: Object | None = None, **spec: object) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "ml"}}
    return {**made, "spec": {"selector": selector, **spec}, **({"status": status} if status else {})}


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ({"minAvailable": 3}, 1),  # 4 pods run
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "51%"}, 1),  # 2.04 → 3 must stay
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": "30%"}, 2),  # 1.2 → 2 may go
        ({"maxUnavailable": 9}, 4),
        ({"minAvailable": "some"}, 0),
        ({"status": {"disruptionsAllowed": 3, "disruptedPods": {"w0": "2026-01-01T00:00:00Z"}}}, 3),
    ],
)
def test_a_budget_of_a_file(written: Object, allowed: int) -> None:
    given = read(node("n"), *(running(f"w{n}") for n in range(4)), budget(**written))
    (found,) = given.budgets
    assert (found.namespace, found.name, found.allowed) == ("ml", "web", allowed)
    assert found.disrupted == (frozenset({"w0"}) if "status" in written else frozenset())


def test_pods_that_wait_are_expected_but_not_healthy() -> None:
    waits = running("w2")
    del waits["spec"]["nodeName"]
    given = read(node("n"), running("w0"), running("w1"), waits, budget(maxUnavailable=1))
    assert given.budgets[0].allowed == 0  # 3 expected, 2 must be healthy, 2 are


def test_the_preemption_policy_of_a_class_is_that_of_its_pods() -> None:
    meta = {"name": "polite", "annotations": {TOLERATION_SECONDS: "60"}}
    polite: Object = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta}
    polite |= {"value": 5, "preemptionPolicy": "Never"}
    holds = running("holds", spec={"priorityClassName": "polite"}, status={"qosClass": "Guaranteed"})
    waits: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"}}
    waits["spec"] = {"priorityClassName": "polite", "containers": [{"name": "c"}]}
    given = read(node("n"), polite, holds, waits)
    (held,), (group,) = given.running, given.groups
    assert held.pod.tolerance == Tolerance(6, 60.0)
    assert held.pod.qos is Qos.GUARANTEED  # as the API server says
    assert (group.pods[0].preempts, group.pods[0].priority) == (False, 5)


def test_minimums_of_gangs_are_part_of_the_situation() -> None:
    meta = {"name": "train", "namespace": "ml"}
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta}
    given = read(node("n"), {**group, "spec": {"minMember": 4}})
    assert given.gangs == (("PodGroup/ml/train@scheduling.x-k8s.io", 4, ()),)


def test_the_roles_of_a_gang_are_part_of_the_situation() -> None:
    meta = {"name": "train", "namespace": "ml"}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta}
    given = read(node("n"), {**group, "spec": {"minMember": 3, "minTaskMember": {"ps": 1, "worker": 2}}})
    name = "PodGroup/ml/train@scheduling.volcano.sh"
    assert given.gangs == ((name, 3, (Role("ps", 1), Role("worker", 2))),)
    scheduler, _ = start(given, EngineOptions(yielding=YIELD_BY_PRIORITY))
    assert scheduler.claims._role_minimums == {name: {"ps": 1, "worker": 2}}
