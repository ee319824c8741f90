"""V6, V7, V9, V16, V17: how busy a node is and how busy a card would be (score_test.go, *_policy_test.go)."""

from __future__ import annotations

import pytest

from dovetail.engine.why.explain import verdicts
from dovetail.policies.hami_score import card_busyness
from dovetail.policies.rows import Card
from tests.builders import ask, card, node, pod
from tests.hami.conftest import Decide
from tests.hami.scene import Scene, Use, scene, started


def node_scores(given: Scene) -> dict[str, float | None]:
    return {v.node: v.score for v in verdicts(started(given), pod("p", ask(1, 1000, 30)))}


def busyness(
    slots: tuple[int, int],
    memory: tuple[int, int, int],
    cores: tuple[int, int, int],
    weights: tuple[int, int, int] = (1, 1, 1),
) -> float:
    """Of a card with used/count slots and asked/used/total MiB and cores."""
    compute = [10 * amount for amount in cores]
    return card_busyness(
        Card(0, 0, slots[1], memory[2], compute[2], slots[0], memory[1], compute[1], memory[0], compute[0], *weights, 0)
    )


def test_v6_a_half_used_card_scores_15_and_an_empty_one_0(decide: Decide, model: str) -> None:
    """10 × (5/10 + 50/100 + 4000/8000) = 15: the pod itself is not counted."""
    half = node("half", card("a"))
    given = scene(half, node("empty", card("b")), uses=[Use("half", "a", 5, 4000, 50)], model=model)
    assert node_scores(given) == {"half": 15.0, "empty": 0.0}
    alone = Scene(given.nodes[:1], given.uses)
    assert decide(alone, pod("p", ask(1, 1000, 30)))[0].cards == ["a"]


def test_v7_the_mean_over_the_cards(decide: Decide, model: str) -> None:
    """10 × (5/20 + 50/200 + 4000/16000) = 7.5; spread takes the empty card."""
    given = scene(node("n", card("uuid1"), card("uuid2")), uses=[Use("n", "uuid2", 5, 4000, 50)], model=model)
    assert node_scores(given) == {"n": 7.5}
    assert decide(given, pod("p", ask(1, 1000, 30)))[0].cards == ["uuid1"]


@pytest.mark.parametrize(("policy", "where"), [("spread", "empty"), ("binpack", "half")])
def test_v9_spread_takes_the_lowest_score_and_binpack_the_highest(
    decide: Decide, model: str, policy: str, where: str
) -> None:
    given = scene(node("empty", card("b")), node("half", card("a")), uses=[Use("half", "a", 5, 4000, 50)], model=model)
    assert decide(given, pod("p", ask(1, 1000, 30), node_policy=policy))[0].node == where


def test_equal_nodes_are_taken_by_name(decide: Decide, model: str) -> None:
    """HAMi leaves ties to chance; we do not."""
    given = scene(*(node(name, card(f"card-of-{name}")) for name in ("n2", "n10", "n1")), model=model)
    for policy in ("binpack", "spread"):
        assert decide(given, pod("p", ask(1, 1000), node_policy=policy))[0].node == "n1"


def test_v16_card_scores(model: str) -> None:
    # Without the pod: 10 × (2/10 + 1/4 + 2048/8192) = 7, which is what a node of this one card scores.
    small = card("c", 8192, compute_milli=40)
    assert node_scores(scene(node("n", small), uses=[Use("n", "c", 2, 2048, 1)], model=model))["n"] is None  # 30 > 4
    scheduler = started(scene(node("n", small), uses=[Use("n", "c", 2, 2048, 1)], model=model))
    assert verdicts(scheduler, pod("p", ask(1, 1)))[0].score == 7.0
    # With 4 cards × 1,024 MiB × 1 core: 10 × (3/10 + 2/4 + 3072/8192) = 11.75; how many cards does not count.
    assert busyness((2, 10), (1024, 2048, 8192), (1, 1, 4)) == 11.75
    # 50 % of 10,000 MiB and 2 of 10 cores on an empty card: 10 × (1/10 + 2/10 + 5000/10000) = 8.
    assert busyness((0, 10), (5000, 0, 10_000), (2, 0, 10)) == 8.0


def test_a_card_without_size_scores_nothing() -> None:
    assert busyness((0, 0), (0, 0, 8000), (0, 0, 100)) == 0.0
    assert busyness((0, 10), (0, 0, 0), (0, 0, 100)) == 0.0
    assert busyness((0, 10), (0, 0, 8000), (0, 0, 0)) == 0.0


@pytest.mark.parametrize(
    ("weights", "policy", "which"),
    [
        # a: 5 slots, little memory; b: 1 slot, much memory. Asked: 1000 MiB, no cores.
        # 1,1,1: a = 10 × (6/10 + 0 + 2000/8000) = 8.5, b = 10 × (2/10 + 0 + 5000/8000) = 8.25.
        ((1, 1, 1), "binpack", "a"),
        ((1, 1, 1), "spread", "b"),
        # memory three times: a = 6 + 7.5 = 13.5, b = 2 + 18.75 = 20.75.
        ((1, 1, 3), "binpack", "b"),
        ((1, 1, 3), "spread", "a"),
        # slots alone: 6 against 2.
        ((1, 0, 0), "binpack", "a"),
        ((0, 0, 1), "binpack", "b"),
    ],
)
def test_v17_weights_per_pod(
    decide: Decide, model: str, weights: tuple[int, int, int], policy: str, which: str
) -> None:
    given = scene(
        node("n", card("a"), card("b")), uses=[Use("n", "a", 5, 1000, 0), Use("n", "b", 1, 4000, 0)], model=model
    )
    (outcome,) = decide(given, pod("p", ask(1, 1000), gpu_policy=policy, weights=weights))
    assert outcome.cards == [which]


def test_the_request_counts_on_cards_of_different_size(decide: Decide, model: str) -> None:
    """HAMi drops the request where the type is a model name; we count it always, on mixed nodes it matters.

    Asked 4000 MiB: small = 10 × (1/10 + 4000/8000) = 6, large used 2000 of 16000 = 10 × (2/10 + 6000/16000) = 5.75.
    Without the request it would be 1 against 3.25.
    """
    given = scene(node("n", card("small"), card("large", 16_000)), uses=[Use("n", "large", 1, 2000, 0)], model=model)
    assert decide(given, pod("p", ask(1, 4000), gpu_policy="binpack"))[0].cards == ["small"]
    assert decide(given, pod("p", ask(1, 4000), gpu_policy="spread"))[0].cards == ["large"]
