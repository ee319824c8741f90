"""The parts of the page that are text, tables and bars: readable without any script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.sim.palette import LIGHT
from dovetail.sim.report.markup import Html, join, tag, unbroken
from dovetail.sim.report.words import amount, change, count, interval
from dovetail.sim.statistics import Better, Comparison, Difference, Spread, Verdict
from dovetail.sim.study import R

TONES = {Verdict.BETTER: "good", Verdict.WORSE: "bad"}  # every other verdict is neutral
Colours = Mapping[str, int]  # policy -> its place in the palette


@dataclass(frozen=True, slots=True)
class Bar:
    """A policy's mean, and its lowest and highest seed."""

    policy: str
    spread: Spread


def policy_name(policy: str, colours: Colours) -> Html:
    return join(tag("i", class_=f"swatch p{colours[policy] % len(LIGHT)}", aria_hidden="true"), policy)


def tone(gap: Difference) -> str:
    return TONES.get(gap.verdict, "neutral")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, class_: str | None = None) -> Html:
    """The first cell of each row is its heading."""
    header = tag("tr", *(tag("th", title, scope="col") for title in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    whole = tag("table", tag("caption", caption), tag("thead", header), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


# --- key figures ------------------------------------------------------------------------------------------------------


def cards(comparisons: Sequence[Comparison[R]], policy: str, baseline: str) -> Html:
    return tag("div", *(_card(c, policy, baseline) for c in comparisons if policy in c.spreads), class_="cards")


def _card(comparison: Comparison[R], policy: str, baseline: str) -> Html:
    measure = comparison.measure
    gap = comparison.differences.get(policy)
    note = Html("")
    if gap is not None:
        moved = tag("b", change(gap.mean, measure.unit), class_=tone(gap))
        note = join(tag("p", moved, " against ", unbroken(baseline)), tag("small", _in_seeds(gap, measure.better)))
    value = tag("p", amount(comparison.spreads[policy].mean, measure.unit), class_="figure")
    return tag("div", tag("h3", measure.title), value, note, class_="card")


def _in_seeds(gap: Difference, better: Better) -> str:
    seeds = len(gap.by_seed)
    if seeds == 1:
        return "one seed: no interval"
    if better == Better.NEITHER or gap.verdict in (Verdict.UNCLEAR, Verdict.EQUAL):
        return gap.verdict.value
    return (
        f"better on {gap.wins} of {seeds} seeds"
        if gap.mean * better >= 0
        else f"worse on {gap.losses} of {seeds} seeds"
    )


# --- differences to the baseline --------------------------------------------------------------------------------------


def differences(comparisons: Sequence[Comparison[R]], baseline: str, colours: Colours) -> Html:
    head = ("Policy", "Mean ± deviation", f"Difference to {baseline}", "", "95 % interval", "Won · tied · lost", "")
    header = tag("tr", *(tag("th", title, scope="col") for title in head))
    groups = [_group(comparison, baseline, colours) for comparison in comparisons if comparison.spreads]
    caption = f"Every policy against {baseline}, over seeds"
    whole = tag("table", tag("caption", caption), tag("thead", header), *groups, class_="differences")
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _group(comparison: Comparison[R], baseline: str, colours: Colours) -> Html:
    gaps = comparison.differences
    reach = max((max(abs(gap.low), abs(gap.high)) for gap in gaps.values()), default=0.0)
    title = tag("tr", tag("th", comparison.measure.title, colspan=7, scope="rowgroup"), class_="measure")
    rows = []
    for policy, found in comparison.spreads.items():
        gap = gaps.get(policy)
        if gap is not None:
            cells = _gap_cells(gap, comparison, reach)
        else:
            why = "baseline" if policy == baseline else "no seed in common"
            cells = [tag("td", tag("span", why, class_="quiet"), colspan=5)]
        mean_cell = tag("td", _mean(found, comparison.measure.unit), class_="number")
        rows.append(tag("tr", tag("th", policy_name(policy, colours), scope="row"), mean_cell, *cells))
    return tag("tbody", title, *rows)


def _mean(found: Spread, unit: str) -> Html:
    around = f" ± {amount(found.deviation, unit, found.mean)}" if found.deviation is not None else ""
    return join(amount(found.mean, unit), tag("small", around))


def _gap_cells(gap: Difference, comparison: Comparison[R], reach: float) -> list[Html]:
    unit = comparison.measure.unit
    if gap.margin is None:
        shown = "none: one seed"
    else:
        shown = interval(gap.low, gap.high, unit, reach)
    judged = comparison.measure.better != Better.NEITHER
    record = f"{gap.wins} · {gap.ties} · {gap.losses}" if judged else "–"
    return [
        tag("td", change(gap.mean, unit, reach), class_="number"),
        tag("td", _whisker(gap, reach)),
        tag("td", shown, class_="number"),
        tag("td", record, class_="number"),
        tag("td", tag("span", gap.verdict.value, class_=f"verdict {tone(gap)}")),
    ]


def _whisker(gap: Difference, reach: float) -> Html:
    """The interval as a line, the mean as a dot, on a scale that all policies share, with 0 in the middle."""

    def at(value: float) -> float:
        return 50 + 48 * value / reach if reach else 50.0

    line = tag("i", style=f"left:{at(gap.low):.2f}%;width:{at(gap.high) - at(gap.low):.2f}%")
    dot = tag("b", style=f"left:{at(gap.mean):.2f}%")
    return tag("span", line, dot, class_=f"whisker {tone(gap)}", aria_hidden="true")


# --- bars -------------------------------------------------------------------------------------------------------------


def bars(rows: Sequence[Bar], unit: str, colours: Colours, bound: float | None = None) -> Html:
    """One bar per policy, with a line from the lowest to the highest seed. `bound` is marked on every bar."""
    most = max([*(max(row.spread.by_seed.values()) for row in rows), bound or 0.0]) or 1.0
    return tag("div", *(_bar(row, most, unit, colours, bound) for row in rows), class_="bars")


def _bar(row: Bar, most: float, unit: str, colours: Colours, bound: float | None) -> Html:
    def percent(value: float) -> str:
        return f"{100 * value / most:.2f}%"

    low, high = min(row.spread.by_seed.values()), max(row.spread.by_seed.values())
    parts = [tag("i", class_=f"fill p{colours[row.policy] % len(LIGHT)}", style=f"width:{percent(row.spread.mean)}")]
    if bound is not None:
        parts.append(tag("i", class_="bound", style=f"left:{percent(bound)}"))
    if high > low:
        parts.append(tag("i", class_="range", style=f"left:{percent(low)};width:{percent(high - low)}"))
    track = tag("span", *parts, class_="track", aria_hidden="true")
    value = tag("span", amount(row.spread.mean, unit), class_="number")
    return tag("div", tag("span", policy_name(row.policy, colours), class_="who"), track, value, class_="bar")


# --- a table with a policy per column ---------------------------------------------------------------------------------


def by_policy(
    caption: str, corner: str, policies: Sequence[str], rows: Sequence[tuple[str, Sequence[Html]]], colours: Colours
) -> Html:
    head = [corner, *(policy_name(policy, colours) for policy in policies)]
    return table(head, [(name, *cells) for name, cells in rows], caption, class_="matrix")


def filled(text: str, note: str, percent: float) -> Html:
    """A cell that is coloured in as far as its value goes."""
    share = min(max(percent, 0.0), 100.0)
    return tag("span", tag("b", text), tag("small", note), class_="filled", style=f"--share:{share:.1f}%")


def omitted(left_out: int, noun: str) -> Html:
    return tag("p", f"and {count(left_out, noun)} more, with fewer jobs", class_="quiet") if left_out > 0 else Html("")
