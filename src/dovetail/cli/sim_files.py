"""Traces of the command line read, plots and reports written; complaints become refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dovetail.cli.errors import Refused
from dovetail.sim.executors import CannotRun
from dovetail.sim.load import load_trace
from dovetail.sim.orders import Orders
from dovetail.sim.plot import CannotPlot, write_plot
from dovetail.sim.report import write_report
from dovetail.sim.results import Result
from dovetail.sim.trace import Trace, TraceError

MOST_COMPLAINTS = 20


@contextmanager
def refusals() -> Iterator[None]:
    """What the user can put right, said in lines."""
    try:
        yield
    except TraceError as error:
        raise Refused(*error.lines) from error
    except (CannotRun, CannotPlot) as error:
        raise Refused(str(error)) from error


def read_trace(nodes: Path, pods: Path, skip_bad: bool) -> Trace:
    trace, problems = load_trace(nodes, pods, skip_bad)
    for line in problems[:MOST_COMPLAINTS]:
        click.echo(f"dovetail: left out: {line}", err=True)
    if len(problems) > MOST_COMPLAINTS:
        click.echo(f"dovetail: left out: {len(problems) - MOST_COMPLAINTS:,} more rows", err=True)
    if not trace.machines:
        raise TraceError(f"{nodes}: has no machine; add some")
    if not trace.jobs:
        raise TraceError(f"{pods}: has no job; add some")
    return trace


def read_orders(path: Path | None) -> Orders | None:
    return None if path is None else Orders.open(path)


def write_pictures(results: Sequence[Result], plot: Path | None, report: Path | None, baseline: str | None) -> None:
    """What was written is said on stderr: stdout is for the findings."""
    for path, write in ((plot, _plot), (report, _report)):
        if path is None:
            continue
        try:
            write(results, path, baseline)
        except OSError as error:
            raise Refused(f"{path}: cannot be written: {error.strerror or error}") from error
        click.echo(f"dovetail: wrote {path}", err=True)


def _plot(results: Sequence[Result], path: Path, _: str | None) -> None:
    write_plot(results, path)


def _report(results: Sequence[Result], path: Path, baseline: str | None) -> None:
    write_report(results, path, baseline=baseline)
