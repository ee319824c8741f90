"""`--skip-bad`: rows are counted, not cells; and no order is held against a list that lost some."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run

NODES = "name,cpu_milli,memory_mib,gpus\nm,64000,65536,8\nn,64000,65536,8\n"
GOOD = "".join(f"job-{n},1,0\n" for n in range(6))


class Files:
    def __init__(self, folder: Path) -> None:
        self.nodes, self.jobs, self.order = folder / "nodes.csv", folder / "jobs.csv", folder / "orders.npz"
        self.nodes.write_text(NODES, encoding="utf-8")
        self.write("")
        np.savez(self.order, arrivals_42=np.arange(6), nodes_42=np.array([1, 0]))

    def write(self, bad: str, header: str = "name,gpus,priority") -> None:
        self.jobs.write_text(f"{header}\n{bad}{GOOD}", encoding="utf-8")

    @property
    def options(self) -> tuple[object, ...]:
        return ("--nodes", self.nodes, "--pods", self.jobs, "--engine", "interpreted", "--skip-bad")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    return Files(tmp_path)


def test_a_row_with_two_bad_cells_counts_once(run: Run, files: Files) -> None:
    files.write("a,x,y\nb,x,y\nc,1,z\n")
    result = run("replay", *files.options)
    assert result.exit_code == 0
    *listed, total = result.stderr.splitlines()
    assert len(listed) == 5
    assert all(line.startswith(f"dovetail: left out: {files.jobs}:") for line in listed)
    assert total == f"dovetail: {files.jobs}: 3 rows were left out"


def test_many_bad_rows_are_listed_in_part_and_counted_in_full(run: Run, files: Files) -> None:
    files.write("".join(f"bad-{n},x,y\n" for n in range(15)))
    lines = run("replay", *files.options).stderr.splitlines()
    assert len(lines) == 22
    assert lines[-2:] == ["dovetail: left out: 10 more problems", f"dovetail: {files.jobs}: 15 rows were left out"]


def test_an_unknown_column_costs_no_row(run: Run, files: Files) -> None:
    files.write("", header="name,gpus,colour")
    result = run("replay", *files.options, "--order", files.order, "-o", "json")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"dovetail: ignored: {files.jobs}:1: 'colour' is no field")
    assert json.loads(result.stdout)["left_out"] == {str(files.nodes): 0, str(files.jobs): 0}


@pytest.mark.parametrize("mode", ["inflation", "time"])
def test_the_json_says_how_many_rows_of_which_file(run: Run, files: Files, mode: str) -> None:
    files.write("a,x,y\nb,x,y\n")
    left_out = {str(files.nodes): 0, str(files.jobs): 2}
    one = json.loads(run("replay", *files.options, "--mode", mode, "-o", "json").stdout)
    assert (one["mode"], one["left_out"]) == (mode, left_out)
    many = run("compare", *files.options, "--mode", mode, "--seeds", "1-2", "--workers", 1, "-o", "json")
    assert json.loads(many.stdout)["left_out"] == left_out


def test_nothing_is_left_out_of_generated_jobs(run: Run) -> None:
    small = ("--jobs", 20, "--cluster", "1xT4:4", "--engine", "interpreted", "-o", "json")
    assert json.loads(run("replay", *small).stdout)["left_out"] == {}


def test_machines_that_two_traces_share_are_complained_of_once(run: Run, files: Files, tmp_path: Path) -> None:
    files.nodes.write_text(f"{NODES}bad,x,1,1\n", encoding="utf-8")
    (tmp_path / "friday.csv").write_text(files.jobs.read_text(encoding="utf-8"), encoding="utf-8")
    traces = (*files.options, "--trace", tmp_path / "friday.csv", "--seeds", "1", "--workers", 1)
    listed, total = run("compare", *traces).stderr.splitlines()
    assert listed.startswith(f"dovetail: left out: {files.nodes}:4: cpu_milli")
    assert total == f"dovetail: {files.nodes}: 1 row was left out"


@pytest.mark.parametrize("command", [("replay", "--seed", "42"), ("compare", "--seeds", "42", "--workers", "1")])
def test_an_order_is_refused_where_rows_are_missing(run: Run, files: Files, command: tuple[str, ...]) -> None:
    ordered = (*command, *files.options, "--order", files.order)
    assert run(*ordered).exit_code == 0  # nothing is bad
    files.write("a,x,0\nb,x,0\n")
    result = run(*ordered)
    assert result.exit_code == 2
    first, advice, *rows = result.stderr.splitlines()
    assert first == f"dovetail: {files.jobs}: 2 rows were left out, but {files.order} counts all of them"
    assert advice == "dovetail: mend the rows, or replay without --order"
    assert [row.split(": ")[1] for row in rows] == [f"{files.jobs}:2", f"{files.jobs}:3"]
    assert run(*command, *files.options).exit_code == 0


def test_an_order_is_refused_where_machines_are_missing(run: Run, files: Files) -> None:
    files.nodes.write_text(f"{NODES}bad,x,1,1\n", encoding="utf-8")
    result = run("replay", *files.options, "--order", files.order)
    assert result.exit_code == 2
    assert f"{files.nodes}: 1 row was left out, but {files.order} counts all of them" in result.stderr
