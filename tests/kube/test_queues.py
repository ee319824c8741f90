"""ElasticQuotas of scheduler-plugins and Koordinator, Queues of Volcano and KAI: what the model gets of them."""

from __future__ import annotations

import json
from math import inf

import pytest

from dovetail.kube.conversion.cluster import ClusterInput
from dovetail.kube.conversion.queues import UNLIMITED_QUOTA
from dovetail.model.rights import Queue
from tests.kube.manifests import GPU, Object, container, node, only_pod, other, pod, read, workload

PLUGINS, KOORDINATOR = "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"
VOLCANO, KAI = "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2"
Q = "quota.scheduling.koordinator.sh/"


def quota(api: str = PLUGINS, name: str = "q", meta: Object | None = None, **spec: Object) -> Object:
    made = other("ElasticQuota", api, name, spec=spec)
    made["metadata"].update(meta or {})
    return made


def only_queue(*objects: Object) -> Queue:
    given = read(*objects)
    assert [problem for problem in given.problems if problem.severity == "error"] == []
    (found,) = given.queues
    return found


def errors(given: ClusterInput) -> list[str]:
    return [str(problem) for problem in given.problems if problem.severity == "error"]


def test_elastic_quota_of_scheduler_plugins_is_the_quota_of_its_namespace() -> None:
    found = only_queue(
        quota(meta={"namespace": "team-a"}, min={"cpu": 4, GPU: 2}, max={"cpu": "6500m", "memory": "1Gi", GPU: "8"})
    )
    assert found.name == "ElasticQuota/team-a/q"
    assert (found.arithmetic, found.parent, found.namespaces) == ("capacity", "", ("team-a",))
    assert found.guarantee == {"cpu": 4_000, "gpus": 2_000}
    assert found.ceiling == {"cpu": 6_500, "memory": 2**30, "gpus": 8_000}
    assert found.lends


def test_cards_memory_and_cores_have_the_names_of_the_model() -> None:
    """Compute in per cent of a card: 250 cores are 2.5 cards. A unit of memory is bytes, a plain number MiB."""
    given = {"nvidia.com/gpumem": "40000", "nvidia.com/gpucores": 250, "example.com/fpga": 3, "pods": 20}
    found = only_queue(quota(max=given))
    assert found.ceiling == {"gpu-memory": 40_000, "gpu-compute": 2_500, "example.com/fpga": 3, "pods": 20}
    assert only_queue(quota(max={"nvidia.com/gpumem": "64Gi"})).ceiling == {"gpu-memory": 65_536}


def test_amounts_of_one_gpu_model() -> None:
    found = only_queue(quota(min={"gpus/A100": "4", "gpu-memory/T4": "64Gi", "gpus": "0.5", "gpu-compute/T4": 100}))
    assert found.guarantee == {"gpus/A100": 4_000, "gpu-memory/T4": 65_536, "gpus": 500, "gpu-compute/T4": 1_000}


def test_cards_of_two_vendors_are_added_up_with_a_warning() -> None:
    given = read(quota(min={GPU: 2, "amd.com/gpu": 1}))
    assert given.queues[0].guarantee == {"gpus": 3_000}
    (said,) = [problem for problem in given.problems if problem.severity == "warning"]
    assert said.field == "spec.min.amd.com/gpu"
    assert said.message == "is added to nvidia.com/gpu: a queue counts the cards of all vendors together"


def test_wrong_amounts_are_errors_that_name_the_field() -> None:
    given = read(quota(min={"cpu": "four", GPU: -1, "nvidia.com/gpumem-percentage": 50, "memory": "1Gi"}))
    assert given.queues[0].guarantee == {"memory": 2**30}
    assert [line.split(": ", 2)[1] for line in errors(given)] == [
        "spec.min.cpu",
        "spec.min.nvidia.com/gpu",
        "spec.min.nvidia.com/gpumem-percentage",
    ]
    assert "write nvidia.com/gpumem instead; this amount is left out" in errors(given)[2]


def test_a_misspelt_field_is_reported() -> None:
    given = read(other("Queue", VOLCANO, "q", spec={"deserve": {"cpu": 4}}))
    assert any("spec.deserve: is not read; did you mean deserved?" in str(problem) for problem in given.problems)


