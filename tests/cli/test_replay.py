"""`dovetail replay`: the JSON contract, the summary for people, and what cannot be done."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.sim.load import load_trace
from dovetail.sim.orders import draw_order
from tests.cli.conftest import Run

SMALL = ("--jobs", 80, "--cluster", "2xT4:4,1xA100-SXM4-80GB:8", "--engine", "interpreted")


@pytest.fixture
def files(run: Run, tmp_path: Path) -> tuple[object, ...]:
    """Options that name a trace of many shares and single GPUs, so that every percent of 160 GPUs is reached."""
    cluster = ("--cluster", "40xT4:4", "--gangs", 0, "--multi-gpu", 0, "--share", 0.9, "--cpu-only", 0)
    assert run("generate", "--jobs", 60, *cluster, "-o", tmp_path).exit_code == 0
    return ("--nodes", tmp_path / "nodes.csv", "--pods", tmp_path / "jobs.csv", "--engine", "interpreted")


@pytest.fixture
def orders(files: tuple[object, ...], tmp_path: Path) -> Path:
    trace, _ = load_trace(tmp_path / "nodes.csv", tmp_path / "jobs.csv")
    drawn = draw_order(trace, 42)
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_42=drawn.arrivals, nodes_42=drawn.nodes)
    return path


def test_the_json_keeps_its_contract(run: Run, files: tuple[object, ...], orders: Path) -> None:
    result = run("replay", *files, "--order", orders, "--seed", 42, "--policy", "fgd", "-o", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["mode"] == "inflation"
    assert (found["trace"], found["policy"], found["seed"]) == ("jobs", "fgd", 42)
    assert found["decisions"] > found["failed"] >= 0
    assert found["decisions_per_second"] > 0
    for column in found["columns"].values():
        assert set(column) == {"allocated_pct", "frag_pct", "frag_ratio_pct"}
        assert column["allocated_pct"] + column["frag_pct"] <= 100.01
    assert list(found["columns"]) == [str(arrived) for arrived in range(131)]
    assert {"nodes_free", "gpus_free", "models", "map", "seconds"} <= set(found)


def test_a_drawn_order_is_the_one_a_file_would_have(run: Run, files: tuple[object, ...], orders: Path) -> None:
    drawn = json.loads(run("replay", *files, "-o", "json").stdout)
    read = json.loads(run("replay", *files, "--order", orders, "-o", "json").stdout)
    assert drawn["columns"] == read["columns"]


def test_it_works_without_data(run: Run) -> None:
    result = run("replay", *SMALL)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("generated, fgd, seed 42 on 3 nodes with 16 GPUs: ")  # 2 × 4 + 8
    fragmented = ("GPU capacity fragmented", "of what is idle")
    for words in ("GPU capacity placed", *fragmented, "pods without a place", "left free", "GPU MODEL"):
        assert any(line.startswith(words) for line in lines), words
    assert lines[-1].endswith("decisions/s (interpreted)")
    assert run("replay", "--trace", "generated", *SMALL).stdout.splitlines()[:-1] == lines[:-1]


def test_over_time(run: Run) -> None:
    small = (*SMALL, "--mode", "time", "--compress", 3)
    result = run("replay", *small)
    assert result.exit_code == 0
    assert result.stdout.startswith("generated, fgd, seed 42 on 3 nodes with 16 GPUs: 80 jobs, backfill queue\n")
    waits = ("wait before the start", "GPU-hours in use", "GPU-hours idle and wanted", "finished")
    for words in (*waits, "free when busiest", "fragmented when busiest", "SIZE OF JOB", "TENANT"):
        assert f"\n{words}" in result.stdout, words
    found = json.loads(run("replay", *small, "--queue", "strict", "-o", "json").stdout)
    assert (found["mode"], found["queue"], found["jobs"]) == ("time", "strict", 80)
    assert {"nodes_free", "gpus_free", "frag_pct", "frag_ratio_pct"} <= set(found)
    for users in (found["by_tenant"], found["by_size"]):
        assert all({"gpu_hours", "gpu_hours_pct"} <= set(usage) for usage in users.values())
        hours = sum(usage["gpu_hours_pct"] for usage in users.values())
        assert 0 < hours <= 100 * found["hours_allocated"] / found["hours_capacity"] + 1e-9
    rows = list(csv.DictReader(run("replay", *small, "-o", "csv").stdout.splitlines()))
    assert list(rows[0]) == ["trace", "policy", "seed", "queue", "at", "allocated_pct", "waiting"]


def test_csv_is_the_curve(run: Run) -> None:
    rows = list(csv.DictReader(run("replay", *SMALL, "-o", "csv").stdout.splitlines()))
    found = json.loads(run("replay", *SMALL, "-o", "json").stdout)
    assert {row["arrived_pct"]: float(row["allocated_pct"]) for row in rows} == {
        at: column["allocated_pct"] for at, column in found["columns"].items()
    }
    assert [int(row["arrived_pct"]) for row in rows] == sorted(int(at) for at in found["columns"])


def test_pictures_are_written_beside(run: Run, tmp_path: Path) -> None:
    plot, report = tmp_path / "curve.svg", tmp_path / "page.html"
    result = run("replay", *SMALL, "-o", "json", "--plot", plot, "--report", report)
    assert result.exit_code == 0
    json.loads(result.stdout)  # nothing but JSON
    assert plot.read_text(encoding="utf-8").startswith("<svg")
    assert "<html" in report.read_text(encoding="utf-8")[:300]


def test_learning_is_another_run(run: Run) -> None:
    assert run("replay", *SMALL, "--learn").exit_code == 0


def test_bad_rows_are_left_out_on_demand(run: Run, files: tuple[object, ...], tmp_path: Path) -> None:
    with (tmp_path / "jobs.csv").open("a", encoding="utf-8") as file:
        file.write("broken,,,,,,,,,\n")
    refused = run("replay", *files)
    assert refused.exit_code == 2
    assert "jobs.csv:62: " in refused.stderr  # 60 jobs and a header before it
    skipped = run("replay", *files, "--skip-bad")
    assert skipped.exit_code == 0
    assert "left out: " in skipped.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "fdg"), "there is no such node policy; there is binpack, spread,"),
        (("--policy", "binpack/fgd"), "there is no GPU policy 'fgd'; there is binpack, spread,"),
        (("--policy", "fgd/spread"), "fgd chooses the GPUs itself; leave out /spread"),
        (("--pods", "x.csv"), "--pods needs --nodes"),
        (("--nodes", "x.csv"), "--nodes and --order go with --pods FILE"),
        (("--order", "x.npz"), "--nodes and --order go with --pods FILE"),
        (("--nodes", "n.csv", "--pods", "p.csv"), "n.csv: cannot be read: No such file"),
        (("--nodes", "n.csv", "--pods", "p.csv", "--jobs", "5"), "--jobs and --cluster are for generated jobs"),
        (("--queue", "strict"), "--queue is for --mode time"),
        (("--compress", "2"), "--compress is for --mode time"),
        (("--speed", "sharing"), "--speed is for --mode time"),
        (("--restart-cost", "5"), "--restart-cost is for --mode time"),
        (("--mode", "time", "--restart-cost", "-1"), "--restart-cost -1: take seconds from 0 to 86,400"),
        (("--mode", "time", "--ratio", "1.1"), "--ratio is for --mode inflation"),
        (("--mode", "time", "--compress", "0"), "--compress 0: take a number above 0"),
        (("--ratio", "0"), "ratio 0.0 is not a number above 0"),
        (("--jobs", "0"), "jobs: 0 is not a number from 1"),
        (("--cluster", "4xT5"), "cluster: 'T5' is no model known here"),
        (("--plot", "curve.pdf"), "--plot curve.pdf: the name must end in .svg or .png"),
        (("--report", "no/where.html"), "no/where.html: there is no folder"),
        (("--seed", "-1"), "-1 is not in the range"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("replay", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_seed_that_the_order_lacks_is_said(run: Run, files: tuple[object, ...], orders: Path) -> None:
    result = run("replay", *files, "--order", orders, "--seed", 7)
    assert result.exit_code == 2
    assert "orders.npz: has no order for seed 7; there are 42" in result.stderr
