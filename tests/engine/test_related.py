"""Pods whose place depends on who else is where, through the scheduler: placed, waiting, woken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.engine.ledger.audit import validate
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodGone, PodNominated, PodObserved, Wait
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Group, Pod, Profile, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.relations import HostPort, PodTerm, Preferences, Relations, Selector, SpreadConstraint
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB = Selector((("app", "web"),))
APART = Relations(anti_affinity=(PodTerm(HOST, WEB, ("default",)),))
FULLEST, EMPTIEST = Profile("most-allocated", ("spread",)), Profile("least-allocated", ("spread",))
NEAR = Relations(affinity=(PodTerm(ZONE, WEB, ("default",)),))


def node(name: str, zone: str = "a", cpu: int = 4000, taints: tuple[Taint, ...] = ()) -> Node:
    return Node(name, {"cpu": cpu, "pods": 110}, labels={HOST: name, ZONE: zone}, taints=taints)


def pod(name: str, app: str = "", cpu: int = 1000, **more: object) -> Pod:
    labels = {"app": app} if app else {}
    made = Pod("default", name, name, {"cpu": cpu}, scored_cpu_milli=cpu, labels=labels, profile=FULLEST)
    return replace(made, **more)  # type: ignore[arg-type]


def cluster(*nodes: Node, mode: str = "interpreted") -> Scheduler:
    scheduler = Scheduler(mode=mode)
    for one in nodes:
        scheduler.handle(NodeChanged(0.0, one))
    return scheduler


def arrive(scheduler: Scheduler, one: Pod) -> dict[str, str]:
    """Who was bound where by the arrival."""
    return bound(scheduler.handle(GroupArrived(0.0, Group(one.key, (one,)))))


def bound(effects: tuple[object, ...]) -> dict[str, str]:
    return {e.pod.name: str(e.decision.node) for e in effects if isinstance(e, Bind)}


@pytest.mark.parametrize("mode", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def test_replicas_that_keep_apart_get_a_node_each_and_the_third_waits(mode: str) -> None:
    scheduler = cluster(node("n1"), node("n2"), mode=mode)
    assert arrive(scheduler, pod("w1", "web", relations=APART)) == {"w1": "n1"}
    assert arrive(scheduler, pod("w2", "web", relations=APART)) == {"w2": "n2"}
    effects = scheduler.handle(GroupArrived(0.0, Group("default/w3", (pod("w3", "web", relations=APART),))))
    assert [type(e) for e in effects] == [Wait]
    assert isinstance(effects[0], Wait)
    assert effects[0].decision.reason == Reason.POD_ANTI_AFFINITY
    assert bound(scheduler.handle(PodGone(1.0, "w1"))) == {"w3": "n1"}
    validate(scheduler.ledger)


def test_a_pod_without_rules_is_kept_away_by_the_rules_of_others() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    arrive(scheduler, pod("w1", "db", relations=APART))  # on n1, wants no web beside it
    assert arrive(scheduler, pod("w2", "web")) == {"w2": "n2"}


def test_a_pod_that_wants_company_is_placed_when_company_comes_to_another_node() -> None:
    scheduler = cluster(node("n1", "a"), node("n2", "b"), node("n3", "b"))
    assert arrive(scheduler, pod("friend", relations=NEAR)) == {}
    placed = arrive(scheduler, pod("web", "web", cpu=4000, node_rules=_only("n2")))
    assert placed == {"web": "n2", "friend": "n3"}  # n2 is full, n3 is in the same zone


def test_spread_over_zones_waits_for_the_emptier_zone_and_takes_it_when_it_has_room() -> None:
    even = SpreadConstraint(ZONE, 1, True, WEB)
    spread = Relations(spread=(even,))
    scheduler = cluster(node("n1", "a"), node("n2", "b", cpu=1000))
    assert arrive(scheduler, pod("w1", "web", relations=spread)) == {"w1": "n2"}  # 1000 of 1000: the fullest
    assert arrive(scheduler, pod("w2", "web", relations=spread)) == {"w2": "n1"}
    assert arrive(scheduler, pod("w3", "web", relations=spread)) == {"w3": "n1"}  # 2 and 1: skew 1
    assert arrive(scheduler, pod("w4", "web", relations=spread)) == {}  # 3 and 1 would be skew 2; zone b is full
    assert bound(scheduler.handle(NodeChanged(1.0, node("n2", "b", cpu=2000)))) == {"w4": "n2"}


def test_host_ports_are_free_again_when_their_pod_leaves() -> None:
    port = Relations(ports=(HostPort(8080),))
    scheduler = cluster(node("n1"))
    assert arrive(scheduler, pod("p1", relations=port)) == {"p1": "n1"}
    assert arrive(scheduler, pod("p2", relations=port)) == {}
    assert bound(scheduler.handle(PodGone(1.0, "p1"))) == {"p2": "n1"}


def test_preferences_come_first_and_the_policy_decides_among_the_best() -> None:
    likes_b = Preferences(nodes=((10, AffinityTerm((Requirement(ZONE, "In", ("b",)),))),))
    scheduler = cluster(node("n1", "a"), node("n2", "b"), node("n3", "b"))
    arrive(scheduler, pod("x", node_rules=_only("n1")))
    arrive(scheduler, pod("y", node_rules=_only("n3")))
    assert arrive(scheduler, pod("z", preferences=likes_b)) == {"z": "n3"}  # b, and there the fuller one
    assert arrive(scheduler, pod("s", preferences=likes_b, profile=EMPTIEST)) == {"s": "n2"}  # b, the emptier one


def test_a_policy_with_a_weight_may_outvote_a_preference() -> None:
    likes_b = Preferences(nodes=((1, AffinityTerm((Requirement(ZONE, "In", ("b",)),))),))
    heavy = replace(FULLEST, policy_weight=100)
    scheduler = cluster(node("n1", "a"), node("n2", "b"))
    arrive(scheduler, pod("x", node_rules=_only("n1")))
    # n1: 0 by affinity + 100 × 100 by the policy; n2: 2 × 100 + 0.
    assert arrive(scheduler, pod("z", preferences=likes_b, profile=heavy)) == {"z": "n1"}


def test_a_taint_that_is_only_a_preference_is_avoided_while_there_is_another_node() -> None:
    soft = (Taint("spot", "", "PreferNoSchedule"),)
    scheduler = cluster(node("n1", taints=soft), node("n2", cpu=1000))
    assert arrive(scheduler, pod("a")) == {"a": "n2"}
    assert arrive(scheduler, pod("b")) == {"b": "n1"}  # n2 is full


def test_a_node_promised_to_a_preemptor_is_kept_from_equals_and_not_from_betters() -> None:
    scheduler = cluster(node("n1", cpu=1000))
    scheduler.handle(PodNominated(0.0, pod("preemptor", priority=5), "n1"))
    assert arrive(scheduler, pod("equal", priority=5)) == {}
    assert arrive(scheduler, pod("better", priority=6)) == {"better": "n1"}


def test_a_promise_that_is_withdrawn_lets_others_in() -> None:
    scheduler = cluster(node("n1", cpu=1000))
    preemptor = pod("preemptor", priority=5)
    scheduler.handle(PodNominated(0.0, preemptor, "n1"))
    assert arrive(scheduler, pod("equal", priority=5)) == {}
    assert bound(scheduler.handle(PodNominated(1.0, preemptor, ""))) == {"equal": "n1"}


def test_a_promise_becomes_a_pod() -> None:
    scheduler = cluster(node("n1", cpu=1000), node("n2", cpu=1000))
    preemptor = pod("preemptor", priority=5)
    scheduler.handle(PodNominated(0.0, preemptor, "n1"))
    scheduler.handle(PodObserved(1.0, RunningPod(preemptor, "n2", ())))
    assert arrive(scheduler, pod("next")) == {"next": "n1"}
    validate(scheduler.ledger)


def test_explain_says_which_rule_between_pods_keeps_the_pod_away() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    arrive(scheduler, pod("w1", "web", relations=APART))
    said = {verdict.node: verdict.reason for verdict in verdicts(scheduler, pod("w2", "web", relations=APART))}
    assert said == {"n1": Reason.POD_ANTI_AFFINITY, "n2": Reason.OK}


def test_a_transaction_that_is_undone_leaves_no_neighbour_behind() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    arrive(scheduler, pod("seed", "web", relations=APART))
    gang = Group("PodGroup/default/g", tuple(pod(f"g{n}", "web", relations=APART) for n in range(3)), minimum=3)
    assert [d.placed for d in scheduler.place((gang,))] == [False] * 3
    assert arrive(scheduler, pod("w", "web", relations=APART)) == {"w": "n2"}


def _only(name: str) -> NodeRules:
    return NodeRules(selector=((HOST, name),))


def test_labels_that_come_with_the_binding_are_seen_by_those_who_look_for_them() -> None:
    """The API server copies the node's zone to the pod, which asks for nothing new; somebody waits for the label."""
    there = Relations(affinity=(PodTerm(HOST, Selector(((ZONE, "a"),)), ("default",)),))
    scheduler = cluster(node("n1"), node("n2"))
    assert arrive(scheduler, pod("w", "web")) == {"w": "n1"}
    assert arrive(scheduler, pod("late", relations=there)) == {}
    seen = pod("w", labels={"app": "web", ZONE: "a"})
    moves = scheduler.ledger.generation
    assert bound(scheduler.handle(PodObserved(1.0, RunningPod(seen, "n1", ())))) == {"late": "n1"}
    assert scheduler.ledger.generation == moves + 1  # `late` alone: the pod itself was not booked again
    assert not scheduler.ledger.is_reserved("w")
    assert scheduler.ledger.pods.pod("w").labels == {"app": "web", ZONE: "a"}
    assert arrive(scheduler, pod("x", relations=APART)) == {"x": "n2"}  # nor did the old labels get lost
    validate(scheduler.ledger)
    scheduler.handle(PodObserved(2.0, RunningPod(pod("w"), "n1", ())))
    assert arrive(scheduler, pod("y", relations=there)) == {}  # nobody has the label any more
    assert arrive(scheduler, pod("z", relations=APART)) == {"z": "n1"}
    validate(scheduler.ledger)


