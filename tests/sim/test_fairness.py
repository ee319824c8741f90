"""Fair parts of the GPUs and Jain's index, with the arithmetic; and what a run reports."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.model.rights import Queue
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.fairness import JobStay, fair_parts, fairness, index
from dovetail.sim.lives import Costs
from dovetail.sim.regime import Regime, entitlements, packed, queues_by_tenant
from dovetail.sim.timeline import replay
from dovetail.sim.trace import Job, Trace, TraceError


def parts(demand: list[float], weights: list[float], capacity: float) -> list[float]:
    found: list[float] = fair_parts(np.array(demand), np.array(weights), capacity).tolist()
    return found


def test_fair_parts_divide_by_weight_and_hand_on_what_is_left() -> None:
    assert parts([10, 10], [1, 1], 8) == [4, 4]
    assert parts([10, 10], [3, 1], 8) == [6, 2]
    assert parts([2, 10], [3, 1], 8) == [2, 6]  # the first asks for less than its 6; the other gets what is left
    assert parts([1, 2], [1, 1], 8) == [1, 2]
    assert parts([0, 10, 10], [5, 1, 1], 8) == [0, 4, 4]
    assert parts([0, 0], [1, 1], 8) == [0, 0]


def test_jains_index() -> None:
    """(4/4, 4/4) is 1; (8/4, 0/4): 2² / (2 · 2²) = 1/2; (6/4, 2/4): 2² / (2 · 2.5) = 0.8."""
    fair = np.array([4.0, 4.0])
    assert index(np.array([4.0, 4.0]), fair) == 1
    assert index(np.array([8.0, 0.0]), fair) == pytest.approx(0.5)
    assert index(np.array([6.0, 2.0]), fair) == pytest.approx(0.8)
    assert index(np.array([0.0, 0.0]), fair) == 1
    assert index(np.array([3.0, 0.0]), np.array([3.0, 0.0])) == 1  # the second asks for nothing


def test_over_time() -> None:
    """Tenant 0 holds both GPUs for 10 s while tenant 1 waits for one; then each has what it asks for."""
    stays = [
        JobStay(0, 2000, 0.0, 10.0, [(0.0, 10.0)]),
        JobStay(1, 1000, 0.0, 20.0, [(10.0, 20.0)]),
        JobStay(0, 1000, 10.0, 20.0, [(10.0, 20.0)]),
    ]
    found = fairness(stays, [1, 1], 2000, 0.0, 20.0)
    assert (found.samples[0], found.samples[-1]) == (0.5, 1.0)
    assert found.mean == pytest.approx(0.75)
    assert fairness(stays[:1], [1], 2000, 0.0, 20.0) == (1.0, [])


def test_entitlements_come_from_the_queues() -> None:
    ml = Queue("kai/ml", "kai", guarantee={"gpus": 6_000})
    web = Queue("ElasticQuota/x/y", "capacity", namespaces=("web",), guarantee={"gpus/T4": 1_000, "gpus/A100": 1_000})
    assert queues_by_tenant([ml, web])["web"] == "ElasticQuota/x/y"
    assert entitlements([ml, web], ["ml", "web", "other"]) == {"ml": 6_000, "web": 2_000, "other": 1}
    assert entitlements([Queue("ml", "kai", weight={"gpus": 3})], ["ml", "b"]) == {"ml": 3, "b": 1}
    assert entitlements([], ["a", "b"]) == {"a": 1, "b": 1}


def test_a_regime_names_rows_of_the_tables() -> None:
    queues = (Queue("a", "capacity", guarantee={"gpus": 1}, reclaim_after=float("inf")),)
    assert Regime(queues=packed(queues)).tree == queues
    assert hash(Regime()) == hash(Regime(queues=b""))
    with pytest.raises(TraceError, match="order 'fifo': there is priority"):
        Regime("fifo")
    with pytest.raises(TraceError, match="preemption 'yes': there is none, priority"):
        Regime(preemption="yes")


def run(preemption: str, restart: float = 0.0) -> tuple[object, ...]:
    """One GPU. A long job of low priority holds it; an urgent job of another tenant arrives after 100 s."""
    jobs = (
        Job("long", gpus=1, gpu_milli=1000, duration=1000.0, tenant="a"),
        Job("urgent", gpus=1, gpu_milli=1000, arrival=100.0, duration=50.0, priority=10, tenant="b"),
    )
    trace = Trace("t", tuple(parse_cluster("1xA100-SXM4-80GB:1")), jobs)
    regime = Regime(preemption=preemption)
    costs = Costs(start=restart)
    timed = replay(trace, "best-fit", mode="interpreted", rights=regime.rights("backfill"), costs=costs)
    return timed.by_tenant["b"].mean, timed.stops, round(timed.hours_lost * 3600), timed.makespan


def test_an_urgent_job_takes_the_gpu_and_the_restart_is_charged() -> None:
    """Without preemption it waits 900 s. With it, the long job loses no work, but restarts for 60 s."""
    assert run("none") == (900.0, 0, 0, 1050.0)
    assert run("priority") == (0.0, 1, 0, 1050.0)
    assert run("priority", 60.0) == (0.0, 1, 60, 1110.0)


def test_a_gang_that_yields_is_stopped_as_a_whole() -> None:
    """Two GPUs, a gang on both: for one urgent GPU both pods are stopped, as the gang needs two."""
    jobs = (
        Job("gang", gpus=1, gpu_milli=1000, pods=2, duration=1000.0, tenant="a"),
        Job("urgent", gpus=1, gpu_milli=1000, arrival=100.0, duration=50.0, priority=10, tenant="b"),
    )
    trace = Trace("t", tuple(parse_cluster("2xA100-SXM4-80GB:1")), jobs)
    timed = replay(trace, "best-fit", mode="interpreted", rights=Regime(preemption="priority").rights("backfill"))
    assert (timed.stops, timed.finished, timed.makespan) == (1, 2, 1050.0)
