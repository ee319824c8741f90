"""The commands where numba is missing or cannot compile: they work, and say once on stderr that it takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import broken_numba
from tests.broken_numba import ABSENT, NOT_COMPILING, SAID

ROOT = Path(__file__).parent.parent.parent
DEMO = ("-f", str(ROOT / "examples/demo/cluster.yaml"), "-f", str(ROOT / "examples/demo/demo-a.yaml"))
INTACT = ""
BROKEN = pytest.mark.parametrize("breakage", [ABSENT, NOT_COMPILING], ids=["absent", "does not compile"])


def warning(breakage: str) -> str:
    return f"dovetail: warning: kernels cannot be compiled here, all policies are interpreted: {SAID[breakage]}\n"


def without_speed(csv: str) -> list[str]:
    """Without the last column, decisions per second."""
    return [line.rpartition(",")[0] for line in csv.splitlines()]


@BROKEN
def test_plan_decides_the_same_and_warns_once(breakage: str, tmp_path: Path) -> None:
    plain = broken_numba.run(INTACT, tmp_path, "-m", "dovetail", "plan", "--engine", "interpreted", *DEMO)
    done = broken_numba.run(breakage, tmp_path, "-m", "dovetail", "plan", "--engine", "compiled", *DEMO)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert "demo-a-" in done.stdout
    assert done.stderr == warning(breakage)
    assert not list((tmp_path / "cache").rglob("*.compiled"))  # the next run does not believe that it need not compile


@pytest.mark.slow
@BROKEN
def test_compare_with_worker_processes_warns_once(breakage: str, tmp_path: Path) -> None:
    study = ("--jobs", "30", "--cluster", "4xT4:4", "--seeds", "1-2", "--workers", "2", "--no-cache", "-o", "csv")
    command = ("-m", "dovetail", "compare", "--policy", "best-fit,random", *study, "--engine")
    plain = broken_numba.run(INTACT, tmp_path, *command, "interpreted")
    done = broken_numba.run(breakage, tmp_path, *command, "compiled")
    assert without_speed(done.stdout) == without_speed(plain.stdout)
    assert len(done.stdout.splitlines()) == 1 + 2 * 2  # a header; two policies under two seeds
    assert done.stderr == warning(breakage)


@BROKEN
def test_warm_says_that_it_cannot(breakage: str, tmp_path: Path) -> None:
    done = broken_numba.run(breakage, tmp_path, "-m", "dovetail", "warm", "binpack:spread")
    assert done.returncode == 2
    assert done.stderr == f"dovetail: binpack × spread: kernels cannot be compiled here: {SAID[breakage]}\n"
