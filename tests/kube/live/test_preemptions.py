"""Preemption between engine and API server: who is stopped, who waits with which condition, which node is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.watch import Changed
from dovetail.kube.live.binder import Fate
from dovetail.kube.live.rights import PreemptionOptions, live_rights
from dovetail.kube.live.times import to_second
from dovetail.kube.objects import core as objects
from dovetail.model.events import GangChanged
from dovetail.model.gang import Role
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
RIGHTS = live_rights(PreemptionOptions(), ("dovetail",))


def ranked(item: Object, priority: int, **spec: object) -> Object:
    item["spec"] |= {"priority": priority, **spec}
    return item


async def full(stage: Stage, *names: str) -> None:
    """Pods of priority 0 on every card of node n."""
    stage.nodes(gpu_node(cards=len(names)))
    stage.pods(*(ranked(waiting(name), 0) for name in names))
    await stage.settle()
    for bind in list(stage.hands.binds):
        stage.pods(ranked(bound(bind.pod.name, bind), 0))
    await stage.settle()


async def test_a_pod_of_a_higher_priority_is_nominated_and_says_whom_it_waits_for() -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        (evict,) = stage.evictors.evictions
        assert (evict.pod.name, evict.node) == ("low", "n")
        assert stage.hands.nominations == {"uid-high": "n"}
        condition = stage.hands.conditions["uid-high"]
        assert condition == ("Preempting", "Preempting 1 pod on node n, waiting for the end of ml/low.")
        assert [note.reason for note in stage.hands.notes if note.pod.name == "high"] == ["Preempting"]


async def test_the_pod_is_bound_when_its_victim_is_gone() -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        stage.pod_gone(waiting("low"))
        await stage.settle()
        assert [(bind.pod.name, bind.decision.node) for bind in stage.hands.binds[1:]] == [("high", "n")]
        assert stage.driver.preemptions.condition(stage.hands.binds[1].pod) is None


async def test_a_victim_that_is_seen_ending_is_not_stopped_again_and_still_waited_for() -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        assert stage.driver.preemptions.runs("uid-low")
        ending = ranked(bound("low", stage.hands.binds[0], 3), 0)
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        stage.pods(ending)
        await stage.settle()
        assert not stage.driver.preemptions.runs("uid-low")
        assert len(stage.evictors.evictions) == 1
        (high,) = stage.scheduler.waiting
        assert stage.driver.preemptions.condition(high.pods[0]) is not None


async def test_a_victim_that_only_the_answer_to_its_binding_shows_is_stopped() -> None:
    """The watch lags behind: a victim that it has not shown with a node would be left out, and its gang be split."""
    async with Stage(rights=RIGHTS) as stage:
        stage.nodes(gpu_node())
        stage.pods(ranked(waiting("low"), 0))
        await stage.settle()
        assert not stage.driver.preemptions.runs("uid-low")  # it is being bound
        stage.answer(Fate.BOUND, stage.hands.binds[0])
        await stage.settle()
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        assert [evict.pod.name for evict in stage.evictors.evictions] == ["low"]
        assert stage.driver.preemptions.runs("uid-low")


async def test_a_pod_that_is_gone_needs_no_place_and_its_victim_is_spared() -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        (evict,) = stage.evictors.evictions
        assert stage.driver.preemptions.wanted(evict)
        stage.pod_gone(waiting("high"))
        await stage.settle()
        assert not stage.driver.preemptions.wanted(evict)


async def test_never_and_other_schedulers_pods_are_left_alone() -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("polite"), 10, preemptionPolicy="Never"))
        await stage.settle()
        assert stage.evictors.evictions == []
        other = ranked(bound("low", stage.hands.binds[0], 3), 0, schedulerName="default-scheduler")
        stage.pods(other, ranked(waiting("high"), 10))
        await stage.settle()
        assert stage.evictors.evictions == []


@pytest.mark.parametrize("written", [True, False], ids=["written", "queued"])
async def test_a_nomination_that_the_engine_gave_up_is_taken_back(written: bool) -> None:
    async with Stage(rights=RIGHTS) as stage:
        await full(stage, "low")
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        if written:
            stage.mirror.known.wrote("uid-high", "5", "", None, "n")  # the API server has it by now
        stage.hands.writes_nominations = not written
        stage.scheduler.nominated.forget("uid-high")
        stage.pods(ranked(waiting("other"), 0))  # anything that makes the loop turn
        await stage.settle()
        assert stage.hands.nominations == {"uid-high": ""}


def volcano_group(stage: Stage, **tasks: int) -> list[Any]:
    meta = {"name": "train", "namespace": "ml"}
    source = {"metadata": meta, "spec": {"minMember": 3, "minTaskMember": tasks}}
    batch: list[Any] = [Changed(msgspec.convert(source, objects.PodGroup))]
    happened = stage.mirror.hear_pod_groups(batch, "scheduling.volcano.sh", "v1beta1")
    stage.driver.happened(happened)
    return happened


async def test_a_surplus_member_yields_and_not_the_only_one_of_its_role() -> None:
    async with Stage(rights=RIGHTS) as stage:
        volcano_group(stage, ps=1, worker=2)
        roles = {"a": "worker", "b": "worker", "c": "worker", "ps": "ps"}
        stage.nodes(gpu_node(cards=4))
        members = {name: ranked(waiting(name), 0) for name in roles}
        for name, item in members.items():
            notes = {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": roles[name]}
            item["metadata"]["annotations"] = notes
        stage.pods(*members.values())
        await stage.settle()
        for bind in list(stage.hands.binds):
            item = ranked(bound(bind.pod.name, bind), 0)
            item["metadata"]["annotations"] |= members[bind.pod.name]["metadata"]["annotations"]
            # The parameter server is the youngest, which would make it the first to yield.
            began = to_second(500.0 if bind.pod.name == "ps" else 100.0)
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": began}
            item["status"] = {"phase": "Running", "startTime": began, "conditions": [scheduled]}
            stage.pods(item)
        await stage.settle()
        stage.pods(ranked(waiting("high"), 10))
        await stage.settle()
        (evict,) = stage.evictors.evictions
        assert evict.pod.role == "worker"
        gang, is_broken = evict.pod.group, stage.driver.preemptions.is_broken
        assert not is_broken(gang, {"uid-a"})
        assert is_broken(gang, {"uid-a", "uid-b"})
        assert is_broken(gang, {"uid-ps"})  # enough members, but none of this role
        assert not is_broken("unknown", {"uid-a"})


async def test_other_roles_with_the_same_sum_are_news() -> None:
    async with Stage(rights=RIGHTS) as stage:
        volcano_group(stage, ps=1, worker=2)
        (news,) = [one for one in volcano_group(stage, ps=2, worker=1) if isinstance(one, GangChanged)]
        assert (news.minimum, news.roles) == (3, (Role("ps", 2), Role("worker", 1)))
        assert not volcano_group(stage, ps=2, worker=1)
