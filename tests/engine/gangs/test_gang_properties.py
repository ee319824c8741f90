"""Properties of gangs: no rule is ever broken, what is undone leaves no trace, compiled equals interpreted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger.audit import validate
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import PodGone
from dovetail.model.pod import ContainerKind
from tests.builders import ask, pod
from tests.engine.gangs.instances import Instance, draw, wrongs
from tests.engine.pictures import picture, said
from tests.properties import with_examples

SEEDS = st.integers(10_000, 10**9)


@given(SEEDS)
@with_examples(150)
def test_every_placement_keeps_every_rule(seed: int) -> None:
    instance = draw(seed)
    scheduler = instance.scheduler()
    decisions = scheduler.place([instance.group])
    assert wrongs(instance, decisions) == []
    validate(scheduler.ledger)


@given(SEEDS)
@with_examples(60)
def test_what_is_undone_leaves_no_trace(seed: int) -> None:
    instance = draw(seed)
    scheduler = instance.scheduler()
    scheduler.place([instance.group])  # numbers of requests are given out
    for one in instance.group.pods:
        scheduler.handle(PodGone(1.0, one.uid))
    before = picture(scheduler)
    with scheduler.trial():
        first = said(scheduler.place([instance.group]))
    assert picture(scheduler) == before
    with scheduler.trial():
        assert said(scheduler.place([instance.group])) == first


@given(SEEDS)
@with_examples(60)
def test_a_gang_that_is_not_placed_leaves_the_ledger_as_it_was(seed: int) -> None:
    instance = draw(seed)
    scheduler = instance.scheduler()
    held = dict(scheduler.ledger.pods)
    if not any(decision.placed for decision in scheduler.place([instance.group])):
        assert dict(scheduler.ledger.pods) == held
        validate(scheduler.ledger)


@given(SEEDS)
@with_examples(80)
def test_room_is_never_underestimated(seed: int) -> None:
    """A row takes pods one by one, alone, until it is full: never more than `RowCapacity.room` says."""
    dice, instance = Random(seed), draw(seed)
    scheduler = instance.scheduler()
    _share_some_cards(scheduler, instance, dice)
    asked = ask(dice.choice((1, 1, 2)), dice.choice((0, 2000, 5000)), dice.choice((0, 30, 50, 100)))
    wanted = pod("one", asked, cpu=1000 * dice.choice((1, 3)))
    signature = scheduler.requests.signature(wanted)
    room = scheduler.gangs.capacity.room(signature)
    for row in range(len(instance.nodes)):
        with scheduler.trial():
            count = 0
            while scheduler.placer.single.place_on(wanted.named(f"one-{count}"), row).placed:
                count += 1
        assert count <= room[row]
        if asked.count == 1:
            assert count == room[row]


def _share_some_cards(scheduler: Scheduler, instance: Instance, dice: Random) -> None:
    for number in range(dice.randint(0, 6)):
        part = pod(f"part-{number}", ask(1, dice.choice((500, 3000)), dice.choice((0, 20, 40))))
        assert all(container.kind is ContainerKind.APP for container in part.containers)
        scheduler.placer.single.place_on(part, dice.randrange(len(instance.nodes)))


@pytest.mark.slow
def test_compiled_kernels_decide_the_same() -> None:
    for seed in range(120):
        instance = draw(seed)
        interpreted = said(instance.scheduler().place([instance.group]))
        compiled = said(instance.scheduler("compiled").place([instance.group]))
        assert compiled == interpreted, seed


@given(SEEDS)
@with_examples(60)
def test_the_order_of_nodes_and_their_first_numbers_do_not_matter(seed: int) -> None:
    instance = draw(seed)
    reverse = replace(instance, nodes=instance.nodes[::-1])
    assert said(reverse.scheduler().place([instance.group])) == said(instance.scheduler().place([instance.group]))
