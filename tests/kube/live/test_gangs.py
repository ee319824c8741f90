"""Gangs come whole or not at all: whatever is heard first, whoever leaves, whichever bind is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.live.binder import Fate
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.kube.manifests import Object

API = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"
GANG = {LABEL: "train"}
KEY = f"PodGroup/ml/train@{API}"


def member(name: str, version: int = 1) -> Object:
    return waiting(name, version, labels=GANG)


def runs(bind: Bind, version: int = 2) -> Object:
    item = bound(bind.pod.name, bind, version)
    item["metadata"]["labels"] = GANG
    return item


def pod_group(minimum: int) -> objects.PodGroup:
    source = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": minimum}}
    return msgspec.convert(source, objects.PodGroup)


def hear(stage: Stage, *events: Any) -> None:
    stage.driver.happened(stage.mirror.hear_pod_groups(list(events), API, "v1alpha1"))


def stands(stage: Stage, standing: Standing) -> None:
    stage.driver.happened(stage.mirror.pod_groups_stand(API, "v1alpha1", standing))


def placed(stage: Stage) -> list[str]:
    return sorted(bind.pod.name for bind in stage.hands.binds)


async def later(stage: Stage, seconds: float = 2.0) -> None:
    stage.clock += seconds
    stage.driver.happened(())
    await stage.settle()


def said(stage: Stage, name: str) -> tuple[str, str]:
    return tuple(stage.hands.conditions[f"uid-{name}"])  # type: ignore[return-value]


async def one_is_refused(stage: Stage) -> Bind:
    """A gang of two: one is bound, the other's bind was refused; no card is left for a pod that waits."""
    stage.nodes(gpu_node(cards=2))
    hear(stage, Replaced([pod_group(2)], []))
    stage.pods(member("a"), member("b"))
    await stage.settle()
    one, other = stage.hands.binds
    stage.pods(runs(one))
    stage.answer(Fate.BOUND, one)
    stage.answer(Fate.REFUSED, other, message="no")
    await stage.settle()
    stage.pods(waiting("thief"))
    await stage.settle()
    return other


class TestUnknownGroups:
    async def test_pods_that_come_before_their_group_wait_for_it(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Replaced([], []))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            assert placed(stage) == []
            text = f"PodGroup ml/train ({API}) does not exist; create it or remove the label {LABEL}."
            assert said(stage, "a") == said(stage, "b") == ("GroupUnknown", text)
            hear(stage, Changed(pod_group(2)))
            await stage.settle()
            assert placed(stage) == ["a", "b"]

    async def test_a_group_that_is_deleted_before_its_pods_splits_nothing(self) -> None:
        """As `kubectl delete -f` does it: there is room for one of two, and then for both."""
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=1))
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            hear(stage, Deleted(Ref("ml", "train", ""), None))
            await later(stage)
            stage.nodes(gpu_node("m", cards=2))
            await stage.settle()
            assert placed(stage) == []
            assert said(stage, "a")[0] == "GroupUnknown"

    async def test_a_kind_that_is_not_served_is_named_and_wanted(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node())
            hear(stage, NotServed())
            assert not stage.mirror.gangs.wanted(API)
            stage.pods(member("a"))
            await stage.settle()
            text = f"the API server does not serve {API} PodGroups; install the CRD or remove the label {LABEL}."
            assert said(stage, "a") == ("GroupUnknown", text)
            assert stage.mirror.gangs.wanted(API)
            assert not stage.mirror.gangs.wanted("scheduling.volcano.sh")

    async def test_a_404_makes_groups_unknown_and_not_absent(self) -> None:
        """An API server that has just started does not know its CRDs yet; with either setting nothing is split."""
        for setting in ("wait", "alone"):
            async with Stage(unknown_group=setting) as stage:
                hear(stage, Replaced([pod_group(2)], []))
                stage.pods(member("a"), member("b"))
                hear(stage, NotServed())
                stage.nodes(gpu_node(cards=1))
                await stage.settle()
                assert placed(stage) == [], setting
                hear(stage, Replaced([pod_group(2)], []))
                stage.nodes(gpu_node("m", cards=1))
                await stage.settle()
                assert placed(stage) == ["a", "b"], setting

    async def test_on_request_pods_of_unknown_groups_are_placed_alone(self) -> None:
        async with Stage(unknown_group="alone") as stage:
            stage.nodes(gpu_node(cards=1))
            hear(stage, NotServed())
            stage.pods(member("a"), member("b"))
            await stage.settle()
            assert placed(stage) == ["a"]


