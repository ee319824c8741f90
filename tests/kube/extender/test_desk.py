"""What `filter` and `bind` do, one request after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.watch import Changed
from dovetail.kube.extender.protocol import FilterArgs, NodeVictims, OfferedNode, PreemptArgs
from dovetail.kube.live.binder import Fate
from dovetail.kube.live.rights import PreemptionOptions, live_rights
from dovetail.kube.objects import core as objects
from dovetail.model.reason import Reason, sentence
from tests.kube.extender.asked_stage import AskedStage, bound, waiting
from tests.kube.live.stage import gpu_node, read
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
GANG = {"scheduling.x-k8s.io/pod-group": "gang"}
PREEMPTING = live_rights(PreemptionOptions(), ("dovetail",))


def _pod_group(stage: AskedStage, minimum: int) -> None:
    source = {"metadata": {"name": "gang", "namespace": "ml"}, "spec": {"minMember": minimum}}
    batch: list[Any] = [Changed(msgspec.convert(source, objects.PodGroup))]
    stage.driver.happened(stage.mirror.hear_pod_groups(batch, "scheduling.x-k8s.io"))


def _with_priority(item: Object, priority: int) -> Object:
    item["spec"]["priority"] = priority
    return item


async def test_filter_returns_one_node_and_reserves_its_card() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"), gpu_node("m"))
        assert len(stage.filter(waiting("a"), "n", "m").names) == 1
        assert len(stage.filter(waiting("b"), "n", "m").names) == 1
        assert stage.holders() == {"a", "b"}
        third = stage.filter(waiting("c"), "n", "m")
        assert third.names == ()
        assert third.failed == dict.fromkeys(("n", "m"), "GPU compute short")
        await stage.settle()
        assert stage.sender.binds == []  # bind is asked for


async def test_only_offered_nodes_are_chosen() -> None:
    """binpack takes the fuller node, which kube-scheduler does not offer."""
    async with AskedStage() as stage:
        stage.nodes(gpu_node("full", cards=2), gpu_node("empty", cards=2))
        assert stage.filter(waiting("a"), "full").names == ("full",)
        assert stage.filter(waiting("b"), "empty").names == ("empty",)
        assert stage.filter(waiting("c"), "nowhere").unresolvable == {"nowhere": "node is not known to Dovetail yet"}
        assert stage.holders() == {"a", "b"}


async def test_the_same_question_has_the_same_answer_while_its_node_is_offered() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"), gpu_node("m"))
        (first,) = stage.filter(waiting("a"), "n", "m").names
        assert stage.filter(waiting("a"), "m", "n").names == (first,)
        other = "m" if first == "n" else "n"
        assert stage.filter(waiting("a"), other).names == (other,)  # kube-scheduler has excluded the first one since
        assert stage.filter(waiting("b"), first).names == (first,)  # so it is free


async def test_a_pod_without_cards_is_left_to_kube_scheduler() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        assert stage.filter(waiting("a", limits={"cpu": "1"}), "n", "x").names == ("n", "x")
        assert stage.holders() == set()


async def test_a_pod_that_cannot_be_is_refused_with_what_is_wrong() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        found = stage.filter(waiting("a", limits={"nvidia.com/gpu": 99}), "n")
        assert found.unresolvable == {"n": "node has fewer cards than one container asks for"}
        item = waiting("b")
        item["spec"]["schedulerName"] = "another"
        assert "schedulerName 'another' is not served" in stage.filter(item, "n").error


async def test_a_reservation_ends_when_nobody_asks_for_it() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        assert stage.filter(waiting("a"), "n").names == ("n",)
        stage.clock += 59
        stage.desk.expire()
        assert stage.holders() == {"a"}
        stage.clock += 2
        stage.desk.expire()
        assert stage.holders() == set()
        assert stage.desk.expired == 1
        assert stage.filter(waiting("b"), "n").names == ("n",)


async def test_a_deleted_pod_frees_its_reservation_at_once() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        assert stage.filter(waiting("a"), "n").names == ("n",)
        stage.pod_gone(waiting("a"))
        assert stage.filter(waiting("b"), "n").names == ("n",)
        assert "the pod is gone" in stage.filter(waiting("a"), "n").error


async def test_bind_binds_what_filter_reserved() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        asked = stage.ask_to_bind(waiting("a"), "n")
        await stage.settle()
        (bind,) = stage.sender.binds
        assert (bind.decision.node, [share.uuid for share in bind.decision.shares]) == ("n", ["GPU-n-0"])
        stage.outcome(Fate.BOUND, "uid-a")
        assert await asked == ""
        stage.pods(bound("a", bind))
        assert await stage.ask_to_bind(waiting("a"), "n") == ""  # asked again: it is bound
        assert "bound to node n already" in await stage.ask_to_bind(waiting("a"), "m")
        assert len(stage.sender.binds) == 1


async def test_two_requests_for_one_bind_make_one_binding() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        first, second = stage.ask_to_bind(waiting("a"), "n"), stage.ask_to_bind(waiting("a"), "n")
        await stage.settle()
        assert stage.filter(waiting("a"), "n").names == ("n",)  # kube-scheduler gave up waiting, and asks again
        stage.outcome(Fate.BOUND, "uid-a")
        assert [await first, await second] == ["", ""]
        assert len(stage.sender.binds) == 1


async def test_bind_without_a_reservation_decides_on_that_node() -> None:
    """After a restart, or after the reservation's end."""
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"), gpu_node("m"))
        stage.pods(waiting("a"))
        asked = stage.ask_to_bind(waiting("a"), "m")
        await stage.settle()
        stage.outcome(Fate.BOUND, "uid-a")
        assert await asked == ""
        stage.pods(waiting("b"))
        assert await stage.ask_to_bind(waiting("b"), "m") == "node m: GPU compute short"