def test_a_pod_that_asks_for_more_is_booked_anew_whatever_its_labels_are() -> None:
    scheduler = cluster(node("n1"))
    arrive(scheduler, pod("w", "web"))
    scheduler.handle(PodObserved(1.0, RunningPod(pod("w", "db", cpu=3500), "n1", ())))
    assert arrive(scheduler, pod("x")) == {}
    validate(scheduler.ledger)


def test_nodes_alike_to_a_rule_are_asked_once_and_others_one_by_one() -> None:
    scheduler = cluster(node("n1", "a"), node("n2", "b"), node("n3", "b", taints=(Taint("t", "", "NoSchedule"),)))
    zone = NodeRules(selector=((ZONE, "b"),))
    assert arrive(scheduler, pod("p", node_rules=zone)) == {"p": "n2"}
    name = AffinityTerm(fields=(Requirement("metadata.name", "In", ("n2",)),))
    assert arrive(scheduler, pod("q", node_rules=NodeRules(affinity=(name,)))) == {"q": "n2"}
    ledger = scheduler.ledger
    for rules in (zone, NodeRules(affinity=(name,)), NodeRules(node_name="n1")):
        mask = ledger.places.mask(rules)
        assert ledger.storage.masks[mask, :3].tolist() == [int(rules.refusal(one.static)) for one in ledger.nodes]


