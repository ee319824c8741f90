"""Compares our replays with the published curves of the FGD paper: how many are equal, how far off the others are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from dovetail.policies.table import NODE_POLICIES
from dovetail.sim.compare import RunPlan, RunResults, Say, TraceCase, plan, run_all
from dovetail.sim.published import COLUMNS, POLICY_OF_PUBLISHED, Experiment, PublishedCurves
from dovetail.sim.results import Inflation
from dovetail.sim.runs import Setting
from dovetail.sim.statistics import mean

SAME_ALLOCATED, SAME_FRAGMENTED = 0.01, 0.015  # points: published values have two decimals
NEAR, NEAR_MEAN = 0.3, 0.02  # points: any value of fgd and random's mean over seeds; the mean of fgd's last column
ROUNDING = 1e-9
RANDOM, FGD, SNUG = "random", "fgd", "snug"
EXACT = tuple(policy for policy in POLICY_OF_PUBLISHED.values() if policy not in (RANDOM, FGD))
FULL, END = "100", "130"


@dataclass(frozen=True, slots=True)
class Gap:
    """One run compared with its published curves, in points of all GPU capacity."""

    trace: str
    policy: str
    seed: int
    allocated: float  # the worst of all columns
    fragmented: float  # likewise
    end: float  # ours minus published in the last column
    full: float  # likewise, in the column where 100 % had arrived

    @property
    def identical(self) -> bool:
        return self.allocated <= SAME_ALLOCATED + ROUNDING and self.fragmented <= SAME_FRAGMENTED + ROUNDING


def gap(run: Inflation, published: PublishedCurves) -> Gap:
    """The gap of one run. A column that the run did not reach counts as 100 points."""
    ours = [run.columns.get(str(column)) for column in COLUMNS]
    allocated = [100.0 if c is None else c.allocated_pct - p for c, p in zip(ours, published.allocated, strict=True)]
    fragmented = [100.0 if c is None else c.frag_pct - p for c, p in zip(ours, published.fragmented, strict=True)]
    worst = (max(map(abs, allocated)), max(map(abs, fragmented)))
    return Gap(run.trace, run.policy, run.seed, *worst, end=allocated[int(END)], full=allocated[int(FULL)])


@dataclass(frozen=True, slots=True)
class ReproFindings:
    """The findings to judge: the gaps, and the runs of snug beside those of fgd."""

    gaps: Sequence[Gap]
    fgd: Mapping[tuple[str, int], Inflation]  # trace, seed
    snug: Mapping[str, Mapping[tuple[str, int], Inflation]]  # "told" or "learned" -> likewise; empty without snug


def reproduce(
    given: Sequence[Experiment], say: Say, *, seeds: Sequence[int] | None = None, workers: int = 2, snug: bool = True
) -> ReproFindings:
    """Run all policies on all experiments, without the cache. `seeds`: only these."""
    told = Setting(engine="compiled")
    planned = [_planned(one, list(POLICY_OF_PUBLISHED.values()), told, seeds) for one in given]
    if snug and SNUG in NODE_POLICIES:
        for setting in (told, replace(told, told=False)):
            planned += [_planned(one, [SNUG], setting, seeds) for one in given]
    stages = {digest: stage for part in planned for digest, stage in part.stages.items()}
    findings = RunResults(RunPlan([task for part in planned for task in part.tasks], stages))
    run_all(findings, say, workers=workers)
    return _sorted(given, findings)


def _planned(one: Experiment, policies: Sequence[str], setting: Setting, seeds: Sequence[int] | None) -> RunPlan:
    wanted = [seed for seed in one.seeds if seeds is None or seed in seeds]
    return plan([TraceCase(one.trace, one.orders)], policies, wanted, setting)


def _sorted(given: Sequence[Experiment], findings: RunResults) -> ReproFindings:
    curves = {(one.trace.name, *key): found for one in given for key, found in one.curves.items()}
    gaps, fgd = [], {}
    snug: dict[str, dict[tuple[str, int], Inflation]] = {}
    for task, run in zip(findings.plan.tasks, findings.results, strict=True):
        assert isinstance(run, Inflation)
        if task.policy == SNUG:
            snug.setdefault("told" if task.setting.told else "learned", {})[run.trace, run.seed] = run
            continue
        if task.policy == FGD:
            fgd[run.trace, run.seed] = run
        if (run.trace, run.policy, run.seed) in curves:
            gaps.append(gap(run, curves[run.trace, run.policy, run.seed]))
    return ReproFindings(gaps, fgd, snug)


def verdict(found: ReproFindings) -> dict[str, Any]:
    """The last line of `make repro`. `pass` is true if every requirement holds."""
    policies = {policy: _of_policy([g for g in found.gaps if g.policy == policy]) for policy in (*EXACT, FGD)}
    policies = {policy: figures for policy, figures in policies.items() if figures["compared"]}
    random, full = random_gaps(found.gaps, END), random_gaps(found.gaps, FULL)
    fgd = policies.get(FGD)
    musts = [figures["identical"] == figures["compared"] for policy, figures in policies.items() if policy != FGD]
    if fgd is not None:
        musts += [max(fgd["worst_allocated"], fgd["worst_frag"]) <= NEAR, abs(fgd["mean_end"]) <= NEAR_MEAN]
    musts += [abs(difference) <= NEAR for difference in random.values()]
    return {
        "identical": sum(figures["identical"] for figures in policies.values()),
        "compared": sum(figures["compared"] for figures in policies.values()),
        "policies": policies,
        "random": {
            "runs": sum(gap.policy == RANDOM for gap in found.gaps),
            "mean_difference": _rounded(mean(list(random.values()))) if random else None,
            "worst_trace": _rounded(max(map(abs, random.values()))) if random else None,
            "worst_trace_at_100": _rounded(max(map(abs, full.values()))) if full else None,
        },
        "snug": {how: gains(runs, found.fgd) for how, runs in found.snug.items()} or None,
        "pass": bool(found.gaps) and all(musts),
    }


def _of_policy(gaps: Sequence[Gap]) -> dict[str, Any]:
    return {
        "identical": sum(gap.identical for gap in gaps),
        "compared": len(gaps),
        "worst_allocated": _rounded(max((gap.allocated for gap in gaps), default=0.0)),
        "worst_frag": _rounded(max((gap.fragmented for gap in gaps), default=0.0)),
        "mean_end": _rounded(mean([gap.end for gap in gaps]) if gaps else 0.0),
    }


def random_gaps(gaps: Iterable[Gap], at: str = END) -> dict[str, float]:
    """By trace: the mean over seeds in one column, ours minus published.

    Single seeds are not comparable: the random draws differ.
    """
    found: dict[str, list[float]] = {}
    for one in gaps:
        if one.policy == RANDOM:
            found.setdefault(one.trace, []).append(one.end if at == END else one.full)
    return {trace: mean(values) for trace, values in found.items()}


def gains(runs: Mapping[tuple[str, int], Inflation], fgd: Mapping[tuple[str, int], Inflation]) -> dict[str, Any]:
    """Allocation minus that of fgd with the same order: by trace, and over all traces."""
    found: dict[str, Any] = {}
    for at in (FULL, END):
        by_trace: dict[str, list[float]] = {}
        for key, run in runs.items():
            difference = run.columns[at].allocated_pct - fgd[key].columns[at].allocated_pct
            by_trace.setdefault(key[0], []).append(difference)
        means = {trace: mean(values) for trace, values in by_trace.items()}
        every = [value for values in by_trace.values() for value in values]
        found[f"at_{at}"] = {
            "mean": _rounded(mean(list(means.values()))),
            "median": _rounded(median(means.values())),
            "wins": sum(value > ROUNDING for value in every),
            "runs": len(every),
            "traces": {trace: _rounded(value) for trace, value in means.items()},
        }
    return found


def _rounded(value: float) -> float:
    return round(value, 4) + 0.0
