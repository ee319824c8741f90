"""Every command in a README of the examples runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ROOT = Path(__file__).parent.parent.parent
READMES = sorted((ROOT / "examples").glob("*/README.md"))


def commands(readme: Path) -> list[tuple[Path, str]]:
    """(folder to stand in, command) of every indented line that starts with dovetail; `cd` lines are followed."""
    found, folder = [], ROOT
    for line in readme.read_text(encoding="utf-8").splitlines():
        if re.match(r" {4}cd ", line):
            folder = ROOT / line.split()[1]
        elif re.match(r" {4}dovetail ", line):
            found.append((folder, line.strip()))
    return found


ALL = [(folder, command) for readme in READMES for folder, command in commands(readme)]


def test_every_folder_has_a_readme_with_a_command() -> None:
    folders = {path for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert {readme.parent for readme in READMES} == folders
    assert all(commands(readme) for readme in READMES)


@pytest.mark.parametrize(("folder", "command"), ALL, ids=[command for _, command in ALL])
def test_it_runs(folder: Path, command: str, run: Run) -> None:
    os.chdir(folder)
    try:
        result = run(*shlex.split(command)[1:])
    finally:
        os.chdir(ROOT)
    assert result.exit_code == (3 if "what-if" in command or "--no-preemption" in command else 0), result.output
