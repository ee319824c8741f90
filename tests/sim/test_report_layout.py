"""The report as a browser lays it out: nothing is wider than its box, and every node of the map has its frame."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.sim.report.origin import Origin
from dovetail.sim.report.page import render
from dovetail.sim.results import NodeMap, Result
from tests.sim.results_builder import QUALITY, SMALL, inflation, inflations, timeds
from tests.sim.test_report import HOSTILE, SEEDS, hostile, opened, page, plain

ORIGIN = Origin(
    "dovetail compare --policy 'best-fit,fgd' --seeds 42-46",
    "2026-01-31 12:00 UTC",
    [("--seeds", "42-46", True), ("--ratio", "1.3", False)],
)
LONG = [f"a-policy-with-a-rather-long-name/topology-aware,numa-{number}" for number in range(12)]

# Shows all of the page, then writes what is too wide into the document, where --dump-dom finds it.
MEASURE = """<script>
function isCut(one) {
  const box = (one.closest(".scroll, .card, .bars, section") || document.body).getBoundingClientRect();
  const own = one.getBoundingClientRect(), inline = getComputedStyle(one).display === "inline";
  return own.width > 0 && (own.right > box.right + 1 || (!inline && one.scrollWidth > one.clientWidth + 1));
}
function measure() {
  for (const one of document.querySelectorAll(".chapter[hidden]")) one.hidden = false;
  for (const one of document.querySelectorAll("details")) one.open = true;
  const boxes = [...document.querySelectorAll(".scroll")], root = document.documentElement;
  const wide = boxes.filter((box) => box.scrollWidth > box.clientWidth)
    .map((box) => `${box.getAttribute("aria-label")}: ${box.scrollWidth} > ${box.clientWidth}`);
  const cut = [...document.querySelectorAll(".verdict, .number, .filled, .card p, dd, .command")].filter(isCut);
  const page = root.scrollWidth > innerWidth ? [`the page: ${root.scrollWidth} > ${innerWidth}`] : [];
  const faults = [...wide, ...cut.map((one) => `cut: ${one.textContent}`), ...page];
  const verdicts = document.querySelectorAll(".verdict").length;
  root.dataset.measured = JSON.stringify({ boxes: boxes.length, verdicts, faults });
}
addEventListener("load", () => setTimeout(measure, 1000));
</script>"""


def measured(results: list[Result], width: int, folder: Path) -> dict[str, object]:
    """The page in a window of this width, with a script of ours that its content policy would not let run."""
    text = render(results, "A report", origin=ORIGIN)
    assert 'http-equiv="Content-Security-Policy"' in text
    text = text.replace('http-equiv="Content-Security-Policy"', 'name="policy"').replace("</body>", f"{MEASURE}</body>")
    (folder / "report.html").write_text(text, encoding="utf-8")
    found = opened(folder / "report.html", folder / "profile", width)
    root = next(attributes for tag, attributes in found.tags if tag == "html")
    answer: dict[str, object] = json.loads(root["data-measured"] or "")
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 700, 500])
@pytest.mark.parametrize(
    "results",
    [
        inflations(list(QUALITY), SEEDS) + timeds(list(QUALITY), SEEDS),
        [inflation(policy, seed, models=SMALL) for policy in ("best-fit", *LONG) for seed in (1, 2)],
        hostile(),
    ],
    ids=["five policies", "long names", "hostile names"],
)
def test_no_table_is_wider_than_its_box_and_no_verdict_is_cut(
    results: list[Result], width: int, tmp_path: Path
) -> None:
    found = measured(results, width, tmp_path)
    assert found["faults"] == []
    assert isinstance(found["boxes"], int)
    assert found["boxes"] > 3
    assert found["verdicts"]


@pytest.mark.slow
def test_every_node_of_the_map_has_its_frame(tmp_path: Path) -> None:
    nodes = [NodeMap("a", "T4", [0, 500]), NodeMap("b", "T4", [1000]), NodeMap("c", "A100", [0] * 8)]
    run = inflation(models=SMALL)
    text = render([replace(run, map=nodes)], "A report")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    found = opened(tmp_path / "report.html", tmp_path / "profile")
    assert [attributes["data-frames"] for tag, attributes in found.tags if tag == "canvas"] == ["3"]
    assert "a frame is a node" in found.text


def test_the_command_the_date_and_the_settings_are_in_the_page() -> None:
    text = render(inflations(["best-fit"], SEEDS, models=SMALL), "A report", origin=ORIGIN)
    for words in ("--policy &#x27;best-fit,fgd&#x27; --seeds 42-46", "2026-01-31 12:00 UTC", "--ratio"):
        assert words in text
    data = page(inflations(["best-fit"], SEEDS, models=SMALL), origin=ORIGIN).data
    assert data["command"] == ORIGIN.command
    assert data["date"] == ORIGIN.date
    assert data["settings"] == {"--seeds": "42-46", "--ratio": "1.3"}


def test_a_hostile_command_stays_text() -> None:
    origin = Origin(HOSTILE, HOSTILE, [(HOSTILE, HOSTILE, True)])
    found = page(inflations(["best-fit"], [1], models=SMALL), origin=origin)
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert found.data["command"] == HOSTILE


def test_what_is_not_known_is_left_out() -> None:
    text = page(inflations(["best-fit"], [1], models=SMALL)).text
    assert "Written on" not in text


def test_key_figures_and_headlines_have_units() -> None:
    found = plain(
        page(inflations(["best-fit", "snug"], SEEDS, models=SMALL) + timeds(["best-fit", "snug"], SEEDS)).text
    )
    for title, value in (
        ("GPU capacity placed", r"[\d.]+ %"),
        ("Pods without a place", r"[\d.,]+ pods"),
        ("Whole GPUs free", r"[\d.,]+ GPUs?"),
        ("GPU-hours idle while jobs waited", r"[\d.,]+ GPU-hours"),
        ("Mean wait before a job starts", r"[\d.,]+ (s|min|h|d)"),
    ):
        assert re.search(rf"{title} {value} ", found), title
    for heading in (
        "Jobs waiting over time, number of jobs",
        "Pods without a place , in pods",
        "Nodes free , in nodes",
    ):
        assert heading in found, heading
