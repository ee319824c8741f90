"""Compiled by numba or interpreted: the same decisions, the same cards, the same books."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given

from dovetail.model.events import NodeChanged
from dovetail.model.pod import Profile, Quota
from tests.builders import ask, group, node, pod
from tests.engine.pictures import made, picture, said
from tests.properties import with_examples
from tests.strategies import JOINT_PROFILES, World, renamed, worlds

# A compile takes many seconds: three profiles that between them use every kind of hook, and the joint policies.
PROFILES = (
    Profile("spread-replicas", ("binpack",)),
    Profile("random", ("mutex", "topology-aware")),
    Profile("requested-to-capacity-ratio", ("numa", "spread")),
    *JOINT_PROFILES,
)

QUOTA = Quota("default", "q", device_memory_mib={"NVIDIA": 12_000}, device_compute_milli={"NVIDIA": 3000})


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: f"{p.node}-{'-'.join(p.device)}")
def test_compiled_is_interpreted(profile: Profile, keeps_kernels: bool) -> None:
    compared = {"placed": 0}

    @with_examples(150)
    @given(worlds(nodes=8, pods=20, profiles=(profile,)))
    def property_holds(world: World) -> None:
        for quotas in ((), (QUOTA,)):
            both = made(world.nodes, "interpreted", quotas), made(world.nodes, "compiled", quotas, cache=keeps_kernels)
            plain, compiled = (said(scheduler.place(world.groups)) for scheduler in both)
            assert plain == compiled
            compared["placed"] += sum(node is not None for _, node, _, _ in plain)
            # Some leave, a node changes, a what-if is undone, and the groups come again.
            leaving = [uid for uid, node, _, _ in plain if node is not None][::2]
            changed = replace(world.nodes[0], unschedulable=not world.nodes[0].unschedulable)
            again = [
                replace(gang, pods=tuple(renamed(one, f"{one.name}-again") for one in gang.pods))
                for gang in world.groups
            ]
            later = []
            for scheduler in both:
                for uid in leaving:
                    scheduler.ledger.release(uid)
                scheduler.handle(NodeChanged(0.0, changed))
                with scheduler.ledger.transaction():
                    scheduler.place(again)
                later.append(said(scheduler.place(again)))
            assert later[0] == later[1]
            assert picture(both[0]) == picture(both[1])

    property_holds()
    assert compared["placed"] > 300


@pytest.mark.slow
def test_kept_scores_are_fresh_scores_on_many_nodes(keeps_kernels: bool) -> None:
    """Enough rows for several blocks of blocks, with many of them equal: names decide, and rows move back and forth."""
    chance = Random(7)
    nodes = [node(f"n{n:05}", gpus=chance.choice((1, 2))) for n in range(4500)]
    chance.shuffle(nodes)
    keeping, forgetting = (made(nodes, "compiled", cache=keeps_kernels) for _ in range(2))
    templates = [
        pod("t", ask(1, memory), node_policy="spread-replicas", gpu_policy="binpack", owner=owner)
        for memory in (1000, 4000, 8000)
        for owner in ("", "Deployment/default/web")
    ]
    placed: list[str] = []
    for n in range(600):
        one = [group(renamed(chance.choice(templates), f"p{n}"))]
        forgetting.ledger.vectors.forget()
        kept, fresh = keeping.place(one), forgetting.place(one)
        assert said(kept) == said(fresh)
        placed.append(kept[0].uid)
        if chance.random() < 0.4:
            gone = placed.pop(chance.randrange(len(placed)))
            keeping.ledger.release(gone)
            forgetting.ledger.release(gone)
        if chance.random() < 0.05:
            changed = replace(chance.choice(nodes), unschedulable=chance.random() < 0.5)
            for scheduler in (keeping, forgetting):
                scheduler.handle(NodeChanged(0.0, changed))
