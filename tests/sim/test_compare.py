"""Comparisons: results are remembered by content, and by nothing less; plans refuse what cannot be run."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dovetail.sim.compare import TraceCase, plan
from dovetail.sim.orders import Order, Orders, draw_order
from dovetail.sim.results import Inflation
from dovetail.sim.results_cache import ResultsCache
from dovetail.sim.runs import Recipe, RunTask, Setting, digest_of, key_of, run, settled, trace_of
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from dovetail.sim.variants import compressed
from dovetail.sim.workload import WorkloadParameters
from tests.sim.small_runs import PLAIN, RECIPE, found, small_plan, timeless

TRACE = trace_of(RECIPE)


def test_every_policy_meets_every_seed() -> None:
    findings = found(small_plan(), None)
    assert [(r.policy, r.seed) for r in findings.results] == [("best-fit", 1), ("fgd", 1), ("best-fit", 2), ("fgd", 2)]
    assert {r.trace for r in findings.results} == {"generated"}  # one workload, of which the seeds are samples
    assert findings.missing == []


def test_what_was_run_once_is_read(tmp_path: Path) -> None:
    cache = ResultsCache(tmp_path)
    first, second = found(small_plan(), cache), found(small_plan(), cache)
    assert (first.remembered, second.remembered) == (0, 4)
    assert msgspec.json.encode(first.results) == msgspec.json.encode(second.results)  # measured seconds included
    third = found(small_plan(seeds=(1, 2, 3)), cache)
    assert third.remembered == 4  # of 6


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[:-9], lambda b: b"\0" * 50, lambda b: zlib.compress(b"x")]
)
def test_a_broken_file_is_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = ResultsCache(tmp_path)
    found(small_plan(), cache)
    files = sorted(cache.folder.glob("*/*.bin"))
    assert len(files) == 4
    whole = files[0].read_bytes()
    files[0].write_bytes(damage(whole))
    assert found(small_plan(), cache).remembered == 3
    assert found(small_plan(), cache).remembered == 4


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(found(small_plan(), ResultsCache(tmp_path / "file")).results) == 4


@pytest.mark.slow
def test_processes_find_what_one_finds() -> None:
    alone, together = found(small_plan(), None), found(small_plan(), None, workers=2)
    assert [timeless(r) for r in alone.results] == [timeless(r) for r in together.results]


ORDER = draw_order(TRACE, 5)
SWAPPED = Order(5, np.flip(ORDER.arrivals), ORDER.nodes)
OTHER_NODES = Order(5, ORDER.arrivals, np.flip(ORDER.nodes))
BASE = RunTask(digest_of(TRACE), TRACE.name, "fgd", 5, PLAIN, ORDER)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": digest_of(RECIPE)},
        {"trace": "other"},
        {"policy": "best-fit"},
        {"seed": 6},
        {"order": None},
        {"order": SWAPPED},
        {"order": OTHER_NODES},
        {"setting": replace(PLAIN, told=False)},
        {"setting": replace(PLAIN, ratio=1.2)},
        {"setting": replace(PLAIN, engine="compiled")},
        {"setting": replace(PLAIN, mode="time")},
        {"setting": replace(PLAIN, queue="strict")},
    ],
    ids=str,
)
def test_the_key_changes_with_any_input(change: dict[str, Any]) -> None:
    assert key_of(replace(BASE, **change)) != key_of(BASE)
    assert key_of(replace(BASE)) == key_of(BASE)


def test_the_digest_changes_with_every_field_of_a_trace() -> None:
    seen = {digest_of(TRACE)}
    first, machine = TRACE.jobs[0], TRACE.machines[0]
    jobs: dict[str, Any] = {
        "name": "x", "cpu_milli": 1, "memory_mib": 1, "gpus": 7, "gpu_milli": 1, "gpu_memory_mib": 3, "models": ("T9",),
        "arrival": 0.25, "duration": None, "priority": 7, "pods": 9, "tenant": "x",
        "gang": "x", "required": "rack", "preferred": "rack", "least_racks": 7, "most_per_node": 7,
    }  # fmt: skip
    assert set(jobs) == set(Job.__slots__)
    machines: dict[str, Any] = {
        "name": "x", "cpu_milli": 1, "memory_mib": 1, "gpus": 7, "model": "x", "gpu_memory_mib": 3,
        "block": "x", "rack": "x",
    }  # fmt: skip
    assert set(machines) == set(Machine.__slots__)
    for name, value in jobs.items():
        seen.add(digest_of(replace(TRACE, jobs=(replace(first, **{name: value}), *TRACE.jobs[1:]))))
    for name, value in machines.items():
        seen.add(digest_of(replace(TRACE, machines=(replace(machine, **{name: value}), *TRACE.machines[1:]))))
    seen.add(digest_of(replace(TRACE, name="x")))
    seen |= {
        digest_of(replace(RECIPE, workload=WorkloadParameters(jobs=60, seed=1))),
        digest_of(replace(RECIPE, compress=2.0)),
    }
    assert len(seen) == 1 + len(jobs) + len(machines) + 3


def test_two_traces_of_one_name_are_refused() -> None:
    with pytest.raises(TraceError, match="two traces are called 'generated'"):
        plan([TraceCase(TRACE), TraceCase(RECIPE)], ["fgd"], [1], PLAIN)


def test_an_order_without_the_seed_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_5=ORDER.arrivals, nodes_5=ORDER.nodes)
    with pytest.raises(TraceError, match="has no order for seed 6; there are 5"):
        plan([TraceCase(TRACE, Orders.open(path))], ["fgd"], [5, 6], PLAIN)


def test_small_work_is_interpreted() -> None:
    assert settled(Setting(), RECIPE).engine == settled(Setting(), TRACE).engine == "interpreted"  # 60 jobs × 3 nodes
    assert settled(Setting(), Recipe(WorkloadParameters())).engine == "compiled"  # 5,000 × 64


def test_compressed_time_moves_arrivals_only() -> None:
    faster = compressed(TRACE, 4.0)
    assert [job.arrival * 4 for job in faster.jobs] == pytest.approx([job.arrival for job in TRACE.jobs])
    assert [job.duration for job in faster.jobs] == [job.duration for job in TRACE.jobs]


def test_the_pods_of_a_gang_are_all_placed_or_none_is() -> None:
    """Three GPUs are wanted and two are there: nobody is placed. Then two more come, who fit."""
    machines = (Machine("a", 8000, 8192, 2, "T4", 15360),)
    jobs = (Job("train", 100, 100, 1, 1000, pods=3), Job("tune", 100, 100, 1, 1000, pods=2))
    order = Order(0, np.array([0, 1]), np.array([0]))
    result = run(RunTask("", "gang", "best-fit", 0, PLAIN, order), Trace("gang", machines, jobs))
    assert isinstance(result, Inflation)
    assert (result.decisions, result.failed) == (5, 3)
    assert result.arrived_pct == 250
    assert [result.columns[at].allocated_pct for at in ("50", "150", "200", "250")] == [0, 0, 50, 100]
