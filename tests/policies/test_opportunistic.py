"""AntMan's opportunistic pods: 100 − the lowest eligible utilisation, and that card."""

from __future__ import annotations

import pytest

from dovetail.model.node import Node
from dovetail.model.signals import CardSignals, NodeSignals
from tests.builders import ask, node, place, pod
from tests.policies.measured_clusters import measured, said

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]


def used(name: str, *loads: int, memory: int = 32_768, in_use: int = 0) -> tuple[Node, NodeSignals]:
    """Cards of 32 GiB with these utilisations in per cent, each with so much memory in use."""
    cards = tuple(CardSignals(f"{name}/{n}", load * 10, in_use * 1000 // memory) for n, load in enumerate(loads))
    return node(name, gpus=len(loads), memory=memory), NodeSignals(0.0, cards=cards)


@pytest.mark.parametrize("mode", MODES)
def test_the_least_used_card_is_taken_busy_or_not(mode: str) -> None:
    nodes = [used("a", 90, 60), used("b", 35, 70), used("c", 80, 95)]
    wanted = pod("p", ask(1), node_policy="opportunistic")
    # a: 60 % is the lowest below 80 %. c: none is below 80 %.
    assert said(measured(nodes), wanted) == {"a": 40.0, "b": 65.0, "c": 0.0}
    assert place(measured(nodes, mode), wanted) == [("b", ("b/0",))]


def test_cards_with_16_gib_in_use_are_not_eligible() -> None:
    nodes = [used("full", 10, in_use=16_384), used("part", 50, in_use=16_000)]
    wanted = pod("p", ask(1), node_policy="opportunistic")
    assert said(measured(nodes), wanted) == {"full": 0.0, "part": 50.0}


def test_several_cards_count_by_the_busiest_and_unmeasured_ones_are_not_eligible() -> None:
    nodes: list[tuple[Node, NodeSignals | None]] = [used("a", 50, 20, 30), (node("dark", gpus=2), None)]
    pair = pod("p", ask(2), node_policy="opportunistic")
    assert said(measured(nodes), pair) == {"a": 70.0, "dark": 0.0}
    assert place(measured(nodes), pair) == [("a", ("a/1", "a/2"))]
    assert said(measured(nodes), pod("q", node_policy="opportunistic", cpu=1)) == {"a": 0.0, "dark": 0.0}


def test_without_any_measurement_the_fallback_decides() -> None:
    """Spread: the least busy node. By name `a` would come first."""
    scheduler = measured([(node("a", gpus=1), None), (node("b", gpus=1), None)])
    first = pod("p", ask(1, 1000), node_policy="opportunistic")
    second = pod("q", ask(1, 1000), node_policy="opportunistic")
    assert [where for where, _ in place(scheduler, first, second)] == ["a", "b"]
