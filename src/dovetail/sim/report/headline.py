"""The finding of one study as a sentence."""

from __future__ import annotations

from dovetail.sim.report.words import SPACE, amount, decimals, interval
from dovetail.sim.results import Inflation, Timed
from dovetail.sim.statistics import (
    ALLOCATED_AT_END,
    IDLE_WHILE_WANTED,
    Comparison,
    Difference,
    SeedVerdict,
    compare,
    idle_bound,
)
from dovetail.sim.study import R, Study


def leader(comparison: Comparison[R]) -> str | None:
    """The best policy besides the baseline, or None without others.

    Policies that are clearly better than the baseline go first, if there are any.
    """
    gaps = comparison.differences
    clear = [policy for policy in gaps if gaps[policy].verdict == SeedVerdict.BETTER]
    return max(clear or gaps, key=lambda policy: comparison.measure.better * gaps[policy].mean, default=None)


def inflation_sentence(study: Study[Inflation]) -> str:
    comparison = compare(study, ALLOCATED_AT_END)
    best = leader(comparison)
    if best is None:
        placed = comparison.spreads.get(study.baseline)
        if placed is None:
            return f"{study.baseline} was not asked for anything."
        gpus = placed.mean / 100 * study.gpus
        how_much = f"{amount(placed.mean, '%')} of the GPU capacity"
        return f"{study.baseline} places {how_much}: {gpus:,.0f} of {study.gpus:,} GPUs."
    gap = comparison.differences[best]
    gpus = abs(gap.mean) / 100 * study.gpus
    how_much = f"{decimals(abs(gap.mean), 1 if abs(gap.mean) >= 0.1 else 2)}{SPACE}%"
    shown = f"{decimals(gpus, 0 if gpus >= 10 else 1)} of {study.gpus:,} GPUs"
    if gap.verdict in (SeedVerdict.BETTER, SeedVerdict.ONE_SEED) and gap.mean > 0:
        return f"{best} places {how_much} more GPU capacity than {study.baseline}: {shown}{_alone(gap)}."
    if gap.verdict in (SeedVerdict.WORSE, SeedVerdict.ONE_SEED):
        return f"{study.baseline} places the most GPU capacity: {how_much} more than {best}, {shown}{_alone(gap)}."
    if gap.verdict == SeedVerdict.EQUAL:
        return f"{best} and {study.baseline} place exactly the same GPU capacity."
    return (
        f"No policy places clearly more GPU capacity than {study.baseline}; {best} comes nearest, {_between(gap, '%')}."
    )


def time_sentence(study: Study[Timed]) -> str:
    comparison = compare(study, IDLE_WHILE_WANTED)
    best = leader(comparison)
    before = comparison.spreads[study.baseline].mean
    if best is None:
        bound = amount(idle_bound(study), "")
        idle = f"{study.baseline} leaves {amount(before, '')} GPU-hours idle while jobs wait"
        return f"{idle}; no scheduler can avoid {bound} GPU-hours of them."
    gap = comparison.differences[best]
    after = comparison.spreads[best].mean
    if gap.verdict in (SeedVerdict.BETTER, SeedVerdict.ONE_SEED) and gap.mean < 0:
        saved = amount(-gap.mean, "")
        return (
            f"{best} saves {saved} GPU-hours against {study.baseline}: {amount(after, '')} GPU-hours stand idle while "
            f"jobs wait, not {amount(before, '')} GPU-hours{_alone(gap)}."
        )
    if gap.verdict in (SeedVerdict.WORSE, SeedVerdict.ONE_SEED):
        return (
            f"{study.baseline} leaves the fewest GPU-hours idle while jobs wait: {amount(before, '')} GPU-hours, "
            f"{best} {amount(after, '')} GPU-hours{_alone(gap)}."
        )
    if gap.verdict == SeedVerdict.EQUAL:
        same = f"{amount(before, '')} GPU-hours"
        return f"{best} and {study.baseline} leave the same amount idle while jobs wait: {same}."
    return (
        f"No policy leaves clearly fewer GPU-hours idle while jobs wait than {study.baseline} "
        f"({amount(before, '')} GPU-hours); {best} comes nearest, {_between(gap, '')} GPU-hours."
    )


def _alone(gap: Difference) -> str:
    return " (one seed: it may be chance)" if gap.verdict == SeedVerdict.ONE_SEED else ""


def _between(gap: Difference, unit: str) -> str:
    return interval(gap.low, gap.high, unit, gap.mean)
