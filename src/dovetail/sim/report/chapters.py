"""The chapters of the page, one per study: text as HTML, curves and maps as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.sim import curves
from dovetail.sim.report import maps, tables
from dovetail.sim.report.data import curve_data, study_data
from dovetail.sim.report.headline import inflation_sentence, leader, time_sentence
from dovetail.sim.report.markup import Html, join, tag
from dovetail.sim.report.tables import Bar, Colours
from dovetail.sim.report.words import SPACE, amount, count, decimals, seeds_of
from dovetail.sim.results import Inflation, Timed, Usage
from dovetail.sim.statistics import (
    ALLOCATED_AT_END,
    DELAY,
    FAILED,
    FRAGMENTED_AT_END,
    GPUS_FREE,
    IDLE_WHILE_WANTED,
    INFLATION_MEASURES,
    MAKESPAN,
    UTILISATION,
    Comparison,
    compare,
    idle_bound,
    mean,
    time_measures,
)
from dovetail.sim.study import R, Study, first_seed

FAIRNESS_NOTE = "100 %: every tenant has the same part of what it is owed and asks for. Higher is better."
MOST_TENANTS = 12  # those with the most jobs; a longer table is hard to read


@dataclass(frozen=True, slots=True)
class Chapter:
    title: str
    html: Html
    data: dict[str, Any]


def inflation_chapter(study: Study[Inflation], colours: Colours, at: int) -> Chapter:
    compared = {measure.key: compare(study, measure) for measure in INFLATION_MEASURES}
    shown = [compared[measure.key] for measure in (ALLOCATED_AT_END, FRAGMENTED_AT_END, FAILED, GPUS_FREE)]
    policy = leader(compared[ALLOCATED_AT_END.key]) or study.baseline
    failed = [Bar(name, spread) for name, spread in compared[FAILED.key].spreads.items()]
    html = join(
        _opening(study, inflation_sentence(study), policy),
        tables.cards(shown, policy, study.baseline),
        _chart(at, "allocated", "GPU capacity placed, % of all GPU capacity", "Higher is better."),
        _chart(
            at,
            "fragmented",
            "GPU capacity fragmented, % of all GPU capacity",
            "Idle, but in pieces that the jobs to come cannot use. Lower is better.",
        ),
        _differences(study, list(compared.values()), colours),
        _section(
            "Pods that found no place, number of pods",
            "Mean over seeds; the thin line spans the lowest and the highest seed.",
            tables.bars(failed, "pods", colours),
        ),
        _packing(study, colours, "in the end"),
        _maps(study, at, colours, "in the end"),
    )
    data = study_data(study, "inflation", list(compared.values()))
    data["curves"] = {
        "allocated": curve_data(curves.allocated_by_arrived(study)),
        "gained": curve_data(curves.gained_by_arrived(study)),
        "fragmented": curve_data(curves.fragmented_by_arrived(study)),
        "fragmented_of_idle": curve_data(curves.fragmented_of_idle_by_arrived(study)),
    }
    return Chapter(study.trace, html, data)


def time_chapter(study: Study[Timed], colours: Colours, at: int) -> Chapter:
    results = [run for runs in study.runs.values() for run in runs.values()]
    compared = {measure.key: compare(study, measure) for measure in time_measures(results)}
    shown = [compared[measure.key] for measure in (IDLE_WHILE_WANTED, DELAY, UTILISATION, MAKESPAN)]
    policy = leader(compared[IDLE_WHILE_WANTED.key]) or study.baseline
    idle = [Bar(name, spread) for name, spread in compared[IDLE_WHILE_WANTED.key].spreads.items()]
    bound, fair = idle_bound(study), _shows_fairness(results)
    html = join(
        _opening(study, time_sentence(study), policy),
        tables.cards(shown, policy, study.baseline),
        _chart(
            at, "allocated", "GPU capacity in use over time, % of all GPU capacity", "Higher is better while jobs wait."
        ),
        _chart(at, "waiting", "Jobs waiting over time, number of jobs", "Shorter is better."),
        _chart(at, "fairness", "Fairness between tenants over time, Jain's index in %", FAIRNESS_NOTE)
        if fair
        else Html(""),
        _section(
            "GPU-hours idle while jobs waited",
            f"The upright mark is the bound of {amount(bound, '')} GPU-hours: no scheduler can do better.",
            tables.bars(idle, "GPU-hours", colours, bound),
        ),
        _differences(study, list(compared.values()), colours),
        _delays(study, colours),
        _hours(study, colours),
        _packing(study, colours, "at the busiest moment"),
        _maps(study, at, colours, "at the busiest moment"),
    )
    data = study_data(study, "time", list(compared.values()))
    data["idle_bound"] = round(bound, 3)
    data["curves"] = {
        "allocated": curve_data(curves.allocated_by_hour(study)),
        "waiting": curve_data(curves.waiting_by_hour(study)),
        **({"fairness": curve_data(curves.fairness_by_hour(study))} if fair else {}),
    }
    return Chapter(study.trace, html, data)


def _shows_fairness(results: Sequence[Timed]) -> bool:
    """Whether orders, preemption or queues are compared, and there are tenants between whom to be fair."""
    return any(run.has_rights for run in results) and all(run.fairness_samples for run in results)


# --- parts that both modes have ---------------------------------------------------------------------------------------


def _section(title: str, note: str, *content: Html) -> Html:
    return tag("section", tag("h3", title), tag("p", note, class_="note"), *content)


def _opening(study: Study[R], sentence: str, policy: str) -> Html:
    size = f"{count(study.nodes, 'node')}, {count(study.gpus, 'GPU')}, {count(len(study.seeds), 'seed')}"
    figures = f"Key figures of {policy}" + (f", against {study.baseline}" if policy != study.baseline else "")
    return join(tag("p", sentence, class_="finding"), tag("p", f"{figures}. {size}.", class_="note"))


def _chart(at: int, curve: str, title: str, note: str) -> Html:
    frame = tag("div", class_="chart", data_chart=curve, data_chapter=at)
    return tag("section", tag("h3", title), tag("p", note, class_="note"), frame, class_="wide")


def _differences(study: Study[R], compared: Sequence[Comparison[R]], colours: Colours) -> Html:
    seeds = len(study.seeds)
    if not study.others:
        note = "One policy alone: there is nothing to compare it with."
    elif seeds == 1:
        note = "One seed tells nothing about chance: there is no interval. Run more seeds (five or ten) for one."
    else:
        note = (
            "Policies are compared seed by seed, on the same arrivals. Were all of it repeated with other seeds, about "
            "19 of 20 such intervals would hold the true mean difference. An interval without 0 is a clear difference; "
            "one with 0 may be chance."
        )
    return _section(f"Differences to {study.baseline}", note, tables.differences(compared, study.baseline, colours))


def _packing(study: Study[R], colours: Colours, when: str) -> Html:
    rows = []
    for model in sorted(study.first.models):
        cells = []
        for runs in study.runs.values():
            uses = [run.models[model] for run in runs.values() if model in run.models]
            full = mean([use.allocated_pct for use in uses]) if uses else 0.0
            idle = mean([use.idle for use in uses]) if uses else 0.0
            cells.append(tables.filled(amount(full, "%"), f"{decimals(idle, 0)} idle", full))
        rows.append((f"{model or 'GPU'} × {study.first.models[model].gpus:,}", cells))
    note = "How full the GPUs of each model are, and how many of them no pod uses. Mean over seeds."
    return _section(
        f"Packing by GPU model, {when}, % of its GPU capacity",
        note,
        tables.by_policy("Packing by model", "Model", study.policies, rows, colours),
    )


def _maps(study: Study[R], at: int, colours: Colours, when: str) -> Html:
    if not any(node.gpus for node in study.first.map):
        return Html("")
    frames = []
    for policy, runs in study.runs.items():
        seed = first_seed(runs).seed
        bands = maps.by_band(first_seed(runs).map)
        caption = f"GPUs by how full they are: {policy}, seed {seed}"
        title = tag("figcaption", tables.policy_name(policy, colours), tag("small", _tally(bands)))
        canvas = tag("canvas", role="img", aria_label=f"{caption}; the table below has the numbers", tabindex="0")
        details = tag("details", tag("summary", "As a table"), _band_table(bands, caption))
        frames.append(tag("figure", title, canvas, details, data_map=policy, data_chapter=at))
    seeds = seeds_of(sorted({first_seed(runs).seed for runs in study.runs.values()}))
    note = f"Every GPU is a cell, a frame is a node, and nodes are in the same place for every policy. Of seed {seeds}."
    legend = tag(
        "p",
        *(tag("span", tag("i", class_=f"cell {key}"), text) for key, text in (("empty", "empty"), ("full", "full"))),
        tag("span", "in part:", SPACE, tag("i", class_="cell ramp"), "from little to nearly full"),
        class_="map-legend",
    )
    return _section(f"Every GPU, {when}", note, legend, tag("div", *frames, class_="maps"))


def _band_table(bands: Mapping[str, Sequence[int]], caption: str) -> Html:
    rows = [(model or "GPU", *map("{:,}".format, numbers)) for model, numbers in bands.items()]
    return tables.table(("Model", *maps.BANDS), rows, caption)


def _tally(bands: Mapping[str, Sequence[int]]) -> str:
    empty, *part, full = (sum(numbers) for numbers in zip(*bands.values(), strict=True))
    return f"{full:,} full · {sum(part):,} in part · {empty:,} empty"


# --- by size and by tenant, of time mode only -------------------------------------------------------------------------


def _delays(study: Study[Timed], colours: Colours) -> Html:
    note = "Mean wait from arrival to start and, small, the wait that 95 % of the jobs stay below. Mean over seeds."
    wait = Figures(lambda usage: usage.mean, lambda usage: usage.p95, "s", "s")
    return _section(
        "Who waits how long, from arrival to start", note, *_by_size_and_tenant("Wait", wait, study, colours)
    )


def _hours(study: Study[Timed], colours: Colours) -> Html:
    note = (
        "GPU-hours that jobs were given, by compute and, small, their percent of all GPU-hours of the run. "
        "Mean over seeds."
    )
    hours = Figures(lambda usage: usage.gpu_hours, lambda usage: usage.gpu_hours_pct, "GPU-hours", "%")
    return _section("Who has the GPUs, in GPU-hours", note, *_by_size_and_tenant("GPU-hours", hours, study, colours))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a table cell shows for some of the jobs: a main number, which also fills the cell, and a small one."""

    main: Callable[[Usage], float]
    small: Callable[[Usage], float]
    main_unit: str
    small_unit: str


