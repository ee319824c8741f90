"""Gangs that stay below their minimum: completed where they can be, else released after their time-out, once."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from dovetail.kube.api.watch import Changed, Replaced
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.live.evictor import Evictor
from dovetail.kube.live.gang_releases import (
    GANG_RELEASED,
    NEW_LEADER_SECONDS,
    RELEASE_AGAIN_SECONDS,
    SHORTEST_TIME_LIMIT,
)
from dovetail.kube.live.times import to_second
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import EvictorsHands, Stage, gpu_node, read, waiting
from tests.kube.live.test_gangs import API, hear, later, member, stands
from tests.kube.manifests import ALLOCATED, Object

pytestmark = pytest.mark.asyncio
START = 1000.0  # the stage's clock
AFTER = 600.0  # gangs.releaseAfterSeconds


class Releases(EvictorsHands):
    """Evictions that are asked for, and what the evictor asks before it sends them."""

    def names(self) -> list[str]:
        return sorted(one.pod.name for one in self.evictions)


def release(stage: Stage, after: float | None = AFTER) -> Releases:
    hands = Releases()
    stage.driver.releases.after, stage.driver.releases.schedulers = after, frozenset({"dovetail"})
    stage.driver.releases.evictor = cast(Evictor, hands)
    return hands


def group(minimum: int, timeout: int | None = None, created: float = START - 900) -> Any:
    source = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "uid-train", "creationTimestamp": to_second(created)},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": timeout},
    }
    return Changed(msgspec.convert(source, objects.PodGroup))


def waits(name: str, created: float = START - 50) -> Object:
    item = member(name)
    item["metadata"]["creationTimestamp"] = to_second(created)
    return item


def holds(name: str, card: int, at: float = START, phase: str = "Running", version: int = 2) -> Object:
    """A member that got a card of node n at this time, by the API server's record."""
    item = waits(name)
    item["metadata"]["resourceVersion"] = str(version)
    item["metadata"]["annotations"] = {ALLOCATED: f"GPU-n-{card},NVIDIA,15360,100:;"}
    item["spec"]["nodeName"] = "n"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": to_second(at)}
    item["status"] = {"phase": phase, "conditions": [scheduled]}
    return item


async def below(stage: Stage, timeout: int | None = None, cards: int = 2, bound_at: float = START) -> Releases:
    """Two members of three hold the only two cards; the third waits."""
    hands = release(stage)
    stage.nodes(gpu_node(cards=cards))
    hear(stage, group(3, timeout))
    stage.driver.hear_pods([Replaced([read(one) for one in (holds("a", 0, bound_at), holds("b", 1, bound_at))], [])])
    stage.pods(waits("c", bound_at - 50))
    await stage.settle()
    return hands


async def test_a_gang_without_hope_is_released_whole_after_its_own_time_out() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30)
        await later(stage, 29)
        assert hands.evictions == []
        assert stage.driver.releases.counts.below == 1
        await later(stage, 2)  # 31 s after the last bind
        assert hands.names() == ["a", "b"]
        assert hands.evictions[0].reason == "2 of 3 members of ml/train have a node; 1 more did not get one within 30 s"
        (note,) = [note for note in stage.hands.notes if note.reason == GANG_RELEASED]
        assert note.about is not None
        assert (note.about.kind, note.about.name, note.about.uid) == ("PodGroup", "train", "uid-train")


async def test_it_is_released_once_and_again_only_if_members_stay() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30)
        await later(stage, 31)
        await later(stage, RELEASE_AGAIN_SECONDS - 3)
        assert hands.names() == ["a", "b"]
        ends = holds("a", 0, version=3)
        ends["metadata"]["deletionTimestamp"] = to_second(stage.clock)
        stage.pods(ends)
        await later(stage, 4)  # a budget forbade the eviction of b
        assert hands.names() == ["a", "b", "b"]
        stage.pod_gone(ends)
        stage.pod_gone(holds("b", 1))
        await later(stage, 1000)
        assert stage.driver.releases.counts.below == 0
        assert stage.driver.releases.counts.gangs == 2


async def test_without_a_time_out_of_its_own_the_configured_one_holds() -> None:
    async with Stage() as stage:
        hands = await below(stage)
        await later(stage, AFTER - 1)
        assert hands.evictions == []
        await later(stage, 2)
        assert hands.names() == ["a", "b"]


