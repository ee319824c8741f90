"""Faults of all families by the dice, with a witness and canaries: three minutes, an hour in `make soak`."""

from __future__ import annotations

import os

from tests.live.chaos.run import run
from tests.live.faults import more
from tools.controlplane.plane import ControlPlane

SEED = 20


def test_faults_by_the_dice(control_plane: ControlPlane) -> None:
    """A control plane of its own: the API server is killed, and starts again without its history."""
    told: list[str] = []
    seed = int(os.environ.get("DOVETAIL_CHAOS_SEED", str(SEED)))
    with ControlPlane(control_plane.binaries) as plane:
        outcome = run(plane, seed, more(180, 3600), tell=told.append)
    found = {family: wrong for family, wrong in outcome.found.items() if wrong}
    assert found == {}, "\n".join(told)
    assert outcome.faults.total() > 10, told
