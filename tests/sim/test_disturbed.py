"""Time mode performs stops, moves, resizes and rounds; work is neither lost nor made but by what the costs say."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.scheduler import Rights
from dovetail.model.events import Effect, Event, Evict, GroupArrived, Resize
from dovetail.model.pod import Group
from dovetail.policies.orders import JobFacts
from dovetail.policies.rounds import JobStanding, Round
from dovetail.policies.yielding import Candidate, Yielding
from dovetail.sim.lives import Costs
from dovetail.sim.run_log import LogEntry
from dovetail.sim.speed import NO_MODEL, SHARING
from dovetail.sim.timeline import CannotPerform
from dovetail.sim.trace import Job, Trace
from tests.properties import with_examples
from tests.sim.test_timeline import QUEUES, Cards, job, node, small_traces
from tests.sim.toy_engine import Disturb, Played, RandomDisturbance, ToyEngine, play

GPU_SECOND = 1 / 3600  # in GPU-hours


def lower_priority(held: Candidate, group: Group, facts: JobFacts) -> tuple[int, str] | None:
    return (held.pod.priority, held.pod.uid) if held.pod.priority < facts.priority else None


def least_served(jobs: Sequence[JobStanding], gpus: float) -> list[str]:
    chosen = []
    for standing in sorted(jobs, key=lambda one: (one.facts.service, one.facts.arrival, one.job)):
        if standing.asks <= gpus:
            gpus -= standing.asks
            chosen.append(standing.job)
    return chosen


PRIORITY = Rights(yielding=Yielding("priority", "Lower priorities yield.", lower_priority))
TURNS = Rights(rounds=Round("turns", "Least GPU time first.", least_served))


def at(moment: float, what: Disturb) -> Disturb:
    """Disturb once, when a job arrives at this moment: traces have a job without GPUs for that."""

    todo = [what]

    def disturb(engine: ToyEngine, event: Event) -> Sequence[Effect]:
        return todo.pop()(engine, event) if todo and isinstance(event, GroupArrived) and event.at == moment else ()

    return disturb


def tick(moment: float) -> Job:
    return job(f"tick-{moment:g}", moment, 0, 0)


# ---- by hand -----------------------------------------------------------------------------------------------------


def test_a_stopped_job_keeps_its_work_and_its_place_in_the_queue() -> None:
    """`long` has both GPUs from 0 to 10 and loses 3 s of work: 7 s are done. It comes before `late`, as it is older;
    from 30 on it starts for 5 s, works for 93 s and ends at 128. Lost: 2 GPUs × (3 s + 5 s)."""
    jobs = (
        job("long", 0, 100, gpus=2),
        job("urgent", 10, 20, gpus=2, priority=5),
        job("late", 15, 10, gpus=2),
    )
    played = play(Trace("t", (node("a"),), jobs), rights=PRIORITY, costs=Costs(stop=3, start=5, move=99))
    assert played.times("long") == [("start", 0), ("stop", 10), ("resume", 30), ("end", 128)]
    assert played.ends() == {"long": 128, "urgent": 30, "late": 138}
    result = played.result
    assert (result.stops, result.moves) == (1, 0)
    assert result.hours_lost == pytest.approx(16 * GPU_SECOND)
    assert result.hours_allocated == pytest.approx(2 * 138 * GPU_SECOND)  # a GPU that starts a job is in use
    assert result.by_tenant[""].gpu_hours == pytest.approx(2 * 138 * GPU_SECOND)
    assert result.delays.longest == 113  # `late`, from 15 to 128; `long` started when it arrived


@pytest.mark.parametrize("yields", ["gang.0", "gang.1"])
def test_a_gang_stops_whole(yields: str) -> None:
    """One of its pods is told to stop at 10. Both leave, and both start again at once, with 90 s of work left."""
    jobs = (job("gang", 0, 100, pods=2), tick(10))
    played = play(Trace("t", (node("a"),), jobs), at(10, lambda engine, _: [engine.evict(yields)]))
    assert Counter(entry.what for entry in played.log if entry.job == "gang") == dict.fromkeys(
        ("start", "stop", "resume", "end"), 2
    )
    assert played.ends()["gang"] == 100
    assert (played.result.stops, played.result.hours_lost) == (1, 0)


def test_a_job_is_stopped_while_it_starts() -> None:
    """Stopped at 10, it would work from 60 on. Stopped again at 30, it has done 10 s: work from 80 to 170."""
    both = [at(10, lambda engine, _: [engine.evict("a")]), at(30, lambda engine, _: [engine.evict("a")])]
    jobs = (job("a", 0, 100), tick(10), tick(30))
    played = play(
        Trace("t", (node("n", 1),), jobs),
        lambda engine, event: [effect for one in both for effect in one(engine, event)],
        costs=Costs(start=50),
    )
    assert played.ends()["a"] == 170
    assert played.result.hours_lost == pytest.approx((20 + 50) * GPU_SECOND)


def test_a_moved_job_pays_for_the_move() -> None:
    """At 40 it moves to the empty machine, for which it does not work for 6 s."""
    jobs = (job("a", 0, 100), job("b", 0, 200), tick(40))
    machines = (node("one"), node("two"))
    played = play(Trace("t", machines, jobs), at(40, lambda engine, _: [engine.move("a")]), costs=Costs(move=6))
    assert played.times("a") == [("start", 0), ("move", 40), ("end", 106)]
    assert [entry.node for entry in played.log if entry.job == "a"] == ["one", "two", "two"]
    assert played.result.moves == 1
    assert played.result.hours_lost == pytest.approx(6 * GPU_SECOND)


def test_a_gang_goes_on_with_fewer_pods_and_with_more_again() -> None:
    """Two pods do 50 s of 100 until 50, one pod does 25 s until 100, two do the last 25 s."""

    def resize(pods: int) -> Disturb:
        return lambda engine, event: [Resize("PodGroup/trace/gang", pods, "the test says so")]

    fewer, more = at(50, resize(1)), at(100, resize(2))
    jobs = (job("gang", 0, 100, pods=2), tick(50), tick(100))
    played = play(Trace("t", (node("a"),), jobs), lambda *given: [*fewer(*given), *more(*given)])
    assert played.ends()["gang"] == 125
    assert [(e.what, e.pod, e.at) for e in played.log if e.job == "gang"][2:4] == [
        ("shrink", "gang.1", 50),
        ("grow", "gang.1", 100),
    ]
    assert played.result.hours_allocated == pytest.approx((2 * 50 + 50 + 2 * 25) * GPU_SECOND)


def test_a_job_that_ends_no_longer_wants_the_pods_that_it_waited_for() -> None:
    """At 10 the gang gives a GPU to `other`; from 20 on it wants it back, until it ends: at 10 + 90 / 0.5 = 190."""

    def resize(pods: int) -> Disturb:
        return lambda engine, event: [Resize("PodGroup/trace/gang", pods, "the test says so")]

    fewer, more = at(10, resize(1)), at(20, resize(2))
    jobs = (job("gang", 0, 100, pods=2), job("other", 10, 500), tick(20))
    played = play(Trace("t", (node("a"),), jobs), lambda *given: [*fewer(*given), *more(*given)])
    assert played.ends() == {"gang": 190, "other": 510, "tick-20": 20}


@pytest.mark.parametrize(
    ("effect", "message"),
    [
        (Resize("PodGroup/trace/gang", 3, ""), "Resize of group PodGroup/trace/gang to 3 pods: it has 1 to 2"),
        (Resize("trace/other", 1, ""), "Resize of group trace/other: it does not run"),
    ],
)
def test_what_cannot_be_performed_is_an_error(effect: Effect, message: str) -> None:
    jobs = (job("gang", 0, 100, pods=2), tick(5))
    with pytest.raises(CannotPerform, match=message):
        play(Trace("t", (node("a"),), jobs), at(5, lambda engine, event: [effect]))


def test_a_pod_that_does_not_run_cannot_be_stopped() -> None:
    def stop_who_waits(engine: ToyEngine, event: Event) -> list[Effect]:
        return [Evict(pod, "", "", "") for group in engine.waiting for pod in group.pods]

    jobs = (job("a", 0, 100, gpus=2), job("b", 5, 1))
    with pytest.raises(CannotPerform, match="Evict of pod b: it does not run"):
        play(Trace("t", (node("n"),), jobs), at(5, stop_who_waits))


def test_jobs_that_share_a_card_without_a_claim_slow_each_other() -> None:
    """`a` does 30 s of work alone, then both are half as fast: `a` ends at 90. Until then `b` did 30 s; it ends at
    120. Without a model both take 60 s."""
    jobs = tuple(
        Job(name, 100, 100, 1, gpu_memory_mib=5000, arrival=t, duration=60.0) for name, t in (("a", 0.0), ("b", 30.0))
    )
    trace = Trace("t", (node("n", 1),), jobs)
    assert play(trace, speed=SHARING).ends() == {"a": 90, "b": 120}
    assert play(trace).ends() == {"a": 60, "b": 90}


def test_a_job_that_starts_does_not_work_before_whatever_its_neighbours_do() -> None:
    """`a` is stopped at 10 and starts again until 60. `b` comes to its card at 20 and ends at 30. `a` ends at 150."""
    a = Job("a", 100, 100, 1, gpu_memory_mib=5000, arrival=0.0, duration=100.0)
    b = Job("b", 100, 100, 1, gpu_memory_mib=5000, arrival=20.0, duration=5.0)
    trace = Trace("t", (node("n", 1),), (a, tick(10), b))
    played = play(trace, at(10, lambda engine, _: [engine.evict("a")]), speed=SHARING, costs=Costs(start=50))
    assert played.ends() == {"a": 150, "tick-10": 10, "b": 30}


def test_a_gang_takes_its_turn_as_one_job() -> None:
    """The gang and `a` want both GPUs. Each has them for 10 s in turn, and needs 20 s."""
    trace = Trace("t", (node("n"),), (job("a", 0, 20, gpus=2), job("gang", 1, 20, pods=2)))
    played = play(trace, rights=TURNS, round_seconds=10.0)
    assert played.ends() == {"a": 30, "gang": 40}


def test_three_jobs_take_turns_on_two_gpus() -> None:
    """10 GPU-seconds each: `a` and `b`; then `c`, which had none, and `a`, which is then done; then `b` and `c`."""
    trace = Trace("t", (node("n"),), tuple(job(name, 0, 20) for name in "abc"))
    played = play(trace, rights=TURNS, round_seconds=10.0)
    assert played.ends() == {"a": 20, "b": 30, "c": 30}
    assert played.times("b") == [("start", 0), ("stop", 10), ("resume", 20), ("end", 30)]


def test_rounds_are_sent_while_jobs_run_or_wait() -> None:
    """Every 10 s from the first arrival on, at 5; at 35 and 45 there is no job. With 0: after arrivals and ends."""
    trace = Trace("t", (node("n"),), (job("a", 5, 22), job("b", 52, 4)))

    def rounds(seconds: float | None) -> list[float]:
        seen: list[float] = []

        def note(engine: ToyEngine, event: Event) -> tuple[Effect, ...]:
            seen.extend([event.at] if type(event).__name__ == "RoundBegins" else [])
            return ()

        play(trace, note, round_seconds=seconds)
        return seen

    assert rounds(10.0) == [15, 25, 55]
    assert rounds(0.0) == [5, 52]
    assert rounds(None) == []


# ---- whatever is disturbed ---------------------------------------------------------------------------------------


def check_cards(trace: Trace, log: Sequence[LogEntry]) -> float:
    """No card is over-used at any moment, and no pod is in two places; returns the GPU-hours given."""
    cards, where, parts = Cards(trace), dict[str, LogEntry](), list[float]()
    for entry, following in zip(log, [*log[1:], None], strict=True):
        if entry.what in ("start", "resume", "grow"):
            assert entry.pod not in where
        if entry.what not in ("start", "resume", "grow", "refused"):
            count(cards, where.pop(entry.pod), -1)
        if entry.what in ("start", "resume", "grow", "move"):
            where[entry.pod] = entry
            count(cards, entry, 1)
        if following is not None and following.at > entry.at:
            for (name, _), (milli, memory) in cards.held.items():
                assert 0 <= milli <= 1000
                assert 0 <= memory <= cards.memory[name]
            parts.append((following.at - entry.at) * sum(cards.used(*card) for card in cards.held))
    assert not where, "a pod never left"
    return math.fsum(parts) / 3_600_000


def count(cards: Cards, entry: LogEntry, sign: int) -> None:
    for gpu in entry.gpus:
        held = cards.held[entry.node, gpu]
        held[0] += sign * entry.milli
        held[1] += sign * entry.memory_mib


def check(trace: Trace, played: Played) -> None:
    """Work is conserved, job by job; each job's story makes sense; the log adds up to the measure."""
    assert played.result.hours_allocated == pytest.approx(check_cards(trace, played.log), rel=1e-9, abs=1e-9)
    assert played.result.finished + played.result.never_placed == len(trace.jobs)
    story: defaultdict[str, list[str]] = defaultdict(list)
    for entry in played.log:
        if entry.what in ("start", "stop", "resume", "end", "refused") and story[entry.job][-1:] != [entry.what]:
            story[entry.job].append(entry.what)
    stops = 0
    for one in trace.jobs:
        told, life = story[one.name], played.lives[one.name]
        stops += told.count("stop")
        assert told == ["refused"] or told == ["start", *["stop", "resume"] * told.count("stop"), "end"]
        if one.duration is not None and life.end is not None:
            done = math.fsum(run.work for run in life.runs)
            lost = math.fsum(run.repeated for run in life.runs)
            assert done == pytest.approx(one.duration + lost, rel=1e-9, abs=1e-6)
            assert all(0 <= run.repeated <= run.work + 1e-9 for run in life.runs)
    assert stops == played.result.stops


