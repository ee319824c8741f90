"""A comparison of a few tiny runs, which are interpreted."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.sim.compare import RunPlan, RunResults, TraceCase, plan, run_all
from dovetail.sim.results_cache import ResultsCache
from dovetail.sim.runs import Recipe, Setting
from dovetail.sim.workload import WorkloadParameters

PLAIN = Setting(engine="interpreted")
RECIPE = Recipe(WorkloadParameters(jobs=60), "2xT4:4,1xA100-SXM4-80GB:8")


def quiet(what: str, done: int, total: int) -> None:
    pass


def small_plan(policies: tuple[str, ...] = ("best-fit", "fgd"), seeds: tuple[int, ...] = (1, 2)) -> RunPlan:
    return plan([TraceCase(RECIPE)], policies, seeds, PLAIN)


def found(planned: RunPlan, cache: ResultsCache | None, workers: int = 1) -> RunResults:
    findings = RunResults(planned)
    run_all(findings, quiet, workers=workers, cache=cache)
    return findings


def timeless(result: Any) -> dict[str, Any]:
    """All but the time it took."""
    document: dict[str, Any] = msgspec.to_builtins(result)
    return {key: value for key, value in document.items() if key not in ("seconds", "decisions_per_second")}
