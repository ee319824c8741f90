"""Reads the traces of the command line, and writes plots and reports. Their errors become Refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from dovetail.cli.errors import Refused
from dovetail.cli.output.terminal import say
from dovetail.cli.sim_options import Wanted
from dovetail.sim.compare import TraceCase
from dovetail.sim.executors import CannotRun
from dovetail.sim.load import load_trace
from dovetail.sim.orders import Orders
from dovetail.sim.plot import CannotPlot, write_plot
from dovetail.sim.report import write_report
from dovetail.sim.report.origin import Origin
from dovetail.sim.results import Result
from dovetail.sim.rows import RowProblem, rows_left_out
from dovetail.sim.trace import TraceError
from dovetail.sim.variants import compressed

MOST_COMPLAINTS = 20
NOT_TOLD = ("report", "plot", "output", "no_cache", "workers", "color")  # options that do not change a result
DEFAULT_IN_HELP = re.compile(r"\[default: (.*)\]$")  # of options whose default is computed later
LeftOut = dict[str, int]  # file -> rows of it that were left out


class Files(NamedTuple):
    """The files of a trace. `order` is None if the seed draws one."""

    pods: Path
    nodes: Path
    order: Path | None


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors that the user can fix into Refused."""
    try:
        yield
    except TraceError as error:
        raise Refused(*error.lines) from error
    except (CannotRun, CannotPlot) as error:
        raise Refused(str(error)) from error


def read_cases(sources: Sequence[Files | None], asked: Wanted) -> tuple[list[TraceCase], LeftOut]:
    """The cases in the order of the sources; a source of None is generated.

    A problem of a file that two sources share is reported once.
    """
    cases, left_out = [], LeftOut()
    problems: dict[RowProblem, None] = {}
    for files in sources:
        if files is None:
            cases.append(TraceCase(asked.recipe()))
            continue
        trace, found = load_trace(files.nodes, files.pods, asked.skip_bad)
        problems.update(dict.fromkeys(found))
        counts = {str(path): rows_left_out(path, found) for path in (files.nodes, files.pods)}
        left_out.update(counts)
        orders = None if files.order is None else _orders(files.order, counts, found)
        cases.append(TraceCase(compressed(trace, asked.compress or 1.0), orders))
    _say(list(problems), left_out)
    return cases, left_out


def _orders(path: Path, left_out: LeftOut, problems: Sequence[RowProblem]) -> Orders:
    """The orders of a file.

    An order is a list of row numbers of the original lists. If a row was left out, it would name other pods or nodes.
    """
    wanting = [
        f"{file}: {_rows(rows)} left out, but {path} counts all of them" for file, rows in left_out.items() if rows
    ]
    if wanting:
        bad = [str(problem) for problem in problems if problem.costs_row]
        raise TraceError(*wanting, "mend the rows, or replay without --order", *bad[:MOST_COMPLAINTS])
    return Orders.open(path)


def _say(problems: Sequence[RowProblem], left_out: LeftOut) -> None:
    """Print some of the problems, and then how many rows of which file were left out."""
    for costs_row, verb in ((False, "ignored"), (True, "left out")):
        alike = [problem for problem in problems if problem.costs_row == costs_row]
        for problem in alike[:MOST_COMPLAINTS]:
            say(f"{verb}: {problem}")
        if len(alike) > MOST_COMPLAINTS:
            say(f"{verb}: {len(alike) - MOST_COMPLAINTS:,} more problems")
    for file, rows in left_out.items():
        if rows:
            say(f"{file}: {_rows(rows)} left out")


def _rows(count: int) -> str:
    return "1 row was" if count == 1 else f"{count:,} rows were"


def write_pictures(results: Sequence[Result], plot: Path | None, report: Path | None, baseline: str | None) -> None:
    """Write the report and the plot.

    The report is first, because there may be nothing to plot. Messages go to stderr: stdout is for results.
    """
    origin = origin_of(click.get_current_context(), datetime.now(UTC))
    page = partial(write_report, results, baseline=baseline, origin=origin)
    for path, write in ((report, page), (plot, partial(write_plot, results))):
        if path is None:
            continue
        try:
            write(path)
        except OSError as error:
            raise Refused(f"{path}: cannot be written: {error.strerror or error}") from error
        say(f"wrote {path}")


def origin_of(context: click.Context, now: datetime) -> Origin:
    """The command as it was typed, if `main` has recorded it, and the value of each of its options."""
    typed = context.find_root().obj
    command = shlex.join([context.find_root().command_path, *typed]) if isinstance(typed, tuple) else ""
    settings = [_setting(context, parameter) for parameter in context.command.params if parameter.name not in NOT_TOLD]
    return Origin(command, f"{now:%Y-%m-%d %H:%M} UTC", [one for one in settings if one[1]])


def _setting(context: click.Context, parameter: click.Parameter) -> tuple[str, str, bool]:
    name = str(parameter.name)
    value = context.params.get(name)
    values = value if isinstance(value, (list, tuple)) else [value]
    given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
    shown = ", ".join("yes" if one is True else str(one) for one in values if one is not None and one is not False)
    described = DEFAULT_IN_HELP.search(getattr(parameter, "help", None) or "")
    return max(parameter.opts, key=len), shown or (described[1] if described else ""), given
