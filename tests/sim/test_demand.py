"""GPU memory counts: a card is as full as the fuller of its compute and its memory, in every measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.sim import cast, inflation, timeline
from dovetail.sim.demand import Demand
from dovetail.sim.orders import Order, draw_order
from dovetail.sim.results import Inflation
from dovetail.sim.summary import summarise
from dovetail.sim.trace import Job, Machine, Trace
from dovetail.sim.unavoidable import unavoidable

LARGE = Machine("large", 64_000, 262_144, 2, "A100-SXM4-80GB", 80_000)
SMALL = Machine("small", 64_000, 262_144, 2, "T4", 16_000)
HALF = Job("half", 100, 100, 1, gpu_memory_mib=40_000, duration=3600.0)  # of a large card
BRISK = Job("brisk", 100, 100, 1, gpu_milli=600, gpu_memory_mib=20_000)  # 600 of compute, 250 of memory
BULKY = Job("bulky", 100, 100, 1, gpu_milli=200, gpu_memory_mib=40_000)  # 200 of compute, 500 of memory


def replayed(machines: tuple[Machine, ...], *jobs: Job, policy: str = "best-fit") -> Inflation:
    trace = Trace("t", machines, jobs)
    order = Order(0, np.arange(len(jobs))[np.argsort(np.argsort([job.name for job in jobs]))], np.arange(len(machines)))
    return inflation.replay(trace, order, policy, mode="interpreted")


@pytest.mark.parametrize(
    ("job", "milli"),
    [
        (Job("compute", gpus=2, gpu_milli=300, pods=3), 1800),  # 3 × 2 × 300
        (Job("memory", gpus=1, gpu_memory_mib=8_000), 100),  # of the larger card
        (Job("on a T4", gpus=1, gpu_memory_mib=8_000, models=("T4",)), 500),
        (Job("both", gpus=1, gpu_milli=200, gpu_memory_mib=40_000), 500),
        (Job("whole", gpus=1, gpu_milli=1000, gpu_memory_mib=1), 1000),
        (Job("odd", gpus=1, gpu_memory_mib=1), 1),  # rounded up
        (Job("none", cpu_milli=100), 0),
    ],
)
def test_what_jobs_ask_for(job: Job, milli: int) -> None:
    assert Demand((LARGE, SMALL)).of(job) == milli


def test_a_card_whose_memory_is_full_is_full() -> None:
    """Two halves of memory on each of two cards; the fifth finds no place, though no compute is taken at all."""
    result = replayed((LARGE,), *(Job(f"{n}", 100, 100, 1, gpu_memory_mib=40_000) for n in range(5)))
    assert (result.failed, result.arrived_pct) == (1, 125)
    assert [result.columns[at].allocated_pct for at in ("25", "50", "100", "125")] == [25, 50, 100, 100]
    assert result.models["A100-SXM4-80GB"].allocated_pct == 100


def test_compute_and_memory_of_a_card_are_summed_apart() -> None:
    """600 + 200 of compute, 250 + 500 of memory: 800 of the card are taken, and not 600 + 500."""
    result = replayed((Machine("one", 64_000, 262_144, 1, "A100-SXM4-80GB", 80_000),), BRISK, BULKY)
    assert (result.failed, result.columns["110"].allocated_pct, result.map[0].gpus) == (0, 80, [800])


def test_what_is_idle_in_time_mode() -> None:
    """Eight halves on two cards: four at a time, and nothing that anybody could use is idle meanwhile."""
    jobs = tuple(Job(f"{n}", 100, 100, 1, gpu_memory_mib=40_000, duration=3600.0) for n in range(8))
    log: list[timeline.LogEntry] = []
    result = timeline.replay(Trace("t", (LARGE,), jobs), "best-fit", mode="interpreted", log=log)
    assert (result.hours_capacity, result.hours_allocated, result.hours_idle_while_wanted) == (4, 4, 0)
    assert result.delays.longest == 3600
    assert {entry.memory_mib for entry in log} == {40_000}


def test_no_lower_bound_is_claimed_where_memory_leads() -> None:
    """Sums of shares would say that BRISK and BULKY cannot be on one card: 600 + 500 > 1000. They can."""
    machines = (Machine("one", 64_000, 262_144, 1, "A100-SXM4-80GB", 80_000),)
    assert unavoidable(machines, [BRISK, BULKY] * 3) == 0


def test_typical_pods_differ_in_gpu_memory() -> None:
    few, many = Job("few", 100, 100, 1, gpu_memory_mib=8_192), Job("many", 100, 100, 1, gpu_memory_mib=65_536)
    assert cast.typical([few, *[many] * 59]) == [(many, 59)]


def test_orders_are_drawn_by_memory_as_well() -> None:
    """Each asks for half a card of two: 130 % of them are 2.6 cards, so 5 arrive."""
    trace = Trace("t", (LARGE,), tuple(Job(f"{n}", 100, 100, 1, gpu_memory_mib=40_000) for n in range(3)))
    assert len(draw_order(trace, seed=1).arrivals) == 5


def test_gpu_hours_of_a_trace() -> None:
    assert summarise(Trace("t", (LARGE,), (HALF, replace(HALF, name="other")))).gpu_hours == 1


def test_every_percent_has_a_column() -> None:
    """One card in four steps of 40 %: what lies between is as it was before, and after 120 % nothing changes."""
    jobs = tuple(Job(f"{n}", 100, 100, 1, gpu_milli=400) for n in range(3))
    result = replayed((Machine("one", 64_000, 262_144, 1, "T4", 16_000),), *jobs)
    assert list(result.columns) == [str(at) for at in range(131)]
    shown = {at: result.columns[str(at)].allocated_pct for at in (0, 38, 39, 40, 60, 79, 80, 119, 120, 130)}
    assert shown == {0: 0, 38: 0, 39: 40, 40: 40, 60: 40, 79: 80, 80: 80, 119: 80, 120: 80, 130: 80}
