"""PodGroups of four families, and quotas."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.model.pod import Quota, Refusal
from dovetail.model.reason import Reason
from tests.kube.manifests import GPU, MEM, Object, container, node, only_pod, other, pod, read, said, workload


def pod_group(api: str, **spec: Any) -> Object:
    return other("PodGroup", api, "gang", spec=spec)


FAMILIES: list[tuple[str, Object, Object]] = [
    ("scheduling.x-k8s.io/v1alpha1", {"minMember": 3}, {"labels": {"scheduling.x-k8s.io/pod-group": "gang"}}),
    ("scheduling.sigs.k8s.io/v1alpha1", {"minMember": 3}, {"labels": {"pod-group.scheduling.sigs.k8s.io": "gang"}}),
    ("scheduling.volcano.sh/v1beta1", {"minMember": 3}, {"annotations": {"scheduling.k8s.io/group-name": "gang"}}),
]


@pytest.mark.parametrize(("api", "spec", "meta"), FAMILIES)
def test_members_by_label_or_annotation(api: str, spec: Object, meta: Object) -> None:
    members = [pod("b", meta=meta), pod("a", meta=meta), pod("c", meta=meta, nodeName="n")]
    (group,) = read(pod_group(api, **spec), *members, node("n")).groups
    assert (group.name, group.title, group.minimum, group.running) == (
        f"PodGroup/default/gang@{api.partition('/')[0]}",
        "default/gang",
        3,
        1,
    )
    assert [(member.name, member.group) for member in group.pods] == [("a", group.name), ("b", group.name)]


def test_kubernetes_own_pod_group() -> None:
    kind = pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 2}})
    (group,) = read(kind, pod(schedulingGroup={"podGroupName": "gang"})).groups
    assert group.minimum == 2
    basic = pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"basic": {}})
    assert read(basic, pod(schedulingGroup={"podGroupName": "gang"})).groups[0].minimum == 1


def test_a_deployment_as_a_gang_keeps_ordinals_in_order() -> None:
    api, spec, meta = FAMILIES[1]
    template = {"metadata": meta, "spec": {"containers": [container()]}}
    (group,) = read(pod_group(api, **spec), workload("Deployment", "job", template, replicas=11)).groups
    assert [member.name for member in group.pods][-2:] == ["job-9", "job-10"]


def test_a_pod_named_like_a_pod_group_is_another_group() -> None:
    api, spec, meta = FAMILIES[0]
    given = read(pod_group(api, **spec), pod("gang"), *(pod(name, meta=meta) for name in "abc"))
    assert [len(group.pods) for group in given.groups] == [3, 1]
    assert len({group.name for group in given.groups}) == 2


@pytest.mark.parametrize(("api", "spec", "meta"), FAMILIES)
def test_a_pod_whose_group_is_not_there_is_not_placed_alone(api: str, spec: Object, meta: Object) -> None:
    (group,) = read(pod("a", meta=meta), pod("b", meta=meta)).groups
    refusals = {member.refusal for member in group.pods}
    (place, named), api_group = next(iter(meta.items())), api.partition("/")[0]
    text = f"PodGroup default/gang ({api_group}) is not in the input; add it with -f or remove the "
    assert refusals == {Refusal(Reason.GROUP_UNKNOWN, f"{text}{place.removesuffix('s')} {next(iter(named))}")}


def test_on_request_a_pod_whose_group_is_not_there_is_placed_alone_and_warned_of() -> None:
    given = read(pod(meta=FAMILIES[0][2]), settings=Settings(unknown_group="alone"))
    assert [(group.name, group.minimum, group.pods[0].refusal) for group in given.groups] == [("default/p", 1, None)]
    assert said(given, "warning", "scheduling.x-k8s.io/pod-group")


def test_on_request_kubernetes_own_pod_group_is_still_waited_for() -> None:
    given = read(pod(schedulingGroup={"podGroupName": "gang"}), settings=Settings(unknown_group="alone"))
    refusal = given.groups[0].pods[0].refusal
    assert refusal is not None
    assert refusal.reason is Reason.GROUP_UNKNOWN


def test_of_two_kinds_of_one_name_the_named_one_counts() -> None:
    first, second = pod_group(FAMILIES[0][0], minMember=2), pod_group(FAMILIES[1][0], minMember=5)
    given = read(first, second, pod(meta=FAMILIES[0][2]))
    assert given.groups[0].minimum == 2


def test_a_group_of_the_wrong_kind_is_not_taken_and_is_named() -> None:
    given = read(pod_group(FAMILIES[1][0], minMember=1), pod(meta=FAMILIES[0][2]))
    refusal = given.groups[0].pods[0].refusal
    assert refusal is not None
    assert (
        "there is one of scheduling.sigs.k8s.io, which the label pod-group.scheduling.sigs.k8s.io names"
        in refusal.message
    )


def test_a_negative_minimum_is_an_error() -> None:
    given = read(pod_group(FAMILIES[0][0], minMember=-3), pod(meta=FAMILIES[0][2]))
    assert given.groups[0].minimum == 1
    assert said(given, "error", "spec.minMember")


def quota(**hard: Any) -> Object:
    return other(
        "ResourceQuota", name="q", spec={"hard": {key.replace("__", "."): value for key, value in hard.items()}}
    )


def test_quotas_in_the_units_of_the_model() -> None:
    hard = {
        "requests.cpu": "2",
        "limits.memory": "1Gi",
        "pods": "4",
        "count/pods": "5",
        "requests.nvidia.com/gpu": "8",
        "limits.nvidia.com/gpumem": "20000",
        "limits.nvidia.com/gpucores": "150",
        "services": "3",
        "requests.storage": "1Ti",
        "count/deployments.apps": "2",
    }
    (found,) = read(other("ResourceQuota", name="q", spec={"hard": hard})).quotas
    native = {"requests.cpu": 2000, "limits.memory": 1 << 30, "pods": 4, "count/pods": 5, "requests.nvidia.com/gpu": 8}
    assert found == Quota("default", "q", native, {"NVIDIA": 20000}, {"NVIDIA": 1500})


def test_what_a_pod_uses_of_a_quota() -> None:
    found = only_pod(pod("p", container({"cpu": "2", "memory": "2Gi", GPU: 2, MEM: 1000}, {"cpu": "1"})))
    expected = {
        "pods": 1,
        "count/pods": 1,
        "cpu": 1000,
        "requests.cpu": 1000,
        "limits.cpu": 2000,
        "memory": 2 << 30,
        "requests.memory": 2 << 30,
        "limits.memory": 2 << 30,
        "requests.nvidia.com/gpu": 2,
        "requests.nvidia.com/gpumem": 1000,
    }
    assert found.quota_use == expected


def test_wrong_amounts_and_scopes_of_quotas_are_told() -> None:
    broken = other("ResourceQuota", name="q", spec={"hard": {"pods": "-1"}, "scopes": ["BestEffort"]})
    given = read(broken)
    assert given.quotas[0].hard == {}
    assert said(given, "error", "spec.hard.pods")
    assert said(given, "warning", "spec.scopes")
