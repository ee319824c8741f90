"""The course of a run as a curve per policy: the mean over its seeds, and the spread of the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from dovetail.sim.results import Column, Inflation, Sample, Timed
from dovetail.sim.statistics import margin_of, mean
from dovetail.sim.study import Study

MOMENTS = 240  # points of a curve over time


@dataclass(frozen=True, slots=True)
class Curve:
    """The mean over seeds. `low` and `high`: the lowest and highest seed, or the ends of a confidence interval."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True, slots=True)
class CurveSet:
    """The curves of one quantity of a study. Every curve has a point for each x."""

    x: list[float]
    by_policy: Mapping[str, Curve]


def allocated_by_arrived(study: Study[Inflation]) -> CurveSet:
    return _by_arrived(study, lambda column: column.allocated_pct)


def fragmented_by_arrived(study: Study[Inflation]) -> CurveSet:
    return _by_arrived(study, lambda column: column.frag_pct)


def fragmented_of_idle_by_arrived(study: Study[Inflation]) -> CurveSet:
    return _by_arrived(study, lambda column: column.frag_ratio_pct)


def gained_by_arrived(study: Study[Inflation]) -> CurveSet:
    """Allocation minus that of the baseline, seed by seed: the mean and its confidence interval."""
    arrived = _reached_by_all(study)
    base = study.runs[study.baseline]
    found = {}
    for policy in study.others:
        pairs = [(run, base[seed]) for seed, run in study.runs[policy].items() if seed in base]
        if pairs:
            found[policy] = _with_confidence(
                [
                    [run.columns[at].allocated_pct - other.columns[at].allocated_pct for run, other in pairs]
                    for at in map(str, arrived)
                ]
            )
    return CurveSet([float(at) for at in arrived], found)


def allocated_by_hour(study: Study[Timed]) -> CurveSet:
    return _by_hour(study, lambda sample: sample.allocated_pct)


def waiting_by_hour(study: Study[Timed]) -> CurveSet:
    return _by_hour(study, lambda sample: sample.waiting)


def fairness_by_hour(study: Study[Timed]) -> CurveSet:
    """Jain's index of what tenants hold. Runs with one tenant have no such curve."""
    return _over_time(study, _fairness)


class _Moment(NamedTuple):
    at: float  # seconds since the trace began
    value: float


def _fairness(run: Timed, end: float) -> list[float]:
    begin, last = (run.samples[at].at for at in (0, -1)) if run.samples else (0.0, 0.0)
    width = (last - begin) / max(len(run.fairness_samples), 1)
    moments = [_Moment(begin + number * width, value) for number, value in enumerate(run.fairness_samples)]
    return averages(moments, lambda moment: moment.value, end)


def parting_point(curves: CurveSet) -> float:
    """The x from which a plot of the curves is worth showing.

    It is a little before the gap between the means reaches a tenth of its maximum.
    """
    means = [curve.mean for curve in curves.by_policy.values()]
    gaps = [max(point) - min(point) for point in zip(*means, strict=True)]
    if not any(gaps):
        return curves.x[0] if curves.x else 0.0
    parted = next(at for at, gap in enumerate(gaps) if gap > max(gaps) / 10)
    return curves.x[max(0, min(parted - 4, len(gaps) - 12))]


def _by_arrived(study: Study[Inflation], of: Callable[[Column], float]) -> CurveSet:
    """Curves over the columns that every run reached."""
    arrived = _reached_by_all(study)
    return CurveSet(
        [float(at) for at in arrived],
        {
            policy: over_seeds([[of(run.columns[str(at)]) for at in arrived] for run in runs.values()])
            for policy, runs in study.runs.items()
        },
    )


def _reached_by_all(study: Study[Inflation]) -> list[int]:
    runs = [run for by_seed in study.runs.values() for run in by_seed.values()]
    reached = [{int(key) for key in run.columns if int(key) <= round(run.arrived_pct)} for run in runs]
    return sorted(set.intersection(*reached))


def _by_hour(study: Study[Timed], of: Callable[[Sample], float]) -> CurveSet:
    return _over_time(study, lambda run, end: averages(run.samples, of, end))


def _over_time(study: Study[Timed], course: Callable[[Timed, float], list[float]]) -> CurveSet:
    """Curves over equal intervals of time, until the end of the last run. `course`: of a run, until that time."""
    runs = [run for by_seed in study.runs.values() for run in by_seed.values()]
    end = max((run.samples[-1].at for run in runs if run.samples), default=0.0)
    if end <= 0:
        return CurveSet([], {policy: Curve([], [], []) for policy in study.runs})
    return CurveSet(
        [(at + 0.5) * end / MOMENTS / 3600 for at in range(MOMENTS)],
        {policy: over_seeds([course(run, end) for run in by_seed.values()]) for policy, by_seed in study.runs.items()},
    )


def over_seeds(rows: Sequence[Sequence[float]]) -> Curve:
    points = list(zip(*rows, strict=True))
    return Curve([mean(point) for point in points], [min(point) for point in points], [max(point) for point in points])


def _with_confidence(points: Sequence[Sequence[float]]) -> Curve:
    means = [mean(point) for point in points]
    margins = [margin_of(point) or 0.0 for point in points]
    low = [middle - margin for middle, margin in zip(means, margins, strict=True)]
    high = [middle + margin for middle, margin in zip(means, margins, strict=True)]
    return Curve(means, low, high)


S = TypeVar("S", Sample, _Moment)


def averages(samples: Sequence[S], of: Callable[[S], float], end: float) -> list[float]:
    """The average in each of MOMENTS equal intervals from 0 to `end`. A sample holds until the next one."""
    width = end / MOMENTS
    sums = [0.0] * MOMENTS
    for at, sample in enumerate(samples):
        until = samples[at + 1].at if at + 1 < len(samples) else end
        _spread_over(sums, max(sample.at, 0.0) / width, min(until, end) / width, of(sample))
    return sums


def _spread_over(sums: list[float], start: float, until: float, value: float) -> None:
    """Add the value to each interval, times the part of it that lies between `start` and `until`."""
    for stretch in range(int(start), min(int(until) + 1, len(sums))):
        covered = min(until, stretch + 1) - max(start, stretch)
        if covered > 0:
            sums[stretch] += value * covered
