"""Against an exact solver: no wrong yes, few missed placements, few domains."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.engine.gangs.exact import Exact
from tests.engine.gangs.instances import RACK, Instance, draw, path, wrongs

INSTANCES = 400


class Compared(NamedTuple):
    placed: bool
    possible: bool
    domains: int  # of racks; 0 = not compared
    fewest: int


def _compare(instance: Instance) -> Compared:
    decisions = instance.scheduler().place([instance.group])
    assert wrongs(instance, decisions) == []
    placed = any(decision.placed for decision in decisions)
    possible = Exact(instance, whole=False).solve() is not None
    assert possible or not placed
    if not placed or instance.group.topology.preferred != RACK or not all(one.placed for one in decisions):
        return Compared(placed, possible, 0, 0)
    by_name = {one.name: one for one in instance.nodes}
    racks = len({path(by_name[str(one.node)], RACK) for one in decisions})
    return Compared(placed, possible, racks, Exact(instance, whole=True).solve(fewest=RACK) or 0)


@pytest.mark.slow
def test_placements_against_the_exact_solver() -> None:
    pytest.importorskip("ortools")
    found = [_compare(draw(seed)) for seed in range(INSTANCES)]
    possible = sum(one.possible for one in found)
    missed = sum(one.possible and not one.placed for one in found)
    domains, fewest = sum(one.domains for one in found), sum(one.fewest for one in found)
    compared = sum(one.domains > 0 for one in found)
    print(f"{INSTANCES} instances: {possible} can be placed, {missed} missed ({missed / possible:.2%})")
    print(f"{compared} with preferred racks: {domains} racks used, {fewest} needed ({domains / fewest - 1:.2%} more)")
    assert 100 < possible < INSTANCES - 30  # both answers occur often
    assert missed <= 0.02 * possible
    assert domains <= 1.05 * fewest
