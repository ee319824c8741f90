"""Builds the page: a template, a style sheet and scripts become one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail import __version__
from dovetail.sim import palette
from dovetail.sim.report import maps, tables
from dovetail.sim.report.chapters import Chapter, inflation_chapter, time_chapter
from dovetail.sim.report.markup import Html, join, json_block, tag, unbroken
from dovetail.sim.report.origin import Origin, origin_section
from dovetail.sim.report.overview import overall
from dovetail.sim.report.words import count, listed, seeds_of
from dovetail.sim.results import Inflation, NodeMap, Result, Timed
from dovetail.sim.study import Study, inflation_studies, time_studies

SCRIPTS = ("watch.js", "scales.js", "line_chart.js", "gpu_map.js", "page.js")  # in this order
MODE_TITLES = {"inflation": "until full", "time": "over time"}
UNKNOWN_ORIGIN = Origin()
Studies = Sequence[Study[Inflation] | Study[Timed]]


def write_report(
    results: Sequence[Result],
    path: Path | str,
    *,
    title: str = "GPU scheduling report",
    baseline: str | None = None,
    origin: Origin = UNKNOWN_ORIGIN,
) -> None:
    """Write one self-contained page. Policies are compared with `baseline`, or with the first one in the results."""
    Path(path).write_text(render(results, title, baseline, origin), encoding="utf-8")


def render(results: Sequence[Result], title: str, baseline: str | None = None, origin: Origin = UNKNOWN_ORIGIN) -> str:
    if not results:
        raise ValueError("a report needs at least one result")
    inflations, times = inflation_studies(results, baseline), time_studies(results, baseline)
    studies: Studies = [*inflations, *times]
    colours = {policy: at for at, policy in enumerate(dict.fromkeys(p for study in studies for p in study.policies))}
    chapters = [inflation_chapter(study, colours, at) for at, study in enumerate(inflations)]
    chapters += [time_chapter(study, colours, len(inflations) + at) for at, study in enumerate(times)]
    clusters, cluster_of = _clusters(studies)
    for chapter, at in zip(chapters, cluster_of, strict=True):
        chapter.data["cluster"] = at
    data = {
        "title": title,
        "version": __version__,
        "command": origin.command,
        "date": origin.date,
        "settings": {name: value for name, value, _ in origin.settings},
        "colours": {policy: [at % len(palette.LIGHT), palette.dash(at)] for policy, at in colours.items()},
        "clusters": clusters,
        "chapters": [chapter.data for chapter in chapters],
    }
    script = Html("\n".join(_asset(name) for name in SCRIPTS))
    return _fill(
        _asset("page.html"),
        {
            "title": join(title),
            "policy": _content_policy(script),
            "style": Html(_palette_style() + _asset("page.css") + tables.matrix_style(studies)),
            "headline": join(
                *(tag("p", unbroken(sentence), class_="headline") for sentence in overall(inflations, times))
            ),
            "scope": join(_scope(studies, colours, origin.date)),
            "tabs": _tabs(chapters),
            "chapters": join(*(_chapter(chapter, at, len(chapters)) for at, chapter in enumerate(chapters))),
            "parameters": join(_parameters(studies, colours), origin_section(origin)),
            "data": json_block("results", data),
            "script": script,
        },
    )


def _asset(name: str) -> str:
    return resources.files("dovetail.sim.report").joinpath("assets", name).read_text(encoding="utf-8")


def _fill(template: str, parts: Mapping[str, Html]) -> str:
    """Fill the template in one pass, so that placeholders inside the filled-in text are not replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _content_policy(script: str) -> Html:
    """The Content-Security-Policy: the browser runs only our script and fetches nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return join(f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data: blob:")


def _palette_style() -> str:
    def variables(colours: Sequence[str]) -> str:
        return ":root{" + "".join(f"--p{at}:{colour};" for at, colour in enumerate(colours)) + "}"

    classes = "".join(f".p{at}{{--own:var(--p{at})}}" for at in range(len(palette.LIGHT)))
    dark = f"@media screen and (prefers-color-scheme:dark){{{variables(palette.DARK)}}}"
    return variables(palette.LIGHT) + dark + classes + "\n"


def _scope(studies: Studies, colours: Mapping[str, int], date: str) -> str:
    seeds = {seed for study in studies for seed in study.seeds}
    parts = [count(len({study.trace for study in studies}), "trace"), count(len(colours), "policy")]
    return " · ".join([*parts, count(len(seeds), "seed"), f"dovetail {__version__}", *([date] if date else [])])


def _tabs(chapters: Sequence[Chapter]) -> Html:
    if len(chapters) == 1:
        return Html("")
    titles = [chapter.title for chapter in chapters]
    buttons = []
    for at, chapter in enumerate(chapters):
        mode = MODE_TITLES[chapter.data["mode"]] if titles.count(chapter.title) > 1 else ""
        label = f"{chapter.title}, {mode}" if mode else chapter.title
        chosen = "true" if at == 0 else "false"
        buttons.append(
            tag(
                "button",
                label,
                type="button",
                role="tab",
                data_tab=at,
                aria_selected=chosen,
                aria_controls=f"chapter-{at}",
            )
        )
    return tag("div", *buttons, role="tablist", aria_label="Traces", class_="tabs")


def _chapter(chapter: Chapter, at: int, of: int) -> Html:
    title = tag("h2", chapter.title, tag("small", MODE_TITLES[chapter.data["mode"]]))
    return tag(
        "article", title, chapter.html, id=f"chapter-{at}", role="tabpanel" if of > 1 else None, class_="chapter"
    )


def _clusters(studies: Studies) -> tuple[list[dict[str, Any]], list[int]]:
    """The distinct clusters, and for each study the index of its cluster."""
    seen: list[list[tuple[str, str, int]]] = []
    found: list[dict[str, Any]] = []
    at: list[int] = []
    for study in studies:
        nodes: list[NodeMap] = study.first.map
        shape = [(node.name, node.model, len(node.gpus)) for node in nodes]
        if shape not in seen:
            seen.append(shape)
            found.append(maps.cluster(nodes))
        at.append(seen.index(shape))
    return found, at


def _parameters(studies: Studies, colours: Mapping[str, int]) -> Html:
    rows = []
    for study in studies:
        first = study.first
        mode = "arrivals until full" if isinstance(first, Inflation) else f"over time, {first.queue} queue"
        size = f"{count(study.nodes, 'node')}, {count(study.gpus, 'GPU')}"
        rows.append((study.trace, mode, size, listed(study.policies), study.baseline, seeds_of(study.seeds)))
    head = ("Trace", "Mode", "Cluster", "Policies", "Baseline", "Seeds")
    return tables.table(head, rows, "What was run")
