"""Who yields: kube-scheduler's criteria, cards, disruption budgets, gangs and exemptions, with the arithmetic."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Rights
from dovetail.model.events import EvictionRefused, PodObserved
from dovetail.model.pod import Qos, RunningPod, Tolerance
from dovetail.policies.yielding import YIELD_BY_PRIORITY, YIELD_BY_QOS
from tests.builders import ask, node, pod
from tests.engine.preemption.world import Cluster, job


def test_the_lowest_priority_yields_and_its_card_is_the_one_that_is_given() -> None:
    cluster = Cluster(node("n", gpus=3))
    for name, priority in (("a", 3), ("b", 1), ("c", 2)):
        cluster.arrive(job(name, priority))
    freed = cluster.bound["b"][1]
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["b"]
    assert "urgent" not in cluster.bound  # b holds its card until it has ended
    cluster.end("b")
    assert cluster.bound["urgent"] == ("n", freed)


def test_equal_priorities_do_not_yield_and_preemption_policy_never_takes_nothing() -> None:
    cluster = Cluster(node("n", gpus=1))
    cluster.arrive(job("a", 5))
    cluster.arrive(job("equal", 5))
    cluster.arrive(job("never", 9, preempts=False))
    assert cluster.stopped == []
    cluster.end("a")
    assert cluster.node_of("never") == "n"  # it waits in order of priority all the same


def test_of_equal_priorities_the_pod_that_started_last_yields() -> None:
    cluster = Cluster(node("n", gpus=2))
    cluster.arrive(job("old"))
    cluster.arrive(job("new"))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["new"]


def test_the_node_where_the_highest_victim_is_lowest_then_the_sum_then_the_count() -> None:
    """a: one pod of 5. b: two pods of 1 and 4: the highest is 4 < 5. c: 4 and 0: as high, the smaller sum."""
    cluster = Cluster(node("a", gpus=2), node("b", gpus=2), node("c", gpus=2))
    cluster.arrive(job("a1", 5, gpus=2))
    for name, priority in (("b1", 1), ("b2", 4), ("c1", 4), ("c2", 0)):
        cluster.arrive(job(name, priority))
    assert {cluster.node_of(name) for name in ("b1", "b2")} == {"b"}
    cluster.arrive(job("urgent", 10, gpus=2))
    assert sorted(cluster.stopped) == ["c1", "c2"]


def test_cards_decide_who_yields() -> None:
    """Card 0 has one old pod, card 1 two newer ones. A whole card costs one pod on card 0, two on card 1.

    In kube-scheduler's order alone (the oldest is kept) both pods of card 1 would be stopped.
    """
    cluster = Cluster(node("n", gpus=2))
    cluster.arrive(job("old", cores=60))
    cluster.arrive(job("left", cores=45))
    cluster.arrive(job("right", cores=45))
    assert cluster.bound["left"][1] == cluster.bound["right"][1] != cluster.bound["old"][1]
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["old"]


def test_a_pod_of_one_gpu_does_not_stop_a_pod_of_eight() -> None:
    """One victim each, of the same priority. The pod of eight GPUs started last, but eight GPUs would stop for one."""
    cluster = Cluster(node("a", gpus=8), node("b", gpus=8))
    for number in range(8):
        cluster.arrive(job(f"single{number}"))
    cluster.arrive(job("whole", gpus=8))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["single7"]


def test_a_part_of_a_card_takes_only_what_it_needs() -> None:
    cluster = Cluster(node("n", gpus=1))
    for number in range(4):
        cluster.arrive(job(f"quarter{number}", cores=25))
    cluster.arrive(job("half", 10, cores=50))
    assert sorted(cluster.stopped) == ["quarter2", "quarter3"]  # 2 × 25 % = 50 %, the newest


def test_a_disruption_budget_is_broken_only_if_nothing_else_helps() -> None:
    cluster = Cluster(node("n", gpus=2))
    cluster.arrive(job("guarded", 1, labels={"app": "web"}))
    cluster.arrive(job("plain", 3))
    cluster.budget(0, app="web")
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["plain"]  # although its priority is higher
    assert not cluster.evictions[0].breaks_budget
    cluster.arrive(job("second", 10))
    assert cluster.stopped == ["plain", "guarded"]
    assert cluster.evictions[1].breaks_budget


def test_a_budget_that_allows_one_protects_the_second() -> None:
    """Two web pods on b, one may be stopped: b breaks the budget once. a has higher priorities, but breaks nothing."""
    cluster = Cluster(node("a", gpus=2), node("b", gpus=2))
    cluster.arrive(job("a1", 4, gpus=2))
    for number in (1, 2):
        cluster.arrive(job(f"web{number}", 1, labels={"app": "web"}))
    cluster.budget(1, app="web")
    cluster.arrive(job("urgent", 10, gpus=2))
    assert cluster.stopped == ["a1"]


def test_a_gang_yields_its_surplus_first() -> None:
    """Three of three members run, two are needed: one may go alone, for two the whole gang goes."""
    cluster = Cluster(node("n", gpus=4))
    cluster.arrive(*(job(f"g{n}") for n in range(3)), minimum=2, group="gang")
    cluster.arrive(job("lone"))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["lone"]  # started last
    cluster.arrive(job("second", 10))
    assert len(cluster.stopped) == 2
    cluster.arrive(job("third", 10))
    assert sorted(cluster.stopped) == ["g0", "g1", "g2", "lone"]  # no gang is left below its minimum
    cluster.end()
    assert {"urgent", "second", "third"} <= cluster.bound.keys()


def test_another_node_is_better_than_a_whole_gang() -> None:
    """Both nodes cost one pod of priority 0 there; on a, two members elsewhere would end with it."""
    cluster = Cluster(node("a", gpus=1), node("b", gpus=1), node("c", gpus=1), node("d", gpus=1))
    cluster.arrive(*(job(f"g{n}") for n in range(3)), group="gang")
    cluster.arrive(job("lone"))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["lone"]


def test_a_gang_takes_places_on_several_nodes_and_no_more_than_it_needs() -> None:
    cluster = Cluster(*(node(f"n{n}", gpus=2) for n in range(4)))
    for number in range(8):
        cluster.arrive(job(f"low{number}"))
    cluster.arrive(*(job(f"g{n}", 10, gpus=2) for n in range(3)), group="gang")
    assert len(cluster.stopped) == 6
    cluster.end(*cluster.stopped[:5])
    assert not any(name.startswith("g") for name in cluster.bound)  # all or none
    cluster.end(cluster.stopped[5])
    assert {"g0", "g1", "g2"} <= cluster.bound.keys()


@pytest.mark.parametrize(
    ("seconds", "ran", "priority", "taken"),
    [
        (0.0, 10.0, 199, True),  # no time to tolerate
        (-1.0, 1e9, 199, False),  # for ever
        (100.0, 101.0, 199, True),  # ran longer
        (100.0, 10.0, 199, False),
        (100.0, 10.0, 200, True),  # minimum-preemptable-priority reached
    ],
)
def test_preemption_toleration(seconds: float, ran: float, priority: int, taken: bool) -> None:
    """The victim: priority 100, minimum-preemptable-priority 200 (scheduler-plugins, five vectors)."""
    cluster = Cluster(node("n", gpus=1))
    cluster.now = 1_000.0
    cluster.arrive(job("victim", 100, tolerance=Tolerance(200, seconds)))
    cluster.now += ran - 1
    cluster.arrive(job("urgent", priority))
    assert cluster.stopped == (["victim"] if taken else [])


def test_quality_of_service_at_equal_priority() -> None:
    cluster = Cluster(node("n", gpus=3), rights=Rights(yielding=YIELD_BY_QOS))
    for qos in (Qos.BEST_EFFORT, Qos.GUARANTEED, Qos.BURSTABLE):
        cluster.arrive(job(qos.name, qos=qos))
    for number in range(3):
        cluster.arrive(job(f"urgent{number}", qos=Qos.GUARANTEED))
    assert cluster.stopped == ["BEST_EFFORT", "BURSTABLE"]  # not the Guaranteed one


def test_a_pod_runs_for_a_minimum_time() -> None:
    cluster = Cluster(node("n", gpus=1), rights=Rights(yielding=YIELD_BY_PRIORITY, minimum_run=60.0))
    cluster.arrive(job("young"))
    cluster.arrive(job("early", 10))
    assert cluster.stopped == []
    cluster.now += 60
    cluster.arrive(job("late", 10))
    assert cluster.stopped == ["young"]


def test_pods_of_other_schedulers_are_left_alone() -> None:
    rights = Rights(yielding=YIELD_BY_PRIORITY, schedulers=frozenset({"dovetail"}))
    cluster = Cluster(node("n", gpus=2), rights=rights)
    cluster.arrive(job("theirs", 0, scheduler="default-scheduler"))
    cluster.arrive(job("ours", 1, scheduler="dovetail"))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["ours"]


def test_a_refused_eviction_is_not_asked_again_at_once() -> None:
    cluster = Cluster(node("n", gpus=2))
    cluster.arrive(job("a"))
    cluster.arrive(job("b"))
    cluster.arrive(job("urgent", 10))
    assert cluster.stopped == ["b"]
    cluster.happens(EvictionRefused(cluster.now, "uid-b", "Cannot evict pod as it would violate a budget"))
    assert cluster.stopped == ["b", "a"]  # the other one instead
    cluster.end("a")
    assert cluster.node_of("urgent") == "n"
    assert "b" in cluster.bound


def test_after_a_restart_pods_that_are_ending_are_enough() -> None:
    """A new scheduler finds the pod nominated and its victim terminating: nobody else is stopped."""
    cluster = Cluster(node("n", gpus=2))
    for name, leaving in (("ending", True), ("stays", False)):
        one = job(name, leaving=leaving)
        cluster.arrive(job(name))
        shares = cluster.scheduler.ledger.held_shares(f"uid-{name}")
        cluster.happens(PodObserved(cluster.now, RunningPod(one, "n", shares)))
    urgent = job("urgent", 10)
    cluster.scheduler.nominated.promise(urgent, "n")
    cluster.arrive(urgent)
    assert cluster.stopped == []
    cluster.end("ending")
    assert cluster.node_of("urgent") == "n"


def test_a_waiting_victim_does_not_take_the_place_back() -> None:
    cluster = Cluster(node("n", gpus=1))
    cluster.arrive(job("victim"))
    cluster.arrive(job("urgent", 10))
    cluster.arrive(job("again"))  # its controller makes a new pod before the old one has ended
    cluster.end("victim")
    assert cluster.node_of("urgent") == "n"
    assert cluster.stopped == ["victim"]


def test_the_planned_card_is_kept_and_another_one_is_not() -> None:
    """Two cards: `urgent` waits for all of card A, of which `low` holds half. Small pods may use B only."""
    cluster = Cluster(node("n", gpus=2))
    cluster.arrive(job("top", 20, cores=70, gpu_policy="binpack"))
    cluster.arrive(job("low", cores=50, gpu_policy="binpack"))
    assert cluster.bound["low"][1] != cluster.bound["top"][1]
    cluster.arrive(job("urgent", 10))
    for number in range(2):
        cluster.arrive(job(f"small{number}", 5, cores=25))
    assert cluster.bound["small0"][1] == cluster.bound["top"][1]
    assert "small1" not in cluster.bound  # 70 + 25 + 25 > 100 on B, and A is promised
    cluster.end("low")
    assert cluster.node_of("urgent") == "n"
    assert cluster.stopped == ["low"]


def test_node_resources_and_cards_together() -> None:
    """The card on `a` costs one pod, but CPU there is held by a pod of priority 20, which does not yield."""
    cluster = Cluster(node("a", gpus=1, cpu=8_000), node("b", gpus=1, cpu=8_000))
    cluster.arrive(pod("service", cpu=6_000, priority=20))
    cluster.arrive(pod("low-a", ask(1, cores=100), cpu=1_000, priority=0))
    cluster.arrive(pod("low-b", ask(1, cores=100), cpu=4_000, priority=1))
    assert cluster.node_of("service") == cluster.node_of("low-a") == "a"
    cluster.arrive(pod("urgent", ask(1, cores=100), cpu=4_000, priority=10))
    assert cluster.stopped == ["low-b"]


def test_pods_without_cards_yield_on_nodes_without_cards() -> None:
    """4 CPUs; a and b have 1, c has 2. 3 CPUs are wanted: c is stopped, and one of a and b; the other is given back."""
    cluster = Cluster(node("n", cpu=4000))
    for name, cpu in (("a", 1000), ("b", 1000), ("c", 2000)):
        cluster.arrive(pod(name, cpu=cpu))
    cluster.arrive(pod("urgent", cpu=3000, priority=10))
    assert cluster.stopped == ["c", "b"]
