"""`--strict`: mistakes are errors. Without it they are warnings, and the plan is the same."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import GPU, MEM, Object, card, container, node, pod, workload

MISTAKES: dict[str, Object] = {
    "unknown field": pod("p", nodeSelecter={"zone": "a"}),
    "no limit": pod("p", container({}, {GPU: 1})),
    "few MiB": pod("p", container({GPU: 1, MEM: 8})),
    "top level": {**workload("Deployment", "p"), "replicas": 2},
}


def given(source: Object) -> str:
    return "\n---\n".join(json.dumps(item) for item in (node("n", card("GPU-a"), allocatable={GPU: "10"}), source))


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_a_warning_and_by_strict_an_error(plan_json: PlanJson, run: Run, name: str) -> None:
    text = given(MISTAKES[name])
    plan, strict = plan_json("-f", "-", stdin=text), plan_json("--strict", "-f", "-", stdin=text)
    assert (len(plan["warnings"]), len(plan["errors"])) == (1, 0)
    assert (strict["errors"], strict["warnings"]) == (plan["warnings"], [])
    assert strict["placements"] == plan["placements"] != []
    assert run("plan", "-f", "-", stdin=text).exit_code == 0
    assert run("plan", "--strict", "-f", "-", stdin=text).exit_code == 2
    assert run("explain", "p", "--strict", "-f", "-", stdin=text).exit_code == 2


def test_what_is_right_is_right_by_strict_too(run: Run) -> None:
    text = given(pod("p", container({GPU: 1, MEM: "4Gi"})))
    assert run("plan", "--strict", "-f", "-", stdin=text).exit_code == 0
