"""What a bare clone relies on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_requirements_are_pinned_by_hash_and_name_no_host() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text
    pins = re.split(r"\n(?=[a-z])", re.sub(r"(?m)^ *#.*\n", "", text).strip())
    assert len(pins) > 10
    for pin in pins:
        assert re.match(r"[a-z0-9-]+==\S+ \\\n    --hash=sha256:", pin), pin.splitlines()[0]


def test_every_dependency_is_pinned() -> None:
    """`make lock` was not forgotten after a change of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    pinned = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "requirements.txt").read_text(encoding="utf-8")))
    names = {re.split(r"[<>=!~ \[]", requirement)[0].lower() for requirement in wanted}
    assert names <= pinned


def test_make_lists_its_targets() -> None:
    said = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"(?m)^ *make (\S+)", said)
    phony = re.search(r"(?m)^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert phony is not None
    assert sorted(listed) == sorted(phony[1].split())
    assert {"demo", "test", "cluster", "bench", "soak"} <= set(listed)


def test_ci_runs_make_test() -> None:
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111
    assert run.read_text(encoding="utf-8").rstrip().endswith("exec make test")
