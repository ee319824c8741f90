"""What the numbers say, in a sentence that needs no figure."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.sim.report.words import SPACE, amount, decimals, interval
from dovetail.sim.results import Inflation, Timed
from dovetail.sim.statistics import (
    ALLOCATED,
    IDLE_WHILE_WANTED,
    Comparison,
    Difference,
    Verdict,
    compare,
    idle_bound,
    mean,
)
from dovetail.sim.study import R, Study


def leader(comparison: Comparison[R]) -> str | None:
    """The best policy beside the baseline; None where there is nothing to compare."""
    gaps = comparison.differences
    return max(gaps, key=lambda policy: comparison.measure.better * gaps[policy].mean, default=None)


def inflation_sentence(study: Study[Inflation]) -> str:
    comparison = compare(study, ALLOCATED)
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
    if gap.verdict in (Verdict.BETTER, Verdict.ONE_SEED) and gap.mean > 0:
        return f"{best} places {how_much} more GPU capacity than {study.baseline}: {shown}{_alone(gap)}."
    if gap.verdict in (Verdict.WORSE, Verdict.ONE_SEED):
        return f"{study.baseline} places the most GPU capacity: {how_much} more than {best}, {shown}{_alone(gap)}."
    if gap.verdict == Verdict.EQUAL:
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
        return f"{study.baseline} leaves {amount(before, '')} GPU-hours idle while jobs wait; {bound} nobody can avoid."
    gap = comparison.differences[best]
    after = comparison.spreads[best].mean
    if gap.verdict in (Verdict.BETTER, Verdict.ONE_SEED) and gap.mean < 0:
        saved = amount(-gap.mean, "")
        return (
            f"{best} saves {saved} GPU-hours against {study.baseline}: {amount(after, '')} stand idle while jobs wait, "
            f"not {amount(before, '')}{_alone(gap)}."
        )
    if gap.verdict in (Verdict.WORSE, Verdict.ONE_SEED):
        return (
            f"{study.baseline} leaves the fewest GPU-hours idle while jobs wait: {amount(before, '')}, "
            f"{best} {amount(after, '')}{_alone(gap)}."
        )
    if gap.verdict == Verdict.EQUAL:
        return f"{best} and {study.baseline} leave the same GPU-hours idle while jobs wait: {amount(before, '')}."
    return (
        f"No policy leaves clearly fewer GPU-hours idle while jobs wait than {study.baseline} "
        f"({amount(before, '')}); {best} comes nearest, {_between(gap, '')}."
    )


def _alone(gap: Difference) -> str:
    return " (one seed: it may be chance)" if gap.verdict == Verdict.ONE_SEED else ""


def _between(gap: Difference, unit: str) -> str:
    return interval(gap.low, gap.high, unit, gap.mean)


def overall(inflations: Sequence[Study[Inflation]], times: Sequence[Study[Timed]]) -> list[str]:
    """One sentence per mode."""
    sentences = []
    if inflations:
        sentences.append(inflation_sentence(inflations[0]) if len(inflations) == 1 else _several_inflations(inflations))
    if times:
        sentences.append(time_sentence(times[0]) if len(times) == 1 else _several_times(times))
    return sentences


def _several_inflations(studies: Sequence[Study[Inflation]]) -> str:
    best, base, gaps = _common_leader([(study, compare(study, ALLOCATED)) for study in studies])
    if best is None:
        return f"{len(studies)} traces, replayed until the cluster was full."
    better = [gap for _, gap in gaps if gap.verdict in (Verdict.BETTER, Verdict.ONE_SEED) and gap.mean > 0]
    if not better:
        return f"No policy places clearly more GPU capacity than {base} on any of {len(studies)} traces."
    gained = sorted(gap.mean for gap in better)
    most = max(round(gap.mean / 100 * study.gpus) for study, gap in gaps)
    span = (
        f"{decimals(gained[0], 1)} to {decimals(gained[-1], 1)}{SPACE}%" if len(gained) > 1 else amount(gained[0], "%")
    )
    where = f"{len(better)} of {len(studies)}" if len(better) < len(studies) else f"all {len(studies)}"
    return f"{best} places more GPU capacity than {base} on {where} traces: {span}, up to {most:,} GPUs."


def _several_times(studies: Sequence[Study[Timed]]) -> str:
    best, base, gaps = _common_leader([(study, compare(study, IDLE_WHILE_WANTED)) for study in studies])
    if best is None:
        return f"{len(studies)} traces, replayed as they happened."
    better = [gap for _, gap in gaps if gap.verdict in (Verdict.BETTER, Verdict.ONE_SEED) and gap.mean < 0]
    if not better:
        return f"No policy leaves clearly fewer GPU-hours idle than {base} on any of {len(studies)} traces."
    saved = amount(-sum(gap.mean for gap in better), "")
    where = f"{len(better)} of {len(studies)}" if len(better) < len(studies) else f"all {len(studies)}"
    return f"{best} saves {saved} GPU-hours of idling while jobs wait against {base}, on {where} traces together."


def _common_leader(
    compared: Sequence[tuple[Study[R], Comparison[R]]],
) -> tuple[str | None, str, list[tuple[Study[R], Difference]]]:
    """(the policy that is best on average over the traces that all policies ran, the baseline, its gaps)."""
    common = set.intersection(*(set(comparison.differences) for _, comparison in compared))
    base = compared[0][0].baseline
    if not common or any(study.baseline != base for study, _ in compared):
        return None, base, []
    order = compared[0][0].policies
    best = max(
        sorted(common, key=order.index),
        key=lambda policy: mean([c.measure.better * c.differences[policy].mean for _, c in compared]),
    )
    return best, base, [(study, comparison.differences[best]) for study, comparison in compared]
