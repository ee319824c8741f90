"""What time mode measures, held against arithmetic by hand and against a count from the log alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim import inflation
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.demand import Demand
from dovetail.sim.generate import generate
from dovetail.sim.measures import percentile
from dovetail.sim.orders import Order
from dovetail.sim.results import Timed
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Job, Machine, Trace
from dovetail.sim.unavoidable import unavoidable
from dovetail.sim.workload import WorkloadParameters
from tests.properties import with_examples
from tests.sim.test_timeline import POLICIES, QUEUES, Cards, generated, job, node, small_traces

HOUR = 3600.0


def run(*jobs: Job, machines: tuple[Machine, ...], queue: str = "backfill", policy: str = "best-fit") -> Timed:
    return replay(Trace("t", machines, jobs), policy, queue=queue, mode="interpreted")


# ---- by hand -----------------------------------------------------------------------------------------------------


def test_the_example_of_the_docs() -> None:
    """docs/time-mode.md: two machines of two GPUs. `a` and `b` of one GPU run for 4 h and 2 h on different machines
    (spread). `c` needs two GPUs on one machine: it waits from 1 to 2 while two GPUs are idle, one on each. It asks for
    no more than is idle: 2 GPUs × 1 h. At 2 `b` leaves and `c` runs until 3. From then on nobody waits.
    """
    jobs = (job("a", 0, 4 * HOUR), job("b", 0, 2 * HOUR), job("c", HOUR, HOUR, gpus=2, tenant="x"))
    spread = run(*jobs, machines=(node("m"), node("n")), policy="spread")
    assert spread.hours_idle_while_wanted == 2.0
    assert spread.hours_capacity == 4 * 4
    assert spread.hours_allocated == 4 + 2 + 2
    assert spread.makespan == 4 * HOUR
    assert (spread.delays.mean, spread.delays.longest) == (HOUR / 3, HOUR)
    assert spread.by_tenant["x"].completion_mean == 2 * HOUR
    assert list(spread.by_size) == ["1 GPU", "2-7 GPUs"]
    assert run(*jobs, machines=(node("m"), node("n"))).hours_idle_while_wanted == 0.0


def test_who_asks_for_more_than_is_idle_wants_nothing() -> None:
    """`b` asks for two GPUs while one is idle; with backfill `c`, which asks for one, takes it."""
    jobs = (job("a", 0, HOUR), job("b", 0, HOUR, gpus=2))
    assert run(*jobs, machines=(node("m"),)).hours_idle_while_wanted == 0.0
    assert run(*jobs, job("c", 0, HOUR), machines=(node("m"),)).hours_idle_while_wanted == 0.0


def test_in_a_strict_queue_those_behind_want_what_is_idle() -> None:
    """The same with the other queue: `c` waits until `b` has run, one GPU is idle for an hour."""
    jobs = (job("a", 0, HOUR), job("b", 0, HOUR, gpus=2), job("c", 0, HOUR))
    assert run(*jobs, machines=(node("m"),), queue="strict").hours_idle_while_wanted == 1.0


def test_only_models_that_somebody_accepts_are_wanted() -> None:
    """CPU is short on the T4s: `b` waits an hour, and wants the idle T4, not the two idle A10."""
    machines = (node("t", cpu=1500), node("a", model="A10"))
    jobs = (job("a", 0, HOUR, models=("T4",)), job("b", 0, HOUR, models=("T4",)))
    assert run(*jobs, machines=machines).hours_idle_while_wanted == 1.0


def test_jobs_without_gpu_want_none() -> None:
    jobs = (job("a", 0, HOUR, 0, 0), job("b", 0, HOUR, 0, 0))
    result = run(*jobs, machines=(node("m", cpu=1500),))
    assert (result.delays.longest, result.hours_idle_while_wanted) == (HOUR, 0.0)


def test_percentiles_are_values_that_occur() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], p) for p in (1, 25, 26, 50, 95, 100)] == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert percentile([], 50) == 0.0


def test_samples_are_means_over_equal_parts_of_the_run() -> None:
    """One of two GPUs for the first hour, both for the second; from half past, one waits."""
    jobs = (job("a", 0, 2 * HOUR), job("b", HOUR, HOUR), job("c", 1.5 * HOUR, 0.0))
    result = run(*jobs, machines=(node("m"),))
    assert len(result.samples) == 500
    assert {sample.allocated_pct for sample in result.samples[:250]} == {50.0}
    assert {sample.allocated_pct for sample in result.samples[250:]} == {100.0}
    assert [sample.waiting for sample in result.samples] == [0] * 375 + [1] * 125
    assert math.fsum(s.allocated_pct for s in result.samples) / 500 == pytest.approx(
        100 * result.hours_allocated / result.hours_capacity
    )


def test_the_busiest_moment_is_shown() -> None:
    """Between 1 h and 2 h a share of 300 and two whole GPUs are given away."""
    jobs = (
        job("a", 0, 2 * HOUR, milli=300),
        job("b", HOUR, HOUR, gpus=2),
        job("c", 5 * HOUR, HOUR),
    )
    result = run(*jobs, machines=(node("m"), node("n", model="A10")))
    assert sorted(tuple(sorted(found.gpus)) for found in result.map) == [(0, 300), (1000, 1000)]
    assert {model: (use.allocated_pct, use.idle) for model, use in result.models.items()} in (
        {"A10": (100.0, 0), "T4": (15.0, 1)},
        {"A10": (15.0, 1), "T4": (100.0, 0)},
    )


def test_what_is_free_at_the_busiest_moment_has_no_pod_at_all() -> None:
    """`a` has one of two GPUs of `m`; `b`, which asks for no GPU, needs the CPU of `n`: its two GPUs are free, the node
    is not. `o` is."""
    machines = (node("m", cpu=1000), node("n", cpu=4000), node("o", cpu=1000))
    jobs = (job("a", 0, HOUR), Job("b", 4000, 1024, arrival=0.0, duration=HOUR))
    result = run(*jobs, machines=machines)
    assert (result.nodes_free, result.gpus_free) == (1, 1 + 2 + 2)


def test_fragments_at_the_busiest_moment_are_what_typical_pods_cannot_use() -> None:
    """Typical are two pods of 600 milli and one of 400. At 0 the former leave 400 on each GPU of one machine, the other
    is empty. Two of three cannot use 400 + 400: 800 · 2/3 = 533.3 of 4,000 milli, of which 2,800 are idle."""
    jobs = (job("a", 0, HOUR, milli=600), job("b", 0, HOUR, milli=600), job("c", 5 * HOUR, HOUR, milli=400))
    result = run(*jobs, machines=(node("m"), node("n")))
    assert sorted(found.gpus for found in result.map) == [[0, 0], [600, 600]]
    assert result.frag_pct == round(100 * 800 * 2 / 3 / 4000, 4) == 13.3333
    assert result.frag_ratio_pct == round(100 * 800 * 2 / 3 / 2800, 4) == 19.0476


def test_a_gpu_beside_a_full_cpu_is_a_fragment() -> None:
    """`a` took the only core, so nobody can use the second GPU; with one more it is of use to another `a`."""
    full, roomy = (run(job("a", 0, HOUR), machines=(node("m", cpu=cores),)) for cores in (1000, 2000))
    assert (full.frag_pct, full.frag_ratio_pct) == (50.0, 100.0)
    assert (roomy.frag_pct, roomy.frag_ratio_pct) == (0.0, 0.0)


def test_fragments_are_those_of_inflation() -> None:
    """All come at once: the same cluster as after the last arrival of an inflation in their order."""
    jobs = tuple(job(f"j{n}", 0, HOUR, milli=milli) for n, milli in enumerate((300, 700, 450, 1000, 450, 600)))
    trace = Trace("t", (node("m"), node("n")), jobs)
    order = Order(0, np.arange(len(jobs)), np.arange(2))
    columns = inflation.replay(trace, order, "best-fit", mode="interpreted").columns
    timed = replay(trace, "best-fit", mode="interpreted")
    last = columns[max(columns, key=int)]  # 3,500 of 4,000 milli came, the last with 600: alone in its column
    assert timed.frag_pct > 0
    assert (timed.frag_pct, timed.frag_ratio_pct) == (last.frag_pct, last.frag_ratio_pct)


def test_a_cluster_without_gpus_has_no_fragments() -> None:
    result = run(job("a", 0, HOUR, 0, 0), machines=(node("m", 0),))
    assert (result.nodes_free, result.gpus_free, result.frag_pct, result.frag_ratio_pct) == (0, 0, 0.0, 0.0)


def test_gpu_hours_go_to_tenants_and_sizes() -> None:
    """`x`: a gang of two pods with half a GPU each for 2 h, and a GPU for 1 h: 2 × 0.5 × 2 + 1. `y`: 2 GPUs for 4 h.
    What never ran, or has no GPU, adds nothing. The run: 5 GPUs for 4 h."""
    jobs = (
        job("gang", 0, 2 * HOUR, milli=500, pods=2, tenant="x"),
        job("one", 0, HOUR, tenant="x"),
        job("two", 0, 4 * HOUR, gpus=2, tenant="y"),
        job("huge", 0, HOUR, gpus=8, tenant="y"),
        job("none", 0, HOUR, 0, 0, tenant="z"),
    )
    result = run(*jobs, machines=(node("m", 5),))
    assert {name: usage.gpu_hours for name, usage in result.by_tenant.items()} == {"x": 3.0, "y": 8.0, "z": 0.0}
    assert {name: usage.gpu_hours_pct for name, usage in result.by_tenant.items()} == {"x": 15.0, "y": 40.0, "z": 0.0}
    assert {size: usage.gpu_hours for size, usage in result.by_size.items()} == {
        "cpu only": 0.0,
        "1 GPU": 1.0,
        "2-7 GPUs": 2.0 + 8.0,  # the gang has two half GPUs
        "8+ GPUs": 0.0,
    }
    assert result.hours_allocated == 3 + 8


# ---- the bound ---------------------------------------------------------------------------------------------------


def test_what_the_cpu_makes_idle_cannot_be_avoided() -> None:
    """4 GPUs, CPU for two jobs of one GPU. Three come at once for an hour: two run, one waits, two GPUs are idle and
    one would be enough. That hour nobody avoids: 2 GPU-hours, and no scheduler here does worse."""
    machines = (node("m", 4, cpu=2000),)
    jobs = [job(f"j{n}", 0, HOUR) for n in range(3)]
    assert unavoidable(machines, jobs) == 2 * 1000 * HOUR
    result = run(*jobs, machines=machines)
    assert result.hours_idle_while_wanted_bound == result.hours_idle_while_wanted == 2.0


def test_what_the_sizes_make_idle_cannot_be_avoided() -> None:
    """Shares of 600: one on each of two GPUs, 400 are left on both. The third, which asks for 600, waits an hour."""
    result = run(*(job(f"j{n}", 0, HOUR, milli=600) for n in range(3)), machines=(node("m"),))
    assert result.hours_idle_while_wanted_bound == result.hours_idle_while_wanted == pytest.approx(0.8)


def test_pods_of_three_leave_a_quarter_of_eight() -> None:
    """Two pods of 3 GPUs on a machine with 8, on four machines: 8 GPUs are idle while the ninth pod waits."""
    machines = tuple(node(f"m{n}", 8, cpu=96_000) for n in range(4))
    result = run(*(job(f"j{n}", 0, HOUR, gpus=3) for n in range(9)), machines=machines)
    assert result.hours_idle_while_wanted_bound == result.hours_idle_while_wanted == 8.0


def test_what_a_better_order_would_have_avoided_is_not_in_the_bound() -> None:
    """A pod of one GPU comes too: it may run beside the others, so less is sure to be idle."""
    machines = (node("m", 8, cpu=96_000),)
    jobs = [*(job(f"j{n}", 0, HOUR, gpus=3) for n in range(3)), job("one", 0, HOUR), job("two", 0, HOUR)]
    assert unavoidable(machines, jobs) == 0.0


def test_who_asks_for_more_than_is_surely_idle_forces_nothing() -> None:
    """Two of three pods of 3 GPUs run on 8: 2 are idle, fewer than the third asks for."""
    jobs = [job(f"j{n}", 0, HOUR, gpus=3) for n in range(3)]
    assert unavoidable((node("m", 8, cpu=96_000),), jobs) == 0.0


@with_examples(40)
@given(
    st.integers(0, 10**6), st.sampled_from((4_000, 12_000, 30_000)), st.sampled_from(POLICIES), st.sampled_from(QUEUES)
)
def test_no_policy_does_better_than_the_bound(seed: int, cpu: int, policy: str, queue: str) -> None:
    """Machines short of CPU, where the bound has something to say."""
    machines = tuple(replace(m, cpu_milli=cpu) for m in parse_cluster("2xT4:4,1xA10:2"))
    made = generate(
        WorkloadParameters(jobs=40, seed=seed, load=20.0, multi_gpu=0.1, constrained=0.2, share=0.3), machines
    )
    result = replay(made, policy, queue=queue, mode="interpreted")
    assert result.hours_idle_while_wanted_bound <= result.hours_idle_while_wanted + 1e-9


def test_the_bound_has_something_to_say() -> None:
    machines = tuple(replace(m, cpu_milli=8_000) for m in parse_cluster("4xT4:4"))
    made = generate(WorkloadParameters(jobs=200, seed=1, load=20.0, gangs=0.0), machines)
    assert replay(made, "best-fit", mode="interpreted").hours_idle_while_wanted_bound > 1.0


# ---- against a count from the log --------------------------------------------------------------------------------


def from_log(trace: Trace, log: list[LogEntry]) -> float:
    """Idle-while-wanted by its definition, moment by moment, from who ran where and who had come."""
    demand = Demand(trace.machines)
    start = {entry.job: entry.at for entry in log if entry.what == "start"}
    end = {entry.job: entry.at for entry in log if entry.what == "end"}
    moments = sorted({entry.at for entry in log} | {one.arrival for one in trace.jobs})
    total = 0.0
    for at, then in pairwise(moments):
        cards = Cards(trace)
        for entry in log:
            if entry.what == "start" and entry.at <= at < end[entry.job]:
                cards.note(entry)
        idle: Counter[str] = Counter()
        for machine in trace.machines:
            idle[machine.model] += sum(1000 - cards.used(machine.name, gpu) for gpu in range(machine.gpus))
        wanted = set()
        for one in trace.jobs:
            if one.name in start and one.arrival <= at < start[one.name] and demand.of(one):
                accepted = [model for model in idle if not one.models or model in one.models]
                if demand.of(one) <= sum(idle[model] for model in accepted):
                    wanted |= set(accepted)
        total += (then - at) * sum(idle[model] for model in wanted)
    return total / 3_600_000


@with_examples(60)
@given(st.one_of(small_traces(), generated), st.sampled_from(POLICIES), st.sampled_from(QUEUES))
def test_idle_while_wanted_is_what_its_definition_says(trace: Trace, policy: str, queue: str) -> None:
    log: list[LogEntry] = []
    result = replay(trace, policy, queue=queue, mode="interpreted", log=log)
    assert result.hours_idle_while_wanted == pytest.approx(from_log(trace, log), rel=1e-9, abs=1e-12)
    assert result.hours_idle_while_wanted <= result.hours_capacity - result.hours_allocated + 1e-9


@with_examples(30)
@given(small_traces(), st.sampled_from(POLICIES), st.sampled_from(QUEUES))
def test_every_gpu_hour_was_somebodys(trace: Trace, policy: str, queue: str) -> None:
    """Where nobody asks for GPU memory, so that parts of a card add up."""
    result = replay(trace, policy, queue=queue, mode="interpreted")
    for users in (result.by_tenant, result.by_size):
        given_hours = math.fsum(usage.gpu_hours for usage in users.values())
        assert given_hours == pytest.approx(result.hours_allocated, rel=1e-9, abs=1e-12)