class TestWatchesThatAreBehind:
    async def test_pods_newer_than_the_list_of_groups_wait_until_it_has_caught_up(self) -> None:
        """The minimum was 2 before the API server restarted and is 3 now; pods are heard of first."""
        async with Stage() as stage:
            hear(stage, Replaced([pod_group(2)], []))
            stands(stage, Standing.BEHIND)
            stage.nodes(gpu_node(cards=2))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            assert placed(stage) == []
            hear(stage, Changed(pod_group(3)))
            stands(stage, Standing.LISTED)
            await stage.settle()
            assert placed(stage) == []
            assert said(stage, "a")[0] == "GroupIncomplete"

    async def test_a_gang_goes_on_when_its_watch_is_back(self) -> None:
        async with Stage() as stage:
            hear(stage, Replaced([pod_group(2)], []))
            stands(stage, Standing.BEHIND)
            stage.nodes(gpu_node(cards=2))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            assert stage.hands.conditions == {}  # a moment is not worth a write
            stands(stage, Standing.LISTED)
            await stage.settle()
            assert placed(stage) == ["a", "b"]

    async def test_a_watch_that_stays_behind_is_said(self) -> None:
        async with Stage() as stage:
            hear(stage, Replaced([pod_group(1)], []))
            stands(stage, Standing.BEHIND)
            stage.nodes(gpu_node())
            stage.pods(member("a"))
            await stage.settle()
            await later(stage, 6.0)
            assert said(stage, "a")[0] == "GroupUnknown"
            assert "behind" in said(stage, "a")[1]


