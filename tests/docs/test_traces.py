"""docs/traces.md is true: its tables are complete and its examples can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.commands.generate import DEFAULT_WORKLOAD, HELP_TEXTS
from dovetail.cli.main import cli
from dovetail.sim.gpu_models import GPU_MODELS
from dovetail.sim.jobs_file import JOB_FIELDS, MACHINE_FIELDS, read_jobs
from dovetail.sim.load import load_trace
from dovetail.sim.trace import TraceError
from dovetail.sim.workload import DEFAULT_CLUSTER

PAGE = (Path(__file__).parent.parent.parent / "docs" / "traces.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return re.split(r"(?m)^##+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


def rows(title: str) -> list[list[str]]:
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in section(title).splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row] for row in cells]


def block(kind: str) -> str:
    found = re.search(rf"(?ms)^```{kind}\n(.*?)^```$", PAGE)
    assert found, kind
    return found[1]


@pytest.mark.parametrize(("title", "fields"), [("Jobs", JOB_FIELDS), ("Machines", MACHINE_FIELDS)])
def test_every_field_has_its_row(title: str, fields: tuple[object, ...]) -> None:
    found = [(row[0], row[1] == "required") for row in rows(title)]
    assert found == [(field.name, field.required) for field in fields]  # type: ignore[attr-defined]


def test_every_option_and_every_model_has_its_row() -> None:
    options = [(row[0], row[1]) for row in rows("dovetail generate") if row[0].startswith("--")]
    assert options == [(f"--{name.replace('_', '-')}", f"{getattr(DEFAULT_WORKLOAD, name):g}") for name in HELP_TEXTS]
    models = [row for row in rows("dovetail generate") if not row[0].startswith("--")]
    assert models == [
        [name, f"{model.memory_mib:,} MiB", str(model.gpus), str(model.cores), str(model.host_gib)]
        for name, model in GPU_MODELS.items()
    ]
    assert f"`{DEFAULT_CLUSTER}`: 64 nodes, 416 GPUs" in PAGE


def test_the_example_can_be_read(tmp_path: Path) -> None:
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.jsonl"
    nodes.write_text(block("csv"), encoding="utf-8")
    jobs.write_text(block("jsonl"), encoding="utf-8")
    trace, problems = load_trace(nodes, jobs)
    assert problems == []
    assert trace.gpu_capacity_milli == 16_000  # 2 × 4 + 8
    assert [(job.name, job.gpu_demand_milli) for job in trace.jobs] == [
        ("search", 0),
        ("notebook", 500),
        ("train", 8000),
    ]


def test_the_complaint_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("name,gpus,gpu_milli\na,1,500\nb,1,1500\n", encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_jobs(Path("jobs.csv"))
    assert str(caught.value) + "\n" == block("text")


def test_the_command_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, shown = block("console").split("\n", 1)
    result = CliRunner().invoke(cli, command.split()[2:], prog_name="dovetail")
    assert result.output == shown
