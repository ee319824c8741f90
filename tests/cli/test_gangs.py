"""Gangs that do not fit, wholly or partly: how many would, and what the next one lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dovetail.model.events import Bind, GroupArrived, NodeChanged
from dovetail.model.pod import Group
from tests.builders import ask, cluster, node, pod
from tests.cli.conftest import PlanJson, Run

TAINT = "taint node-role.kubernetes.io/control-plane:NoSchedule not tolerated on 1 node"


def gang(replicas: int, dongles: int, minimum: int = 3) -> str:
    """Nodes with eight dongles each, and a Deployment whose pods ask for some and start together."""
    return f"""
apiVersion: dovetail.dev/v1
kind: Cluster
nodes: [{{name: n, count: 2, extended: {{example.com/dongle: 8}}}}]
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {{name: gang}}
spec: {{minMember: {minimum}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: job}}
spec:
  replicas: {replicas}
  template:
    metadata: {{labels: {{scheduling.x-k8s.io/pod-group: gang}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{example.com/dongle: {dongles}}}}}}}]}}
"""


def messages(plan: dict[str, Any]) -> set[str]:
    return {pending["message"] for pending in plan["pending"]}


def test_none_is_placed_where_too_few_fit(plan_json: PlanJson) -> None:
    plan = plan_json("-f", "-", stdin=gang(3, 8))
    assert plan["placements"] == []
    assert messages(plan) == {
        "2 of 3 members of default/gang fit, 3 must start together; the next finds "
        "example.com/dongle short by 8 on 2 nodes"
    }
    assert plan["pending"][0]["reasons"] == {"InsufficientExtendedResource": 2}
    assert all(node["pods"] == {"before": 0, "after": 0} for node in plan["nodes"])


def test_too_few_pods(plan_json: PlanJson) -> None:
    plan = plan_json("-f", "-", stdin=gang(2, 2))
    assert {pending["reason"] for pending in plan["pending"]} == {"GroupIncomplete"}
    assert messages(plan) == {"2 of 3 members of default/gang are there, 1 more must be created"}


@pytest.mark.parametrize("replicas", [3, 6])
def test_a_member_beyond_the_minimum_waits_for_itself_alone(plan_json: PlanJson, replicas: int) -> None:
    """Those that are placed are not placed again, and the others are not told to start together."""
    plan = plan_json("-f", "-", stdin=gang(replicas, 8, minimum=2))
    assert [p["pod"] for p in plan["placements"]] == ["job-0", "job-1"]
    assert messages(plan) == {"example.com/dongle short by 8 on 2 nodes"}
    assert {pending["reason"] for pending in plan["pending"]} == {"InsufficientExtendedResource"}


def test_explain_of_a_member_beyond_the_minimum(run: Run) -> None:
    result = run("explain", "job-2", "-f", "-", stdin=gang(3, 8, minimum=2))
    assert result.exit_code == 3
    assert "Why: none of 2 nodes can take it:" in result.stdout
    assert "would place it, as tried:" in result.stdout


def test_members_that_run_count(plan_json: PlanJson) -> None:
    running = """
apiVersion: v1
kind: Pod
metadata: {name: old, labels: {scheduling.x-k8s.io/pod-group: gang}}
spec: {nodeName: n-0, containers: [{name: main, resources: {limits: {example.com/dongle: 8}}}]}
---
"""
    plan = plan_json("-f", "-", stdin=running + gang(3, 8, minimum=4))
    assert plan["placements"] == []
    assert messages(plan) == {
        "1 of 3 members of default/gang fit, 3 must start together beside 1 that runs; the next finds "
        "example.com/dongle short by 8 on 2 nodes"
    }


def test_explain_names_the_group_as_people_do(run: Run) -> None:
    result = run("explain", "gang", "-f", "-", stdin=gang(3, 8))
    assert "Why: 2 of 3 members of default/gang fit, 3 must start together; the next finds:" in result.stdout
    assert "lower minMember of default/gang from 3 to 2: it then lands on n-0" in result.stdout


def test_koordinators_gang_that_does_not_fit(examples: Path, plan_json: PlanJson) -> None:
    folder = examples / "koordinator"
    text = (folder / "vgpu-job-3.yaml").read_text(encoding="utf-8").replace('dongle: "2"', 'dongle: "8"')
    plan = plan_json("-f", "-", "-f", folder / "cluster.yaml", "-f", folder / "gang.yaml", stdin=text)
    assert messages(plan) == {
        "2 of 3 members of default/gang-example fit, 3 must start together; the next finds "
        f"example.com/dongle short by 8 on 2 nodes; {TAINT}"
    }


def test_a_pod_and_a_pod_group_of_one_name_both_wait() -> None:
    lone, gang = Group("default/x", (pod("x", ask()),)), Group("PodGroup/default/x", (pod("y", ask()),))
    scheduler = cluster()
    for group in (lone, gang):
        scheduler.handle(GroupArrived(0.0, group))
    assert len(scheduler.waiting) == 2
    assert lone.title == gang.title == "default/x"


def test_who_waits_is_served_as_people_count() -> None:
    scheduler = cluster()
    for name in ("x-10", "x-9"):
        scheduler.handle(GroupArrived(0.0, Group(f"default/{name}", (pod(name, ask(memory=8000)),))))
    effects = scheduler.handle(NodeChanged(1.0, node("n", gpus=1)))
    assert [effect.pod.name for effect in effects if isinstance(effect, Bind)] == ["x-9"]


def test_groups_are_served_as_people_count() -> None:
    groups = [Group(f"default/{name}", (pod(name),)) for name in ("x-10", "x-9", "w", "x-2", "x")]
    groups.append(Group("PodGroup/default/x-3", (pod("other"),)))
    names = [group.title for group in sorted(groups, key=lambda group: group.order)]
    assert names == [f"default/{name}" for name in ("w", "x", "x-2", "x-3", "x-9", "x-10")]