class TestMembersThatLeave:
    async def test_a_member_that_ended_is_not_counted_as_running(self) -> None:
        """Three pods, minimum 2, room for two: the third waits beside two that run. When both end, it is alone."""
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Changed(pod_group(2)))
            stage.pods(*(member(name) for name in "abc"))
            await stage.settle()
            assert placed(stage) == ["a", "b"]
            items = [runs(bind) for bind in stage.hands.binds]
            stage.pods(*items)
            await stage.settle()
            for item in items:
                item["metadata"]["resourceVersion"] = "3"
                item["status"] = {"phase": "Succeeded"}
            stage.pods(*items)
            await stage.settle()
            assert placed(stage) == ["a", "b"]  # c is 1 of 2

    async def test_members_that_are_being_deleted_do_not_count(self) -> None:
        """A Job is started anew while its old pods still end: two new ones, room for one."""
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=3))
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            old = [runs(bind) for bind in stage.hands.binds]
            for item in old:
                item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            stage.pods(*old)
            stage.pods(member("c"), member("d"))
            await stage.settle()
            assert placed(stage) == ["a", "b"]
            stage.pod_gone(old[0])
            await stage.settle()
            assert placed(stage) == ["a", "b", "c", "d"]

    async def test_both_binds_are_refused_and_the_third_member_is_not_placed_alone(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Changed(pod_group(2)))
            stage.pods(*(member(name) for name in "abc"))
            await stage.settle()
            for bind in list(stage.hands.binds):
                stage.answer(Fate.REFUSED, bind, message="no")
            await stage.settle()
            assert placed(stage) == ["a", "b"]
            assert stage.holders() == set()

    async def test_a_label_that_is_taken_off_takes_the_pod_out_of_its_gang(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=3))
            hear(stage, Changed(pod_group(3)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            stage.pods(waiting("a", 2))
            await stage.settle()
            assert placed(stage) == ["a"]
            stage.pods(member("c"), member("d"))
            await stage.settle()
            assert placed(stage) == ["a"]  # three wait, two cards are left

    async def test_a_minimum_that_grows_while_members_wait_counts(self) -> None:
        async with Stage() as stage:
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            hear(stage, Changed(pod_group(3)))
            stage.nodes(gpu_node(cards=3))
            await stage.settle()
            assert placed(stage) == []
            stage.pods(member("c"))
            await stage.settle()
            assert placed(stage) == ["a", "b", "c"]


class TestStartedGangs:
    async def test_the_rest_of_a_started_gang_goes_before_higher_priority(self) -> None:
        """A scheduler that was killed between two binds: one of two runs, one card is left, an urgent pod waits."""
        async with Stage() as first:
            first.nodes(gpu_node(cards=2))
            hear(first, Changed(pod_group(2)))
            first.pods(member("a"), member("b"))
            await first.settle()
            half = runs(first.hands.binds[0])
        urgent = waiting("urgent")
        urgent["spec"]["priority"] = 1000
        for order in ([urgent, half, member("b")], [member("b"), urgent, half]):
            async with Stage() as stage:
                stage.driver.paused = True
                stage.nodes(gpu_node(cards=2))
                hear(stage, Replaced([pod_group(2)], []))
                stage.driver.hear_pods([Replaced([msgspec.convert(item, objects.Pod) for item in order], [])])
                stage.driver.take_truth()
                stage.driver.paused = False
                stage.driver.happened(())
                await stage.settle()
                assert placed(stage) == ["b"]

    async def test_a_refused_member_keeps_its_room_while_others_are_bound(self) -> None:
        async with Stage() as stage:
            other = await one_is_refused(stage)
            assert placed(stage) == ["a", "b"]
            stage.driver.outcomes.again(other.pod)
            await stage.settle()
            assert placed(stage) == ["a", "b", "b"]
            assert stage.holders() == {"a", "b"}

    @pytest.mark.parametrize("served", [True, False], ids=["watch broken", "404 from a server that starts"])
    async def test_its_room_is_kept_while_pod_groups_cannot_be_looked_at(self, served: bool) -> None:
        async with Stage() as stage:
            other = await one_is_refused(stage)
            stands(stage, Standing.BEHIND)
            if not served:
                hear(stage, NotServed())
            stage.driver.outcomes.again(other.pod)
            await stage.settle()
            assert stage.holders() == {"a", "b"}
            assert placed(stage) == ["a", "b"]
            hear(stage, Replaced([pod_group(2)], []))
            await stage.settle()
            assert placed(stage) == ["a", "b", "b"]
            assert stage.holders() == {"a", "b"}

    async def test_its_room_is_free_when_the_pod_group_turns_out_to_be_gone(self) -> None:
        async with Stage() as stage:
            other = await one_is_refused(stage)
            stands(stage, Standing.BEHIND)
            stage.driver.outcomes.again(other.pod)
            await stage.settle()
            hear(stage, Replaced([], []))
            await stage.settle()
            assert stage.holders() == {"a", "thief"}

    async def test_a_gang_of_which_nothing_is_bound_keeps_no_room(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            for bind in list(stage.hands.binds):
                stage.answer(Fate.REFUSED, bind, message="no")
            await stage.settle()
            assert stage.holders() == set()
            assert stage.driver.rooms.kept == {}

    async def test_a_gang_that_lost_a_member_before_its_bind_is_not_bound(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            bind = stage.hands.binds[0]
            assert stage.driver.rooms.is_whole(bind.pod)
            stage.pod_gone(member("b"))
            await stage.settle()
            assert not stage.driver.rooms.is_whole(bind.pod)

    async def test_a_gang_of_which_one_is_bound_is_bound_on(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=3))
            hear(stage, Changed(pod_group(3)))
            stage.pods(member("a"), member("b"), member("c"))
            await stage.settle()
            one, other, last = stage.hands.binds
            stage.pods(runs(one))
            stage.pod_gone(member(last.pod.name))
            await stage.settle()
            assert stage.driver.rooms.is_whole(other.pod)


class TestConditions:
    async def test_members_that_are_missing_are_counted(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=4))
            hear(stage, Changed(pod_group(4)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            text = "2 of 4 members of ml/train are there, 2 more must be created."
            assert said(stage, "a") == said(stage, "b") == ("GroupIncomplete", text)
            stage.pods(member("c"))
            await later(stage)
            assert said(stage, "a") == ("GroupIncomplete", text.replace("2", "3", 1).replace("2", "1"))
            stage.pod_gone(member("c"))
            await later(stage)
            assert said(stage, "a") == ("GroupIncomplete", text)

    async def test_members_that_fit_are_counted_and_what_the_next_one_lacks(self) -> None:
        """The fault: GroupIncomplete was still said half a minute after all members were there."""
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=3))
            hear(stage, Changed(pod_group(4)))
            stage.pods(*(member(name) for name in "abc"))
            await stage.settle()
            stage.pods(member("d"))
            await later(stage)
            reason, message = said(stage, "a")
            assert reason == "Unschedulable"
            assert message.startswith("3 of 4 members of ml/train fit, 4 must start together; the next finds 0/1 nodes")
            assert len({said(stage, name) for name in "abcd"}) == 1

    async def test_a_started_gang_without_room_says_so_with_numbers(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            hear(stage, Changed(pod_group(2)))
            stage.pods(member("a"), member("b"))
            await stage.settle()
            stage.pods(runs(stage.hands.binds[0]))
            stage.answer(Fate.GONE, stage.hands.binds[1])
            stage.pod_gone(member("b"))
            stage.pods(waiting("other"))
            await stage.settle()
            assert stage.holders() == {"a", "other"}
            stage.pods(member("c"))
            await stage.settle()
            assert said(stage, "c")[1].startswith(
                "0 of 1 members of ml/train fit, 1 must start together beside 1 that runs; the next finds 0/1 nodes"
            )

    async def test_a_gang_that_comes_pod_by_pod_does_not_write_its_square(self) -> None:
        """Sixty members in six seconds: without a pause each arrival would be written to all that are there (1,830)."""
        writes = 0
        async with Stage() as stage:
            count = stage.hands.waits

            def waits(pod: Any, condition: Any) -> None:
                nonlocal writes
                writes += 1
                stage.mirror.pods[pod.uid].condition = tuple(condition)
                count(pod, condition)

            stage.hands.waits = waits  # type: ignore[method-assign]
            hear(stage, Changed(pod_group(100)))
            for number in range(60):
                stage.pods(member(f"m{number}"))
                await later(stage, 0.1)
            await later(stage, 5.0)
            assert {said(stage, f"m{number}")[1] for number in range(60)} == {
                "60 of 100 members of ml/train are there, 40 more must be created."
            }
        assert writes < 400  # about one a second and member: 10 + 20 + … + 60, and 60 in the end
        notes = [note for note in stage.hands.notes if note.reason == "FailedScheduling"]
        assert len(notes) == 60  # other numbers are no event
