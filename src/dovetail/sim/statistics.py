"""Compares policies with a baseline, seed by seed.

Two policies that replay the same seed get the same arrivals. So their difference is computed per seed first: this
removes the variation between seeds. The confidence interval is Student's for paired samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cache
from typing import Generic

from dovetail.sim.results import Column, Inflation, Timed
from dovetail.sim.study import R, Study

CONFIDENCE = 0.95
SAME = 1e-9  # values closer than this are equal


class Better(IntEnum):
    """Which direction of a measure is better; NEITHER if it depends on other measures."""

    LESS = -1
    NEITHER = 0
    MORE = 1


class SeedVerdict(Enum):
    """The conclusion from the seeds about a difference."""

    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"  # clearly, for a measure with Better.NEITHER
    EQUAL = "equal"  # on every seed
    UNCLEAR = "no clear difference"
    ONE_SEED = "one seed only"


@dataclass(frozen=True, slots=True)
class Measure(Generic[R]):
    """One number of a result; None if the run does not have it."""

    key: str
    title: str
    unit: str  # "%" (of all GPU capacity unless the title says otherwise), "s", or the counted noun
    better: Better
    of: Callable[[R], float | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure over the seeds of one policy."""

    by_seed: Mapping[int, float]
    mean: float
    deviation: float | None  # None for a single seed


