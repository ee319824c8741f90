"""docs/simulator.md is true: every field is described, and its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.cli.output.replay import INFLATION_CSV, TIME_CSV
from dovetail.sim.results import Column, Inflation, ModelUse, NodeMap, Sample, Timed, Usage
from dovetail.sim.statistics import DISTURBANCE_MEASURES, INFLATION_MEASURES, TIME_MEASURES, Measure

PAGE = (Path(__file__).parent.parent.parent / "docs" / "simulator.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"(?ms)^```console\n\$ dovetail (.*?)\n(.*?)^```$", PAGE)


def fields(*structs: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}


def section(title: str) -> str:
    return re.split(r"(?m)^#+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


def first_cells(text: str) -> set[str]:
    cells = re.findall(r"(?m)^\| (`.+?) \|", text)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_field_has_its_row() -> None:
    both, of_inflation, over_time = re.split(r"(?m)^Of inflation:$|^Over time:$", section("`replay -o json`"))
    shared = fields(Inflation) & fields(Timed)
    assert first_cells(both) == shared | {"mode", "left_out"}
    assert first_cells(of_inflation) == fields(Inflation) - shared
    assert first_cells(over_time) == fields(Timed) - shared


def test_every_inner_field_is_named() -> None:
    text = section("`replay -o json`")
    for name in fields(Column, ModelUse, NodeMap, Usage, Sample):
        assert f"`{name}`" in text, name
    assert f"`{','.join(INFLATION_CSV)}`" in text
    assert f"`{','.join(TIME_CSV)}`" in text


def test_every_measure_is_named() -> None:
    text = section("Many runs")
    measures: list[Measure[Any]] = [*INFLATION_MEASURES, *TIME_MEASURES, *DISTURBANCE_MEASURES]
    for measure in measures:
        assert f"`{measure.key}`" in text, measure.key


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_commands_print_what_is_shown(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the speed in the last line of `replay`."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    result = CliRunner().invoke(cli, shlex.split(command), prog_name="dovetail")
    assert result.exit_code == 0
    printed, expected = result.stdout.splitlines(), shown.splitlines()
    if command.startswith("replay"):
        assert re.sub(r"[\d.,]+", "", printed.pop()) == re.sub(r"[\d.,]+", "", expected.pop())
    assert printed == expected
