"""Compiled by numba or interpreted: the same decisions, the same cards, the same books."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dovetail.model.events import NodeChanged
from dovetail.model.pod import Profile
from tests.builders import ask, group, node, pod
from tests.engine.compiled import check_compiled
from tests.engine.pictures import made, said
from tests.strategies import renamed

# Chains, whose policies are keys, filters and choosers at once; each policy by itself: tests/policies/test_contract.py.
CHAINS = (
    Profile("random", ("mutex", "topology-aware")),
    Profile("requested-to-capacity-ratio", ("numa", "spread")),
)


@pytest.mark.slow
@pytest.mark.parametrize("profile", CHAINS, ids=lambda p: f"{p.node}-{'-'.join(p.device)}")
def test_compiled_is_interpreted(profile: Profile, keeps_kernels: bool) -> None:
    assert check_compiled(profile, keeps_kernels, 150) > 300


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