async def test_a_refused_bind_frees_the_card_and_says_why() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        asked = stage.ask_to_bind(waiting("a"), "n")
        await stage.settle()
        stage.outcome(Fate.REFUSED, "uid-a", message="a webhook said no")
        assert await asked == "node n: a webhook said no"
        assert stage.filter(waiting("b"), "n").names == ("n",)


async def test_a_pod_that_changed_meanwhile_is_bound_as_it_is_now() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        asked = stage.ask_to_bind(waiting("a"), "n")
        await stage.settle()
        stage.outcome(Fate.CHANGED, "uid-a", waiting("a", version=2, labels={"x": "y"}))
        await stage.settle()
        assert [bind.pod.labels for bind in stage.sender.binds] == [{}, {"x": "y"}]
        stage.outcome(Fate.BOUND, "uid-a")
        assert await asked == ""


async def test_a_late_bind_is_taken_back_before_its_error_is_answered() -> None:
    async with AskedStage(bind_seconds=0.01) as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        task = stage.ask_to_bind(waiting("a"), "n")
        assert "not bound within 0.01 s" in await task
        assert all(one.cancelled() for one in stage.sender.tasks.values())
        stage.sender.tasks.clear()
        stage.desk.release(("uid-a",))
        assert stage.filter(waiting("b"), "n").names == ("n",)


async def test_a_binding_on_its_way_is_waited_for() -> None:
    async with AskedStage(bind_seconds=0.01) as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        asked = stage.ask_to_bind(waiting("a"), "n")
        await stage.settle()
        stage.sender.sending.add("uid-a")
        done, _ = await asyncio.wait((asked,), timeout=0.1)
        assert not done
        assert stage.driver.outcomes.objection(stage.sender.binds[0], False)  # it is not sent a second time
        stage.outcome(Fate.BOUND, "uid-a")
        assert await asked == ""


async def test_a_request_that_waited_while_the_process_stood_still_is_not_carried_out() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")
        stage.extender.stalls.note(asyncio.get_running_loop().time() - 10)
        assert "stood still" in await stage.ask_to_bind(waiting("a"), "n")
        assert stage.sender.binds == []


async def test_a_replica_that_does_not_lead_says_so() -> None:
    async with AskedStage() as stage:
        stage.service.ready, stage.service.state = False, "waiting for the lease"
        assert stage.filter(waiting("a"), "n").error == "this Dovetail does not serve now: waiting for the lease"
        assert "waiting for the lease" in await stage.ask_to_bind(waiting("a"), "n")
        assert not stage.extender.leads


async def test_the_members_of_a_gang_are_reserved_together() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n", cards=2), gpu_node("m", cards=2))
        _pod_group(stage, minimum=3)
        members = [waiting(name, labels=GANG) for name in "abc"]
        alone = stage.filter(members[0], "n", "m")
        assert alone.names == ()
        assert alone.unresolvable == dict.fromkeys(("n", "m"), sentence(Reason.GROUP_INCOMPLETE))
        stage.pods(*members)
        assert len(stage.filter(members[2], "n", "m").names) == 1
        assert stage.holders() == {"a", "b", "c"}
        late = stage.filter(waiting("other", limits={"nvidia.com/gpu": 2, "nvidia.com/gpucores": 100}), "n", "m")
        assert late.names == ()
        assert all(len(stage.filter(one, "n", "m").names) == 1 for one in members)


