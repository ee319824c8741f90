"""The data that scripts read and users download: every seed's figures, curves over seeds, one map per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.sim.curves import CurveSet, parting_point
from dovetail.sim.report import maps
from dovetail.sim.statistics import Comparison
from dovetail.sim.study import R, Study, first_seed


def study_data(study: Study[R], mode: str, compared: Sequence[Comparison[R]]) -> dict[str, Any]:
    return {
        "mode": mode,
        "trace": study.trace,
        "baseline": study.baseline,
        "seeds": study.seeds,
        "nodes": study.nodes,
        "gpus": study.gpus,
        "policies": study.policies,
        "measures": {comparison.measure.key: measure_data(comparison) for comparison in compared},
        "maps": {
            policy: {"seed": first_seed(runs).seed, **maps.cells(first_seed(runs).map)}
            for policy, runs in study.runs.items()
        },
    }


def measure_data(comparison: Comparison[R]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for policy, spread in comparison.spreads.items():
        entry: dict[str, Any] = {
            "by_seed": {str(seed): round(value, 4) for seed, value in spread.by_seed.items()},
            "mean": round(spread.mean, 4),
            "deviation": None if spread.deviation is None else round(spread.deviation, 4),
        }
        gap = comparison.differences.get(policy)
        if gap is not None:
            margin = None if gap.margin is None else round(gap.margin, 4)
            entry["difference"] = {
                "mean": round(gap.mean, 4),
                "margin": margin,
                "wins": gap.wins,
                "ties": gap.ties,
                "losses": gap.losses,
                "verdict": gap.verdict.value,
            }
        found[policy] = entry
    return {"title": comparison.measure.title, "unit": comparison.measure.unit, "policies": found}


def curve_data(found: CurveSet) -> dict[str, Any]:
    return {
        "x": [_plain(at, 3) for at in found.x],
        "parting": _plain(parting_point(found), 3),
        "policies": {
            policy: {
                "mean": [_plain(value, 2) for value in curve.mean],
                "low": [_plain(value, 2) for value in curve.low],
                "high": [_plain(value, 2) for value in curve.high],
            }
            for policy, curve in found.by_policy.items()
        },
    }


def _plain(value: float, places: int) -> float | int:
    """The rounded value as an integer if it is whole: 0 instead of 0.0 and -0.0."""
    short = round(value, places)
    return int(short) if short == int(short) else short
