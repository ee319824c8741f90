"""The parts of the page that need no script: text, tables and bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.sim.palette import LIGHT
from dovetail.sim.report.markup import Html, join, tag, unbroken
from dovetail.sim.report.words import SPACE, amount, change, count, interval, with_unit
from dovetail.sim.statistics import Better, Comparison, Difference, SeedVerdict, Spread
from dovetail.sim.study import R, Study

RECORD = "Won · tied · lost"
TONES = {SeedVerdict.BETTER: "good", SeedVerdict.WORSE: "bad"}  # every other verdict is neutral
CORNER_REM, COLUMN_REM = 11, 8  # width of the first and of each other column of a table with a column per policy
STACKED = (
    "TABLE,TABLE tbody,TABLE tr,TABLE th,TABLE td{display:block}TABLE thead{display:none}TABLE tbody th{max-width:none;"
    "padding-top:1rem;border-bottom:0;font-weight:600}TABLE td{display:grid;grid-template-columns:minmax(0,1fr) "
    "minmax(0,2fr);gap:.8rem}TABLE td::before{content:attr(data-column);color:var(--soft)}"
)
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


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str,
    class_: str | None = None,
    names: Sequence[str] | None = None,
) -> Html:
    """A table; the first cell of each row is its heading.

    `names` are the column names as text, for screens too narrow for columns: there each cell has its own line.
    """
    header = tag("tr", *(tag("th", title, scope="col") for title in head))
    body = []
    for first, *rest in rows:
        cells = [tag("td", cell, data_column=name) for name, cell in zip((names or head)[1:], rest, strict=True)]
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
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
        moved = tag("b", with_unit(change(gap.mean, measure.unit), measure.unit), class_=tone(gap))
        note = join(tag("p", moved, " against ", unbroken(baseline)), tag("small", _in_seeds(gap, measure.better)))
    text, _, unit = with_unit(amount(comparison.spreads[policy].mean, measure.unit), measure.unit).partition(SPACE)
    value = tag("p", text, tag("small", SPACE, unit), class_="figure")
    return tag("div", tag("h3", measure.title), value, note, class_="card")


def _in_seeds(gap: Difference, better: Better) -> str:
    seeds = len(gap.by_seed)
    if seeds == 1:
        return "one seed: no interval"
    if better == Better.NEITHER or gap.verdict in (SeedVerdict.UNCLEAR, SeedVerdict.EQUAL):
        return gap.verdict.value
    return (
        f"better on {gap.wins} of {seeds} seeds"
        if gap.mean * better >= 0
        else f"worse on {gap.losses} of {seeds} seeds"
    )


# --- differences to the baseline --------------------------------------------------------------------------------------


def differences(comparisons: Sequence[Comparison[R]], baseline: str, colours: Colours) -> Html:
    head = ("Policy", "Mean ± deviation", f"Difference to {baseline}", "", "95 % interval", RECORD, "Verdict")
    header = tag("tr", *(tag("th", title, scope="col") for title in head))
    groups = [_group(comparison, baseline, colours) for comparison in comparisons if comparison.spreads]
    caption = f"Every policy against {baseline}, over seeds"
    whole = tag("table", tag("caption", caption), tag("thead", header), *groups, class_="differences")
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _group(comparison: Comparison[R], baseline: str, colours: Colours) -> Html:
    gaps = comparison.differences
    reach = max((max(abs(gap.low), abs(gap.high)) for gap in gaps.values()), default=0.0)
    unit = comparison.measure.unit
    name = join(comparison.measure.title, tag("small", "" if unit == "s" else f", in{SPACE}{unit}"))
    title = tag("tr", tag("th", name, colspan=7, scope="rowgroup"), class_="measure")
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
        tag("td", record, class_="number", data_column=f"{RECORD}: "),
        tag("td", tag("span", gap.verdict.value, class_=f"verdict {tone(gap)}")),
    ]


def _whisker(gap: Difference, reach: float) -> Html:
    """The interval as a line and the mean as a dot. All policies share the scale, with 0 in the middle."""

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
    value = tag("span", with_unit(amount(row.spread.mean, unit), unit), class_="number")
    return tag("div", tag("span", policy_name(row.policy, colours), class_="who"), track, value, class_="bar")


# --- a table with a policy per column ---------------------------------------------------------------------------------


def by_policy(
    caption: str, corner: str, policies: Sequence[str], rows: Sequence[tuple[str, Sequence[Html]]], colours: Colours
) -> Html:
    head = [corner, *(policy_name(policy, colours) for policy in policies)]
    body = [(name, *cells) for name, cells in rows]
    return table(head, body, caption, f"matrix of-{len(policies)}", [corner, *policies])


def matrix_style(studies: Iterable[Study[Any]]) -> str:
    """Styles that stack a table with a column per policy if its box is too narrow for the columns."""
    counts = sorted({len(study.policies) for study in studies})
    rules = {n: STACKED.replace("TABLE", f".matrix.of-{n}") for n in counts}
    return "".join(f"@container (max-width:{CORNER_REM + n * COLUMN_REM}rem){{{rule}}}\n" for n, rule in rules.items())


def filled(text: str, note: str, percent: float) -> Html:
    """A cell that is filled with colour up to `percent`."""
    share = min(max(percent, 0.0), 100.0)
    return tag("span", tag("b", text), tag("small", note), class_="filled", style=f"--share:{share:.1f}%")


def omitted(left_out: int, noun: str) -> Html:
    return tag("p", f"and {count(left_out, noun)} more, with fewer jobs", class_="quiet") if left_out > 0 else Html("")
