"""The same decisions by every road: any order of input, kept scores or fresh ones, one call or many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger.stream import Stream
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodGone, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod
from dovetail.model.relations import PodTerm, Relations, Selector
from tests.engine.pictures import alone, made, picture, said
from tests.strategies import World, renamed, worlds


def running(world: World) -> list[RunningPod]:
    """Pods that hold something already, as another scheduler might have placed them."""
    other = made(world.nodes)
    pods = [renamed(pod, f"running-{pod.name}") for group in world.groups for pod in group.pods[:1]]
    decisions = other.place(alone([replace(world.groups[0], pods=tuple(pods))]))
    return [
        RunningPod(pod, decision.node, decision.shares)
        for pod, decision in zip(pods, decisions, strict=True)
        if decision.node is not None
    ]


def observed(nodes: list[Node], pods: list[RunningPod]) -> Scheduler:
    scheduler = made(nodes, measured=False)  # a measurement shows only pods that were seen before it
    for one in pods:
        scheduler.handle(PodObserved(0.0, one))
    return scheduler


@given(worlds())
def test_decisions_do_not_depend_on_the_order_of_input(world: World) -> None:
    """Nodes and running pods in any order; a node may also be heard of before it is seen."""
    there = running(world)
    straight = observed(list(world.nodes), there)
    nodes, mixed = list(world.nodes), list(there)
    world.chance.shuffle(nodes)
    world.chance.shuffle(mixed)
    shuffled = observed(nodes, mixed)
    early = Scheduler(straight.requests.given, mode="interpreted")
    for one in mixed:
        early.handle(PodObserved(0.0, one))
    for node in nodes:
        early.handle(NodeChanged(0.0, node))
    decisions = [said(scheduler.place(world.groups)) for scheduler in (straight, shuffled, early)]
    assert decisions[0] == decisions[1] == decisions[2]
    assert _known(picture(straight)) == _known(picture(shuffled)) == _known(picture(early))


def _known(shown: dict[str, Any]) -> dict[str, Any]:
    """Without which of several alike pods is guessed to have which card."""
    pods = {uid: (row[0], () if row[3] else row[1], *row[2:]) for uid, row in shown["pods"].items()}
    return {**shown, "pods": pods}


@given(worlds())
def test_arrays_that_are_used_again_keep_nothing_of_the_pod_before(world: World) -> None:
    """Pods with rules about other pods and pods without share them; one scheduler makes new ones for each decision."""
    keeping, forgetting = made(world.nodes), made(world.nodes)
    for n, group in enumerate(alone(world.groups)):
        pod = group.pods[0]
        if n % 2:
            term = PodTerm("zone", Selector((("side", str(n % 4)),)), (pod.namespace,))
            pod = replace(pod, labels={"side": str(n % 4)}, relations=Relations(anti_affinity=(term,)))
        forgetting.requests.forget()
        kept, fresh = (scheduler.place([replace(group, pods=(pod,))]) for scheduler in (keeping, forgetting))
        assert said(kept) == said(fresh)
    assert picture(keeping) == picture(forgetting)


@given(worlds(), st.sampled_from(range(1, 5)))
def test_kept_scores_are_fresh_scores(world: World, rounds: int) -> None:
    """Pods come, go and come back; one scheduler forgets its scores before every decision."""
    keeping, forgetting = made(world.nodes), made(world.nodes)
    chance = world.chance
    placed: list[str] = []
    for n in range(rounds):
        for group in alone(world.groups):
            pod = renamed(group.pods[0], f"{group.pods[0].name}-{n}")
            one = [replace(group, pods=(pod,))]
            forgetting.ledger.vectors.forget()
            kept, fresh = keeping.place(one), forgetting.place(one)
            assert said(kept) == said(fresh)
            placed += [pod.uid] if kept[0].placed else []
            if placed and chance.random() < 0.4:
                gone = placed.pop(chance.randrange(len(placed)))
                keeping.ledger.release(gone)
                forgetting.ledger.release(gone)
            if chance.random() < 0.15:
                node = chance.choice(world.nodes)
                changed = replace(node, unschedulable=not node.unschedulable)
                for scheduler in (keeping, forgetting):
                    scheduler.handle(NodeChanged(0.0, changed))
    assert picture(keeping) == picture(forgetting)


@given(worlds(pods=12))
def test_kept_scores_survive_groups_that_are_taken_back(world: World) -> None:
    """A gang that fails leaves rows that moved there and back again."""
    keeping, forgetting = made(world.nodes), made(world.nodes)
    for group in (*world.groups, *reversed(world.groups)):
        again = replace(group, pods=tuple(renamed(p, f"{p.name}-{len(keeping.ledger.pods)}") for p in group.pods))
        forgetting.ledger.vectors.forget()
        assert said(keeping.place([again])) == said(forgetting.place([again]))


def by_events(scheduler: Scheduler, world: World) -> list[Decision]:
    """What `handle` decides when the groups arrive one by one."""
    found: dict[str, Decision] = {}
    for group in world.groups:
        for effect in scheduler.handle(GroupArrived(0.0, group)):
            found[effect.decision.uid] = effect.decision  # type: ignore[union-attr]
    return [found[pod.uid] for group in world.groups for pod in group.pods]


@given(worlds())
def test_placing_many_is_handling_one_after_another(world: World) -> None:
    at_once, by_one = made(world.nodes), made(world.nodes)
    assert said(at_once.place(world.groups)) == said(by_events(by_one, world))
    assert picture(at_once) == picture(by_one)


@given(worlds())
def test_placing_many_is_placing_one_after_another(world: World) -> None:
    at_once, by_one = made(world.nodes), made(world.nodes)
    one_by_one = [decision for group in world.groups for decision in by_one.place([group])]
    assert said(at_once.place(world.groups)) == said(one_by_one)
    assert picture(at_once) == picture(by_one)


@given(worlds(), st.integers(1, 4))
def test_placing_a_stream_is_placing_its_pods(world: World, copies: int) -> None:
    """One call that looks at the templates only, or a group per pod: also where templates differ in profile."""
    templates = [pod for group in world.groups for pod in group.pods]
    kinds = np.array([n for _ in range(copies) for n in range(len(templates))], dtype=np.int64)
    uids = [f"stream-{n}" for n in range(len(kinds))]
    stream = Stream(templates, kinds, uids)
    at_once, one_by_one = made(world.nodes), made(world.nodes)
    decisions = at_once.place(stream)
    assert said(decisions) == said(one_by_one.place(list(stream)))
    assert picture(at_once) == picture(one_by_one)
    for uid in uids:
        at_once.ledger.release(uid)
    assert not at_once.ledger.pods


@given(worlds())
def test_the_same_events_give_the_same_decisions(world: World) -> None:
    """A journal of events can be run again: arrivals and departures."""

    def story(scheduler: Scheduler) -> list[object]:
        told: list[object] = []
        for n, group in enumerate(world.groups):
            told += scheduler.handle(GroupArrived(float(n), group))
            if n % 3 == 2:
                told += scheduler.handle(PodGone(float(n), world.groups[n - 1].pods[0].uid))
        return told

    first, second = made(world.nodes), made(world.nodes)
    assert story(first) == story(second)
    assert picture(first) == picture(second)


@given(worlds(pods=10))
def test_what_waits_is_placed_when_there_is_room(world: World) -> None:
    """A retry decides like an arrival: whoever waits when everybody leaves is what an empty cluster refuses."""
    scheduler = made(world.nodes)
    for group in alone(world.groups):
        scheduler.handle(GroupArrived(0.0, group))
    bound: list[Pod] = []
    while scheduler.ledger.pods:
        effects = scheduler.handle(PodGone(1.0, min(scheduler.ledger.pods)))
        bound += [effect.pod for effect in effects if isinstance(effect, Bind)]
    assert scheduler.ledger.pods == {}
    for group in scheduler.waiting:
        assert not any(d.placed for d in made(world.nodes).place([group]))