def test_koordinator_tree() -> None:
    top = quota(KOORDINATOR, "org", {"labels": {f"{Q}is-parent": "true", f"{Q}parent": "root"}}, min={"cpu": 40})
    leaf = quota(
        KOORDINATOR,
        "team",
        {
            "namespace": "team",
            "labels": {f"{Q}parent": "org", f"{Q}allow-lent-resource": "false", f"{Q}tree-id": "t1"},
            "annotations": {
                f"{Q}shared-weight": json.dumps({"cpu": "60", GPU: 2}),
                f"{Q}namespaces": json.dumps(["ml", "web"]),
            },
        },
        min={"cpu": 10},
        max={"cpu": 40},
    )
    given = read(top, leaf)
    assert errors(given) == []
    org, team = given.queues
    assert (org.name, org.arithmetic, org.parent, org.lends) == ("koordinator/org", "koordinator", "", True)
    assert (team.name, team.parent, team.lends) == ("koordinator/team", "koordinator/org", False)
    assert team.weight == {"cpu": 60_000, "gpus": 2_000}
    assert team.namespaces == ("ml", "web", "team")  # a quota with the name of its namespace is the namespace's too
    assert org.weight == {}  # the arithmetic's default: max


def test_koordinators_root_quota_is_no_queue_and_a_tree_root_has_its_total_as_ceiling() -> None:
    root = quota(KOORDINATOR, "koordinator-root-quota", max={"cpu": 1})
    labels = {f"{Q}is-root": "true", f"{Q}tree-id": "t", f"{Q}parent": "koordinator-root-quota"}
    tree = quota(KOORDINATOR, "pool", {"labels": labels, "annotations": {f"{Q}total-resource": '{"cpu": "96"}'}})
    found = only_queue(root, tree)
    assert (found.name, found.parent, found.ceiling) == ("koordinator/pool", "", {"cpu": 96_000})


def test_a_broken_annotation_is_an_error() -> None:
    given = read(quota(KOORDINATOR, "a", {"annotations": {f"{Q}shared-weight": "{cpu: 4}"}}))
    assert errors(given) == [
        f"m.json#1 ElasticQuota default/a: metadata.annotations.{Q}shared-weight: '{{cpu: 4}}' is not read; write JSON"
        ' such as {"cpu": "40"}'
    ]


def test_volcano_queue() -> None:
    spec = {
        "weight": 3,
        "capability": {"cpu": 8, GPU: 8},
        "deserved": {GPU: 4},
        "parent": "org",
        "priority": 5,
        "reclaimable": False,
    }
    org = other("Queue", VOLCANO, "org", spec={"parent": "root"})
    given = read(org, other("Queue", VOLCANO, "root"), other("Queue", VOLCANO, "ml", spec=spec))
    ml, top = given.queues
    assert (ml.name, ml.arithmetic, ml.parent, top.parent) == ("volcano/ml", "volcano", "volcano/org", "")
    assert (ml.guarantee, ml.ceiling) == ({"gpus": 4_000}, {"cpu": 8_000, "gpus": 8_000})
    assert ml.weight == {"cpu": 3, "memory": 3, "gpus": 3}
    assert (ml.priority, ml.reclaim_after, ml.lends) == (5, inf, True)


def test_what_volcano_guarantees_is_not_lent() -> None:
    found = only_queue(other("Queue", VOLCANO, "q", spec={"guarantee": {"resource": {GPU: 2}}}))
    assert (found.guarantee, found.reserved) == ({"gpus": 2_000}, {"gpus": 2_000})
    found = only_queue(other("Queue", VOLCANO, "q", spec={"guarantee": {"resource": {GPU: 2}}, "deserved": {GPU: 3}}))
    assert (found.reserved, found.guarantee, found.lends) == ({"gpus": 2_000}, {"gpus": 3_000}, True)


def test_kai_queue() -> None:
    """GPUs in fractions, CPU in millicores, memory in megabytes of 10^6 bytes; -1 is unlimited."""
    resources = {
        "gpu": {"quota": 1.5, "overQuotaWeight": 2, "limit": 4},
        "cpu": {"quota": -1, "overQuotaWeight": 1, "limit": -1},
        "memory": {"quota": 2_000, "limit": -1},
    }
    spec = {"priority": 7, "preemptMinRuntime": "1h30m", "reclaimMinRuntime": "90s", "resources": resources}
    found = only_queue(other("Queue", KAI, "team", spec=spec))
    assert (found.name, found.arithmetic, found.parent) == ("kai/team", "kai", "")
    assert found.guarantee == {"gpus": 1_500, "cpu": UNLIMITED_QUOTA, "memory": 2_000_000_000}
    assert found.ceiling == {"gpus": 4_000}
    assert found.weight == {"gpus": 2_000, "cpu": 1_000, "memory": 0}
    assert (found.priority, found.preempt_after, found.reclaim_after) == (7, 5_400, 90)


