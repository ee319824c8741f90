"""Writes traces for the commands that make them: checks the files first, and writes them with their folders."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.errors import Refused
from dovetail.sim.jobs_file import write_jobs, write_machines
from dovetail.sim.rows import format_of
from dovetail.sim.summary import summarise
from dovetail.sim.trace import Trace


def check_target(path: Path | None, force: bool) -> None:
    """Raise Refused if the file cannot be written; called before the work is done."""
    if path is None:
        return
    format_of(path)
    refuse_existing(path, force)


def refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise Refused(f"{path}: is there already; add --force to overwrite it, or write elsewhere")


def make_folder(path: Path) -> None:
    """Make the folder of this file. Raises Refused."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{path.parent}: cannot be made: {error.strerror or error}") from error


def write_trace(trace: Trace, jobs: Path | None, nodes: Path | None) -> list[str]:
    """Write the files; return a line of text for each."""
    for path in (jobs, nodes):
        if path is not None:
            make_folder(path)
    written = []
    if jobs is not None:
        write_jobs(jobs, trace.jobs)
        written.append(f"jobs      {jobs}")
    if nodes is not None:
        write_machines(nodes, trace.machines)
        written.append(f"nodes     {nodes}")
    return written


def summary_lines(trace: Trace) -> list[str]:
    """The trace in a few numbers."""
    found = summarise(trace)
    load = "" if found.load is None else f", load {found.load:.2f}"
    mix = " · ".join(f"{count:,} {size}" for size, count in found.sizes.items())
    tenants = " · ".join(f"{count:,} {tenant}" for tenant, count in list(found.tenants.items())[:8])
    more = f" · {len(found.tenants) - 8} more" if len(found.tenants) > 8 else ""
    return [
        f"{found.jobs:,} jobs of {found.pods:,} pods, {found.gpu_hours:,.0f} GPU-hours, arriving in "
        f"{found.hours:,.1f} h on {found.machines:,} nodes with {found.gpus:,} GPUs{load}",
        f"sizes     {mix}",
        f"tenants   {tenants}{more}",
        f"special   {found.gangs:,} gangs · {found.constrained:,} name GPU models",
    ]
