"""NUMA nodes: fewest first, fullest first, and kubelet's single-numa-node, with NodeResourceTopologyMatch's numbers."""

from __future__ import annotations

import pytest

from dovetail.model.node import Alignment, Node
from dovetail.model.pod import Pod
from tests.builders import ask, card, cluster, node, place, pod, use
from tests.policies.measured_clusters import said
from tests.policies.scores import scores

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]


def zoned(name: str, *cards: int, alignment: Alignment = Alignment.NONE) -> Node:
    """A node whose NUMA nodes 0, 1, … have so many cards each."""
    numbers = [zone for zone, count in enumerate(cards) for _ in range(count)]
    made = [card(f"{name}/{n}", index=n, numa=zone) for n, zone in enumerate(numbers)]
    return node(name, *made, alignment=alignment)


def whole(name: str, *counts: int, policy: str = "binpack") -> Pod:
    """A container for each count of whole cards."""
    return pod(name, *(ask(count, percent=100, cores=100) for count in counts), node_policy=policy)


def test_the_fewest_numa_nodes() -> None:
    """unit = ⌊100 / 8⌋ = 12: 100 − 12 k + 6."""
    nodes = [zoned("one", 4, 4), zoned("two", 2, 2, 2, 2), zoned("three", 1, 1, 2, 1)]
    # 4 cards: one NUMA node of `one`, two of `two`; of `three` the one with two cards and two others.
    found = scores("least-numa", nodes, whole("p", 4, policy="least-numa"))
    assert found == {"one": 94.0, "two": 82.0, "three": 70.0}


def test_cards_in_use_do_not_count_and_the_container_that_needs_most_decides() -> None:
    nodes = [zoned("a", 2, 2), zoned("b", 2, 2)]
    scheduler = cluster(*nodes)
    use(scheduler, "a", "a/0", 1, 100, 0)
    # a/2 and a/3 are on one NUMA node
    assert said(scheduler, whole("p", 1, 2, policy="least-numa")) == {"a": 94.0, "b": 94.0}
    assert said(scheduler, whole("q", 3, policy="least-numa")) == {"a": 82.0, "b": 82.0}
    assert said(scheduler, pod("r", node_policy="least-numa")) == {"a": 100.0, "b": 100.0}


@pytest.mark.parametrize("mode", MODES)
def test_four_cards_on_one_numa_node_or_two_and_two(mode: str) -> None:
    """Both kubelets want single NUMA nodes: A {4, 0}, B {2, 2}."""
    nodes = [zoned("a", 4, 0, alignment=Alignment.CONTAINER), zoned("b", 2, 2, alignment=Alignment.CONTAINER)]
    assert place(cluster(*nodes[::-1], mode=mode), whole("four", 4, policy="spread"))[0][0] == "a"
    assert place(cluster(nodes[1], mode=mode), whole("four", 4)) == [(None, ())]
    assert place(cluster(zoned("b", 2, 2), mode=mode), whole("four", 4))[0][0] == "b"  # without alignment it fits
    two = whole("two", 2, policy="least-numa")
    assert scores("least-numa", nodes, two) == {"a": 94.0, "b": 94.0}
    # 2 of 4 cards are 50 %, 2 of 2 are 100 %: the NUMA node with four stays free.
    assert scores("numa-most", nodes, whole("two", 2, policy="numa-most")) == {"a": 50.0, "b": 100.0}
    assert place(cluster(*nodes, mode=mode), whole("two", 2, policy="numa-most"))[0][0] == "b"
    # 2 of 4 are left, 0 of 2
    assert scores("numa-least", nodes, whole("two", 2, policy="numa-least")) == {"a": 50.0, "b": 0.0}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["binpack", "fgd"])
def test_scope_of_the_container_and_of_the_pod(mode: str, policy: str) -> None:
    """Two containers with two cards each: one NUMA node each, or one for both."""
    wanted = whole("p", 2, 2, policy=policy)
    by_container = cluster(zoned("n", 2, 2, alignment=Alignment.CONTAINER), mode=mode)
    assert set(place(by_container, wanted)[0][1]) == {"n/0", "n/1", "n/2", "n/3"}
    assert place(cluster(zoned("n", 2, 2, alignment=Alignment.POD), mode=mode), wanted) == [(None, ())]
    by_pod = cluster(zoned("n", 2, 4, alignment=Alignment.POD), mode=mode)
    assert set(place(by_pod, wanted)[0][1]) == {"n/2", "n/3", "n/4", "n/5"}


def test_parts_of_cards_follow_compute_and_memory() -> None:
    """8,000 MiB each. `even`: 4,000 MiB and 50 % of one card: both 50 %. `odd`: 4,000 MiB and 10 %: 0.5 and 0.1."""
    nodes = [zoned("n", 1)]
    even, odd = ask(1, 4000, 50), ask(1, 4000, 10)
    assert scores("numa-balanced", nodes, pod("p", even, node_policy="numa-balanced")) == {"n": 100.0}
    # mean 0.3, variance 0.04
    assert scores("numa-balanced", nodes, pod("p", odd, node_policy="numa-balanced")) == {"n": 96.0}
    assert scores("numa-most", nodes, pod("p", odd, node_policy="numa-most")) == {"n": 30.0}  # (50 + 10) / 2
    assert scores("numa-least", nodes, pod("p", odd, node_policy="numa-least")) == {"n": 70.0}


def test_the_worst_numa_node_that_fits_counts() -> None:
    """A NUMA node with one card and one with two: 1 of 1 is 100 %, 1 of 2 is 50 %; the lowest counts."""
    assert scores("numa-most", [zoned("n", 1, 2)], whole("p", 1, policy="numa-most")) == {"n": 50.0}
