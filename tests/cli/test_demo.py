"""The four scenarios give the outcome that their strategy promises."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from dovetail.cli.commands.demo import SCENARIOS
from tests.cli.conftest import Run

T4, A10G = "ip-10-0-52-161", "ip-10-0-61-248"


def scenario(run: Run, letter: str, *more: str) -> dict[str, Any]:
    result = run("demo", letter, "-o", "json", *more)
    assert result.exit_code == 0
    [found] = json.loads(result.stdout)["scenarios"]
    plan: dict[str, Any] = found["plan"]
    return plan


def per_node(plan: dict[str, Any]) -> Counter[str]:
    return Counter(placement["node"] for placement in plan["placements"])


def per_gpu(plan: dict[str, Any]) -> Counter[tuple[str, int]]:
    return Counter((placement["node"], placement["devices"][0]["index"]) for placement in plan["placements"])


@pytest.mark.parametrize(
    ("letter", "nodes", "gpus"),
    [
        ("A", [4], [2, 2]),  # two fit on a T4: 7,500 × 2 ≤ 15,360
        ("B", [2, 2], [2, 2]),
        ("C", [4], [1, 1, 1, 1]),
        ("D", [2, 2], [1, 1, 1, 1]),
    ],
)
def test_outcome(run: Run, letter: str, nodes: list[int], gpus: list[int]) -> None:
    plan = scenario(run, letter)
    assert sorted(per_node(plan).values()) == nodes
    assert sorted(per_gpu(plan).values()) == gpus
    assert plan["summary"]["whole_gpus_free"] == {"before": 8, "after": 8 - len(gpus)}
    assert plan["pending"] == []


@pytest.mark.slow  # numba
def test_compiled_is_the_same(run: Run) -> None:
    assert scenario(run, "B", "--engine", "compiled") == scenario(run, "B", "--engine", "interpreted")


def test_a_packs_the_t4_node(run: Run) -> None:
    assert per_node(scenario(run, "A")) == {T4: 4}


def test_b_shares_one_gpu_per_node(run: Run) -> None:
    assert {node for node, _ in per_gpu(scenario(run, "B"))} == {T4, A10G}


def test_all_four_as_text(run: Run) -> None:
    result = run("demo")
    assert result.exit_code == 0
    for each in SCENARIOS:
        assert f"{each.letter}  node {each.node} × GPU {each.gpu}: {each.when}" in result.output
        assert each.buys in result.output
    assert result.output.count("POD") == 4
    assert "nodes used: 1 of 2 · GPUs used: 2 of 8 · whole GPUs free: 6" in result.output  # A
    assert "nodes used: 2 of 2 · GPUs used: 4 of 8 · whole GPUs free: 4" in result.output  # D
    assert "\x1b[" not in result.output  # no colours: not a terminal


def test_the_picture_shows_who_sits_where(run: Run) -> None:
    lines = run("demo", "A").output.splitlines()
    full = [line for line in lines if "15,000 / 15,360 MiB" in line]
    assert len(full) == 2
    assert [("demo-a-0" in line, "demo-a-1" in line) for line in full] == [(False, False), (True, True)]


def test_yaml_is_the_same_document(run: Run) -> None:
    as_json, as_yaml = run("demo", "-o", "json").stdout, run("demo", "-o", "yaml").stdout
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