def test_a_pod_that_is_resized_where_it_is_makes_room() -> None:
    scheduler = cluster(node("n1", cpu=4000))
    scheduler.handle(PodObserved(0.0, RunningPod(pod("big", cpu=4000), "n1", ())))
    assert arrive(scheduler, pod("small", cpu=2000)) == {}
    assert bound(scheduler.handle(PodObserved(1.0, RunningPod(pod("big", cpu=1000), "n1", ())))) == {"small": "n1"}


def test_one_who_may_not_go_there_by_now_does_not_hold_up_those_who_may() -> None:
    """Both asked for the same when they got in line; then somebody came who does not want the first beside him."""
    scheduler = cluster(node("n1", cpu=1000))
    scheduler.handle(PodObserved(0.0, RunningPod(pod("tenant", cpu=1000), "n1", ())))
    assert arrive(scheduler, pod("first", "web", cpu=1000, created=1.0)) == {}
    assert arrive(scheduler, pod("second", "db", cpu=1000, created=2.0)) == {}
    scheduler.handle(PodObserved(1.0, RunningPod(pod("hermit", cpu=0, relations=APART), "n1", ())))
    assert bound(scheduler.handle(PodGone(2.0, "tenant"))) == {"second": "n1"}


def test_a_gang_of_which_too_many_members_failed_is_not_tried_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member costs a millisecond: 10,000 of them took 10 s at every try, where 200 nodes have room for 200."""
    scheduler = Scheduler(mode="interpreted")
    for name in "abc":
        scheduler.handle(NodeChanged(0.0, node(name)))
    tried: list[str] = []
    alone = scheduler.placer.place_alone

    def counted(one: Pod) -> Decision:
        tried.append(one.name)
        return alone(one)

    monkeypatch.setattr(scheduler.placer, "place_alone", counted)
    members = tuple(pod(f"g{n:02}", "web", 100, relations=APART, group="PodGroup/default/g") for n in range(40))
    waits = scheduler.handle(GroupArrived(0.0, Group("PodGroup/default/g", members, minimum=38)))
    # three fit, one on each node; two may fail; the third that fails ends it
    assert len(tried) == 3 + 3
    assert len(waits) == 40
    assert all(isinstance(effect, Wait) for effect in waits)
    validate(scheduler.ledger)
