"""`replay` and `compare` with queue orders, preemption and queues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SMALL = ("--mode", "time", "--jobs", "40", "--cluster", "1xA100-SXM4-80GB:8", "--engine", "interpreted")
QUOTAS = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: research, namespace: research}
spec: {min: {nvidia.com/gpu: 4}}
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: serving, namespace: serving}
spec: {min: {nvidia.com/gpu: 4}}
"""


@pytest.fixture
def quotas(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return path


def test_replay_says_by_which_rights(run: Run) -> None:
    result = run("replay", *SMALL, "--order", "priority", "--preemption", "priority", "--restart-cost", "60")
    assert result.exit_code == 0
    assert "rights                    order priority, preemption by priority, no queues" in result.stdout
    assert "fairness between tenants" in result.stdout


def test_a_run_without_rights_prints_what_it_always_printed(run: Run) -> None:
    text = run("replay", *SMALL).stdout
    assert "rights" not in text
    assert "fairness" not in text
    found = json.loads(run("replay", *SMALL, "-o", "json").stdout)
    assert (found["order"], found["preemption"], found["queues"]) == ("priority", "none", "")
    assert 0 < found["fairness_pct"] <= 100
    assert len(found["fairness_samples"]) == len(found["samples"])


def test_queues_of_a_file(run: Run, quotas: Path) -> None:
    found = json.loads(run("replay", *SMALL, "--queues", quotas, "-o", "json").stdout)
    assert found["queues"] == "quotas"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--order", "fifo"), "--order 'fifo': in time mode there is priority"),
        (("--preemption", "yes"), "--preemption 'yes': in time mode there is none, priority"),
        (("--preemption", "none,priority"), "--preemption names 2, and a replay has one; `dovetail compare`"),
        (("--queues", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_replay_refuses(run: Run, options: tuple[str, ...], said: str) -> None:
    result = run("replay", *SMALL, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_files_without_queues_and_with_wrong_ones(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    assert "no ElasticQuota and no Queue is in it" in run("replay", *SMALL, "--queues", path).stderr
    path.write_text(QUOTAS.replace("nvidia.com/gpu: 4", "nvidia.com/gpu: four"))
    assert "spec.min.nvidia.com/gpu: 'four' is not a quantity" in run("replay", *SMALL, "--queues", path).stderr


def test_inflation_has_no_rights(run: Run) -> None:
    result = run("replay", "--jobs", "10", "--preemption", "priority")
    assert (result.exit_code, "--preemption is for --mode time; add it" in result.stderr) == (2, True)


def test_compare_compares_them_like_policies(run: Run, quotas: Path) -> None:
    more = ("--policy", "best-fit", "--preemption", "none,priority", "--queues", "none", "--queues", quotas)
    result = run("compare", *SMALL, *more, "--seeds", "1-2", "--no-cache", "-o", "json", "--workers", "1")
    found = json.loads(result.stdout)
    (study,) = found["traces"]
    assert study["baseline"] == "best-fit, no preemption, no queues"
    assert list(study["policies"]) == [
        "best-fit, no preemption, no queues",
        "best-fit, no preemption, quotas",
        "best-fit, preemption priority, no queues",
        "best-fit, preemption priority, quotas",
    ]
    assert all("fairness" in measures for measures in study["policies"].values())
    assert len(found["results"]) == 8


def test_quota_policies_are_compared(run: Run, quotas: Path) -> None:
    more = ("--policy", "best-fit", "--queues", quotas, "--quota", "capacity,drf", "--preemption", "priority")
    result = run("compare", *SMALL, *more, "--seeds", "1", "--no-cache", "-o", "json", "--workers", "1")
    (study,) = json.loads(result.stdout)["traces"]
    assert list(study["policies"]) == ["best-fit, quotas by capacity", "best-fit, quotas by drf"]
    refused = run("replay", *SMALL, "--quota", "capacity")
    assert "--quota goes with --queues" in refused.stderr


def test_queues_of_a_configuration(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    text = "{apiVersion: dovetail.dev/v1, kind: Config, queues: [{name: research, guarantee: {gpus: 4}}]}"
    path.write_text(text)
    assert json.loads(run("replay", *SMALL, "--queues", path, "-o", "json").stdout)["queues"] == "conf"
    path.write_text(text.replace("gpus: 4", "gpus: x"))
    assert "guarantee" in run("replay", *SMALL, "--queues", path).stderr
