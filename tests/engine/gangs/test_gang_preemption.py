"""Preemption for gangs with topology rules: the domain first, then victims in it, and never a broken rule."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    Evict,
    GangChanged,
    GroupArrived,
    NodeChanged,
    PodBound,
    PodGone,
    PodObserved,
    TopologyChanged,
)
from dovetail.model.gang import DomainSpread, Role, TopologyRule
from dovetail.model.pod import Group, RunningPod
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from tests.builders import ask, pod
from tests.engine.gangs.instances import BLOCK, HOST, LEVELS, RACK, draw, wrongs
from tests.engine.gangs.test_domains import machine
from tests.properties import with_examples


def cluster(*sizes: int) -> Scheduler:
    """Racks with so many nodes of 8 GPUs each, all in one block."""
    scheduler = Scheduler(mode="interpreted", rights=Rights(yielding=YIELD_BY_PRIORITY))
    scheduler.handle(TopologyChanged(0.0, "default", LEVELS))
    for rack, size in enumerate(sizes):
        for host in range(size):
            scheduler.handle(NodeChanged(0.0, machine(0, rack, host)))
    return scheduler


def occupy(scheduler: Scheduler, where: str, gpus: int, priority: int) -> None:
    one = pod(f"on-{where}", ask(gpus, 8000, 100), priority=priority)
    scheduler.handle(PodObserved(0.0, RunningPod(one, where, None)))


def gang(count: int, gpus: int, rule: TopologyRule, priority: int = 10) -> Group:
    pods = tuple(pod(f"w{n}", ask(gpus, 8000, 100), group="gang", priority=priority) for n in range(count))
    return Group("gang", pods, count, topology=rule)


def carried_out(scheduler: Scheduler, event: Event) -> tuple[list[Evict], list[Bind]]:
    """The evictions and binds of an event, with all that follows once the victims have ended."""
    evicted: list[Evict] = []
    bound: list[Bind] = []
    effects: list[Effect] = list(scheduler.handle(event))
    for effect in effects:
        if isinstance(effect, Evict):
            evicted.append(effect)
            effects += scheduler.handle(PodGone(2.0, effect.pod.uid))
        if isinstance(effect, Bind):
            bound.append(effect)
            effects += scheduler.handle(PodBound(3.0, effect.pod.uid))
    return evicted, bound


def test_victims_are_taken_in_one_rack_only() -> None:
    """Each rack has one free node and one with a pod of low priority; the gang needs two nodes of one rack."""
    scheduler = cluster(2, 2)
    occupy(scheduler, "b0r0h0", 8, 0)
    occupy(scheduler, "b0r1h0", 8, 0)
    evicted, bound = carried_out(scheduler, GroupArrived(1.0, gang(2, 8, TopologyRule(required=RACK))))
    assert len(evicted) == 1
    assert len({str(one.decision.node)[:4] for one in bound}) == 1
    assert len(bound) == 2


def test_no_victim_is_taken_if_no_rack_can_hold_the_gang() -> None:
    """3 nodes are needed, racks have 2: the whole cluster has 4 nodes with pods that could be stopped."""
    scheduler = cluster(2, 2)
    for where in ("b0r0h0", "b0r0h1", "b0r1h0", "b0r1h1"):
        occupy(scheduler, where, 8, 0)
    evicted, bound = carried_out(scheduler, GroupArrived(1.0, gang(3, 8, TopologyRule(required=RACK))))
    assert (evicted, bound) == ([], [])


def test_the_rack_with_important_pods_is_left_alone() -> None:
    scheduler = cluster(2, 2)
    occupy(scheduler, "b0r0h0", 8, 100)  # outranks the gang
    occupy(scheduler, "b0r1h0", 8, 0)
    occupy(scheduler, "b0r1h1", 8, 0)
    evicted, bound = carried_out(scheduler, GroupArrived(1.0, gang(2, 8, TopologyRule(required=RACK))))
    assert [one.node for one in evicted] == ["b0r1h0", "b0r1h1"]
    assert {str(one.decision.node)[:4] for one in bound} == {"b0r1"}


def test_a_spread_holds_for_places_that_are_taken() -> None:
    scheduler = cluster(1, 1)
    for where in ("b0r0h0", "b0r1h0"):
        occupy(scheduler, where, 8, 0)
    rule = TopologyRule(required=BLOCK, spreads=(DomainSpread(HOST, most_each=1),))
    evicted, bound = carried_out(scheduler, GroupArrived(1.0, gang(2, 1, rule)))
    assert len(evicted) == 2
    assert sorted(str(one.decision.node) for one in bound) == ["b0r0h0", "b0r1h0"]


def test_the_only_launcher_of_a_gang_is_not_surplus() -> None:
    """A gang of 1 launcher and 2 workers needs 2 members, of which 1 launcher. Each holds 4 of the node's 12 GPUs.

    A pod of 4 GPUs takes the place of a worker, although the launcher started last.
    """
    scheduler = Scheduler(mode="interpreted", rights=Rights(yielding=YIELD_BY_PRIORITY))
    scheduler.handle(NodeChanged(0.0, machine(0, 0, 0, 12)))
    scheduler.handle(GangChanged(0.0, "gang", 2, (Role("launcher", 1), Role("worker", 1))))
    for number, role in enumerate(("worker", "worker", "launcher")):
        one = pod(f"{role}-{number}", ask(4, 8000, 100), group="gang", role=role)
        scheduler.handle(PodObserved(0.0, RunningPod(one, "b0r0h0", None, started=float(number + 1))))
    one = pod("urgent", ask(4, 8000, 100), priority=10)
    evicted, bound = carried_out(scheduler, GroupArrived(9.0, Group(one.key, (one,))))
    assert [effect.pod.role for effect in evicted] == ["worker"]
    assert len(bound) == 1


@given(st.integers(0, 10**9))
@with_examples(60)
def test_no_rule_is_broken_by_preemption(seed: int) -> None:
    """Random gangs on random clusters that are full of pods of low priority."""
    instance, dice = draw(seed), Random(seed)
    scheduler = Scheduler(mode="interpreted", rights=Rights(yielding=YIELD_BY_PRIORITY))
    scheduler.handle(TopologyChanged(0.0, "default", LEVELS))
    for one in instance.nodes:
        scheduler.handle(NodeChanged(0.0, one))
        for number in range(len(one.devices)):
            low = pod(f"low-{one.name}-{number}", ask(1, 8000, 100), priority=dice.choice((-5, -1, 0)))
            scheduler.handle(PodObserved(0.0, RunningPod(low, one.name, None)))
    _, bound = carried_out(scheduler, GroupArrived(1.0, instance.group))
    place = {one.pod.uid: one.decision for one in bound}
    decisions = [place.get(one.uid) or scheduler.placer.refused(one, 0) for one in instance.group.pods]  # type: ignore[arg-type]
    empty = type(instance)(instance.nodes, dict.fromkeys(instance.used, 0), instance.group)
    assert wrongs(empty, decisions) == []