@dataclass(frozen=True, slots=True)
class Difference:
    """A policy minus the baseline, over the seeds that both ran."""

    by_seed: Mapping[int, float]
    mean: float
    margin: float | None  # half the interval's width; None for a single seed
    wins: int
    ties: int
    losses: int
    verdict: SeedVerdict

    @property
    def low(self) -> float:
        return self.mean - (self.margin or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.margin or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison(Generic[R]):
    """One measure of a study. Policies without the measure are left out."""

    measure: Measure[R]
    spreads: Mapping[str, Spread]  # policy -> over its seeds
    differences: Mapping[str, Difference]  # policy -> to the baseline


def column_at(result: Inflation, arrived: int) -> Column | None:
    """The column at `arrived` percent; None if less arrived. Columns after the last arrival only repeat it."""
    return result.columns.get(str(arrived)) if round(result.arrived_pct) >= arrived else None


def last_column(result: Inflation) -> Column | None:
    return column_at(result, round(result.arrived_pct))


def utilisation_pct(result: Timed) -> float | None:
    return 100 * result.hours_allocated / result.hours_capacity if result.hours_capacity else None


def idle_bound(study: Study[Timed]) -> float:
    """GPU-hours that are idle while jobs wait with any scheduler: the mean over seeds of the highest known bound."""
    bounds: dict[int, float] = {}
    for runs in study.runs.values():
        for seed, run in runs.items():
            bounds[seed] = max(bounds.get(seed, 0.0), run.hours_idle_while_wanted_bound)
    return mean(list(bounds.values()))


def _allocated(column: Column | None) -> float | None:
    return None if column is None else column.allocated_pct


def _fragmented(column: Column | None) -> float | None:
    return None if column is None else column.frag_pct


def _fragmented_of_idle(column: Column | None) -> float | None:
    return None if column is None else column.frag_ratio_pct


ALLOCATED_AT_END: Measure[Inflation] = Measure(
    "allocated_end", "GPU capacity placed", "%", Better.MORE, lambda run: _allocated(last_column(run))
)
FRAGMENTED_AT_END: Measure[Inflation] = Measure(
    "frag_end", "GPU capacity fragmented", "%", Better.LESS, lambda run: _fragmented(last_column(run))
)
FAILED: Measure[Inflation] = Measure("failed", "Pods without a place", "pods", Better.LESS, lambda run: run.failed)
GPUS_FREE: Measure[Inflation] = Measure(
    "gpus_free", "Whole GPUs free", "GPUs", Better.NEITHER, lambda run: run.gpus_free
)
INFLATION_MEASURES: tuple[Measure[Inflation], ...] = (
    Measure(
        "allocated_100",
        "GPU capacity placed at 100 % arrived",
        "%",
        Better.MORE,
        lambda run: _allocated(column_at(run, 100)),
    ),
    ALLOCATED_AT_END,
    FRAGMENTED_AT_END,
    Measure(
        "frag_ratio_end",
        "Of the idle GPU capacity, fragmented",
        "%",
        Better.NEITHER,  # a policy that places more leaves less idle, and a larger part of that in fragments
        lambda run: _fragmented_of_idle(last_column(run)),
    ),
    FAILED,
    GPUS_FREE,
    Measure("nodes_free", "Nodes free", "nodes", Better.NEITHER, lambda run: run.nodes_free),
)

IDLE_WHILE_WANTED: Measure[Timed] = Measure(
    "idle_while_wanted",
    "GPU-hours idle while jobs waited",
    "GPU-hours",
    Better.LESS,
    lambda run: run.hours_idle_while_wanted,
)
DELAY: Measure[Timed] = Measure(
    "delay_mean", "Mean wait before a job starts", "s", Better.LESS, lambda run: run.delays.mean
)
UTILISATION: Measure[Timed] = Measure(
    "utilisation", "GPU capacity in use over the run", "%", Better.MORE, utilisation_pct
)
MAKESPAN: Measure[Timed] = Measure(
    "makespan", "From the first arrival to the last end", "s", Better.LESS, lambda run: run.makespan
)
TIME_MEASURES: tuple[Measure[Timed], ...] = (
    IDLE_WHILE_WANTED,
    UTILISATION,
    DELAY,
    Measure("delay_p95", "Wait that 95 % of jobs stay below", "s", Better.LESS, lambda run: run.delays.p95),
    Measure(
        "completion_mean", "Mean time from arrival to end", "s", Better.LESS, lambda run: run.delays.completion_mean
    ),
    MAKESPAN,
    # Policies are busiest at different moments, under different loads, so none of these is better by itself.
    Measure(
        "frag_busiest",
        "GPU capacity fragmented at the busiest moment",
        "%",
        Better.NEITHER,
        lambda run: run.frag_pct,
    ),
    Measure(
        "frag_ratio_busiest",
        "Of the idle GPU capacity, fragmented at the busiest moment",
        "%",
        Better.NEITHER,
        lambda run: run.frag_ratio_pct,
    ),
    Measure(
        "gpus_free_busiest", "Whole GPUs free at the busiest moment", "GPUs", Better.NEITHER, lambda run: run.gpus_free
    ),
    Measure(
        "nodes_free_busiest", "Nodes free at the busiest moment", "nodes", Better.NEITHER, lambda run: run.nodes_free
    ),
)

# Only shown if a run stopped or moved jobs.
DISTURBANCE_MEASURES: tuple[Measure[Timed], ...] = (
    Measure("stops", "Jobs that were stopped", "stops", Better.NEITHER, lambda run: run.stops),
    Measure("moves", "Jobs that were moved", "moves", Better.NEITHER, lambda run: run.moves),
    Measure("hours_lost", "GPU-hours lost to stops and moves", "GPU-hours", Better.LESS, lambda run: run.hours_lost),
)

# Only shown if a run used an order, preemption or queues.
FAIRNESS_MEASURES: tuple[Measure[Timed], ...] = (
    Measure("fairness", "Fairness between tenants (Jain's index)", "%", Better.MORE, lambda run: run.fairness_pct),
)


GANG_MEASURES: tuple[Measure[Timed], ...] = (
    Measure(
        "gang_delay_mean",
        "Mean wait before a gang starts",
        "s",
        Better.LESS,
        lambda run: run.gangs.mean if run.gangs is not None else None,
    ),
    Measure(
        "gang_fragmented_wait_mean",
        "Of it, with enough GPUs idle, but not together",
        "s",
        Better.LESS,
        lambda run: run.gangs.fragmented_wait_mean if run.gangs is not None else None,
    ),
    Measure(
        "gang_racks_mean",
        "Racks of a gang",
        "racks",
        Better.LESS,
        lambda run: run.gangs.racks_mean if run.gangs is not None else None,
    ),
)


def time_measures(results: Iterable[Timed]) -> tuple[Measure[Timed], ...]:
    """The measures that apply to these runs."""
    runs = list(results)
    disturbed = any(run.stops or run.moves or run.hours_lost for run in runs)
    fairness = FAIRNESS_MEASURES if any(run.has_rights for run in runs) else ()
    gangs = GANG_MEASURES if any(run.gangs is not None for run in runs) else ()
    return TIME_MEASURES + gangs + (DISTURBANCE_MEASURES if disturbed else ()) + fairness


def compare(study: Study[R], measure: Measure[R]) -> Comparison[R]:
    spreads = {}
    for policy, runs in study.runs.items():
        values = {seed: value for seed, run in runs.items() if (value := measure.of(run)) is not None}
        if values:
            spreads[policy] = spread(values)
    differences = {}
    if study.baseline in spreads:
        base = spreads[study.baseline].by_seed
        for policy in study.others:
            if policy in spreads and (base.keys() & spreads[policy].by_seed.keys()):
                differences[policy] = difference(spreads[policy].by_seed, base, measure.better)
    return Comparison(measure, spreads, differences)


def spread(by_seed: Mapping[int, float]) -> Spread:
    values = list(by_seed.values())
    return Spread(by_seed, mean(values), deviation(values))


def difference(policy: Mapping[int, float], baseline: Mapping[int, float], better: Better) -> Difference:
    by_seed = {seed: policy[seed] - baseline[seed] for seed in policy if seed in baseline}
    gains = [0.0 if abs(gap) <= SAME else gap for gap in by_seed.values()]
    margin = margin_of(gains)
    return Difference(
        by_seed,
        mean(gains),
        margin,
        wins=sum(better * gain > 0 for gain in gains),
        ties=sum(gain == 0 for gain in gains),
        losses=sum(better * gain < 0 for gain in gains),
        verdict=_verdict(gains, margin, better),
    )


def _verdict(gains: Sequence[float], margin: float | None, better: Better) -> SeedVerdict:
    middle = mean(gains)
    if not any(gains):
        return SeedVerdict.EQUAL
    if margin is None:
        return SeedVerdict.ONE_SEED
    if abs(middle) <= margin:
        return SeedVerdict.UNCLEAR
    if better == Better.NEITHER:
        return SeedVerdict.DIFFERENT
    return SeedVerdict.BETTER if better * middle > 0 else SeedVerdict.WORSE


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample (n - 1); None for a single value."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def margin_of(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the mean; None for a single value."""
    scatter = deviation(values)
    if scatter is None:
        return None
    return student_t(len(values) - 1) * scatter / math.sqrt(len(values))


@cache
def student_t(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t that a Student variable stays within, on both sides, with this probability.

    Found by bisection over the angle whose tangent is t / √freedom: there the distribution is a finite sum.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        angle = (low + high) / 2
        if _probability_within(angle, freedom) < confidence:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _probability_within(angle: float, freedom: int) -> float:
    """The probability, by Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 (odd) and 26.7.4 (even)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term, total = (cosine if odd else 1.0), 0.0
    for at in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (at - 1) / at
    return (2 / math.pi) * (angle + sine * total) if odd else sine * total