async def test_never_means_never() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=10)
        stage.driver.releases.after = None
        await later(stage, 10_000)
        assert hands.evictions == []


async def test_the_next_leader_continues_the_clock_but_first_tries_to_complete_the_gang() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30, bound_at=START - 500)
        await later(stage, 1)
        await later(stage, NEW_LEADER_SECONDS - 3)
        assert hands.evictions == []  # its time was up when we came
        await later(stage, 4)
        assert hands.names() == ["a", "b"]


async def test_room_that_appears_in_time_completes_the_gang() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30)
        await later(stage, 25)
        stage.nodes(gpu_node("m"))
        await later(stage, 10)
        assert [bind.pod.name for bind in stage.hands.binds] == ["c"]
        assert hands.evictions == []  # c is being bound, however long that takes
        await later(stage, 1000)
        assert hands.evictions == []


async def test_a_member_whose_bind_is_refused_again_and_again_does_not_hold_the_others() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30, cards=3)
        (bind,) = stage.hands.binds
        stage.hands.under_way.clear()  # it pauses after a refusal, and keeps its room
        stage.driver.rooms.kept[bind.pod.uid] = bind.pod.group
        await later(stage, 31)
        assert hands.names() == ["a", "b"]


async def test_a_gang_that_has_run_whole_keeps_its_members_for_the_longer_time() -> None:
    """c failed and was created again: its time-out of 10 s is that of a start, 600 s hold for members that work."""
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=2))
        hear(stage, group(3, 10))
        stage.pods(holds("a", 0, START - 400), holds("b", 1, START - 400), waits("c", START))
        await stage.settle()
        await later(stage, AFTER - 1)
        assert hands.evictions == []
        await later(stage, 2)
        assert hands.names() == ["a", "b"]


async def test_members_that_succeeded_are_not_missing() -> None:
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=3))
        hear(stage, group(3, 10))
        stage.pods(holds("a", 0), holds("b", 1), holds("c", 2))
        await stage.settle()
        done = holds("c", 2, phase="Succeeded", version=3)
        stage.pods(done)
        await later(stage, 2000)
        stage.pod_gone(done)  # its Job removes it
        await later(stage, 2000)
        assert hands.evictions == []
        assert stage.driver.releases.counts.below == 0


async def test_a_member_that_is_lost_for_good_counts_from_that_moment() -> None:
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=3))
        hear(stage, group(3, 10))
        stage.pods(holds("a", 0), holds("b", 1), holds("c", 2))
        await later(stage, 5000)
        stage.pods(holds("c", 2, phase="Failed", version=3))
        await stage.settle()
        await later(stage, AFTER - 1)
        assert hands.evictions == []
        await later(stage, 3)
        assert hands.names() == ["a", "b"]


async def test_a_later_gang_of_the_same_name_has_done_nothing_yet() -> None:
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=2))
        hear(stage, group(3, 30))
        first = [holds(name, 0, phase="Succeeded") for name in ("x", "y", "z")]
        stage.pods(*first)
        await later(stage, 3)
        for item in first:
            stage.pod_gone(item)
        await later(stage, 3)
        stage.pods(holds("a", 0, stage.clock), holds("b", 1, stage.clock), waits("c"))
        await later(stage, 31)
        assert hands.names() == ["a", "b"]


@pytest.mark.parametrize("same_run", [False, True])
async def test_the_next_leader_tells_an_earlier_run_from_members_that_succeeded(same_run: bool) -> None:
    """The PodGroup is used again while pods of its first run still exist. Members are created at START - 50."""
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=2))
        hear(stage, group(4, 30))
        ended = START - 40 if same_run else START - 100
        first = [holds(name, 0, ended, "Succeeded") for name in ("w", "x", "y", "z")]
        second = [holds("a", 0), holds("b", 1), waits("c"), waits("d")]
        stage.driver.hear_pods([Replaced([read(one) for one in (*first, *second)], [])])
        await stage.settle()
        stage.pod_gone(first[0])
        await later(stage, 31)
        assert hands.names() == ([] if same_run else ["a", "b"])


