"""Koordinator's NodeResourcesFitPlus: Most and Least mixed, each with its weight; only what the pod asks for counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.rules import NodeRules
from tests.policies.scores import scores

GPU = "example.com/gpu"
ARGUMENTS: dict[str, Any] = {
    "resources": {GPU: {"type": "MostAllocated", "weight": 2}, "cpu": {"type": "LeastAllocated", "weight": 1}}
}


def machine(name: str) -> Node:
    """96 CPU, 8 GPUs."""
    return Node(name, {"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8})


def asks(name: str, gpus: int, cpu: int, where: str = "") -> Pod:
    resources = {key: amount for key, amount in ((GPU, gpus), ("cpu", cpu)) if amount}
    made = Pod(
        "default", name, f"uid-{name}", resources, cpu or 100, 200 * 2**20, node_rules=NodeRules(node_name=where)
    )
    return replace(made, profile=replace(made.profile, node="fit-plus"))


def test_71_and_38() -> None:
    """Pod: 1 GPU, 8 CPU. Busy node with 6 GPUs and 48 CPU in use:

    Most 7 × 100 // 8 = 87, Least (96 − 56) × 100 // 96 = 41 → (2 × 87 + 41) // 3 = 71;
    empty: 12 and 91 → (24 + 91) // 3 = 38.
    """
    there = [asks("there", 6, 48_000, where="busy")]
    found = scores("fit-plus", [machine("busy"), machine("empty")], asks("p", 1, 8000), there, **ARGUMENTS)
    assert found == {"busy": 71.0, "empty": 38.0}


def test_what_the_pod_does_not_ask_for_does_not_count() -> None:
    assert scores("fit-plus", [machine("n")], asks("p", 2, 0), **ARGUMENTS) == {"n": 25.0}  # 2 of 8
    assert scores("fit-plus", [machine("n")], asks("p", 0, 24_000), **ARGUMENTS) == {"n": 75.0}


def test_a_pod_that_asks_for_nothing_configured_scores_100() -> None:
    assert scores("fit-plus", [machine("n")], asks("p", 0, 0), **ARGUMENTS) == {"n": 100.0}
    assert scores("fit-plus", [machine("n")], asks("p", 1, 1)) == {"n": 100.0}


@pytest.mark.parametrize("row", [{"type": "Most"}, {"type": "MostAllocated", "weight": 0}, {"weight": 1}, "x"])
def test_wrong_arguments_are_named(row: object) -> None:
    with pytest.raises(ValueError, match=f"policyArguments.fit-plus.resources.{GPU}"):
        scores("fit-plus", [machine("n")], asks("p", 1, 1), resources={GPU: row})
