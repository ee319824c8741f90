"""Formats a comparison: a table of differences for users, JSON and CSV for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cli.output import table
from dovetail.cli.output.encoding import visible_json
from dovetail.cli.output.replay import Cell, csv_text
from dovetail.sim.compare import RunResults
from dovetail.sim.report.words import count, seeds_of
from dovetail.sim.results import Inflation, Result, Timed
from dovetail.sim.statistics import (
    DISTURBANCE_MEASURES,
    FAIRNESS_MEASURES,
    INFLATION_MEASURES,
    TIME_MEASURES,
    Comparison,
    Difference,
    Measure,
    compare,
    time_measures,
)
from dovetail.sim.study import Study, inflation_studies, time_studies

# measures for which the number of won seeds is shown
COUNTED = ("allocated_100", "allocated_end", "idle_while_wanted", "delay_mean")
MOST_MISSING = 8  # pairs of trace and policy that are named
# measure -> title of its column
TITLES = {
    "allocated_100": "PLACED AT 100 %",
    "allocated_end": "PLACED IN THE END",
    "frag_end": "FRAGMENTED",
    "failed": "PODS WITHOUT A PLACE",
    "idle_while_wanted": "GPU-HOURS IDLE AND WANTED",
    "utilisation": "IN USE",
    "delay_mean": "MEAN WAIT, S",
    "makespan": "MAKESPAN, S",
    "stops": "STOPS",
    "moves": "MOVES",
    "hours_lost": "GPU-HOURS LOST",
    "fairness": "FAIRNESS",
}


def text(findings: RunResults, baseline: str, form: str, left_out: Mapping[str, int]) -> str:
    """The comparison in this format, without the final line break.

    There is at least one result. `left_out`: file -> number of rows left out.
    """
    if form == "json":
        return visible_json(msgspec.json.encode(document(findings, baseline, left_out)).decode())
    if form == "csv":
        return csv_text(*runs(findings.results))
    parts = [lines(study, INFLATION_MEASURES) for study in inflation_studies(findings.results, baseline)]
    measures = time_measures(_timed(findings.results))
    parts += [lines(study, measures) for study in time_studies(findings.results, baseline)]
    return "\n\n".join("\n".join(part) for part in parts)


def lines(study: Study[Any], measures: Sequence[Measure[Any]]) -> list[str]:
    """A table of means, and of differences to the baseline with half the width of their 95 % interval."""
    shown = [compare(study, measure) for measure in measures if measure.key in TITLES]
    shown = [comparison for comparison in shown if comparison.spreads]
    header, rows = ["POLICY"], [[policy] for policy in study.policies]
    for comparison in shown:
        counted = comparison.measure.key in COUNTED
        header += [TITLES[comparison.measure.key], *(["WON"] if counted else [])]
        for row in rows:
            row += [_cell(comparison, row[0]), *([_won(comparison, row[0])] if counted else [])]
    size = f"{count(study.nodes, 'node')}, {count(study.gpus, 'GPU')}".replace("\u00a0", " ")
    title = f"{study.trace}: {size}, seeds {seeds_of(study.seeds)}; differences to {study.baseline}"
    return [title, "", *table.render(header, rows, right=range(1, len(header))).splitlines()]


def _cell(comparison: Comparison[Any], policy: str) -> str:
    if policy not in comparison.spreads:
        return "–"
    unit = " %" if comparison.measure.unit == "%" else ""
    digits = 2 if unit else 1
    mean = f"{comparison.spreads[policy].mean:,.{digits}f}{unit}"
    found = comparison.differences.get(policy)
    if found is None:
        return mean
    margin = "" if found.margin is None else f" ± {found.margin:,.{digits}f}"
    return f"{mean}  {found.mean:+,.{digits}f}{margin}"


def _won(comparison: Comparison[Any], policy: str) -> str:
    found = comparison.differences.get(policy)
    return "–" if found is None else f"{found.wins}/{len(found.by_seed)}"


def missing_lines(findings: RunResults) -> list[str]:
    """The runs that were not made because of Ctrl-C."""
    undone: dict[str, list[int]] = {}
    for task in findings.missing:
        undone.setdefault(f"{task.trace}, {task.policy}", []).append(task.seed)
    named = [f"missing: {what}: seeds {seeds_of(sorted(seeds))}" for what, seeds in undone.items()]
    if len(named) > MOST_MISSING:
        named = [*named[:MOST_MISSING], f"missing: {len(named) - MOST_MISSING:,} more"]
    done, total = len(findings.found), len(findings.plan.tasks)
    return [f"interrupted: {done:,} of {total:,} runs are there; the same command goes on from them", *named]


def document(findings: RunResults, baseline: str, left_out: Mapping[str, int]) -> dict[str, Any]:
    """The data of `compare -o json`; docs/simulator.md describes it."""
    results = findings.results
    studies = [_study(study, INFLATION_MEASURES) for study in inflation_studies(results, baseline)]
    studies += [_study(study, time_measures(_timed(results))) for study in time_studies(results, baseline)]
    return {
        "baseline": baseline,
        "complete": not findings.missing,
        "missing": [{"trace": task.trace, "policy": task.policy, "seed": task.seed} for task in findings.missing],
        "left_out": left_out,
        "traces": studies,
        "results": results,
    }


def _study(study: Study[Any], measures: Sequence[Measure[Any]]) -> dict[str, Any]:
    found = [compare(study, measure) for measure in measures]
    return {
        "trace": study.trace,
        "baseline": study.baseline,
        "seeds": study.seeds,
        "nodes": study.nodes,
        "gpus": study.gpus,
        "policies": {policy: _measured(found, policy) for policy in study.policies},
    }


def _measured(found: Sequence[Comparison[Any]], policy: str) -> dict[str, Any]:
    return {
        comparison.measure.key: {
            "mean": comparison.spreads[policy].mean,
            "deviation": comparison.spreads[policy].deviation,
            "by_seed": _by_seed(comparison.spreads[policy].by_seed),
            "difference": _difference(comparison.differences.get(policy)),
        }
        for comparison in found
        if policy in comparison.spreads
    }


def _difference(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "mean": found.mean,
        "low": None if found.margin is None else found.low,
        "high": None if found.margin is None else found.high,
        "wins": found.wins,
        "ties": found.ties,
        "losses": found.losses,
        "verdict": found.verdict.value,
    }


def _by_seed(values: Mapping[int, float]) -> dict[str, float]:
    return {str(seed): value for seed, value in values.items()}


def runs(results: Sequence[Result]) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    """The header, and a row per run. A measure that a run does not have is empty."""
    inflations = [result for result in results if isinstance(result, Inflation)]
    if inflations:
        return _rows(inflations, INFLATION_MEASURES)
    return _rows(_timed(results), TIME_MEASURES, DISTURBANCE_MEASURES + FAIRNESS_MEASURES)


def _timed(results: Sequence[Result]) -> list[Timed]:
    return [result for result in results if isinstance(result, Timed)]


def _rows(
    results: Sequence[Any], measures: Sequence[Measure[Any]], later: Sequence[Measure[Any]] = ()
) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    """The header and the rows. `later`: measures that come after the speed, so that older columns keep their places."""
    header = ("trace", "policy", "seed", *_keys(measures), "decisions_per_second", *_keys(later))
    rows: list[Sequence[Cell]] = []
    for result in results:
        speed = round(result.decisions_per_second, 1)
        rows.append(
            (result.trace, result.policy, result.seed, *_cells(result, measures), speed, *_cells(result, later))
        )
    return header, rows


def _keys(measures: Sequence[Measure[Any]]) -> list[str]:
    return [measure.key for measure in measures]


def _cells(result: Result, measures: Sequence[Measure[Any]]) -> list[Cell]:
    values = (measure.of(result) for measure in measures)
    return ["" if value is None else value for value in values]
