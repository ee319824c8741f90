"""What `plan` folds, how it sorts names, and where it says that something is wrong."""

from __future__ import annotations

import json

import pytest

from dovetail.cli.output.folding import names_of
from dovetail.model.order import as_people_count
from tests.cli.conftest import PlanJson, Run

NODES = """
apiVersion: dovetail.dev/v1
kind: Cluster
nodes:
- {name: node, count: 11, cpu: 8, gpus: {model: T4, memory: 16000, count: 4}}
- {name: other, cpu: 4}
"""
WEB = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: REPLICAS
  template:
    metadata: {annotations: {ANNOTATIONS}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: MIB}}}]}
"""


def web(replicas: int, mib: int, annotations: str = "") -> str:
    return NODES + WEB.replace("REPLICAS", str(replicas)).replace("MIB", str(mib)).replace("ANNOTATIONS", annotations)


def table_of(text: str, title: str) -> list[str]:
    """The rows below a header, up to the next empty line."""
    rows = text.splitlines()
    start = next(n for n, row in enumerate(rows) if row.startswith(title))
    end = next((n for n, row in enumerate(rows) if n > start and not row), len(rows))
    return rows[start + 1 : end]


def test_replicas_that_wait_for_the_same_are_one_row(run: Run) -> None:
    said = run("plan", "-f", "-", stdin=web(12, 99_000)).stdout
    [row] = table_of(said, "NAMESPACE")
    assert row.startswith("default    web-0 … -11 (12)  CardInsufficientMemory  GPU memory short by 83,000 MiB on 11 ")
    wide = run("plan", "-o", "wide", "-f", "-", stdin=web(12, 99_000)).stdout
    assert len(table_of(wide, "NAMESPACE")) == 12


def test_many_replicas_on_one_node_are_one_row_and_few_are_not(run: Run) -> None:
    """Eight of 2,000 MiB fit on one node's cards, two on each; they are listed one by one up to seven."""
    [row] = table_of(run("plan", "-f", "-", stdin=web(8, 2000)).stdout, "NAMESPACE")
    assert "web-0 … -7 (8)" in row
    assert "8 × 2,000 MiB" in row
    assert "0,1,2,3" in row
    assert len(table_of(run("plan", "-f", "-", stdin=web(7, 2000)).stdout, "NAMESPACE")) == 7


def test_nodes_that_look_alike_and_got_nothing_are_one_row(run: Run) -> None:
    rows = table_of(run("plan", "-f", "-", stdin=web(1, 2000)).stdout, "NODE ")
    assert [row.split("  ")[0] for row in rows] == ["node-0", "node-1 … -10 (10)", "other"]
    wide = run("plan", "-o", "wide", "-f", "-", stdin=web(1, 2000)).stdout
    names = [row.split()[0] for row in table_of(wide, "NODE ")]
    assert names == [*(f"node-{n}" for n in range(11)), "other"]


def test_the_json_names_every_pod_and_node(plan_json: PlanJson) -> None:
    plan = plan_json("-f", "-", stdin=web(12, 99_000))
    assert (len(plan["pending"]), len(plan["nodes"])) == (12, 12)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], "a"),
        (["web-1", "web-0"], "web-0, -1 (2)"),
        (["web-10", "web-9", "web-2"], "web-2 … -10 (3)"),
        (["node2", "node10", "node1"], "node1 … node10 (3)"),
        (["a-0", "b-0"], "a-0, b-0 (2)"),
    ],
)
def test_names_in_a_row(names: list[str], said: str) -> None:
    assert names_of(names) == said


def test_numbers_anywhere_in_a_name_count_as_numbers() -> None:
    names = ["gpu10-b", "gpu2-b", "gpu2-a10", "gpu2-a9", "gpu", "10", "9"]
    assert sorted(names, key=as_people_count) == ["9", "10", "gpu", "gpu2-a9", "gpu2-a10", "gpu2-b", "gpu10-b"]


def test_a_complaint_names_the_annotation_of_the_template(run: Run) -> None:
    result = run("plan", "-f", "-", stdin=web(2, 2000, "dovetail.dev/node-policy: foo"))
    assert result.exit_code == 2
    assert "Deployment default/web: spec.template.metadata.annotations.dovetail.dev/node-policy: 'foo'" in result.stderr
    warned = run("plan", "-f", "-", stdin=web(2, 2000, "nvidia.com/use-gputype: H100")).stderr
    assert "spec.template.metadata.annotations.nvidia.com/use-gputype: 'H100' matches no card" in warned
    odd = run("plan", "-f", "-", stdin=web(2, 2000, "nvidia.com/numa-bind: maybe")).stderr
    assert "spec.template.metadata.annotations.nvidia.com/numa-bind: 'maybe' is neither" in odd


STRAY = """
---
apiVersion: v1
kind: Pod
metadata: {name: stray}
spec: {nodeName: ghost, containers: [{name: c}]}
"""


def test_a_pod_whose_node_is_unknown_is_explained(run: Run) -> None:
    result = run("explain", "stray", "-o", "json", "-f", "-", stdin=NODES + STRAY)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["state"], told["reason"]) == (3, "pending", "NodeNameMismatch")
    assert told["message"] == "spec.nodeName is ghost, and node ghost does not exist in the input; add it with -f"


def test_a_template_that_names_an_unknown_node_is_explained(plan_json: PlanJson, run: Run) -> None:
    text = web(1, 2000).replace("spec: {containers", "spec: {nodeName: ghost, containers")
    [waits] = plan_json("-f", "-", stdin=text)["pending"]
    assert waits["message"] == "the pod names node ghost, which does not exist"
    assert "drop nodeName ghost" in run("explain", "web", "-f", "-", stdin=text).stdout
