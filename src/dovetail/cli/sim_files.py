"""Traces of the command line read, plots and reports written; complaints become refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from dovetail.cli.errors import Refused
from dovetail.cli.sim_options import Wanted
from dovetail.sim.compare import Case
from dovetail.sim.executors import CannotRun
from dovetail.sim.load import load_trace
from dovetail.sim.orders import Orders
from dovetail.sim.plot import CannotPlot, write_plot
from dovetail.sim.report import write_report
from dovetail.sim.results import Result
from dovetail.sim.rows import Problem, rows_left_out
from dovetail.sim.trace import TraceError
from dovetail.sim.variants import compressed

MOST_COMPLAINTS = 20
LeftOut = dict[str, int]  # file -> rows of it that were left out


class Files(NamedTuple):
    """Where a trace is. `order` is not there where the seed draws one."""

    pods: Path
    nodes: Path
    order: Path | None


@contextmanager
def refusals() -> Iterator[None]:
    """What the user can put right, said in lines."""
    try:
        yield
    except TraceError as error:
        raise Refused(*error.lines) from error
    except (CannotRun, CannotPlot) as error:
        raise Refused(str(error)) from error


def read_cases(sources: Sequence[Files | None], asked: Wanted) -> tuple[list[Case], LeftOut]:
    """In the order of the sources, of which None is generated. What two of them share is complained of once."""
    cases, left_out = [], LeftOut()
    problems: dict[Problem, None] = {}
    for files in sources:
        if files is None:
            cases.append(Case(asked.recipe()))
            continue
        trace, found = load_trace(files.nodes, files.pods, asked.skip_bad)
        problems.update(dict.fromkeys(found))
        counts = {str(path): rows_left_out(path, found) for path in (files.nodes, files.pods)}
        left_out.update(counts)
        orders = None if files.order is None else _orders(files.order, counts, found)
        cases.append(Case(compressed(trace, asked.compress or 1.0), orders))
    _say(list(problems), left_out)
    return cases, left_out


def _orders(path: Path, left_out: LeftOut, problems: Sequence[Problem]) -> Orders:
    """An order counts the rows of the lists it was drawn for: without one of them it would name other pods or nodes."""
    wanting = [
        f"{file}: {_rows(rows)} left out, but {path} counts all of them" for file, rows in left_out.items() if rows
    ]
    if wanting:
        bad = [str(problem) for problem in problems if problem.costs_row]
        raise TraceError(*wanting, "mend the rows, or replay without --order", *bad[:MOST_COMPLAINTS])
    return Orders.open(path)


def _say(problems: Sequence[Problem], left_out: LeftOut) -> None:
    """Some of what was wrong, and then how many rows were left out of which file."""
    for costs_row, verb in ((False, "ignored"), (True, "left out")):
        alike = [problem for problem in problems if problem.costs_row == costs_row]
        for problem in alike[:MOST_COMPLAINTS]:
            click.echo(f"dovetail: {verb}: {problem}", err=True)
        if len(alike) > MOST_COMPLAINTS:
            click.echo(f"dovetail: {verb}: {len(alike) - MOST_COMPLAINTS:,} more problems", err=True)
    for file, rows in left_out.items():
        if rows:
            click.echo(f"dovetail: {file}: {_rows(rows)} left out", err=True)


def _rows(count: int) -> str:
    return "1 row was" if count == 1 else f"{count:,} rows were"


def write_pictures(results: Sequence[Result], plot: Path | None, report: Path | None, baseline: str | None) -> None:
    """What was written is said on stderr: stdout is for the findings. The page first: there may be nothing to plot."""
    for path, write in ((report, _report), (plot, _plot)):
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
