"""Kernels compiled beforehand: complete, so that no call compiles anything, and usable profile by profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from dovetail.engine.kernel.build import BookKeeping, Kernel, builder, pair_of
from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import GroupArrived, NodeChanged, NodeGone, PodBound, PodGone, PodObserved
from dovetail.model.pod import Profile, RunningPod
from tests.engine.pictures import made, picture
from tests.properties import with_examples
from tests.strategies import World, worlds

COMPILED = Profile()


def entries(kernel: Kernel, books: BookKeeping) -> list[Any]:
    doors: list[Any] = [kernel.place_groups, kernel.place_lone, kernel.which_fit, kernel.survey, *books]
    return [door.args[0] for door in doors]


def story(scheduler: Scheduler, world: World) -> list[object]:
    """Arrivals, nodes that change under their pods, observations, departures, transactions: every entry is called."""
    told: list[object] = []
    for n, group in enumerate(world.groups):
        told += scheduler.handle(GroupArrived(float(n), group))
        node = world.nodes[n % len(world.nodes)] if world.nodes else None
        if node is not None and n % 2:
            told += scheduler.handle(NodeChanged(float(n), replace(node, labels={**node.labels, "seen": str(n)})))
        if node is not None and n % 3 == 2:
            told += scheduler.handle(NodeGone(float(n), node.name))
            told += scheduler.handle(NodeChanged(float(n), node))
        uid = group.pods[0].uid
        if uid in scheduler.ledger.pods and n % 4 == 1:
            seen = RunningPod(group.pods[0], scheduler.ledger.node_of(uid), scheduler.ledger.held_shares(uid))
            told += scheduler.handle(PodObserved(float(n), replace(seen, shares=seen.shares and seen.shares[1:])))
        elif uid in scheduler.ledger.pods and n % 4 == 2:
            told += scheduler.handle(PodBound(float(n), uid))
        elif n % 4 == 3:
            told += scheduler.handle(PodGone(float(n), uid))
    with scheduler.ledger.transaction():
        for uid in sorted(scheduler.ledger.pods)[:2]:
            scheduler.ledger.release(uid)
    return told


@pytest.mark.slow
def test_one_profile_is_compiled_others_are_interpreted_and_nothing_is_compiled_by_a_call(keeps_kernels: bool) -> None:
    """Decisions are those of a scheduler that interprets everything."""
    compiler = builder(True, keeps_kernels)
    compiler.warm(COMPILED)
    known = entries(compiler.kernel(COMPILED), compiler.book_keeping())
    assert [len(entry.signatures) for entry in known] == [1] * len(known)

    @with_examples(60)
    @given(worlds(pods=10))
    def same(world: World) -> None:
        groups = tuple(
            replace(group, pods=tuple(replace(pod, profile=COMPILED) for pod in group.pods)) if n % 2 else group
            for n, group in enumerate(world.groups)
        )
        world = world._replace(groups=groups)
        plain, mixed = made(world.nodes), made(world.nodes, cache=keeps_kernels)
        mixed.use_compiled(COMPILED)
        assert mixed.is_compiled(COMPILED)
        assert mixed.kernel(COMPILED) is compiler.kernel(COMPILED)
        assert story(mixed, world) == story(plain, world)
        assert picture(mixed) == picture(plain)
        audit.validate(mixed.ledger)

    same()
    assert [len(entry.signatures) for entry in known] == [1] * len(known)


def test_a_joint_policy_has_one_kernel_whatever_its_device_policy() -> None:
    assert pair_of(Profile("fgd", ("binpack",))) == pair_of(Profile("fgd"))
    assert pair_of(Profile("binpack", ("binpack",))) != pair_of(Profile("binpack"))
