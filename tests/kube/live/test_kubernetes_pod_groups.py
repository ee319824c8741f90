"""Kubernetes' own PodGroups, which a pod names in its spec: it is never bound without the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from dovetail.kube.api.client import Api
from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.hami_lock import HamiLocks
from dovetail.kube.live.sources import Sources
from dovetail.kube.live.volume_mirror import VolumeMirror
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import KUBERNETES
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import Object

RBAC = Path(__file__).parents[3] / "deploy" / "rbac.yaml"
OLD, NEW = "v1alpha2", "v1beta1"


def member(name: str, **fields: Any) -> Object:
    item = waiting(name, **fields)
    item["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    return item


def gang(minimum: int | None) -> objects.PodGroup:
    """None: the policy is `basic`."""
    policy = {"gang": {"minCount": minimum}} if minimum is not None else {"basic": {}}
    source = {"metadata": {"name": "gang", "namespace": "ml"}, "spec": {"schedulingPolicy": policy}}
    return msgspec.convert(source, objects.PodGroup)


def hear(stage: Stage, *events: Any, version: str = OLD) -> None:
    stage.driver.happened(stage.mirror.hear_pod_groups(list(events), KUBERNETES, version))


def placed(stage: Stage) -> list[str]:
    return sorted(bind.pod.name for bind in stage.hands.binds)


def test_every_kind_of_pod_group_is_watched_and_allowed() -> None:
    stage, unused = Stage(), cast(Any, None)
    volumes, locks = cast(VolumeMirror, unused), cast(HamiLocks, unused)
    sources = Sources(cast(Api, unused), stage.driver, volumes, locks, Settings().vendors, lambda: 0.0, stage.log)
    paths = [reflector.path for reflector in sources.reflectors]
    assert f"/apis/{KUBERNETES}/{OLD}/podgroups" in paths
    assert f"/apis/{KUBERNETES}/{NEW}/podgroups" in paths
    rules = [rule for item in yaml.safe_load_all(RBAC.read_text(encoding="utf-8")) for rule in item.get("rules", ())]
    allowed = {
        f"/apis/{group}/{resource}"
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if {"list", "watch"} <= set(rule["verbs"])
    }
    watched = [path.split("/") for path in paths if path.startswith("/apis/")]
    assert {f"/apis/{group}/{resource}" for _, _, group, _, resource in watched} <= allowed


@pytest.mark.asyncio
class TestWaiting:
    async def test_a_pod_whose_group_nobody_sees_waits_and_says_so(self) -> None:
        async with Stage() as stage:
            hear(stage, NotServed())
            stage.nodes(gpu_node(cards=2))
            stage.pods(member("a"))
            await stage.settle()
            assert placed(stage) == []
            said = stage.hands.conditions["uid-a"]
            assert said.reason == "GroupUnknown"  # and not Unschedulable: no node would help
            assert said.message == (
                "the API server does not serve scheduling.k8s.io PodGroups; install the CRD or remove the "
                "field spec.schedulingGroup.podGroupName."
            )

    async def test_members_are_placed_once_the_group_and_enough_of_them_are_there(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            stage.pods(member("a"))
            await stage.settle()
            hear(stage, Changed(gang(2)))
            await stage.settle()
            assert placed(stage) == []
            stage.pods(member("b"))
            await stage.settle()
            assert placed(stage) == ["a", "b"]

    async def test_the_basic_policy_asks_for_no_company(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node())
            hear(stage, Changed(gang(None)))
            stage.pods(member("a"))
            await stage.settle()
            assert placed(stage) == ["a"]

    async def test_a_version_that_is_not_served_takes_nothing_from_the_one_that_is(self) -> None:
        async with Stage() as stage:
            hear(stage, Replaced([gang(1)], []), version=NEW)
            hear(stage, NotServed(), version=OLD)
            stage.nodes(gpu_node())
            stage.pods(member("a"))
            await stage.settle()
            assert placed(stage) == ["a"]

    async def test_a_group_is_gone_when_no_version_has_it_any_more(self) -> None:
        async with Stage() as stage:
            gone = Deleted[objects.PodGroup](Ref("ml", "gang", ""), None)
            for version in (OLD, NEW):
                hear(stage, Changed(gang(1)), version=version)
            hear(stage, gone, version=OLD)
            stage.pods(member("a"))
            await stage.settle()
            assert stage.hands.conditions["uid-a"].reason == "Unschedulable"  # there is no node yet
            hear(stage, gone, version=NEW)
            stage.clock += 2.0  # numbers of one gang are not written more than once a second
            await stage.settle()
            assert stage.hands.conditions["uid-a"].reason == "GroupUnknown"
            stage.nodes(gpu_node())
            await stage.settle()
            assert placed(stage) == []

    async def test_groups_of_two_kinds_may_share_a_name(self) -> None:
        async with Stage() as stage:
            hear(stage, Changed(gang(1)))
            other = {"metadata": {"name": "gang", "namespace": "ml"}, "spec": {"minMember": 1}}
            batch: list[Any] = [Changed(msgspec.convert(other, objects.PodGroup))]
            stage.driver.happened(stage.mirror.hear_pod_groups(batch, "scheduling.x-k8s.io"))
            stage.nodes(gpu_node(cards=2))
            stage.pods(member("a"), waiting("b", labels={"scheduling.x-k8s.io/pod-group": "gang"}))
            await stage.settle()
            assert placed(stage) == ["a", "b"]

    async def test_a_pod_that_no_longer_names_a_group_is_no_member(self) -> None:
        async with Stage() as stage:
            label = {"scheduling.x-k8s.io/pod-group": "gang"}
            other = {"metadata": {"name": "gang", "namespace": "ml"}, "spec": {"minMember": 2}}
            batch: list[Any] = [Changed(msgspec.convert(other, objects.PodGroup))]
            stage.driver.happened(stage.mirror.hear_pod_groups(batch, "scheduling.x-k8s.io"))
            stage.pods(waiting("a", labels=label), waiting("a", version=2), waiting("b", labels=label))
            stage.nodes(gpu_node(cards=2))
            await stage.settle()
            assert placed(stage) == ["a"]