KINDS = st.lists(st.sampled_from(("stop", "move", "resize")), min_size=1, max_size=3)
COSTS = st.builds(Costs, *[st.sampled_from((0.0, 0.5, 3.0))] * 3)


@with_examples(150)
@given(small_traces(), st.integers(0, 10_000), KINDS, COSTS, st.booleans(), st.sampled_from((None, 0.0, 4.0)))
def test_work_is_conserved(
    trace: Trace, seed: int, kinds: list[str], costs: Costs, sharing: bool, rounds: float | None
) -> None:
    model = SHARING if sharing else NO_MODEL
    played = play(trace, RandomDisturbance(trace, seed, kinds), costs=costs, round_seconds=rounds, speed=model)
    check(trace, played)
    if costs == Costs():
        assert played.result.hours_lost == 0


@with_examples(80)
@given(small_traces(), st.integers(0, 10_000), st.sampled_from(QUEUES))
def test_without_costs_a_job_runs_as_long_as_its_work(trace: Trace, seed: int, queue: str) -> None:
    """From the log alone: a job that is only stopped and resumed runs for its duration in all."""
    played = play(trace, RandomDisturbance(trace, seed, ["stop"]), queue)
    check(trace, played)
    ran: Counter[str] = Counter()
    for entry in played.log:
        if entry.pod in (entry.job, f"{entry.job}.0"):
            ran[entry.job] += entry.at if entry.what in ("stop", "end") else -entry.at  # type: ignore[assignment]
    for one in trace.jobs:
        if one.duration is not None and played.lives[one.name].end is not None:
            assert ran[one.name] == pytest.approx(one.duration, abs=1e-6)


@with_examples(60)
@given(small_traces(), st.sampled_from((PRIORITY, TURNS)), COSTS)
def test_preemption_and_rounds_of_the_engine_conserve_work(trace: Trace, rights: Rights, costs: Costs) -> None:
    check(trace, play(trace, rights=rights, costs=costs, round_seconds=30.0 if rights is TURNS else None))