@pytest.mark.parametrize("why", ["another scheduler", "the group came later", "its kind is behind", "minimum reached"])
async def test_gangs_that_we_never_promised_to_start_whole_are_left_alone(why: str) -> None:
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=2))
        hear(
            stage, group(2 if why == "minimum reached" else 3, 10, START + 100 if why == "the group came later" else 0)
        )
        first, second = holds("a", 0), holds("b", 1)
        if why == "another scheduler":
            second["spec"]["schedulerName"] = "default-scheduler"
        stage.pods(first, second, waits("c"))
        await stage.settle()
        if why == "its kind is behind":
            stands(stage, Standing.BEHIND)
        await later(stage, 5000)
        assert hands.evictions == []


async def test_a_time_out_of_a_tenant_has_a_lower_bound() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=1, bound_at=START - 100)
        await later(stage, 1)
        await later(stage, NEW_LEADER_SECONDS)
        assert hands.names() == ["a", "b"]
        assert f"within {SHORTEST_TIME_LIMIT:.0f} s" in hands.evictions[0].reason


async def test_just_before_an_eviction_the_gang_is_looked_at_again() -> None:
    async with Stage() as stage:
        hands = await below(stage, timeout=30)
        await later(stage, 31)
        releases, key = stage.driver.releases, f"PodGroup/ml/train@{API}"
        assert releases._is_below(key)
        stage.nodes(gpu_node("m"))
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["c"]
        assert not releases._is_below(key)
        assert hands.names() == ["a", "b"]


async def test_a_gang_whose_role_is_below_its_own_minimum_is_released() -> None:
    """Volcano: three workers have a node, which are enough members; the parameter server has none."""
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=3))
        meta = {"name": "train", "namespace": "ml", "creationTimestamp": to_second(START - 900)}
        spec = {"minMember": 3, "minTaskMember": {"ps": 1, "worker": 2}}
        batch: list[Any] = [Changed(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodGroup))]
        stage.driver.happened(stage.mirror.hear_pod_groups(batch, "scheduling.volcano.sh", "v1beta1"))
        pods = [holds("a", 0), holds("b", 1), holds("c", 2), waits("d")]
        for pod, role in zip(pods, ("worker", "worker", "worker", "ps"), strict=True):
            pod["metadata"]["labels"] = {}
            notes = {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": role}
            pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **notes}
        stage.pods(*pods)
        await stage.settle()
        await later(stage, AFTER - 1)
        assert hands.evictions == []
        await later(stage, 3)
        assert hands.names() == ["a", "b", "c"]
        assert "; 1 more did not get one within 600 s" in hands.evictions[0].reason
        looked: list[str] = []
        below = stage.driver.releases._below
        stage.driver.releases._below = lambda names, pods: below(  # type: ignore[method-assign]
            names,
            [looked.append(known.pod.name) or known for known in pods],  # type: ignore[func-returns-value]
        )
        stage.pods(*(waiting(f"other{number}") for number in range(20)))
        assert stage.driver.releases._is_below("PodGroup/ml/train@scheduling.volcano.sh")
        assert sorted(looked) == ["a", "b", "c", "d"]


async def test_no_event_is_written_for_the_pod_group_of_another_namespace() -> None:
    """A tenant's list names the PodGroup of a namespace in which the gang has no pod."""
    async with Stage() as stage:
        hands = release(stage)
        stage.nodes(gpu_node(cards=1))
        both = {"gang.scheduling.koordinator.sh/groups": '["aa/theirs", "ml/train"]'}
        batch: list[Any] = []
        for space, name, size, notes in (("aa", "theirs", 1, {}), ("ml", "train", 2, both)):
            meta = {"name": name, "namespace": space, "uid": f"uid-{name}", "annotations": notes}
            source = {"metadata": {**meta, "creationTimestamp": to_second(START - 900)}, "spec": {"minMember": size}}
            batch.append(Changed(msgspec.convert(source, objects.PodGroup)))
        stage.driver.happened(stage.mirror.hear_pod_groups(batch, "scheduling.sigs.k8s.io", "v1alpha1"))
        pods = [holds("a", 0), waits("b")]
        for pod in pods:
            pod["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "train"}
        stage.pods(*pods)
        await stage.settle()
        await later(stage, AFTER - 1)
        await later(stage, 3)
        assert hands.names() == ["a"]
        told = [note.about.name for note in stage.hands.notes if note.reason == GANG_RELEASED and note.about]
        assert told == ["train"]