async def test_a_gang_moves_as_a_whole_if_one_member_is_offered_other_nodes() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n", cards=2), gpu_node("m", cards=2))
        _pod_group(stage, minimum=2)
        members = [waiting(name, labels=GANG) for name in "ab"]
        stage.pods(*members)
        first = stage.filter(members[0], "n", "m").names[0]
        other = "m" if first == "n" else "n"
        assert stage.filter(members[1], other).names == (other,)
        assert stage.holders() == {"a", "b"}


async def test_whole_nodes_are_a_question_without_effect() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(waiting("a"), "n")

        def offered(item: Object) -> OfferedNode:
            return OfferedNode(msgspec.convert(item, objects.Node), msgspec.Raw(b"{}"))

        nodes = (offered(gpu_node("n")), offered(gpu_node("template")))
        assert stage.extender.filter_now(FilterArgs(read(waiting("b")), nodes=nodes)).names == ("template",)
        only = stage.extender.filter_now(FilterArgs(read(waiting("b")), nodes=nodes[:1]))
        assert only.failed == {"n": "GPU compute short"}
        assert stage.holders() == {"a"}
        assert "b" not in {known.pod.name for known in stage.mirror.pods.values()}


async def test_scores_go_from_0_to_10_and_follow_the_reservation() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n", cards=2), gpu_node("m", cards=2))
        await stage.settle()
        args = FilterArgs(read(waiting("a")), names=("n", "m"))
        assert set(stage.extender.prioritize(args).values()) == {10}  # equal nodes
        (chosen,) = stage.filter(waiting("a"), "n", "m").names
        scores = stage.extender.prioritize(args)
        assert scores == {name: 10 if name == chosen else 0 for name in ("n", "m")}
        packed = stage.extender.prioritize(FilterArgs(read(waiting("b")), names=("n", "m")))
        assert packed == scores  # binpack prefers the node where a is


async def test_preempt_adds_the_victims_that_the_cards_need() -> None:
    """kube-scheduler would stop `small`, for CPU; the card is held by `big`."""
    async with AskedStage(rights=PREEMPTING) as stage:
        stage.nodes(gpu_node("n"))
        big = _with_priority(waiting("big"), 1)
        stage.filter(big, "n")
        (bind,) = stage.driver.on_the_way.values()
        running = _with_priority(bound("big", bind), 1)
        small = _with_priority(waiting("small", limits={"cpu": "1"}), 1)
        small["spec"]["nodeName"] = "n"
        stage.pods(running, small)
        await stage.settle()
        for name, priority in (("urgent", 9), ("equal", 1)):
            stage.pods(_with_priority(waiting(name), priority))
        urgent = PreemptArgs(read(_with_priority(waiting("urgent"), 9)), {"n": NodeVictims(("uid-small",), 0)})
        assert stage.extender.preempt_now(urgent) == {"n": NodeVictims(("uid-small", "uid-big"), 0)}
        enough = urgent._replace(victims={"n": NodeVictims(("uid-big",), 0)})
        assert stage.extender.preempt_now(enough) == enough.victims
        equal = PreemptArgs(read(_with_priority(waiting("equal"), 1)), {"n": NodeVictims(("uid-small",), 0)})
        assert stage.extender.preempt_now(equal) == {}  # nothing more may be stopped: the node is left out


async def test_with_preemption_filter_stops_pods_for_cards_and_reserves_them_when_they_are_free() -> None:
    async with AskedStage(rights=PREEMPTING) as stage:
        stage.nodes(gpu_node("n"))
        stage.filter(_with_priority(waiting("low"), 1), "n")
        (bind,) = stage.driver.on_the_way.values()
        stage.pods(_with_priority(bound("low", bind), 1))
        urgent = _with_priority(waiting("urgent"), 9)
        for _ in range(2):
            assert stage.filter(urgent, "n").unresolvable == {"n": "Preempting 1 pod on node n"}
        assert [evict.pod.name for evict in stage.evictors.evictions] == ["low"]
        stage.pod_gone(waiting("low"))
        await stage.settle()
        assert stage.filter(_with_priority(waiting("other"), 1), "n").names == ()  # the card is the urgent pod's
        assert stage.filter(urgent, "n").names == ("n",)


async def test_a_filter_waits_for_the_report_of_its_pod_and_believes_nothing_else() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        running = waiting("a")
        stage.filter(running, "n")
        (bind,) = stage.driver.on_the_way.values()
        stage.pods(bound("a", bind))
        false = waiting("a", version=99)
        false["status"] = {"phase": "Succeeded"}
        assert "bound to node n already" in stage.filter(false, "n").error
        assert stage.holders() == {"a"}  # its card is not free
        stage.pod_gone(running)
        asked = asyncio.create_task(stage.extender.filter(FilterArgs(read(waiting("b")), names=("n",))))
        await asyncio.sleep(0.02)
        assert not asked.done()
        stage.pods(waiting("b"))
        assert (await asked).names == ("n",)
