"""Formats one result: a summary for users, JSON and CSV for programs, with the fields of sim/results.py."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.cli.output import table
from dovetail.cli.output.encoding import visible_json
from dovetail.sim.results import Inflation, ModelUse, Result, Timed, Usage
from dovetail.sim.runs import Setting
from dovetail.sim.statistics import column_at, last_column, utilisation_pct

Cell = str | int | float
INFLATION_CSV = ("trace", "policy", "seed", "arrived_pct", "allocated_pct", "frag_pct", "frag_ratio_pct")
TIME_CSV = ("trace", "policy", "seed", "queue", "at", "allocated_pct", "waiting")
MOST_TENANTS = 12  # those with the most jobs


def text(result: Result, form: str, setting: Setting, left_out: Mapping[str, int]) -> str:
    """The result in this format, without the final line break. `left_out`: file -> number of rows left out."""
    if form == "json":
        return visible_json(msgspec.json.encode({**msgspec.to_builtins(result), "left_out": left_out}).decode())
    if form == "csv":
        return csv_text(*curve(result))
    lines = _inflation(result) if isinstance(result, Inflation) else _timed(result)
    users = _users(result) if isinstance(result, Timed) else []
    return "\n".join([*lines, "", *_models(result), *users, "", _speed(result, setting)])


def csv_text(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue().rstrip("\n")


def curve(result: Result) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    """The header, and a row per column of inflation mode or per sample of time mode."""
    if isinstance(result, Inflation):
        stem: tuple[Cell, ...] = (result.trace, result.policy, result.seed)
        columns = sorted((int(at), column) for at, column in result.columns.items())
        return INFLATION_CSV, [(*stem, at, c.allocated_pct, c.frag_pct, c.frag_ratio_pct) for at, c in columns]
    stem = (result.trace, result.policy, result.seed, result.queue)
    return TIME_CSV, [(*stem, s.at, s.allocated_pct, s.waiting) for s in result.samples]


def _inflation(run: Inflation) -> list[str]:
    full, last = column_at(run, 100), last_column(run)
    end = round(run.arrived_pct)
    placed, broken, of_idle = [], [], []
    if full is not None and end != 100:
        placed.append(f"{full.allocated_pct:.2f} % when 100 % had arrived")
        broken.append(f"{full.frag_pct:.2f} %")
        of_idle.append(f"{full.frag_ratio_pct:.2f} %")
    if last is not None:
        placed.append(f"{last.allocated_pct:.2f} % in the end ({end} %)")
        broken.append(f"{last.frag_pct:.2f} %")
        of_idle.append(f"{last.frag_ratio_pct:.2f} %")
    return [
        _title(run, len(run.map), run.models) + f": {run.decisions:,} pods arrive and stay",
        "",
        f"GPU capacity placed      {', '.join(placed) or 'none arrived'}",
        f"GPU capacity fragmented  {', '.join(broken) or 'none arrived'}",
        f"of what is idle          {', '.join(of_idle) or 'none arrived'}",
        f"pods without a place     {run.failed:,} of {run.decisions:,}",
        f"left free                {run.gpus_free:,} whole GPUs, {run.nodes_free:,} nodes",
    ]


def _timed(run: Timed) -> list[str]:
    share, delays = utilisation_pct(run), run.delays
    used = "" if share is None else f", {share:.2f} %"
    never = f", {run.never_placed:,} never found a place" if run.never_placed else ""
    return [
        _title(run, len(run.map), run.models) + f": {run.jobs:,} jobs, {run.queue} queue",
        "",
        f"wait before the start     mean {duration(delays.mean)}, half below {duration(delays.p50)}, "
        f"95 % below {duration(delays.p95)}, longest {duration(delays.longest)}",
        f"from arrival to end       mean {duration(delays.completion_mean)}",
        f"GPU-hours in use          {run.hours_allocated:,.0f} of {run.hours_capacity:,.0f}{used}",
        f"GPU-hours idle and wanted {run.hours_idle_while_wanted:,.1f} (no scheduler could go below "
        f"{run.hours_idle_while_wanted_bound:,.1f})",
        f"finished                  {run.finished:,} of {run.jobs:,} jobs{never}; all in {duration(run.makespan)}",
        f"free when busiest         {run.gpus_free:,} whole GPUs, {run.nodes_free:,} nodes",
        f"fragmented when busiest   {run.frag_pct:.2f} % of the GPU capacity, "
        f"{run.frag_ratio_pct:.2f} % of what is idle",
        *_gangs(run),
        *_disturbed(run),
        *_rights(run),
    ]


def _gangs(run: Timed) -> list[str]:
    """Waiting time of gangs and their spread over racks; nothing for a run without gangs."""
    gangs = run.gangs
    if gangs is None:
        return []
    return [
        f"wait of gangs             mean {duration(gangs.mean)}, 95 % below {duration(gangs.p95)}; "
        f"{duration(gangs.fragmented_wait_mean)} of it with enough GPUs idle, but not together",
        f"spread of gangs           {gangs.racks_mean:.2f} racks and {gangs.nodes_mean:.2f} nodes on average "
        f"(at least {gangs.racks_fewest_mean:.2f} racks), {gangs.one_rack_pct:.0f} % in one rack",
    ]


def _disturbed(run: Timed) -> list[str]:
    if not (run.stops or run.moves or run.hours_lost):
        return []
    return [f"stopped and moved         {run.stops:,} stops, {run.moves:,} moves; {run.hours_lost:,.1f} GPU-hours lost"]


def _rights(run: Timed) -> list[str]:
    """The order, preemption and queues of the run, and how fair it was; nothing for a run without any of them."""
    if not run.has_rights:
        return []
    preemption = "no preemption" if run.preemption == "none" else f"preemption by {run.preemption}"
    lowest = f", lowest {min(run.fairness_samples):.2f} %" if run.fairness_samples else ""
    return [
        f"rights                    order {run.order}, {preemption}, {run.queues or 'no'} queues",
        f"fairness between tenants  {run.fairness_pct:.2f} %{lowest} (Jain's index)",
    ]


def _title(run: Result, nodes: int, models: Mapping[str, ModelUse]) -> str:
    gpus = sum(use.gpus for use in models.values())
    return f"{run.trace}, {run.policy}, seed {run.seed} on {nodes:,} nodes with {gpus:,} GPUs"


def _models(run: Result) -> list[str]:
    placed, idle = ("PLACED", "IDLE") if isinstance(run, Inflation) else ("IN USE AT THE BUSIEST MOMENT", "IDLE THEN")
    rows = [
        (model or "not named", f"{use.gpus:,}", f"{use.allocated_pct:.2f} %", f"{use.idle:,}")
        for model, use in run.models.items()
    ]
    return table.render(("GPU MODEL", "GPUS", placed, idle), rows, right=(1, 2, 3)).splitlines()


def _users(run: Timed) -> list[str]:
    """Waits and GPU-hours by size of the job and, if tenants have names, by tenant."""
    lines = ["", *_usage("SIZE OF JOB", run.by_size)]
    if any(run.by_tenant):
        most = sorted(run.by_tenant, key=lambda tenant: (-run.by_tenant[tenant].jobs, tenant))[:MOST_TENANTS]
        lines += ["", *_usage("TENANT", {tenant: run.by_tenant[tenant] for tenant in most})]
        left_out = len(run.by_tenant) - len(most)
        lines += [f"and {left_out:,} more with fewer jobs"] if left_out else []
    return lines


def _usage(title: str, found: Mapping[str, Usage]) -> list[str]:
    rows = [
        (
            name or "not named",
            f"{usage.jobs:,}",
            duration(usage.mean),
            duration(usage.p95),
            f"{usage.gpu_hours:,.1f}",
            f"{usage.gpu_hours_pct:.2f} %",
        )
        for name, usage in found.items()
    ]
    header = (title, "JOBS", "MEAN WAIT", "95 % BELOW", "GPU-HOURS", "OF ALL")
    return table.render(header, rows, right=range(1, len(header))).splitlines()


def _speed(run: Result, setting: Setting) -> str:
    count = run.decisions if isinstance(run, Inflation) else run.events
    what = "decisions" if isinstance(run, Inflation) else "events"
    return f"{count:,} {what} in {run.seconds:.2f} s, {run.decisions_per_second:,.0f} decisions/s ({setting.engine})"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
