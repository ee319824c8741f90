"""Nodes kept for pods that are nominated to them: what kube-scheduler's filters say with and without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.engine.disciplines import BACKFILL, STRICT
from dovetail.engine.ledger.audit import validate
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    PodBound,
    PodGone,
    PodNominated,
    PodObserved,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Profile, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.relations import HostPort, PodTerm, Relations, Selector, SpreadConstraint

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB = Selector((("app", "web"),))
FULLEST = Profile("most-allocated", ("spread",))


def node(name: str, zone: str = "a", cpu: int = 4000) -> Node:
    return Node(name, {"cpu": cpu, "pods": 110}, labels={HOST: name, ZONE: zone})


def pod(name: str, app: str = "", cpu: int = 1000, **more: object) -> Pod:
    labels = {"app": app} if app else {}
    made = Pod("default", name, name, {"cpu": cpu}, scored_cpu_milli=cpu, labels=labels, profile=FULLEST)
    return replace(made, **more)  # type: ignore[arg-type]


def near(key: str) -> Relations:
    return Relations(affinity=(PodTerm(key, WEB, ("default",)),))


def apart(key: str) -> Relations:
    return Relations(anti_affinity=(PodTerm(key, WEB, ("default",)),))


@pytest.fixture(params=["interpreted", "compiled"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cluster(*nodes: Node, mode: str = "interpreted", strict: bool = False) -> Scheduler:
    scheduler = Scheduler(mode=mode, rights=Rights(STRICT if strict else BACKFILL))
    for one in nodes:
        scheduler.handle(NodeChanged(0.0, one))
    return scheduler


def nominate(scheduler: Scheduler, one: Pod, name: str) -> dict[str, str | None]:
    return bound(scheduler.handle(PodNominated(0.0, one, name)))


def arrive(scheduler: Scheduler, *pods: Pod) -> dict[str, str | None]:
    return bound(effect for one in pods for effect in scheduler.handle(GroupArrived(0.0, Group(one.key, (one,)))))


def bound(effects: object) -> dict[str, str | None]:
    found: list[Effect] = list(effects)  # type: ignore[call-overload]
    return {effect.pod.name: effect.decision.node for effect in found if isinstance(effect, Bind)}


def said(scheduler: Scheduler, one: Pod) -> dict[str, Reason]:
    return {verdict.node: verdict.reason for verdict in verdicts(scheduler, one)}


def test_a_node_is_kept_from_equals_and_not_from_betters(mode: str) -> None:
    scheduler = cluster(node("n1", cpu=1000), mode=mode)
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    assert arrive(scheduler, pod("equal", priority=5)) == {}
    assert arrive(scheduler, pod("better", priority=6)) == {"better": "n1"}
    validate(scheduler.ledger)


def test_where_there_is_room_for_both_nobody_is_kept_away(mode: str) -> None:
    scheduler = cluster(node("n1", cpu=2000), mode=mode)
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    assert arrive(scheduler, pod("first"), pod("second")) == {"first": "n1"}  # 1000 + 1000 kept = 2000


def test_explain_tells_priorities_apart_too() -> None:
    scheduler = cluster(node("n1", cpu=1000))
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    assert said(scheduler, pod("equal", priority=5)) == {"n1": Reason.CPU}
    assert said(scheduler, pod("better", priority=6)) == {"n1": Reason.OK}


def test_a_kept_node_does_not_look_fuller_than_it_is() -> None:
    """most-allocated would take n2 if what is kept there counted: scores know of pods that are there."""
    scheduler = cluster(node("n1"), node("n2"))
    nominate(scheduler, pod("preemptor", priority=5), "n2")
    assert arrive(scheduler, pod("next")) == {"next": "n1"}


def test_nobody_can_lean_on_a_pod_that_is_not_there_yet() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    nominate(scheduler, pod("preemptor", "web", priority=5), "n1")
    assert said(scheduler, pod("friend", relations=near(HOST))) == dict.fromkeys(("n1", "n2"), Reason.POD_AFFINITY)


def test_a_nominated_pod_is_avoided_on_its_node_and_on_no_other() -> None:
    scheduler = cluster(node("n1", zone="a"), node("n2", zone="a"))
    nominate(scheduler, pod("preemptor", "web", priority=5), "n1")
    assert said(scheduler, pod("shy", relations=apart(ZONE))) == {"n1": Reason.POD_ANTI_AFFINITY, "n2": Reason.OK}


def test_a_nominated_pod_keeps_others_away_only_where_affinity_is_looked_at() -> None:
    """kube-scheduler skips the plugin for a pod without terms that nobody who runs has terms against."""
    scheduler = cluster(node("n1"), node("n2"))
    nominate(scheduler, pod("preemptor", priority=5, relations=apart(HOST)), "n1")
    assert said(scheduler, pod("w", "web")) == {"n1": Reason.OK, "n2": Reason.OK}
    guard = pod("guard", relations=apart(HOST))
    scheduler.handle(PodObserved(0.0, RunningPod(guard, "n2", ())))
    assert said(scheduler, pod("w", "web")) == dict.fromkeys(("n1", "n2"), Reason.OTHERS_ANTI_AFFINITY)


def test_a_host_port_is_kept() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    port = Relations(ports=(HostPort(80),))
    nominate(scheduler, pod("preemptor", priority=5, relations=port), "n1")
    assert said(scheduler, pod("web", relations=port)) == {"n1": Reason.HOST_PORT, "n2": Reason.OK}


@pytest.mark.parametrize("selector", [WEB, Selector(())])
def test_spread_counts_a_nominated_pod_on_its_node(selector: Selector) -> None:
    """Zone a has 1 with it, zone b 0: another one there makes a skew of 2. Even where it counts nobody else."""
    scheduler = cluster(node("n1", zone="a"), node("n2", zone="b"))
    nominate(scheduler, pod("preemptor", "web", priority=5), "n1")
    spread = Relations(spread=(SpreadConstraint(ZONE, 1, hard=True, selector=selector),))
    assert said(scheduler, pod("w", "web", relations=spread)) == {"n1": Reason.SPREAD, "n2": Reason.OK}


def test_a_pod_that_is_nominated_itself_goes_there_if_it_can(mode: str) -> None:
    scheduler = cluster(node("n1"), node("n2"), node("n3", cpu=500), mode=mode)
    first, second = pod("first"), pod("second")
    nominate(scheduler, first, "n2")
    assert arrive(scheduler, first) == {"first": "n2"}  # by itself it would take n1
    nominate(scheduler, second, "n3")
    assert arrive(scheduler, second) == {"second": "n2"}  # the fullest: there is no room on n3


def test_who_is_placed_has_no_second_place_kept() -> None:
    scheduler = cluster(node("n1", cpu=2000))
    first = pod("first", priority=5)
    nominate(scheduler, first, "n1")
    assert arrive(scheduler, first, pod("second")) == {"first": "n1", "second": "n1"}


def test_a_promise_that_is_withdrawn_lets_others_in(mode: str) -> None:
    scheduler = cluster(node("n1", cpu=1000), node("n2", cpu=1000), mode=mode)
    preemptor = pod("preemptor", priority=5)
    scheduler.handle(PodObserved(0.0, RunningPod(pod("old"), "n2", ())))
    nominate(scheduler, preemptor, "n1")
    assert arrive(scheduler, pod("equal", priority=5)) == {}
    assert nominate(scheduler, preemptor, "n2") == {"equal": "n1"}
    validate(scheduler.ledger)


def test_a_nominated_pod_that_is_deleted_lets_others_in() -> None:
    scheduler = cluster(node("n1", cpu=1000))
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    assert arrive(scheduler, pod("equal", priority=5)) == {}
    assert bound(scheduler.handle(PodGone(1.0, "preemptor"))) == {"equal": "n1"}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("how", ["withdrawn", "gone", "bound elsewhere"])
def test_all_who_wait_for_a_kept_node_are_let_in(strict: bool, how: str) -> None:
    """A gang, one that waited before the node was kept, and one since. 4000 = 2 x 1000 + 1000 + 1000."""
    scheduler = cluster(node("n1"), node("n2", cpu=100), strict=strict)
    old, preemptor = pod("old", cpu=4000), pod("preemptor", cpu=4000, priority=5)
    scheduler.handle(PodObserved(0.0, RunningPod(old, "n1", ())))
    arrive(scheduler, pod("early"), pod("earlier"))
    nominate(scheduler, preemptor, "n1")
    gang = Group("PodGroup/default/g", (pod("g0"), pod("g1")), minimum=2)
    scheduler.handle(GroupArrived(0.0, gang))
    assert bound(scheduler.handle(PodGone(1.0, "old"))) == {}
    happens: dict[str, Event] = {
        "withdrawn": PodNominated(2.0, preemptor, ""),
        "gone": PodGone(2.0, "preemptor"),
        "bound elsewhere": PodObserved(2.0, RunningPod(preemptor, "n2", ())),
    }
    assert bound(scheduler.handle(happens[how])) == dict.fromkeys(("early", "earlier", "g0", "g1"), "n1")


def test_a_node_may_be_kept_before_it_is_there() -> None:
    scheduler = cluster()
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    scheduler.handle(NodeChanged(0.0, node("n1", cpu=1000)))
    assert arrive(scheduler, pod("equal", priority=5)) == {}


def test_room_that_comes_free_wakes_a_pod_that_outranks_the_nominated_one() -> None:
    scheduler = cluster(node("n1", cpu=1000))
    scheduler.handle(PodObserved(0.0, RunningPod(pod("victim"), "n1", ())))
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    assert arrive(scheduler, pod("better", priority=6)) == {}
    assert bound(scheduler.handle(PodGone(1.0, "victim"))) == {"better": "n1"}


def test_asking_is_no_news_to_those_who_wait() -> None:
    """Else a pod that waits is woken by what its own question only tried, for ever and ever."""
    scheduler = cluster(node("n1"))
    for name in ("w1", "w2"):
        scheduler.handle(PodObserved(0.0, RunningPod(pod(name, "web"), "n1", ())))
    nominate(scheduler, pod("preemptor", "web", priority=5), "n1")
    assert arrive(scheduler, pod("better", relations=apart(HOST), priority=6)) == {}
    assert bound(scheduler.handle(PodGone(1.0, "w1"))) == {}
    assert bound(scheduler.handle(PodGone(2.0, "w2"))) == {"better": "n1"}


def test_a_gang_yields_pod_by_pod(mode: str) -> None:
    """n1 has room for two; one place is kept for somebody whom the leader outranks and the follower does not."""
    scheduler = cluster(node("n1", cpu=2000), mode=mode)
    nominate(scheduler, pod("preemptor", priority=5), "n1")
    leader, follower = pod("leader", priority=6), pod("follower", priority=4)
    gang = Group("PodGroup/default/g", (leader, follower), minimum=2)
    assert [decision.placed for decision in scheduler.place((gang,))] == [False, False]
    assert [decision.placed for decision in scheduler.place((replace(gang, minimum=1),))] == [True, False]
    validate(scheduler.ledger)


@pytest.mark.parametrize("labels", [{}, {ZONE: "a"}])
def test_nothing_is_kept_for_a_pod_that_was_bound(labels: dict[str, str]) -> None:
    """Told by ourselves, or by the watch with the labels that binding adds: it is nominated no longer."""
    scheduler = cluster(node("n1", cpu=1000), node("n2", cpu=1000))
    scheduler.handle(PodObserved(0.0, RunningPod(pod("tenant"), "n1", ())))
    preemptor = pod("preemptor", priority=5)
    nominate(scheduler, preemptor, "n1")
    assert arrive(scheduler, preemptor) == {"preemptor": "n2"}
    seen = RunningPod(replace(preemptor, labels=labels), "n2", ())
    scheduler.handle(PodObserved(1.0, seen) if labels else PodBound(1.0, "preemptor"))
    assert not scheduler.nominated.promised  # or every later pod would be judged the long way
    assert arrive(scheduler, pod("next")) == {}
    assert bound(scheduler.handle(PodGone(2.0, "tenant"))) == {"next": "n1"}
    validate(scheduler.ledger)


@pytest.mark.parametrize("late", [False, True])
def test_an_older_pod_that_yields_does_not_hold_up_the_one_it_yields_to(late: bool) -> None:
    """They ask for the same. Whether the nomination comes before the pod gets in line, or after."""
    scheduler = cluster(node("n1", cpu=1000))
    scheduler.handle(PodObserved(0.0, RunningPod(pod("victim"), "n1", ())))
    older, younger = pod("older", created=1.0), pod("younger", created=2.0)
    assert arrive(scheduler, older) == {}
    if late:
        assert arrive(scheduler, younger) == {}
    nominate(scheduler, younger, "n1")
    if not late:
        assert arrive(scheduler, younger) == {}
    assert bound(scheduler.handle(PodGone(1.0, "victim"))) == {"younger": "n1"}
