"""Properties of preemption: no pod is stopped in vain, none keeps its place in vain, and trying leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from dovetail.engine.claims import Rights
from dovetail.engine.disciplines import STRICT
from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Bind, Event, Evict, GroupArrived, PodBound, PodGone, PodsGone
from dovetail.model.pod import Group
from dovetail.policies.orders import JobFacts
from dovetail.policies.rounds import Round
from dovetail.policies.yielding import Candidate, Yielding
from tests.engine.pictures import made, picture
from tests.properties import with_examples
from tests.strategies import World, worlds


def by_priority(held: Candidate, group: Group, facts: JobFacts) -> tuple[int] | None:
    return (held.pod.priority,) if held.pod.priority < facts.priority else None


YIELDING = Rights(yielding=Yielding("priority", "Lower priorities yield.", by_priority))


def with_priority(priority: int, group: Group) -> Group:
    return replace(group, pods=tuple(replace(pod, priority=priority) for pod in group.pods))


def handle(scheduler: Scheduler, event: Event) -> tuple[list[str], list[str]]:
    """UIDs of the pods that were bound, which comes true at once, and of those that were told to stop."""
    effects = scheduler.handle(event)
    bound = [effect.pod.uid for effect in effects if isinstance(effect, Bind)]
    for uid in bound:
        scheduler.handle(PodBound(event.at, uid))
    audit.validate(scheduler.ledger)
    return bound, [effect.pod.uid for effect in effects if isinstance(effect, Evict)]


@with_examples(150)
@given(worlds())
def test_pods_are_stopped_where_it_helps_and_only_there(world: World) -> None:
    """All groups but the last are placed as they come, then the last one arrives with a higher priority."""
    *groups, last = (with_priority(0, group) for group in world.groups)
    scheduler, plain = made(world.nodes, rights=YIELDING), made(world.nodes)
    for group in groups:
        handle(scheduler, GroupArrived(0.0, group))
        handle(plain, GroupArrived(0.0, group))
    assert picture(scheduler) == picture(plain)  # nothing outranks anything: rights change nothing
    before, running = picture(scheduler), list(scheduler.ledger.pods)
    last = with_priority(10, last)
    bound, stopped = handle(scheduler, GroupArrived(1.0, last))
    if bound:
        assert len(bound) >= last.minimum
        return
    assert picture(scheduler) == before  # victims hold their places until they have ended
    assert len(set(stopped)) == len(stopped)
    assert set(stopped) <= set(running)
    wanted = {pod.uid for pod in last.pods}
    if stopped:
        bound, more = handle(scheduler, PodsGone(2.0, tuple(stopped)))
        assert not more or (last.minimum == 1 and len(last.pods) > 1)  # then each pod may take a place by itself
        assert len(wanted & set(bound)) >= last.minimum, "pods were stopped in vain"
    else:
        plain.handle(PodsGone(2.0, tuple(running)))
        for waiting in list(plain.waiting):
            plain.handle(PodsGone(2.0, tuple(pod.uid for pod in waiting.pods)))
        bound, _ = handle(plain, GroupArrived(3.0, last))
        assert not bound, "the group would have fitted, had others yielded"


@with_examples(60)
@given(worlds())
def test_while_its_victims_end_a_group_takes_no_others_and_no_one_takes_its_place(world: World) -> None:
    *groups, last = (with_priority(0, group) for group in world.groups)
    scheduler = made(world.nodes, rights=YIELDING)
    for group in groups:
        handle(scheduler, GroupArrived(0.0, group))
    last = with_priority(10, last)
    bound, stopped = handle(scheduler, GroupArrived(1.0, last))
    held: set[str] = set()
    for n, uid in enumerate(stopped):
        bound, more = handle(scheduler, PodGone(2.0 + n, uid))
        assert not more
        held |= set(bound)
        if n + 1 == len(stopped):
            assert len(held & {pod.uid for pod in last.pods}) >= last.minimum


def test_a_queue_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="queue 'fifo': there is backfill, strict"):
        Rights("fifo")
    with pytest.raises(ValueError, match="rounds need the queue 'backfill'"):
        Rights(STRICT, rounds=Round("none", "", lambda jobs, gpus: ()))
