"""Kubernetes' three resource formulas, in its integers (noderesources, helper/shape_score.go)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.rules import NodeRules
from tests.policies.scores import scores

GIB = 2**30
DONGLE = "example.com/dongle"


def machine(name: str, **extended: int) -> Node:
    """4 CPU, 16 GiB."""
    more = {DONGLE: extended["dongles"]} if extended else {}
    return Node(name, {"cpu": 4000, "memory": 16 * GIB, "pods": 110, **more})


def asks(name: str, cpu: int, memory: int, where: str = "", dongles: int = 0) -> Pod:
    resources = {"cpu": cpu, "memory": memory} | ({DONGLE: dongles} if dongles else {})
    resources = {key: amount for key, amount in resources.items() if amount}
    scored = cpu or 100, memory or 200 * 2**20
    return Pod("default", name, f"uid-{name}", resources, *scored, node_rules=NodeRules(node_name=where))


def with_policy(pod: Pod, policy: str) -> Pod:
    return replace(pod, profile=replace(pod.profile, node=policy))


BUSY = [asks("there", 1000, 2 * GIB, where="n1")]


def test_the_worked_check() -> None:
    """n1 has 1 CPU and 2 GiB in use, the pod asks 500m and 1 GiB.

    n1: (4000 − 1500) × 100 // 4000 = 62 and (16 − 3) × 100 // 16 = 81, mean 71; n2: 87 and 93, mean 90.
    """
    nodes, wanted = [machine("n1"), machine("n2")], asks("p", 500, GIB)
    assert scores("least-allocated", nodes, with_policy(wanted, "least-allocated"), BUSY) == {"n1": 71.0, "n2": 90.0}
    # 1500 × 100 // 4000 = 37 and 3 × 100 // 16 = 18, mean 27; 12 and 6, mean 9.
    assert scores("most-allocated", nodes, with_policy(wanted, "most-allocated"), BUSY) == {"n1": 27.0, "n2": 9.0}


def test_a_pod_that_asks_for_nothing_counts_as_100m_and_200_mib() -> None:
    """(4000 − 100) × 100 // 4000 = 97, (16384 − 200) × 100 // 16384 = 98, mean 97."""
    nodes, wanted = [machine("n1")], with_policy(asks("p", 0, 0), "least-allocated")
    assert scores("least-allocated", nodes, wanted) == {"n1": 97.0}


def test_weights() -> None:
    """cpu 3 : memory 1 → (3 × 62 + 81) // 4 = 66."""
    nodes, wanted = [machine("n1")], with_policy(asks("p", 500, GIB), "least-allocated")
    found = scores("least-allocated", nodes, wanted, BUSY, resources={"cpu": 3, "memory": 1})
    assert found == {"n1": 66.0}


def test_an_extended_resource_counts_where_it_is_asked_for_and_there() -> None:
    """2 of 8 dongles: 25. A node without any is scored by cpu and memory alone, one that is not asked likewise."""
    arguments: dict[str, Any] = {"resources": {DONGLE: 1}}
    nodes = [machine("n1", dongles=8)]
    wanted = with_policy(asks("p", 500, GIB, dongles=2), "most-allocated")
    assert scores("most-allocated", nodes, wanted, **arguments) == {"n1": 25.0}
    plain = with_policy(asks("q", 500, GIB), "most-allocated")
    assert scores("most-allocated", nodes, plain, **arguments) == {"n1": 0.0}
    both: dict[str, Any] = {"resources": {DONGLE: 1, "cpu": 1}}
    # cpu 500 × 100 // 4000 = 12; with 25: 37 // 2 = 18.
    assert scores("most-allocated", nodes, wanted, **both) == {"n1": 18.0}


@pytest.mark.parametrize(
    ("shape", "cpu", "expected"),
    [
        ([(0, 0), (100, 10)], 1500, 37.0),  # the default: use × 10 / 10
        ([(0, 10), (100, 0)], 1500, 63.0),  # 100 + trunc(−100 × 37 / 100) = 63
        ([(0, 0), (50, 10), (100, 0)], 1000, 50.0),  # 25 % of the way up: 100 × 25 / 50
        ([(0, 0), (50, 10), (100, 0)], 3000, 50.0),  # half way down
        ([(20, 2), (80, 8)], 400, 20.0),  # 10 % lies before the first point: constant
        ([(20, 2), (80, 8)], 3600, 80.0),  # 90 % behind the last
        ([(0, 10), (70, 0)], 1320, 53.0),  # 33 %: 100 + trunc(−3300 / 70 = −47.1) = 53, not 52
    ],
)
def test_the_shape_is_linear_between_its_points(shape: list[tuple[int, int]], cpu: int, expected: float) -> None:
    nodes, wanted = [machine("n1")], with_policy(asks("p", cpu, GIB), "requested-to-capacity-ratio")
    arguments: dict[str, Any] = {
        "shape": [{"utilization": utilization, "score": points} for utilization, points in shape],
        "resources": {"cpu": 1},
    }
    assert scores("requested-to-capacity-ratio", nodes, wanted, **arguments) == {"n1": expected}


def test_a_resource_that_scores_nothing_is_left_out_of_both_sums_and_halves_round_up() -> None:
    nodes = [machine("n1", dongles=8)]
    policy = "requested-to-capacity-ratio"
    # cpu 25, memory 100 MiB of 16 GiB = 0 % → left out: 25, not 12.
    wanted = with_policy(asks("p", 1000, 100 * 2**20), policy)
    assert scores(policy, nodes, wanted) == {"n1": 25.0}
    # cpu 12 (500m), dongles 25 → 18.5 → 19.
    wanted = with_policy(asks("p", 500, 0, dongles=2), policy)
    assert scores(policy, nodes, wanted, resources={"cpu": 1, DONGLE: 1}) == {"n1": 19.0}


@pytest.mark.parametrize(
    "arguments",
    [
        {"shape": []},
        {"shape": [{"utilization": 0, "score": 11}]},
        {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]},
        {"resources": {"cpu": 0}},
        {"resources": {}},
        {"shapes": []},
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"policyArguments\.requested-to-capacity-ratio"):
        scores("requested-to-capacity-ratio", [machine("n1")], asks("p", 1, 1), **arguments)
