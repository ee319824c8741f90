"""V1–V5: whole decisions (HAMi's scheduler_test.go, Test_Filter)."""

from __future__ import annotations

import pytest

from dovetail.model.pod import Container, ContainerKind
from tests.builders import ask, card, node, pod
from tests.hami.conftest import Decide
from tests.hami.scene import Given, Scene, Use, scene


def two_nodes(model: str) -> Scene:
    """node1 scores 10 × (1/20 + 25/200 + 2000/16000) = 3, node2 10 × (1/20 + 75/200 + 6000/16000) = 8."""
    return scene(
        node("node1", card("device1"), card("device2")),
        node("node2", card("device3"), card("device4")),
        uses=[Use("node1", "device1", 1, 2000, 25), Use("node2", "device4", 1, 6000, 75)],
        model=model,
    )


@pytest.mark.parametrize(
    ("number", "node_policy", "gpu_policy", "where", "which"),
    [
        ("V1", "binpack", "binpack", "node2", "device4"),  # card scores 20.25 against 4.25
        ("V2", "binpack", "spread", "node2", "device3"),
        ("V3", "spread", "binpack", "node1", "device1"),  # 10.25 against 4.25
        ("V4", "spread", "spread", "node1", "device2"),
    ],
)
def test_four_strategies(
    decide: Decide, model: str, number: str, node_policy: str, gpu_policy: str, where: str, which: str
) -> None:
    (outcome,) = decide(two_nodes(model), pod("p", ask(1, 1000, 20), node_policy=node_policy, gpu_policy=gpu_policy))
    assert outcome == (where, (Given("c0", which, 1000, 20),), {}), number


def test_v5_init_and_app_take_the_card_that_holds_either(decide: Decide, model: str) -> None:
    """device4 has 2,000 MiB left: neither 5,000 nor 4,000 fit, and device3 serves both, one after the other."""
    containers = [
        Container("init", ContainerKind.INIT, (ask(1, 5000, 20),)),
        Container("app", ContainerKind.APP, (ask(1, 4000, 20),)),
    ]
    (outcome,) = decide(two_nodes(model), pod("p", gpu_policy="binpack", containers=containers))
    assert outcome.node == "node2"
    assert outcome.given == (Given("init", "device3", 5000, 20), Given("app", "device3", 4000, 20))