def test_kai_defaults() -> None:
    """KAI: a limit that is not written is 0, and the priority is 100."""
    found = only_queue(other("Queue", KAI, "q", spec={"parentQueue": ""}))
    assert found.ceiling == {"gpus": 0, "cpu": 0, "memory": 0}
    assert found.priority == 100


@pytest.mark.parametrize(("text", "seconds"), [("", 0), ("300ms", 0.3), ("4h0m0s", 14_400), ("1.5h", 5_400)])
def test_durations_of_go(text: str, seconds: float) -> None:
    found = only_queue(other("Queue", KAI, "q", spec={"reclaimMinRuntime": text}))
    assert found.reclaim_after == pytest.approx(seconds)


def test_wrong_numbers_of_kai() -> None:
    spec = {"preemptMinRuntime": "5 minutes", "resources": {"gpu": {"quota": -2, "limit": 1}}}
    given = read(other("Queue", KAI, "q", spec=spec))
    assert [line.split(": ", 1)[1] for line in errors(given)] == [
        "spec.resources.gpu.quota: -2 is no amount; write 0 or more, or -1 for no limit",
        "spec.preemptMinRuntime: '5 minutes' is no duration; write one such as 30s, 5m or 1h30m",
    ]


# ---- the tree ---------------------------------------------------------------------------------------------------


def kai(name: str, parent: str) -> Object:
    return other("Queue", KAI, name, spec={"parentQueue": parent})


def test_a_parent_that_does_not_exist() -> None:
    given = read(kai("a", "nowhere"))
    assert [queue.parent for queue in given.queues] == [""]
    assert errors(given) == [
        "m.json#1 Queue a: spec.parentQueue: the parent kai/nowhere of kai/a does not exist;"
        " the queue counts as a child of the root"
    ]


def test_queues_above_themselves() -> None:
    given = read(kai("a", "b"), kai("b", "a"), kai("c", "a"))
    assert {queue.name: queue.parent for queue in given.queues} == {"kai/a": "", "kai/b": "", "kai/c": ""}
    assert len(errors(given)) == 3


def test_a_second_quota_of_a_namespace_does_not_get_its_pods() -> None:
    given = read(quota(name="a"), quota(name="b"))
    assert [queue.namespaces for queue in given.queues] == [("default",), ()]
    assert errors(given) == [
        "m.json#2 ElasticQuota default/b: metadata.namespace: namespace default already has the queue"
        " ElasticQuota/default/a; delete one"
    ]


# ---- pods -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "queue"),
    [
        ({}, ""),
        ({"labels": {"dovetail.dev/queue": "ml"}}, "ml"),
        ({"annotations": {"dovetail.dev/queue": "ml"}}, "ml"),
        ({"labels": {"kai.scheduler/queue": "team"}}, "kai/team"),
        ({"labels": {f"{Q}name": "team"}}, "koordinator/team"),
        ({"annotations": {"scheduling.volcano.sh/queue-name": "ml"}}, "volcano/ml"),
        ({"annotations": {"volcano.sh/queue-name": "ml"}}, "volcano/ml"),
        ({"labels": {"volcano.sh/queue-name": "ml"}}, "volcano/ml"),
    ],
)
def test_pods_and_templates_name_their_queue(meta: Object, queue: str) -> None:
    assert only_pod(pod("p", meta=meta)).queue == queue
    template = {"metadata": meta, "spec": {"containers": [container()]}}
    assert only_pod(workload("Deployment", template=template)).queue == queue
    (running,) = read(node("n"), pod("p", meta=meta, nodeName="n")).running
    assert running.pod.queue == queue


def test_pods_have_the_queue_of_their_volcano_pod_group() -> None:
    member = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    group = other("PodGroup", VOLCANO, "g", spec={"minMember": 1, "queue": "ml"})
    given = read(node("n"), group, pod("p", meta=member), pod("r", meta=member, nodeName="n"))
    assert [one.queue for one in given.groups[0].pods] == ["volcano/ml"]
    assert [one.pod.queue for one in given.running] == ["volcano/ml"]


def test_pods_of_a_volcano_job_have_its_queue() -> None:
    job = other(
        "Job",
        "batch.volcano.sh/v1alpha1",
        "j",
        spec={"queue": "ml", "tasks": [{"replicas": 1, "template": {"spec": {"containers": [container()]}}}]},
    )
    assert only_pod(job).queue == "volcano/ml"
