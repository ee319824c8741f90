"""Time mode: jobs arrive, wait, run and leave; in the end nothing is left behind and every hour is accounted for."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.generate import generate
from dovetail.sim.gpu_models import UNKNOWN_MEMORY_MIB
from dovetail.sim.load import load_trace
from dovetail.sim.results import Timed
from dovetail.sim.stage import stage
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from dovetail.sim.variants import compressed, on_cluster, tie_order
from dovetail.sim.workload import WorkloadParameters
from tests.properties import with_examples

POLICIES = ("best-fit", "fgd", "binpack", "spread", "first-fit", "random")
QUEUES = ("backfill", "strict")


def node(name: str, gpus: int = 2, model: str = "T4", cpu: int = 16_000) -> Machine:
    return Machine(name, cpu, 65_536, gpus, model, 15_360)


def job(name: str, arrival: float, duration: float | None, gpus: int = 1, milli: int = 1000, **more: object) -> Job:
    return Job(name, 1000, 1024, gpus, milli, arrival=arrival, duration=duration, **more)  # type: ignore[arg-type]


def played(*jobs: Job, machines: tuple[Machine, ...] = (node("a"),), queue: str = "backfill") -> dict[str, list[float]]:
    """When each job started and ended."""
    log: list[LogEntry] = []
    replay(Trace("t", machines, jobs), "best-fit", queue=queue, mode="interpreted", log=log)
    times: dict[str, list[float]] = {}
    for entry in log:
        if entry.pod in (entry.job, f"{entry.job}.0"):
            times.setdefault(entry.job, []).append(entry.at)
    return times


# ---- by hand: one machine with two GPUs --------------------------------------------------------------------------

LONG, BOTH, SMALL = job("long", 0, 100), job("both", 10, 50, gpus=2), job("small", 20, 30)


def test_with_backfill_a_small_job_overtakes_a_large_one() -> None:
    """`both` waits for `long`; the second GPU is free until then, and `small` runs on it from 20 to 50."""
    assert played(LONG, BOTH, SMALL) == {"long": [0, 100], "small": [20, 50], "both": [100, 150]}


def test_in_a_strict_queue_it_waits_its_turn() -> None:
    """`small` comes after `both`, which runs from 100 to 150."""
    assert played(LONG, BOTH, SMALL, queue="strict") == {"long": [0, 100], "both": [100, 150], "small": [150, 180]}


def test_priority_comes_first_and_a_gang_runs_together_or_not_at_all() -> None:
    """At 100 one GPU is given back: too few for the gang of two. At 120 the other one, and the gang begins."""
    gang, other = job("gang", 30, 10, pods=2, priority=1), job("other", 0, 120)
    assert played(LONG, other, gang, job("late", 40, 5)) == {
        "long": [0, 100],
        "late": [100, 105],
        "other": [0, 120],
        "gang": [120, 130],
    }


def test_who_leaves_makes_room_for_who_arrives_at_that_moment() -> None:
    assert played(job("a", 0, 10, gpus=2), job("b", 10, 10, gpus=2)) == {"a": [0, 10], "b": [10, 20]}


def test_jobs_of_one_moment_come_in_the_queues_order_whatever_the_file_says() -> None:
    """Priority, then the name: `b-9` before `b-10`."""
    jobs = (job("b-10", 0, 5, gpus=2), job("b-9", 0, 5, gpus=2), job("urgent", 0, 5, gpus=2, priority=5))
    assert played(*jobs) == {"urgent": [0, 5], "b-9": [5, 10], "b-10": [10, 15]} == played(*reversed(jobs))


def test_jobs_without_an_end_leave_when_nothing_else_happens() -> None:
    """`stays` holds both GPUs until `cpu` ends at 80, the last thing to happen; then `next` runs, and `stays-too`."""
    jobs = (
        job("stays", 0, None, gpus=2),
        job("next", 10, 7, gpus=2),
        job("stays-too", 20, None, gpus=2),
        job("cpu", 30, 50, 0),
    )
    assert played(*jobs) == {"stays": [0, 80], "cpu": [30, 80], "next": [80, 87], "stays-too": [87, 87]}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_job_that_can_never_run_is_refused_when_it_arrives(queue: str) -> None:
    """Three GPUs in one machine, or a model nobody has: in a strict queue they would hold up all others for ever."""
    log: list[LogEntry] = []
    jobs = (job("three", 0, 10, gpus=3), job("model", 1, 10, models=("H100",)), job("fine", 2, 10))
    result = replay(Trace("t", (node("a"),), jobs), "best-fit", queue=queue, mode="interpreted", log=log)
    assert (result.finished, result.never_placed) == (1, 2)
    assert [(entry.job, entry.what) for entry in log] == [
        ("three", "refused"),
        ("model", "refused"),
        ("fine", "start"),
        ("fine", "end"),
    ]


def test_no_jobs_and_no_gpus_are_no_trouble() -> None:
    empty = replay(Trace("t", (node("a"),), ()), "best-fit", mode="interpreted")
    assert (empty.jobs, empty.makespan, empty.samples, empty.hours_capacity) == (0, 0.0, [], 0.0)
    without = replay(Trace("t", (node("a", 0),), (job("cpu", 5, 10, 0),)), "fgd", mode="interpreted")
    assert (without.finished, without.makespan, without.hours_capacity) == (1, 10.0, 0.0)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TraceError, match="there is backfill and strict"):
        replay(Trace("t", (node("a"),), ()), "best-fit", queue="fifo")
    twice = (job("a", 0, 1, pods=2), job("a.1", 0, 1))
    with pytest.raises(TraceError, match="not distinct"):
        replay(Trace("t", (node("a"),), twice), "best-fit", mode="interpreted")
    with pytest.raises(TraceError, match="above 0"):
        compressed(Trace("t", (), ()), 0)


def test_progress_counts_jobs_that_ended() -> None:
    seen: list[int] = []
    jobs = tuple(job(f"j{n}", n, 1) for n in range(600))
    replay(Trace("t", (node("a"),), jobs), "first-fit", mode="interpreted", progress=seen.append)
    assert seen == [256, 512, 600]


def test_variants_of_a_trace() -> None:
    trace = Trace("t", (node("a"), node("b"), node("c")), (job("x", 30, 10), job("y", 60, 10)))
    assert [one.arrival for one in compressed(trace, 3).jobs] == [10, 20]
    assert [one.duration for one in compressed(trace, 3).jobs] == [10, 10]
    assert on_cluster(trace, [node("d")]).machines == (node("d"),)
    assert tie_order(trace.machines, 0) == list(trace.machines)
    assert {tuple(m.name for m in tie_order(trace.machines, seed)) for seed in range(1, 30)} > {("b", "a", "c")}


def test_the_seed_draws_which_of_equal_nodes_is_taken() -> None:
    def taken(seed: int) -> str:
        log: list[LogEntry] = []
        trace = Trace("t", tuple(node(f"n{n}") for n in range(8)), (job("x", 0, 1),))
        replay(trace, "best-fit", seed, mode="interpreted", log=log)
        return log[0].node

    assert taken(0) == "n0"
    assert len({taken(seed) for seed in range(1, 9)}) > 2


# ---- whatever is replayed ----------------------------------------------------------------------------------------


@st.composite
def small_traces(draw: st.DrawFn) -> Trace:
    """A few machines and jobs that collide: ties in time, gangs, priorities, models, stays without end, misfits."""
    machines = tuple(
        node(f"n{n}", draw(st.sampled_from((0, 1, 2, 4))), draw(st.sampled_from(("T4", "A10"))), 8000)
        for n in range(draw(st.integers(1, 4)))
    )
    jobs = [
        Job(
            f"j{n}",
            draw(st.sampled_from((500, 2000, 5000))),
            1024,
            gpus := draw(st.sampled_from((0, 1, 1, 1, 2, 4))),
            0 if not gpus else draw(st.sampled_from((300, 500, 1000, 1000))) if gpus == 1 else 1000,
            models=draw(st.sampled_from(((), (), (), ("T4",), ("A10",)))),
            arrival=float(draw(st.integers(0, 20))),
            duration=draw(st.sampled_from((0.0, 1.0, 5.0, 7.5, 20.0, None))),
            priority=draw(st.sampled_from((0, 0, 1))),
            pods=draw(st.sampled_from((1, 1, 1, 2, 3))),
            tenant=draw(st.sampled_from("ab")),
        )
        for n in range(draw(st.integers(1, 14)))
    ]
    return Trace("small", machines, tuple(sorted(jobs, key=lambda one: one.arrival)))


generated = st.builds(
    lambda seed, load, gangs, multi: generate(
        WorkloadParameters(
            jobs=60, seed=seed, load=load, gangs=gangs, multi_gpu=multi, constrained=0.3, urgent=0.2, impossible=0.03
        ),
        parse_cluster("2xV100M32:4,2xT4:2,1xCPU"),
    ),
    st.integers(0, 1000),
    st.sampled_from((0.5, 2.0, 8.0)),
    st.sampled_from((0.0, 0.3)),
    st.sampled_from((0.0, 0.2)),
)


class Cards:
    """What the log says is held of each card: compute in milli and memory in MiB, each summed for itself."""

    def __init__(self, trace: Trace) -> None:
        self.memory = {machine.name: machine.gpu_memory_mib or UNKNOWN_MEMORY_MIB for machine in trace.machines}
        self.held: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def note(self, entry: LogEntry) -> None:
        sign = {"start": 1, "end": -1, "refused": 0}[entry.what]
        for gpu in entry.gpus:
            held = self.held[entry.node, gpu]
            held[0] += sign * entry.milli
            held[1] += sign * entry.memory_mib
            assert 0 <= held[0] <= 1000  # no GPU is given away more than once
            assert 0 <= held[1] <= self.memory[entry.node]

    def used(self, node: str, gpu: int) -> int:
        compute, memory = self.held[node, gpu]
        return max(compute, math.ceil(1000 * memory / self.memory[node]))


def hours(log: list[LogEntry], trace: Trace) -> float:
    """GPU-hours given, from the log alone."""
    cards, parts, there = Cards(trace), list[float](), Counter[str]()
    for entry, following in zip(log, [*log[1:], None], strict=True):
        cards.note(entry)
        there[entry.pod] += {"start": 1, "end": -1, "refused": 0}[entry.what]
        if following is not None and following.at > entry.at:
            parts.append((following.at - entry.at) * sum(cards.used(*card) for card in cards.held))
    assert not +there, "somebody never left"
    return math.fsum(parts) / 3_600_000


def check(trace: Trace, policy: str, queue: str, seed: int = 0, told: bool = True, mode: str = "interpreted") -> Timed:
    """The run ends with an empty ledger, every pod accounted for, and the log adds up to the measure."""
    made: list[Scheduler] = []
    log: list[LogEntry] = []

    def remember(*args: object, **more: object) -> Scheduler:
        made.append(stage(*args, **more))  # type: ignore[arg-type]
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.sim.timeline.stage", remember)
        result = replay(trace, policy, seed, queue, told, mode, log=log)
    for scheduler in made:
        audit.validate(scheduler.ledger)
        assert not scheduler.ledger.pods
        assert not len(scheduler.waiting)
        assert not scheduler.ledger.rows.used.any()
        assert not scheduler.ledger.rows.held.any()
    assert result.finished + result.never_placed == result.jobs == len(trace.jobs)
    seen = Counter((entry.job, entry.what) for entry in log)
    for one in trace.jobs:
        counts = [seen[one.name, what] for what in ("start", "end", "refused")]
        assert counts in ([one.pods, one.pods, 0], [0, 0, 1])
    assert result.hours_allocated == pytest.approx(hours(log, trace), rel=1e-9, abs=1e-9)
    _never_before_arrival_never_shortened(trace, log)
    return result


def _never_before_arrival_never_shortened(trace: Trace, log: list[LogEntry]) -> None:
    start = {entry.job: entry.at for entry in log if entry.what == "start"}
    end = {entry.job: entry.at for entry in log if entry.what == "end"}
    for one in trace.jobs:
        if one.name in start:
            assert start[one.name] >= one.arrival
            assert one.duration is None or end[one.name] == start[one.name] + one.duration


@with_examples(150)
@given(small_traces(), st.sampled_from(POLICIES), st.sampled_from(QUEUES), st.integers(0, 2), st.booleans())
def test_small_traces_end_as_they_began(trace: Trace, policy: str, queue: str, seed: int, told: bool) -> None:
    result = check(trace, policy, queue, seed, told)
    assert result.hours_idle_while_wanted_bound <= result.hours_idle_while_wanted + 1e-9


@with_examples(40)
@given(generated, st.sampled_from(POLICIES), st.sampled_from(QUEUES))
def test_generated_traces_end_as_they_began(trace: Trace, policy: str, queue: str) -> None:
    result = check(trace, policy, queue)
    assert result.hours_idle_while_wanted_bound <= result.hours_idle_while_wanted + 1e-9


@with_examples(50)
@given(small_traces(), st.sampled_from(("best-fit", "fgd")))
def test_in_a_strict_queue_jobs_start_in_their_order(trace: Trace, policy: str) -> None:
    """Of two jobs the one that comes first in the order starts first, unless it had not arrived yet."""
    log: list[LogEntry] = []
    replay(trace, policy, queue="strict", mode="interpreted", log=log)
    by_name = {one.name: one for one in trace.jobs}
    started = [(entry.at, by_name[entry.job]) for entry in log if entry.what == "start"]
    for n, (at, one) in enumerate(started):
        for _, later in started[n + 1 :]:
            assert later.arrival >= at or (-one.priority, one.arrival) <= (-later.priority, later.arrival)


@with_examples(20)
@given(small_traces(), st.sampled_from(QUEUES))
def test_the_same_run_twice_is_the_same(trace: Trace, queue: str) -> None:
    def told_twice() -> Timed:
        return replace_speed(replay(trace, "fgd", 1, queue, mode="interpreted"))

    assert told_twice() == told_twice()


def replace_speed(result: Timed) -> Timed:
    return msgspec.structs.replace(result, seconds=0.0, decisions_per_second=0.0)


# ---- openb -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def default(openb: Path) -> Trace:
    return load_trace(openb / "openb_node_list_gpu_node.csv", openb / "openb_pod_list_default.csv")[0]


def eight(trace: Trace) -> Trace:
    """On 8 of the machines with 8 G2 and 96 cores: 64 GPUs."""
    machines = [machine for machine in trace.machines if machine.model == "G2" and machine.cpu_milli == 96_000][:8]
    return on_cluster(replace(trace, jobs=tuple(replace(one, models=()) for one in trace.jobs)), machines)


@pytest.mark.slow
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("policy", ["best-fit", "fgd"])
def test_openb_on_eight_nodes_queues_and_leaves_nothing(default: Trace, policy: str, queue: str) -> None:
    """Five of the jobs ask for more than 96 cores or 384 GiB."""
    result = check(eight(default), policy, queue, mode="compiled")
    assert (result.finished, result.never_placed) == (8147, 5)
    assert result.delays.longest > 10 * 3600


@pytest.mark.slow
@pytest.mark.parametrize("queue", QUEUES)
def test_openb_all_at_once_on_its_own_cluster(default: Trace, queue: str) -> None:
    """All jobs together ask for 98 % of the 6,212 GPUs, so that only within seconds a queue forms."""
    result = check(compressed(default, 1e6), "best-fit", queue, mode="compiled")
    assert result.finished == 8152
    assert result.delays.longest > 0


def test_who_leaves_at_one_moment_leaves_together() -> None:
    """Two GPUs are free at 10: the urgent job, which wants both, comes before the one that wants the first of them."""
    jobs = (
        Job("pair", 100, 100, 1, 1000, arrival=0.0, duration=10.0, pods=2),
        Job("urgent", 100, 100, 2, 1000, arrival=1.0, duration=5.0, priority=100),
        Job("small", 100, 100, 1, 1000, arrival=2.0, duration=1000.0),
    )
    log: list[LogEntry] = []
    check(Trace("t", (node("n", 2),), jobs), "best-fit", "backfill")
    replay(Trace("t", (node("n", 2),), jobs), "best-fit", mode="interpreted", log=log)
    assert [(entry.at, entry.job) for entry in log if entry.what == "start"][2:] == [(10.0, "urgent"), (15.0, "small")]
