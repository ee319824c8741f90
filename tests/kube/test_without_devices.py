"""Pods that ask for no device: which profile they get, and whom they keep apart from, read from manifests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.conversion.cluster import ClusterInput
from dovetail.kube.conversion.settings import Settings
from dovetail.model.events import NodeChanged, SelectorChanged
from dovetail.model.pod import CPU_PROFILE, Profile
from dovetail.model.relations import Selector
from dovetail.model.rules import Requirement
from tests.kube.manifests import Object, container, gpu_pod, node, only_pod, other, pod, read, workload

LIKES = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
        ]
    }
}
WEB = {"matchLabels": {"app": "web"}}
LABELLED: Object = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container(requests={"cpu": "1"})]}}


def test_pods_with_and_without_devices_have_profiles_of_their_own() -> None:
    settings = Settings(profile=Profile("spread", ("binpack",)))
    assert only_pod(pod(), settings=settings).profile == CPU_PROFILE
    assert only_pod(gpu_pod(gpu=1), settings=settings).profile == settings.profile


def test_an_extended_resource_is_a_device() -> None:
    """Its name tells nothing of the sort of device, and the configured policy may count it."""
    assert only_pod(pod("p", container({"example.com/dongle": 2}))).profile == Profile()
    assert only_pod(pod("p", container({"hugepages-2Mi": "4Mi", "cpu": 1}))).profile == CPU_PROFILE


@pytest.mark.parametrize("key", ["dovetail.dev/node-policy", "hami.io/node-scheduler-policy"])
def test_a_node_policy_by_annotation_is_the_whole_profile(key: str) -> None:
    found = only_pod(pod("p", meta={"annotations": {key: "spread"}})).profile
    assert found == Profile("spread")


def test_a_gpu_policy_means_nothing_to_a_pod_without_devices() -> None:
    found = only_pod(pod("p", meta={"annotations": {"hami.io/gpu-scheduler-policy": "binpack"}})).profile
    assert (found.node, found.default_spread) == ("off-devices", True)


def test_a_pod_that_prefers_nodes_is_not_kept_away_from_devices() -> None:
    assert only_pod(pod("p", affinity=LIKES)).profile.node == "kubernetes"
    settings = Settings(cpu_profile=Profile("most-allocated"))
    assert only_pod(pod("p", affinity=LIKES), settings=settings).profile.node == "most-allocated"


def test_selectors_are_read_from_services_and_workloads() -> None:
    service = other("Service", name="front", spec={"selector": {"app": "web"}})
    headless = other("Service", name="external", spec={})
    rows = {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    stateful = workload("StatefulSet", "db", selector=rows, replicas=0)
    given = read(service, headless, stateful, workload("Job", "j", parallelism=0))
    assert [tuple(one) for one in given.selecting] == [
        ("Service", "default", "front", Selector((("app", "web"),))),
        ("StatefulSet", "default", "db", Selector((("app", "db"),), (Requirement("old", "DoesNotExist"),))),
    ]


def test_a_selector_that_the_server_would_refuse_selects_nothing() -> None:
    rows = {"matchExpressions": [{"key": "old", "operator": "Gt"}]}
    assert read(workload("ReplicaSet", "w", selector=rows, replicas=0)).selecting == ()


@pytest.mark.parametrize(
    "extra",
    [
        (workload("Deployment", "web", LABELLED, selector=WEB, replicas=12),),
        (
            workload("Job", "web", LABELLED, parallelism=12),
            other("Service", name="front", spec={"selector": {"app": "web"}}),
        ),
    ],
)
def test_a_plan_spreads_as_the_live_scheduler_does(extra: tuple[Any, ...]) -> None:
    """Twelve replicas over zones of one and three nodes: 4 and 8."""
    zones = {"a": "east", "b": "west", "c": "west", "d": "west"}
    nodes = [
        node(
            name,
            labels={"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone},
            allocatable={"cpu": "32"},
        )
        for name, zone in zones.items()
    ]
    found = placed(read(*nodes, *extra))
    assert (found["a"], found.total()) == (4, 12)


def placed(given: ClusterInput) -> Counter[str | None]:
    scheduler = Scheduler(mode="interpreted")
    for one in given.nodes:
        scheduler.handle(NodeChanged(0.0, one))
    for each in given.selecting:
        scheduler.handle(SelectorChanged(0.0, *each))
    return Counter(decision.node for decision in scheduler.place(given.groups))