def _by_size_and_tenant(what: str, figures: Figures, study: Study[Timed], colours: Colours) -> list[Html]:
    first = study.first
    tenants = sorted(first.by_tenant, key=lambda name: (-first.by_tenant[name].jobs, name))
    sizes = {policy: [run.by_size for run in runs.values()] for policy, runs in study.runs.items()}
    owners = {policy: [run.by_tenant for run in runs.values()] for policy, runs in study.runs.items()}
    parts = [_usage_table((f"{what} by size of the job", "Size"), list(first.by_size), sizes, figures, colours)]
    if any(tenants):  # at least one tenant has a name
        shown = tenants[:MOST_TENANTS]
        parts.append(_usage_table((f"{what} by tenant", "Tenant"), shown, owners, figures, colours))
        parts.append(tables.omitted(len(tenants) - MOST_TENANTS, "tenant"))
    return parts


def _usage_table(
    titles: tuple[str, str],  # caption, corner
    names: Sequence[str],
    found: Mapping[str, Sequence[Mapping[str, Usage]]],  # policy -> per seed: name -> usage
    figures: Figures,
    colours: Colours,
) -> Html:
    rows = []
    for name in names:
        of_policy = [[by_name[name] for by_name in runs if name in by_name] for runs in found.values()]
        main = [mean([figures.main(usage) for usage in runs]) if runs else 0.0 for runs in of_policy]
        small = [mean([figures.small(usage) for usage in runs]) if runs else 0.0 for runs in of_policy]
        most = max(main) or 1.0
        cells = [
            tables.filled(
                amount(value, figures.main_unit, most), amount(note, figures.small_unit, max(small)), 100 * value / most
            )
            for value, note in zip(main, small, strict=True)
        ]
        rows.append((name or "–", cells))
    return tables.by_policy(*titles, list(found), rows, colours)
