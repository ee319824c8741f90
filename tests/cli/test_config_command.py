"""`dovetail config`: the schema is that of the code, errors name field and fix, and values say where they are from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from dovetail.cli.config_schema import DESCRIPTIONS, schema, schema_text
from dovetail.cli.main import cli

ROOT = Path(__file__).parent.parent.parent
HEAD = "apiVersion: dovetail.dev/v1\nkind: Config\n"
GOOD = (
    "",
    "nodePolicy: spread\ngpuPolicy: binpack,numa\n",
    "schedulers:\n  hami-scheduler: {nodePolicy: binpack, withoutDevices: {policyWeight: 2}}\n",
    "queues:\n- {name: ml, guarantee: {gpus: 4, gpu-memory: 80Gi}, weight: 2}\n",
    "queues:\n- {name: ml, ceiling: {gpus/A100: 4}, weight: {gpus/A100: 1}}\n",
    "gangs: {releaseAfterSeconds: never}\npreemption: {keepPlacesAfterSeconds: 60}\n",
    "signals: {metricsApi: true, prometheus: {url: https://p:9090, queries: {gpu: x}}}\n",
    "metrics: {hami: legacy, hamiCards: 100}\ntracing: {endpoint: 'http://c:4318/v1/traces', sample: 0.1}\n",
    "topology: [zone, kubernetes.io/hostname]\npolicyArguments: {}\nallowedPolicies: [binpack]\n",
)
WRONG = (
    "nodepolicy: spread\n",
    "nodePolicy: 5\n",
    "gangs: {releaseAfterSeconds: 0}\n",
    "gangs: {releaseAfterSeconds: soon}\n",
    "metrics: {hami: yes please}\n",
    "metrics: {hamiCards: 100001}\n",
    "tracing: {sample: 2}\n",
    "queues: [{parent: x}]\n",
    "preemption: {minimumRunSeconds: -1}\n",
    "schedulers: {dovetail: {policy: spread}}\n",
)


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["config", *words])


def _file(folder: Path, text: str, name: str = "config.yaml") -> str:
    path = folder / name
    path.write_text(HEAD + text)
    return str(path)


def test_the_committed_schema_is_that_of_the_code() -> None:
    """After a change: `dovetail config schema > docs/config.schema.json`."""
    assert (ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8") == schema_text()
    assert json.loads(_run("schema").output) == schema()


def test_the_schema_is_a_schema_and_every_field_is_described() -> None:
    made = schema()
    Draft202012Validator.check_schema(made)
    described = {
        name: {field for field, about in one["properties"].items() if about.get("description", "").endswith(".")}
        for name, one in made["$defs"].items()
    }
    assert described == {name: set(one["properties"]) for name, one in made["$defs"].items()}
    assert {name: set(fields) for name, fields in DESCRIPTIONS.items()} == described


@pytest.mark.parametrize("text", [*GOOD, *WRONG])
def test_the_schema_accepts_what_the_check_accepts(text: str, tmp_path: Path) -> None:
    document = yaml.safe_load(HEAD + text)
    result = _run("check", _file(tmp_path, text))
    assert result.exit_code == (0 if text in GOOD else 2), result.output
    assert Draft202012Validator(schema()).is_valid(document) is (text in GOOD)


def test_the_shipped_configuration_is_valid() -> None:
    manifests = yaml.safe_load_all((ROOT / "deploy" / "deployment.yaml").read_text(encoding="utf-8"))
    files = [one["data"]["config.yaml"] for one in manifests if one and one["kind"] == "ConfigMap"]
    assert files
    for text in files:
        Draft202012Validator(schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodepolicy: spread\n", "unknown key 'nodepolicy'; did you mean 'nodePolicy'?"),
        ("nodePolicy: binpak\n", "nodePolicy: "),
        ("schedulers: {a: {gpuPolicy: sprad}}\n", "schedulers.a: 'sprad' is no GPU policy"),
        ("metrics: {hami: maybe}\n", "metrics.hami"),
        ("queues: [{name: a, parent: b}]\n", "there is no queue 'b'"),
        ("deviceConfig: nowhere.yaml\n", "nowhere.yaml: cannot be read"),
        ("topology: ['not a label']\n", "topology[0]: 'not a label' is no node label"),
    ],
)
def test_an_error_names_the_file_and_the_field(text: str, said: str, tmp_path: Path) -> None:
    path = _file(tmp_path, text)
    result = _run("check", path)
    assert result.exit_code == 2
    assert said in result.output
    assert str(tmp_path) in result.output


def test_all_files_are_checked_and_one_wrong_file_is_exit_code_2(tmp_path: Path) -> None:
    good, wrong = _file(tmp_path, "", "good.yaml"), _file(tmp_path, "nodePolicy: x\n", "wrong.yaml")
    result = _run("check", "-o", "json", wrong, good, str(tmp_path / "missing.yaml"))
    files = json.loads(result.output)["files"]
    assert [(Path(one["file"]).name, one["ok"]) for one in files] == [
        ("wrong.yaml", False),
        ("good.yaml", True),
        ("missing.yaml", False),
    ]
    assert "'x'" in files[0]["errors"][0]
    assert "No such file" in files[2]["errors"][0]
    assert result.exit_code == 2
    assert _run("check", good).exit_code == 0


def _shown(*words: str) -> dict[str, tuple[Any, str]]:
    result = _run("show", "-o", "json", *words)
    assert result.exit_code == 0, result.output
    return {one["field"]: (one["value"], one["source"]) for one in json.loads(result.output)["values"]}


def test_the_command_line_goes_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    path = _file(tmp_path, "nodePolicy: spread\ngpuPolicy: spread\npreemption: {minimumRunSeconds: 60}\n")
    shown = _shown("--config", path, "--gpu-policy", "binpack")
    assert shown["nodePolicy"] == ("spread", "file")
    assert shown["gpuPolicy"] == ("binpack", "command line")
    assert shown["preemption.minimumRunSeconds"] == (60.0, "file")
    assert shown["preemption.enabled"] == (True, "default")
    assert shown["metrics.hamiCards"] == (10_000, "default")


def test_without_a_file_everything_is_the_default() -> None:
    shown = _shown()
    assert {source for _, source in shown.values()} == {"default"}
    assert (shown["nodePolicy"][0], shown["gpuPolicy"][0], shown["gangs.unknownGroup"][0]) == (
        "binpack",
        "spread",
        "wait",
    )


def test_only_what_is_changed(tmp_path: Path) -> None:
    result = _run("show", "--config", _file(tmp_path, "nodePolicy: spread\n"), "--changed")
    lines = [line.split() for line in result.output.splitlines()]
    assert [line[0] for line in lines] == ["FIELD", "apiVersion", "kind", "nodePolicy"]
    assert lines[3] == ["nodePolicy", "spread", "file"]


def test_show_refuses_a_wrong_file(tmp_path: Path) -> None:
    result = _run("show", "--config", _file(tmp_path, "nodePolicy: x\n"))
    assert result.exit_code == 2
    assert "nodePolicy" in result.output
