"""Attackers with a tenant's and with a node's rights, and churn of all kinds: others are served, and memory stays."""

from __future__ import annotations

import os

import pytest

from tests.live.faults import SOAK, more
from tests.live.fuzz import churn
from tests.live.fuzz.attacker import WHO
from tests.live.fuzz.parts import audited
from tests.live.fuzz.run import CANARY_SECONDS, Plan, run
from tools.controlplane.plane import ControlPlane

SEED = int(os.environ.get("DOVETAIL_FUZZ_SEED", "7"))
BUSY = 10  # times slower than the goal a canary may be where other tests run beside this one


@pytest.mark.parametrize("who", WHO)
def test_faults_by_an_attacker(control_plane: ControlPlane, who: str) -> None:
    """30 s each, ten minutes in `make soak`: no crash, canaries bound, memory flat, no card twice, quotas held."""
    told: list[str] = []
    allowed = CANARY_SECONDS if SOAK else BUSY * CANARY_SECONDS
    with audited(control_plane.binaries) as plane:
        plan = Plan(who, SEED, more(30, 600), canary_seconds=allowed, interpreted=not SOAK)
        outcome = run(plane, plan, told.append)
    print("\n".join(told))
    assert outcome.found == [], "\n".join(told)
    assert outcome.tally.accepted > 10, told
    assert len(outcome.waits) > 5, told


def test_faults_by_churn(control_plane: ControlPlane) -> None:
    """Objects of all kinds come and go with new names for 20 s; for an hour in `make soak`, where memory is judged."""
    told: list[str] = []
    with ControlPlane(control_plane.binaries) as plane:
        outcome = churn.run(plane, SEED, more(20, 3600), interpreted=not SOAK, tell=told.append)
    print("\n".join(told))
    assert outcome.found == [], "\n".join(told)
    assert outcome.made.total() > 50, told
    if SOAK:
        assert churn.grown(outcome) == "", "\n".join(told)
        assert outcome.waits
