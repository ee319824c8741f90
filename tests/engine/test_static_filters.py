"""Answers of node rules are kept: a rule can read nothing of a node but what its answers are kept by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from random import Random

import pytest
from hypothesis import given

from dovetail.model.events import NodeChanged
from dovetail.model.node import Node, StaticNode, Taint
from dovetail.model.reason import Reason
from dovetail.model.rules import CORDON_TAINT, AffinityTerm, NodeRules, Requirement, Toleration, UndeclaredLabel
from tests.builders import cluster, group, node, pod
from tests.strategies import seeds

LABELS = ("zone", "disk", "pool")


def test_a_rule_is_shown_name_labels_taints_and_unschedulable() -> None:
    assert {field.name for field in fields(StaticNode)} == {"name", "labels", "taints", "unschedulable"}
    shown = node("n", gpus=2, labels={"zone": "a"}, taints=(CORDON_TAINT,), unschedulable=True).static
    assert shown == StaticNode("n", {"zone": "a"}, (CORDON_TAINT,), True)


@dataclass(frozen=True, slots=True)
class AtLeastOneCard(NodeRules):
    """Would be out of date after a card is added. mypy says so, too: an ignore that is not needed is an error."""

    def refusals(self, node: StaticNode) -> Iterator[Reason]:
        if not node.devices:  # type: ignore[attr-defined]
            yield Reason.NODE_SELECTOR


@dataclass(frozen=True, slots=True)
class OnSsd(NodeRules):
    """Reads a label that it does not declare: nodes that differ in it alone share one answer."""

    def refusals(self, node: StaticNode) -> Iterator[Reason]:
        if node.labels.get("disk") != "ssd":
            yield Reason.NODE_SELECTOR


def test_a_rule_that_reads_the_cards_of_a_node_fails_at_once() -> None:
    with pytest.raises(AttributeError, match="devices"):
        cluster(node("n", gpus=1)).place([group(pod("p", node_rules=AtLeastOneCard()))])


def test_a_rule_that_reads_a_label_it_does_not_declare_fails_at_once() -> None:
    scheduler = cluster(node("a", labels={"disk": "hdd"}), node("b", labels={"disk": "ssd"}))
    with pytest.raises(UndeclaredLabel, match="disk"):
        scheduler.place([group(pod("p", node_rules=OnSsd()))])
    declared = OnSsd(affinity=(AffinityTerm((Requirement("disk", "Exists"),)),))
    assert scheduler.place([group(pod("p", node_rules=declared))])[0].node == "b"


def some_node(chance: Random, name: str) -> Node:
    labels = {label: chance.choice(("a", "b", "7")) for label in LABELS if chance.random() < 0.6}
    taints = tuple(Taint("team", team, "NoSchedule") for team in ("ml", "web") if chance.random() < 0.2)
    return node(name, labels=labels, taints=taints, unschedulable=chance.random() < 0.2)


def some_rules(chance: Random) -> NodeRules:
    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    rows = tuple(Requirement(chance.choice(LABELS), chance.choice(operators), ("a", "b")) for _ in range(2))
    named = (Requirement("metadata.name", "In", ("n1",)),) if chance.random() < 0.2 else ()
    return NodeRules(
        chance.choice(("", "", "", "n0")),
        ((chance.choice(LABELS), "a"),) if chance.random() < 0.4 else (),
        (AffinityTerm(rows, named), AffinityTerm(rows[:1])) if chance.random() < 0.6 else None,
        (Toleration("team", "Equal", "ml"),) if chance.random() < 0.5 else (),
    )


@given(seeds)
def test_kept_answers_are_what_the_rules_say_now(seed: int) -> None:
    """Of rules that came before the nodes and after them, while nodes change, leave and come back."""
    chance = Random(seed)
    scheduler, asked = cluster(), [some_rules(chance) for _ in range(3)]
    masks, ledger = [scheduler.ledger.places.mask(rules) for rules in asked], scheduler.ledger
    for n in range(8):
        scheduler.handle(NodeChanged(float(n), some_node(chance, f"n{chance.randrange(4)}")))
        asked.append(some_rules(chance))
        masks.append(ledger.places.mask(asked[-1]))
    for rules, mask in zip(asked, masks, strict=True):
        now = [int(rules.refusal(one.static)) for one in ledger.nodes]
        assert ledger.storage.masks[mask, : len(now)].tolist() == now
        by_key = [int(rules.refusal_of(key)) for key in rules.keys([one.static for one in ledger.nodes])]
        assert by_key == now
