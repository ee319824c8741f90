"""The two queues: in a strict one nobody overtakes, with backfill nobody waits who would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.disciplines import BACKFILL, STRICT
from dovetail.engine.ledger import audit
from dovetail.engine.queue import can_be_placed
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.device import Device
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    NodeGone,
    PodGone,
    PodObserved,
    TimePassed,
    Wait,
)
from dovetail.model.node import Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, Refusal, RunningPod
from dovetail.model.reason import Reason
from tests.engine.pictures import alone, made, picture, said
from tests.strategies import World, worlds


def aged(world: World) -> tuple[Group, ...]:
    """The groups with ages and priorities of all kinds: they do not come in their order."""
    chance = world.chance
    return tuple(
        replace(
            group,
            pods=tuple(
                replace(pod, created=float(chance.randrange(4)), priority=chance.choice((0, 0, 0, 1)))
                for pod in group.pods
            ),
        )
        for group in world.groups
    )


def story(scheduler: Scheduler, world: World) -> Iterator[Event]:
    """Groups arrive; in between pods leave, waiting ones too, nodes change, and somebody else places a pod."""
    chance = world.chance
    for n, group in enumerate(aged(world)):
        yield GroupArrived(float(n), group)
        waiting = sorted(pod.uid for waits in scheduler.waiting for pod in waits.pods)
        running = sorted(scheduler.ledger.pods)
        node = chance.choice(world.nodes)
        way = chance.random()
        if way < 0.3 and running:
            yield PodGone(float(n), chance.choice(running))
        elif way < 0.4 and waiting:
            yield PodGone(float(n), chance.choice(waiting))
        elif way < 0.5:
            yield NodeChanged(float(n), replace(node, unschedulable=not node.unschedulable))
        elif way < 0.55:
            yield NodeGone(float(n), node.name)
        elif way < 0.65 and waiting:
            pods = {pod.uid: pod for waits in scheduler.waiting for pod in waits.pods}
            yield PodObserved(float(n), RunningPod(pods[chance.choice(waiting)], node.name, ()))
        elif way < 0.7:
            yield TimePassed(float(n + 300))
        elif way < 0.8 and len(scheduler.waiting):
            again = min(scheduler.waiting, key=lambda waits: waits.name)
            yield GroupArrived(float(n), replace(again, pods=tuple(replace(pod, created=9.0) for pod in again.pods)))
    while scheduler.ledger.pods:
        yield PodGone(1000.0, min(scheduler.ledger.pods))


def simple(world: World) -> World:
    """Every pod on its own, with one ask at most. Others are placed piece by piece, each where the policy likes it, and
    may fit just because somebody else took what they would have begun with.
    """
    pods = [
        group
        for group in alone(world.groups)
        if sum(len(container.asks) for container in group.pods[0].containers) <= 1
    ]
    return world._replace(groups=tuple(pods))


def bound(effects: tuple[Effect, ...]) -> set[str]:
    return {effect.pod.uid for effect in effects if isinstance(effect, Bind)}


@given(worlds())
def test_in_a_strict_queue_nobody_overtakes(world: World) -> None:
    """Whoever is placed comes before all those that wait afterwards, but for those that no room could help."""
    scheduler = made(world.nodes, rights=Rights(STRICT))
    name_of = {pod.uid: group.name for group in world.groups for pod in group.pods}
    for event in story(scheduler, world):
        orders = {group.name: group.order for group in candidates(scheduler, event)}
        placed = bound(scheduler.handle(event))
        audit.validate(scheduler.ledger)
        waiting = [group for group in scheduler.waiting if can_be_placed(group)]
        for name in {name_of[uid] for uid in placed}:
            assert all(orders[name] < group.order for group in waiting if group.name != name), (name, waiting)


def candidates(scheduler: Scheduler, event: Event) -> Iterator[Group]:
    """Who may be placed when this happens: those who wait, without the pod it is about, and who arrives."""
    gone = {event.uid} if isinstance(event, PodGone) else set()
    if isinstance(event, PodObserved):
        gone = {event.running.pod.uid}
    for group in scheduler.waiting:
        rest = tuple(pod for pod in group.pods if pod.uid not in gone)
        if rest:  # a gang of which one runs by now has started, and goes first
            runs = isinstance(event, PodObserved) and len(rest) < len(group.pods)
            yield replace(group, pods=rest, running=group.running + runs)
    if isinstance(event, GroupArrived):
        yield event.group


@given(worlds())
def test_in_a_strict_queue_the_first_in_line_would_not_fit(world: World) -> None:
    scheduler = made(world.nodes, rights=Rights(STRICT))
    for event in story(scheduler, simple(world)):
        scheduler.handle(event)
        assert bound(scheduler.retry(event.at, range(len(scheduler.ledger.nodes)))) == set()


@given(worlds())
def test_with_backfill_nobody_waits_who_would_fit(world: World) -> None:
    scheduler = made(world.nodes)
    for event in story(scheduler, simple(world)):
        scheduler.handle(event)
        assert bound(scheduler.retry(event.at, range(len(scheduler.ledger.nodes)))) == set()


@given(worlds(), st.sampled_from([Rights(BACKFILL), Rights(STRICT)]))
def test_placing_many_is_handling_one_after_another_in_both_queues(world: World, queue: Rights) -> None:
    groups = aged(world)
    at_once, by_one = made(world.nodes, rights=queue), made(world.nodes, rights=queue)
    found = {}
    for group in groups:
        for effect in by_one.handle(GroupArrived(0.0, group)):
            assert isinstance(effect, Bind | Wait)
            found[effect.pod.uid] = effect.decision
    one_by_one = [found[pod.uid] for group in groups for pod in group.pods]
    assert said(at_once.place(groups)) == said(one_by_one)
    assert picture(at_once) == picture(by_one)


@given(worlds())
def test_where_all_fit_the_queues_do_the_same(world: World) -> None:
    strict, backfill = made(world.nodes, rights=Rights(STRICT)), made(world.nodes)
    groups = alone(aged(world))
    wanted = backfill.place(groups)
    first = next((n for n, decision in enumerate(wanted) if not decision.placed), len(groups))
    assert said(strict.place(groups[:first])) == said(wanted[:first])


# ---- a small cluster: one node with two cards --------------------------------------------------------------------

CARDS = tuple(Device(f"c{n}", n, "NVIDIA", "T4", 15360) for n in range(2))
NODE = Node("n", {"cpu": 8000, "memory": 2**40, "pods": 110}, CARDS)


def job(name: str, cards: int, created: float, priority: int = 0, refusal: Refusal | None = None) -> Group:
    asks = (DeviceAsk("NVIDIA", cards, 0, 100, 1000),)
    pod = Pod("d", name, name, containers=(Container("c", asks=asks),), priority=priority, created=created)
    return Group(f"d/{name}", (replace(pod, refusal=refusal),))


def outcome(scheduler: Scheduler, event: Event) -> list[tuple[str, Reason]]:
    return [
        (effect.pod.name, effect.decision.reason)
        for effect in scheduler.handle(event)
        if isinstance(effect, Bind | Wait)
    ]


@pytest.fixture
def strict() -> Scheduler:
    return made((NODE,), rights=Rights(STRICT))


def test_who_would_fit_waits_behind_who_does_not(strict: Scheduler) -> None:
    """One card is taken, a job of two waits, a job of one comes later: it would fit, and waits its turn."""
    assert outcome(strict, GroupArrived(0.0, job("first", 1, 0.0))) == [("first", Reason.OK)]
    assert outcome(strict, GroupArrived(1.0, job("both", 2, 1.0)))[0][1] is not Reason.OK
    assert outcome(strict, GroupArrived(2.0, job("small", 1, 2.0))) == [("small", Reason.QUEUE_ORDER)]
    assert outcome(strict, PodGone(3.0, "first")) == [("both", Reason.OK)]
    assert outcome(strict, PodGone(4.0, "both")) == [("small", Reason.OK)]


def test_with_backfill_it_goes_first() -> None:
    scheduler = made((NODE,))
    outcome(scheduler, GroupArrived(0.0, job("first", 1, 0.0)))
    outcome(scheduler, GroupArrived(1.0, job("both", 2, 1.0)))
    assert outcome(scheduler, GroupArrived(2.0, job("small", 1, 2.0))) == [("small", Reason.OK)]


def test_priority_comes_before_age(strict: Scheduler) -> None:
    outcome(strict, GroupArrived(0.0, job("first", 1, 0.0)))
    outcome(strict, GroupArrived(1.0, job("both", 2, 1.0)))
    assert outcome(strict, GroupArrived(2.0, job("urgent", 1, 2.0, priority=1))) == [("urgent", Reason.OK)]


def test_when_the_first_in_line_gives_up_the_next_has_its_turn(strict: Scheduler) -> None:
    outcome(strict, GroupArrived(0.0, job("first", 1, 0.0)))
    outcome(strict, GroupArrived(1.0, job("both", 2, 1.0)))
    outcome(strict, GroupArrived(2.0, job("small", 1, 2.0)))
    assert outcome(strict, PodGone(3.0, "both")) == [("small", Reason.OK)]


def test_a_pod_that_nothing_can_place_holds_nobody_up(strict: Scheduler) -> None:
    gated = job("gated", 1, 0.0, refusal=Refusal(Reason.SCHEDULING_GATED, "gates"))
    assert outcome(strict, GroupArrived(0.0, gated)) == [("gated", Reason.SCHEDULING_GATED)]
    assert outcome(strict, GroupArrived(1.0, job("small", 1, 1.0))) == [("small", Reason.OK)]
