"""Pictures of curves."""

from __future__ import annotations

import builtins
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from dovetail.sim.plot import CannotPlot, panels, write_plot
from dovetail.sim.plot_svg import tick_text, ticks
from dovetail.sim.results import Result
from tests.sim.results_builder import SMALL, inflation, inflations, timeds

SVG = "{http://www.w3.org/2000/svg}"


def mixed() -> list[Result]:
    return inflations(["best-fit", "snug"], [1, 2], models=SMALL) + timeds(["best-fit", "snug"], [1, 2])


def test_svg_has_a_band_and_a_curve_per_policy_and_panel(tmp_path: Path) -> None:
    write_plot(mixed(), tmp_path / "plot.svg")
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert len(root.findall(f".//{SVG}polyline")) == len(root.findall(f".//{SVG}polygon")) == 4 * 2
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"openb: GPU capacity placed, %", "philly: jobs waiting", "best-fit", "snug"} <= set(texts)


def test_the_placed_panel_begins_where_policies_part_and_the_others_at_zero() -> None:
    first, second, *_ = panels(mixed())
    assert first.x[0] > 50
    assert first.y_range[0] > 50
    assert (second.x[0], second.y_range[0]) == (0, 0)


@pytest.mark.parametrize("name", ["plot.svg", pytest.param("plot.png", marks=pytest.mark.slow)])
def test_the_same_results_make_the_same_bytes(tmp_path: Path, name: str) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_plot(mixed(), tmp_path / folder / name)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.slow
def test_png_is_a_picture_of_a_sensible_size(tmp_path: Path) -> None:
    write_plot(inflations(["best-fit", "$nug_{1}$"], [1, 2], models=SMALL), tmp_path / "plot.PNG")
    data = (tmp_path / "plot.PNG").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1728, 604)  # 12 × 4.2 inches at 144 dots
    assert b"tEXtSoftware" not in data


def test_png_without_matplotlib_says_which_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CannotPlot, match=r"dovetail\[plot\].*\.svg"):
        write_plot(mixed(), tmp_path / "plot.png")
    write_plot(mixed(), tmp_path / "plot.svg")  # needs nothing


@pytest.mark.parametrize("name", ["plot.pdf", "plot"])
def test_other_kinds_of_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotPlot, match=r"\.svg or \.png"):
        write_plot(mixed(), tmp_path / name)


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotPlot, match="nothing to plot"):
        write_plot([inflation(models=SMALL, last=0)], tmp_path / "plot.svg")


def test_a_trace_without_curves_leaves_the_others_theirs(tmp_path: Path) -> None:
    bare = [replace(run, columns={}) for run in (inflation("best-fit", trace="cpu"), inflation("fgd", trace="cpu"))]
    with pytest.raises(CannotPlot, match="inflation needs GPUs"):
        write_plot(bare, tmp_path / "plot.svg")
    assert [panel.title.partition(":")[0] for panel in panels([*bare, inflation()])] == ["openb", "openb"]


def test_names_cannot_break_the_picture(tmp_path: Path) -> None:
    name = "</text><script>alert(1)</script>&"
    write_plot(inflations([name, "b"], [1], name, models=SMALL), tmp_path / "plot.svg")
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert not list(root.iter(f"{SVG}script"))
    assert name in [text.text for text in root.iter(f"{SVG}text")]


def test_a_long_legend_takes_more_rows(tmp_path: Path) -> None:
    write_plot(
        inflations([f"a-policy-with-a-long-name-{at}" for at in range(9)], [1], models=SMALL), tmp_path / "plot.svg"
    )
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    width = float(root.attrib["width"])
    assert all(float(text.attrib["x"]) < width - 100 for text in root.findall(f"{SVG}text"))
    dashed = [line for line in root.findall(f"{SVG}line") if "stroke-dasharray" in line.attrib]
    assert len(dashed) == 1  # the ninth policy has the first one's colour again


@pytest.mark.parametrize(
    ("low", "high", "about", "texts"),
    [
        (0, 130, 7, ["0", "20", "40", "60", "80", "100", "120"]),
        (90.2, 95.3, 5, ["92", "94"]),
        (0, 0.9, 5, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        (0, 12.4, 5, ["0.0", "2.5", "5.0", "7.5", "10.0"]),
        (3, 3, 5, ["3"]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, about: int, texts: list[str]) -> None:
    found = ticks(low, high, about)
    assert [tick_text(value, found) for value in found] == texts
