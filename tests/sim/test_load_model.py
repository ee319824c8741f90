"""Simulated measurements: what pods of a trace would load, for policies that read it."""

from __future__ import annotations

import pytest

from dovetail.policies.rows import CARD_LOAD, CPU_LOAD, NETWORK_CAPACITY, NETWORK_LOAD, NOT_MEASURED
from dovetail.sim import cast, inflation, timeline
from dovetail.sim.load_model import LoadModel, reads_signals
from dovetail.sim.orders import draw_order
from dovetail.sim.profiles import profile_of
from dovetail.sim.stage import stage
from dovetail.sim.trace import Job, Machine, Trace
from tests.builders import group

MACHINES = (Machine("a", 8000, 8192, 2, "T4", 15360), Machine("b", 8000, 8192, 0))
JOBS = tuple(Job(f"job-{n}", 1000, 1024, 1, 500, arrival=60.0 * n, duration=600.0) for n in range(4))
TRACE = Trace("t", MACHINES, JOBS)


def test_nodes_are_measured_at_first_and_when_their_use_has_changed() -> None:
    scheduler = stage(TRACE, MACHINES, "gpu-target-load", told=False, mode="interpreted")
    load, rows = LoadModel(scheduler, "gpu-target-load"), scheduler.ledger.rows
    assert rows.signal[0, CPU_LOAD] == NOT_MEASURED
    load.measure(0.0)
    a, b = (scheduler.ledger.row_of[name] for name in ("0.a", "1.b"))
    assert (rows.signal[a, CPU_LOAD], rows.card_signal[a, 0, CARD_LOAD]) == (0, 0)
    assert (rows.signal[a, NETWORK_CAPACITY], rows.signal[b, NETWORK_CAPACITY]) == (25_000_000, 10_000_000)
    (decision,) = scheduler.place([group(cast.pod_of(JOBS[0], profile_of("gpu-target-load"), "p"))])
    card = cast.card_index(decision.shares[0])
    load.measure(59.0)  # not due
    assert rows.card_signal[a, card, CARD_LOAD] == 0
    load.measure(60.0)
    # Half of the card is asked for, of which 30 to 100 % are used; 1 of 8 cores, of which 30 to 90 % are.
    assert 150 <= rows.card_signal[a, card, CARD_LOAD] <= 500
    assert 37 <= rows.signal[a, CPU_LOAD] <= 112
    assert rows.signal[a, NETWORK_LOAD] == 20_000  # kbit/s for one core


def test_policies_that_read_no_signals_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = stage(TRACE, MACHINES, "fgd", told=False, mode="interpreted")
    LoadModel(scheduler, "fgd").measure(0.0)
    assert (scheduler.ledger.rows.signal[:2] == NOT_MEASURED).all()
    assert [reads_signals(name) for name in ("fgd", "target-load", "opportunistic", "binpack/spread")] == [
        *(False, True, True, False)
    ]


@pytest.mark.parametrize("policy", ["gpu-target-load", "target-load", "topsis", "opportunistic"])
def test_both_modes_measure_and_repeat(policy: str) -> None:
    order = draw_order(TRACE, 1, 1.3)
    first, again = (inflation.replay(TRACE, order, policy, mode="interpreted") for _ in range(2))
    assert first.columns == again.columns
    timed = timeline.replay(TRACE, policy, mode="interpreted")
    # 4 arrivals, 4 binds, departures at 600, 660, … and at least one measurement of each of the two nodes
    assert timed.events >= 12


def test_measurements_are_events_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    real = LoadModel.measure

    def spy(self: LoadModel, at: float) -> None:
        times.append(at)
        real(self, at)

    monkeypatch.setattr(LoadModel, "measure", spy)
    timeline.replay(TRACE, "target-load", mode="interpreted")
    assert times == sorted(times)
    assert times[:3] == [60.0, 120.0, 180.0]  # whenever the clock moves on
