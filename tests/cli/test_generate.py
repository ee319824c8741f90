"""`dovetail generate` writes files that can be read, says what is in them, and destroys nothing."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dovetail.cli.commands.generate import HELP_TEXTS
from dovetail.sim.load import load_trace
from dovetail.sim.workload import WorkloadParameters
from tests.cli.conftest import Run


def test_a_folder_of_jobs_and_nodes(run: Run, tmp_path: Path) -> None:
    result = run(
        "generate", "--jobs", 200, "--seed", 7, "--cluster", "2xA100-SXM4-80GB:8,4xT4:4", "-o", tmp_path / "new"
    )
    assert result.exit_code == 0
    trace, problems = load_trace(tmp_path / "new" / "nodes.csv", tmp_path / "new" / "jobs.csv")
    assert problems == []
    assert len(trace.jobs) == 200
    assert len(trace.machines) == 6
    first, *rest = result.output.splitlines()
    assert first.startswith("200 jobs of ")
    assert first.endswith("on 6 nodes with 32 GPUs, load 1.00")  # 2 × 8 + 4 × 4
    assert [line.split()[0] for line in rest] == ["sizes", "tenants", "special", "jobs", "nodes"]


def test_files_of_ones_own_choice(run: Run, tmp_path: Path) -> None:
    jobs, nodes = tmp_path / "j.jsonl.gz", tmp_path / "n.ndjson"
    assert run("generate", "--jobs", 20, "--jobs-out", jobs, "--nodes-out", nodes).exit_code == 0
    assert len(load_trace(nodes, jobs)[0].jobs) == 20


def test_jobs_for_machines_of_a_file(run: Run, tmp_path: Path) -> None:
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.csv"
    nodes.write_text("name,cpu_milli,memory_mib,gpus,model,gpu_memory_mib,count\nbox,8000,32768,1,L4,23034,3\n")
    assert run("generate", "--jobs", 20, "--nodes", nodes, "--jobs-out", jobs).exit_code == 0
    trace, _ = load_trace(nodes, jobs)
    assert max(job.gpus for job in trace.jobs) == 1
    assert max(job.cpu_milli for job in trace.jobs) <= 8000


def test_the_same_command_writes_the_same_bytes(run: Run, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        run("generate", "--jobs", 50, "--seed", 3, "--format", "jsonl", "-o", tmp_path / folder)
    for name in ("jobs.jsonl", "nodes.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_nothing_is_overwritten_unasked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("precious")
    result = run("generate", "--jobs", 20, "-o", tmp_path)
    assert result.exit_code == 2
    assert "nodes.csv: is there already; add --force" in result.stderr
    assert (tmp_path / "nodes.csv").read_text() == "precious"
    assert not (tmp_path / "jobs.csv").exists()
    assert run("generate", "--jobs", 20, "-o", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "jobs.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing says where to write; add -o DIR"),
        (("-o", "x.csv"), "-o takes a folder"),
        (("--jobs-out", "x.txt"), "x.txt: the name does not say the format"),
        (("--jobs-out", "x.csv", "--nodes-out", "x.csv"), "jobs and nodes need a file each"),
        (("-o", "x", "--cluster", "1xT4", "--nodes", "n.csv"), "--cluster and --nodes both say"),
        (("-o", "x", "--cluster", "1xA100"), "cluster: 'A100' is no model known here"),
        (("-o", "x", "--nodes", "none.csv"), "none.csv: cannot be read: No such file"),
        (("-o", "x", "--cpu-only", "1.5"), "--cpu-only: 1.5 is not a share from 0 to 1"),
        (("-o", "x", "--cpu-only", "0.8"), "--cpu-only + --share + --multi-gpu: 1.19 is not at most 1"),
        (("-o", "x", "--load", "nan"), "--load: nan is not a number from 0.001 to 1,000"),
        (("-o", "x", "--jobs", "many"), "'many' is not a valid integer"),
        (("-o", "there/x"), "there/x: cannot be made: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("a file")
    result = run("generate", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_every_parameter_is_an_option() -> None:
    assert list(HELP_TEXTS) == [field.name for field in fields(WorkloadParameters)]
