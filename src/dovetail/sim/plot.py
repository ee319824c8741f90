"""Draws curves: SVG with our own code, PNG with matplotlib. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.sim import curves
from dovetail.sim.palette import colour, dash
from dovetail.sim.plot_svg import Line, Panel, draw_svg
from dovetail.sim.results import Result
from dovetail.sim.study import inflation_studies, time_studies

ARRIVED = "arrived demand, % of all GPU capacity"
HOURS = "hours since the trace began"


class CannotPlot(ValueError):
    """A plot that cannot be written; the message says what would help."""


def write_plot(results: Sequence[Result], path: Path | str) -> None:
    """Write a row of two panels per trace. The suffix chooses the format: .svg, or .png with the extra `plot`."""
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in (".svg", ".png"):
        raise CannotPlot(f"{target.name}: a plot is written as .svg or .png")
    found = panels(results)
    if not found:
        raise CannotPlot("nothing to plot: no result has a curve; inflation needs GPUs, time mode jobs that end")
    if kind == ".svg":
        target.write_text(draw_svg(found), encoding="utf-8")
    else:
        _write_png(found, target)


def panels(results: Sequence[Result]) -> list[Panel]:
    """The panels to draw, two per trace."""
    inflations, times = inflation_studies(results), time_studies(results)
    runs = [study.policies for study in inflations] + [study.policies for study in times]
    names = dict.fromkeys(policy for policies in runs for policy in policies)
    inks = {name: (colour(at), dash(at)) for at, name in enumerate(names)}
    found = []
    for study in inflations:
        placed, broken = curves.allocated_by_arrived(study), curves.fragmented_by_arrived(study)
        start = curves.parting_point(placed)
        found.append(_panel(f"{study.trace}: GPU capacity placed, %", ARRIVED, placed, inks, start))
        found.append(_panel(f"{study.trace}: GPU capacity fragmented, %", ARRIVED, broken, inks))
    for timed in times:
        used, waiting = curves.allocated_by_hour(timed), curves.waiting_by_hour(timed)
        found.append(_panel(f"{timed.trace}: GPU capacity in use, %", HOURS, used, inks))
        found.append(_panel(f"{timed.trace}: jobs waiting", HOURS, waiting, inks))
    return [panel for panel in found if len(panel.x) > 1]


def _panel(
    title: str, x_title: str, found: curves.CurveSet, inks: dict[str, tuple[str, str]], start: float | None = None
) -> Panel:
    """A panel that begins at `start`. Without `start` it shows all of x, and y begins at 0."""
    first = found.x.index(start) if start in found.x else 0
    lines = [
        Line(name, *inks[name], curve.mean[first:], curve.low[first:], curve.high[first:])
        for name, curve in found.by_policy.items()
    ]
    return Panel(title, x_title, found.x[first:], lines, from_zero=start is None)


def _write_png(found: Sequence[Panel], path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise CannotPlot("PNG needs matplotlib: pip install 'dovetail[plot]', or write an .svg") from missing
    rows = -(-len(found) // 2)
    figure = Figure(figsize=(12, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes, panel in zip(grid.flat, found, strict=False):
        for line in panel.lines:
            style = (0, tuple(float(part) for part in line.dash.split())) if line.dash else "-"
            axes.plot(panel.x, line.mean, color=line.colour, linestyle=style, label=line.name, linewidth=1.6)
            axes.fill_between(panel.x, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0)
        axes.set_xlim(panel.x[0], panel.x[-1])
        axes.set_ylim(*panel.y_range)
        axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
        axes.set_xlabel(panel.x_title)
        axes.grid(axis="y", color="#e4e5e3")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(found) :]:
        axes.set_visible(False)
    shown = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    legend = figure.legend(shown.values(), shown.keys(), loc="outside upper left", ncols=6, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=144, metadata={"Software": None})
