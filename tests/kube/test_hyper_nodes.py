"""Topologies and HyperNodes of files: which labels nodes get, and which levels the engine is told."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.conversion.settings import Settings
from tests.kube.manifests import Object, node, other, read, said

TIER = "volcano.sh/hypernode-tier-"


def hyper_node(name: str, tier: Any, *selectors: Object, kind: str = "Node", **spec: Any) -> Object:
    members = [{"type": kind, "selector": selector} for selector in selectors]
    return other("HyperNode", "topology.volcano.sh/v1alpha1", name, spec={"tier": tier, "members": members, **spec})


def exact(name: str) -> Object:
    return {"exactMatch": {"name": name}}


def labels(*items: Object) -> dict[str, dict[str, str]]:
    """Node -> tier -> HyperNode."""
    return {
        one.name: {key.removeprefix(TIER): value for key, value in one.labels.items() if key.startswith(TIER)}
        for one in read(*items).nodes
    }


def test_a_tree_of_two_tiers() -> None:
    """s0 and s1 are switches below the spine s2; n2 is in no HyperNode."""
    tree = [
        hyper_node("s0", 1, exact("n0")),
        hyper_node("s1", 1, {"regexMatch": {"pattern": "^n1$"}}),
        hyper_node("s2", 2, exact("s0"), {"regexMatch": {"pattern": "^s[01]$"}}, kind="HyperNode"),
    ]
    assert labels(*tree, node("n0"), node("n1"), node("n2")) == {
        "n0": {"1": "s0", "2": "s2"},
        "n1": {"1": "s1", "2": "s2"},
        "n2": {},
    }
    assert read(*tree).topologies == (("topology.volcano.sh", (f"{TIER}2", f"{TIER}1")),)


def test_members_by_labels_and_the_name_of_a_tier() -> None:
    selector = {"labelMatch": {"matchLabels": {"rack": "a"}}}
    item = hyper_node("s0", "1", selector, tierName="leaf")  # the first versions had text
    assert labels(item, node("n0", labels={"rack": "a"}), node("n1")) == {
        "n0": {"1": "s0", "name-leaf": "s0"},
        "n1": {},
    }


def test_a_circle_of_hyper_nodes_ends() -> None:
    """A HyperNode contains only those of lower tiers."""
    items = [
        hyper_node("a", 1, exact("n")),
        hyper_node("b", 2, exact("a"), exact("c"), kind="HyperNode"),
        hyper_node("c", 2, exact("b"), kind="HyperNode"),
    ]
    assert labels(*items, node("n")) == {"n": {"1": "a", "2": "b"}}


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (hyper_node("s", 0, exact("n")), "spec.tier"),
        (hyper_node("s", "high", exact("n")), "spec.tier"),
        (hyper_node("s", 1, {"regexMatch": {"pattern": "("}}), "spec.members[0].selector.regexMatch.pattern"),
        (hyper_node("s", 1, {"regexMatch": {"pattern": "(a+)+$"}}), "spec.members[0].selector.regexMatch.pattern"),
    ],
)
def test_what_is_wrong_costs_only_itself(item: Object, field: str) -> None:
    found = read(item, hyper_node("t", 1, exact("n")), node("n"))
    assert said(found, "error", field)
    assert found.nodes[0].labels[f"{TIER}1"] == "t"


def test_a_level_that_no_node_has_is_left_out() -> None:
    """A node without the label of a level is in none of its domains: a level that no cluster uses would empty all."""
    settings = Settings(topology=("block", "rack", "kubernetes.io/hostname"))
    found = read(node("n", labels={"rack": "r", "kubernetes.io/hostname": "n"}), settings=settings)
    assert found.topologies == (("configured", ("rack", "kubernetes.io/hostname")),)


@pytest.mark.parametrize("version", ["kueue.x-k8s.io/v1beta1", "kai.scheduler/v1alpha1"])
def test_a_topology_and_its_wrong_levels(version: str) -> None:
    levels = [{"nodeLabel": label} for label in ("block", "no label", "rack", "block")]
    found = read(other("Topology", version, "t", spec={"levels": levels}))
    assert found.topologies == ((f"{version.partition('/')[0]}/t", ("block", "rack")),)
    assert said(found, "error", "spec.levels[1].nodeLabel")
    assert said(found, "error", "spec.levels[3].nodeLabel")


def test_a_hyper_node_without_a_name_is_an_error_of_its_file() -> None:
    item = hyper_node("", 99)
    item["metadata"] = {"generateName": "s-"}
    (problem,) = read(item).problems
    assert (problem.severity, problem.field) == ("error", "spec.tier")


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("^node-", True),
        ("^(?:gpu|cpu)-rack[0-9]+-n[0-9]{2}(-spare)?$", True),
        (r"^ip-10-\d+-\d+\.ec2$", True),
        (f"^({'|'.join(f'n{n}' for n in range(60))})$", True),
        (r"[+*]{3}\(\+\+\+\)\+x", True),
        ("((a+))+c", False),
        ("(a|aa)+c", False),
        ("(a|aa){30}c", False),
        (".*.*.*x", False),
        (".{0,99}.{0,99}.{0,99}x", False),
        ("a?" * 40 + "a" * 40, False),
        ("(a|aa)" * 40 + "c", False),
        ("(?x)#[\n(a+)+c#]", False),
        ("[]](a+)+c[]]", False),
    ],
)
def test_patterns_that_may_take_long_are_not_read(pattern: str, right: bool) -> None:
    found = read(hyper_node("s", 1, {"regexMatch": {"pattern": pattern}}))
    assert (not found.problems) == right
