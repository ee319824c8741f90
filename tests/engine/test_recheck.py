"""A placement that was not written yet, held against a cluster that has changed since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger.audit import validate
from dovetail.engine.recheck import is_untouched, objection
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision, Share
from dovetail.model.events import NodeChanged, NodeGone, PodGone, PodObserved
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Container, ContainerKind, Pod, RunningPod
from dovetail.model.rules import NodeRules
from tests.builders import ask, cluster, group, node, pod

HALF = ask(1, memory=4000, cores=50)


def _placed(*pods: Pod, gpus: int = 1) -> tuple[Scheduler, list[Decision]]:
    scheduler = cluster(node("n", gpus=gpus, labels={"pool": "a"}))
    return scheduler, list(scheduler.place([group(one) for one in pods]))


def _card(**facts: object) -> Callable[[Node], Node]:
    return lambda one: replace(one, devices=(msgspec.structs.replace(one.devices[0], **facts),))


CHANGES: dict[str, tuple[Callable[[Node], Node], str]] = {
    "nothing": (lambda one: one, ""),
    "a label": (lambda one: replace(one, labels={"pool": "a", "other": "x"}), ""),
    "cordoned": (lambda one: replace(one, unschedulable=True), "node is cordoned"),
    "tainted": (lambda one: replace(one, taints=(Taint("x", "y", "NoSchedule"),)), "taint not tolerated"),
    "a preference": (lambda one: replace(one, taints=(Taint("x", "y", "PreferNoSchedule"),)), ""),
    "relabelled": (lambda one: replace(one, labels={"pool": "b"}), "nodeSelector does not match"),
    "cpu shrunk": (lambda one: replace(one, allocatable={**one.allocatable, "cpu": 500}), "CPU short"),
    "card shrunk": (_card(memory_mib=3999), "GPU memory short"),
    "card shrunk to what is held": (_card(memory_mib=4000), ""),
    "card sick": (_card(healthy=False), "GPU unhealthy"),
    "card cordoned": (_card(cordoned=True), "GPU cordoned"),
    "card exchanged": (_card(uuid="other"), "GPU"),
    "card gone": (lambda one: replace(one, devices=()), "node has no such device"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_node_is_now(change: str) -> None:
    mine = pod("mine", HALF, cpu=1000, node_rules=NodeRules(selector=(("pool", "a"),)))
    scheduler, [decision] = _placed(mine)
    alter, said = CHANGES[change]
    scheduler.handle(NodeChanged(1.0, alter(scheduler.ledger.nodes[0])))
    found = objection(scheduler, mine, decision)
    assert (found == "") is (said == "")
    assert said in found
    assert scheduler.ledger.is_reserved(mine.uid)  # looking changes nothing
    validate(scheduler.ledger)


def test_a_node_or_a_reservation_that_is_gone() -> None:
    mine = pod("mine", HALF)
    scheduler, [decision] = _placed(mine)
    scheduler.handle(NodeGone(1.0, "n"))
    assert objection(scheduler, mine, decision) == "node n is gone"
    scheduler, [decision] = _placed(mine)
    scheduler.handle(PodGone(1.0, mine.uid))
    assert "not reserved any more" in objection(scheduler, mine, decision)


def test_what_another_scheduler_has_put_there_meanwhile() -> None:
    mine, theirs = pod("mine", HALF), pod("theirs", ask(1, memory=4001))
    scheduler, [decision] = _placed(mine)
    scheduler.handle(PodObserved(1.0, RunningPod(theirs, "n", (Share(0, "n/0", 4001, 0),))))
    assert "GPU memory short" in objection(scheduler, mine, decision)
    scheduler.handle(PodGone(2.0, theirs.uid))
    assert objection(scheduler, mine, decision) == ""


def test_reservations_of_others_count_and_our_own_does_not() -> None:
    pods = [pod(name, HALF) for name in ("a", "b")]
    scheduler, decisions = _placed(*pods)
    assert [objection(scheduler, *one) for one in zip(pods, decisions, strict=True)] == ["", ""]


def test_init_containers_are_looked_at_one_by_one() -> None:
    """8,000 MiB for an init container, and 6,000 for the others after it, on a card of 8,000."""
    big, small = ask(1, memory=8000), ask(1, memory=6000)
    mine = pod("mine", containers=[Container("i", ContainerKind.INIT, (big,)), Container("c", asks=(small,))])
    scheduler, [decision] = _placed(mine)
    assert decision.placed
    assert objection(scheduler, mine, decision) == ""
    scheduler.handle(NodeChanged(1.0, _card(memory_mib=7999)(scheduler.ledger.nodes[0])))
    assert "GPU memory short" in objection(scheduler, mine, decision)


def test_what_must_be_looked_at_again() -> None:
    """Our own pods beside it were placed with it in mind; another scheduler's pod and a changed node were not."""
    mine, ours, theirs = pod("mine", HALF), pod("ours", HALF), pod("theirs", ask(1, memory=1))
    scheduler, [decision] = _placed(mine)
    assert is_untouched(scheduler.placer, mine, decision)
    assert scheduler.place([group(ours)])[0].placed
    assert is_untouched(scheduler.placer, mine, decision)
    scheduler.handle(PodObserved(1.0, RunningPod(theirs, "n", (Share(0, "n/0", 1, 0),))))
    assert not is_untouched(scheduler.placer, mine, decision)
    scheduler, [decision] = _placed(mine)
    scheduler.handle(NodeChanged(1.0, replace(scheduler.ledger.nodes[0], unschedulable=True)))
    assert not is_untouched(scheduler.placer, mine, decision)


@given(st.integers(0, 10**6))
def test_what_is_untouched_has_no_objection(seed: int) -> None:
    chance = Random(seed)
    scheduler = cluster(*(node(name, gpus=2) for name in "ab"))
    decided: list[tuple[Pod, Decision]] = []
    for number in range(chance.randrange(3, 15)):
        one = pod(f"p{number}", ask(1, chance.choice((1000, 4000, 8000)), cores=chance.choice((0, 30, 100))), cpu=1000)
        where = chance.choice("ab")
        what = chance.random()
        if what < 0.6:
            decided += [(one, decision) for decision in scheduler.place([group(one)]) if decision.placed]
        elif what < 0.75:
            share = Share(0, f"{where}/{chance.randrange(2)}", chance.choice((1, 8000)), 0)
            scheduler.handle(PodObserved(1.0, RunningPod(one, where, (share,))))
        elif what < 0.85 and decided:
            scheduler.handle(PodGone(1.0, chance.choice(decided)[0].uid))
        else:
            known = scheduler.ledger.nodes[scheduler.ledger.row_of[where]]
            scheduler.handle(NodeChanged(1.0, replace(known, unschedulable=chance.random() < 0.5)))
    for one, decision in decided:
        if is_untouched(scheduler.placer, one, decision):
            assert objection(scheduler, one, decision) == ""
