"""Joint policies on the command line: one name for node and GPU, and a plan that knows its whole workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.policies.table import NODE_POLICIES
from tests.cli.conftest import PlanJson, Run

JOINT = [name for name, policy in NODE_POLICIES.items() if policy.offer is not None]


def a_node(name: str, cards: int) -> str:
    """Cards of 8,000 MiB called name/0, name/1, …"""
    register = [
        {"id": f"{name}/{n}", "index": n, "count": 10, "devmem": 8000, "devcore": 100, "type": "NVIDIA A10"}
        | {"numa": 0, "mode": "hami-core", "health": True}
        for n in range(cards)
    ]
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": json.dumps(register)}},
        "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(10 * cards)}},
    }
    return json.dumps(body)


def a_pod(name: str, mib: int | None, node: str = "", **annotations: str) -> str:
    """A pod that asks for so much of a card, or for a whole one; running, where it has a node."""
    limits = {"nvidia.com/gpu": 1, **({"nvidia.com/gpumem": mib} if mib else {"nvidia.com/gpucores": 100})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {k.replace("__", "/"): v for k, v in annotations.items()}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    if node:
        body["spec"] |= {"nodeName": node}  # type: ignore[operator]
        body["status"] = {"phase": "Running"}
    return json.dumps(body)


# Half of b's card is taken. The half that comes belongs there: then two whole cards are left for those who follow.
CLUSTER = [a_node("a", 2), a_node("b", 1), a_pod("old", 4000, "b")]
PENDING = [a_pod("half", 4000), a_pod("whole-0", None), a_pod("whole-1", None)]


def manifests(*documents: str) -> str:
    return "\n---\n".join(documents)


def where(plan: dict) -> dict[str, tuple[str, str]]:  # type: ignore[type-arg]
    """pod -> node, card"""
    return {p["pod"]: (p["node"], p["devices"][0]["uuid"]) for p in plan["placements"]}


@pytest.mark.parametrize("policy", ["fgd", "snug"])  # those that read the outlook
def test_a_plan_prepares_for_the_pods_it_was_given(plan_json: PlanJson, policy: str) -> None:
    text = manifests(*CLUSTER, *PENDING)
    plan = plan_json("--node-policy", policy, "-f", "-", stdin=text)
    assert where(plan) == {"half": ("b", "b/0"), "whole-0": ("a", "a/0"), "whole-1": ("a", "a/1")}
    spread = plan_json("--node-policy", "spread", "-f", "-", stdin=text)
    assert [pending["pod"] for pending in spread["pending"]] == ["whole-1"]


@pytest.mark.parametrize("policy", JOINT)
def test_the_order_of_the_manifests_does_not_matter(plan_json: PlanJson, policy: str) -> None:
    documents = [*CLUSTER, *PENDING, *(a_pod(f"part-{n}", 1000 + 500 * n) for n in range(4))]
    plans = [
        plan_json("--node-policy", policy, "-f", "-", stdin=manifests(*some))
        for some in (documents, documents, documents[::-1])
    ]
    assert plans[0] == plans[1]
    assert where(plans[0]) == where(plans[2])


@pytest.mark.parametrize("policy", JOINT)
def test_a_joint_policy_stands_for_node_and_gpu(run: Run, plan_json: PlanJson, policy: str) -> None:
    text = manifests(*CLUSTER, *PENDING, a_pod("too-much", 9000))
    plan = plan_json("--node-policy", policy, "-f", "-", stdin=text)
    shown = [p["policy"] for p in (*plan["placements"], *plan["pending"])]
    assert shown == [{"node": policy, "gpu": policy}] * 4
    said = run("plan", "--node-policy", policy, "-f", "-", stdin=text).stdout
    assert policy in said
    assert "spread" not in said


def test_explain_agrees_with_plan(run: Run) -> None:
    text = manifests(*CLUSTER, *PENDING)
    said = run("explain", "half", "--node-policy", "fgd", "-f", "-", stdin=text).stdout
    assert "default/half: placed  (node and GPU fgd)" in said
    found = json.loads(run("explain", "half", "--node-policy", "fgd", "-f", "-", "-o", "json", stdin=text).stdout)
    assert (found["node"], found["policy"]) == ("b", {"node": "fgd", "gpu": "fgd"})
    # Two of four pods want half a card, two a whole one. b: 250 milli of fragments less; a: 250 more.
    assert {v["node"]: v["score"] for v in found["nodes"]} == {"b": 56.0, "a": 43.0}
    last = json.loads(run("explain", "whole-1", "--node-policy", "fgd", "-f", "-", "-o", "json", stdin=text).stdout)
    assert (last["node"], last["devices"][0]["uuid"]) == ("a", "a/1")


# A GPU policy beside it is not used, and that is said.


@pytest.mark.parametrize(
    ("options", "annotations", "warns"),
    [
        (("--node-policy", "fgd"), {}, ""),
        (("--node-policy", "fgd", "--gpu-policy", "mutex"), {}, "--gpu-policy: not used: the node policy fgd"),
        (("--gpu-policy", "mutex"), {"dovetail.dev__node-policy": "fgd"}, ""),  # others may use it
        (("--node-policy", "binpack", "--gpu-policy", "mutex"), {}, ""),
        (
            ("--node-policy", "fgd"),
            {"hami.io__gpu-scheduler-policy": "mutex"},
            "metadata.annotations.hami.io/gpu-scheduler-policy: not used: the node policy fgd chooses the GPUs itself",
        ),
        (
            (),
            {"dovetail.dev__node-policy": "fgd", "dovetail.dev__gpu-policy": "binpack"},
            "metadata.annotations.dovetail.dev/gpu-policy: not used: the node policy fgd chooses the GPUs itself",
        ),
        (("--node-policy", "fgd"), {"dovetail.dev__node-policy": "spread", "dovetail.dev__gpu-policy": "mutex"}, ""),
    ],
)
def test_a_gpu_policy_beside_a_joint_one_is_warned_of(
    plan_json: PlanJson, options: tuple[str, ...], annotations: dict[str, str], warns: str
) -> None:
    plan = plan_json(*options, "-f", "-", stdin=manifests(a_node("a", 1), a_pod("p", 1000, **annotations)))
    assert len(plan["placements"]) == 1
    assert len(plan["warnings"]) == bool(warns)
    assert all(warns in warning for warning in plan["warnings"])


def test_a_gpu_policy_in_the_configuration_is_warned_of_too(plan_json: PlanJson, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    text = "apiVersion: dovetail.dev/v1\nkind: Config\nnodePolicy: fgd\ngpuPolicy: binpack\n"
    config.write_text(text, encoding="utf-8")
    plan = plan_json("--config", config, "-f", "-", stdin=manifests(a_node("a", 1), a_pod("p", 1000)))
    assert plan["warnings"] == [f"{config}: gpuPolicy: not used: the node policy fgd chooses the GPUs itself"]


def test_policies_says_which_are_joint(run: Run) -> None:
    assert "fgd (joint)" in run("policies").stdout
    rows = json.loads(run("policies", "-o", "json").stdout)["policies"]
    assert [row["name"] for row in rows if row["joint"]] == JOINT
    assert {row["axis"] for row in rows if row["joint"]} == {"node"}
