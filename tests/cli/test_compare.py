"""`dovetail compare`: the table, the JSON, the cache, Ctrl-C, and what cannot be done."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail.cli.commands.compare import _sources
from dovetail.cli.main import _run as run_main
from dovetail.cli.sim_options import parse_policies, parse_seeds
from tests.cli.conftest import Run

CLUSTER = ("--cluster", "2xT4:4,1xA100-SXM4-80GB:8", "--engine", "interpreted")
SMALL = ("--jobs", 80, *CLUSTER, "--seeds", "1-3", "--workers", 1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(folder))
    return folder


def results_in(folder: Path) -> list[Path]:
    return list(folder.glob("results-*/*/*.bin"))


def test_the_table_shows_differences_to_the_baseline(run: Run) -> None:
    result = run("compare", *SMALL, "--policy", "best-fit,fgd", "--policy", "binpack/spread", "--baseline", "fgd")
    assert result.exit_code == 0
    title, _, header, *rows = result.stdout.splitlines()
    assert title == "generated: 3 nodes, 16 GPUs, seeds 1 to 3; differences to fgd"
    assert header.startswith("POLICY")
    assert [row.split()[0] for row in rows] == ["fgd", "best-fit", "binpack/spread"]
    assert "±" not in rows[0]
    assert all("±" in row and "/3" in row for row in rows[1:])


def test_a_repeat_prints_the_same_bytes(run: Run, own_cache: Path) -> None:
    first = run("compare", *SMALL, "-o", "json")
    assert len(results_in(own_cache)) == 6  # 2 policies × 3 seeds
    assert run("compare", *SMALL, "-o", "json").stdout == first.stdout


def test_no_cache_keeps_nothing(run: Run, own_cache: Path) -> None:
    assert run("compare", *SMALL, "--no-cache").exit_code == 0
    assert results_in(own_cache) == []


def test_the_json_has_means_differences_and_every_run(run: Run) -> None:
    found = json.loads(run("compare", *SMALL, "-o", "json").stdout)
    assert list(found) == ["baseline", "complete", "missing", "left_out", "traces", "results"]
    assert (found["baseline"], found["complete"], found["missing"]) == ("best-fit", True, [])
    (trace,) = found["traces"]
    assert (trace["trace"], trace["seeds"], trace["gpus"]) == ("generated", [1, 2, 3], 16)
    base, other = (trace["policies"][policy]["allocated_end"] for policy in ("best-fit", "fgd"))
    assert base["difference"] is None
    gaps = [other["by_seed"][seed] - base["by_seed"][seed] for seed in "123"]
    assert other["difference"]["mean"] == pytest.approx(sum(gaps) / 3)
    assert other["difference"]["wins"] == sum(gap > 1e-9 for gap in gaps)
    assert len(found["results"]) == 6
    assert found["results"][0]["mode"] == "inflation"


def test_csv_has_a_row_per_run(run: Run) -> None:
    rows = list(csv.DictReader(run("compare", *SMALL, "-o", "csv").stdout.splitlines()))
    assert [(row["policy"], row["seed"]) for row in rows][:3] == [("best-fit", "1"), ("fgd", "1"), ("best-fit", "2")]
    assert {"trace", "allocated_100", "allocated_end", "frag_end", "frag_ratio_end", "failed"} <= set(rows[0])


def test_over_time(run: Run, tmp_path: Path) -> None:
    over_time = (*SMALL, "--mode", "time", "--compress", 3, "--report", tmp_path / "out.html")
    result = run("compare", *over_time)
    assert result.exit_code == 0
    assert "GPU-HOURS IDLE AND WANTED" in result.stdout
    rows = list(csv.DictReader(run("compare", *over_time, "-o", "csv").stdout.splitlines()))
    assert len(rows) == 6
    assert {"idle_while_wanted", "delay_mean", "makespan", "frag_busiest", "frag_ratio_busiest"} <= set(rows[0])


def test_report_and_plot_need_no_data(run: Run, tmp_path: Path) -> None:
    report, plot = tmp_path / "out.html", tmp_path / "out.svg"
    result = run("compare", "--trace", "generated", *SMALL, "--report", report, "--plot", plot)
    assert result.exit_code == 0
    page = report.read_text(encoding="utf-8")
    assert "best-fit" in page
    assert "fgd" in page
    assert plot.read_text(encoding="utf-8").startswith("<svg")


def test_several_traces_with_the_machines_they_share(run: Run, tmp_path: Path) -> None:
    for name, seed in (("monday", 1), ("friday", 2)):
        files = ("--jobs-out", tmp_path / f"{name}.csv", "--nodes-out", tmp_path / "nodes.csv", "--force")
        assert run("generate", "--jobs", 60, "--seed", seed, "--cluster", "2xT4:4", *files).exit_code == 0
    traces = ("--trace", tmp_path / "monday.csv", "--trace", tmp_path / "friday.csv", "--nodes", tmp_path / "nodes.csv")
    result = run("compare", *traces, "--seeds", "1,2", "--workers", 1, "--engine", "interpreted")
    assert result.exit_code == 0
    assert "monday: 2 nodes, 8 GPUs" in result.stdout
    assert "friday: 2 nodes, 8 GPUs" in result.stdout


def test_machines_without_gpus_have_a_report_but_no_plot(run: Run, tmp_path: Path) -> None:
    nodes, jobs, plot, report = (tmp_path / name for name in ("cpu.csv", "jobs.csv", "out.svg", "out.html"))
    nodes.write_text("name,cpu_milli,memory_mib\nm,64000,65536\n", encoding="utf-8")
    jobs.write_text("name,cpu_milli\na,1000\nb,2000\n", encoding="utf-8")
    traces = ("--nodes", nodes, "--trace", jobs, "--seeds", "1-2", "--workers", 1, "--engine", "interpreted")
    result = run("compare", *traces, "--plot", plot, "--report", report)
    assert result.exit_code == 2
    assert result.stdout.startswith("jobs: 1 node, 0 GPUs")
    assert "nothing to plot: no result has a curve" in result.stderr
    assert report.exists()
    assert not plot.exists()


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(own_cache: Path, tmp_path: Path) -> None:
    """The signal goes to the whole group, workers included, as a terminal sends it."""
    command = [sys.executable, "-m", "dovetail.cli", "compare", "--jobs", "3000", "--cluster", "12xA100-SXM4-80GB:8"]
    command += ["--engine", "interpreted", "--seeds", "1-40", "--workers", "2", "-o", "table"]
    pipe = subprocess.PIPE
    begun = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while len(results_in(own_cache)) < 3 and begun.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(begun.pid, signal.SIGINT)
        output, errors = begun.communicate(timeout=30)
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
    assert begun.returncode == 130, errors
    assert output.startswith("generated: 12 nodes, 96 GPUs")
    done = len(results_in(own_cache))
    assert done >= 3
    first, *missing = errors.splitlines()
    assert first == f"dovetail: interrupted: {done} of 80 runs are there; the same command goes on from them"
    assert sorted(line.partition(": seeds ")[0] for line in missing) == [
        "dovetail: missing: generated, best-fit",
        "dovetail: missing: generated, fgd",
    ]


def members(group: int) -> list[int]:
    """Processes of the group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it ended meanwhile
        if int(number) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command_however_it_ends(own_cache: Path, how: signal.Signals) -> None:
    """The signal goes to the command alone, as `kill PID` sends it."""
    command = [sys.executable, "-m", "dovetail.cli", "compare", "--jobs", "3000", "--cluster", "12xA100-SXM4-80GB:8"]
    command += ["--engine", "interpreted", "--seeds", "1-40", "--workers", "2", "-o", "table"]
    begun = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not results_in(own_cache) and begun.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(members(begun.pid)) >= 3  # the command and two workers at least
        begun.send_signal(how)
        assert begun.wait(timeout=60) == (130 if how is signal.SIGTERM else -signal.SIGKILL)
        while members(begun.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert members(begun.pid) == []
    finally:
        if members(begun.pid):
            os.killpg(begun.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "best-fit,fdg"), "there is no such node policy; there is binpack, spread,"),
        (("--baseline", "nothing"), "policy 'nothing': there is no such node policy"),
        (("--seeds", "5-1"), "--seeds '5-1': from low to high"),
        (("--seeds", "a"), "--seeds 'a': write whole numbers from 0"),
        (("--seeds", ""), "--seeds '': write whole numbers from 0"),
        (("--trace", "p.csv"), "--trace FILE needs --nodes"),
        (("--nodes", "n.csv"), "--nodes and --order go with --trace FILE"),
        (("--trace", "p.csv", "--nodes", "n.csv"), "n.csv: cannot be read: No such file"),
        (
            ("--trace", "a", "--trace", "b", "--trace", "c", "--nodes", "n", "--nodes", "m"),
            "--nodes is given 2 times for 3",
        ),
        (("--trace", "a", "--trace", "b", "--nodes", "n", "--order", "o"), "--order is given 1 times for 2 traces"),
        (("--trace", "generated", "--trace", "generated"), "two traces are called 'generated'"),
        (("--on", "slurm"), "'slurm' is nowhere to run"),
        (("--mode", "time", "--ratio", "1.1"), "--ratio is for --mode inflation"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("compare", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_seeds_are_ranges_and_lists() -> None:
    assert parse_seeds("42-44") == [42, 43, 44]
    assert parse_seeds("7, 1-3,2") == [7, 1, 2, 3]


def test_policies_are_lists_of_lists() -> None:
    assert parse_policies(("fgd,best-fit", "fgd")) == ["fgd", "best-fit"]
    assert parse_policies(("binpack/spread,numa,fgd",)) == ["binpack/spread,numa", "fgd"]
    assert parse_policies(("binpack/spread,best-fit",)) == ["binpack/spread", "best-fit"]


def test_a_pattern_names_the_order_of_every_trace() -> None:
    pattern, nodes = Path("order_{trace}.npz"), Path("n")
    assert _sources([Path("a"), Path("generated"), Path("b")], [nodes], [pattern]) == [
        (Path("a"), nodes, pattern),
        (None, None, None),
        (Path("b"), nodes, pattern),
    ]
    assert _sources([Path("a"), Path("b")], [nodes, Path("m")], [Path("1"), Path("2")]) == [
        (Path("a"), nodes, Path("1")),
        (Path("b"), Path("m"), Path("2")),
    ]


def test_the_report_says_how_it_was_made(tmp_path: Path) -> None:
    report = tmp_path / "with space.html"
    arguments = ["compare", *map(str, SMALL), "--seeds", "1-2", "--report", str(report)]
    assert run_main(arguments) == 0
    text = report.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'(?s)<script type="application/json" id="results">(.*?)</script>', text)[0])
    assert data["command"] == shlex.join(["dovetail", *arguments])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", data["date"])
    assert data["settings"]["--seeds"] == "1-2"
    assert data["settings"]["--ratio"] == "1.3"  # a default
    assert "--report" not in data["settings"]
