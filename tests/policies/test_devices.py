"""Which cards: mutex, numa and chains, topology-aware sets, first-fit and random. Binpack and spread: tests/hami."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import DeviceRules, Quota
from tests.builders import ask, card, cluster, node, place, pod, use
from tests.policies.scores import taken


def eight(links: tuple[tuple[int, ...], ...] = ()) -> Node:
    """Two NUMA nodes of four cards."""
    return node("n", *(card(f"g{n}", index=n, numa=n // 4) for n in range(8)), links=links)


def test_mutex_wants_idle_cards_and_prefers_the_highest_numa_node() -> None:
    scheduler = cluster(eight())
    for uuid in ("g6", "g7"):
        use(scheduler, "n", uuid, 1, 1, 0)
    assert place(scheduler, pod("p", ask(2, 10), gpu_policy="mutex")) == [("n", ("g5", "g4"))]
    assert place(scheduler, pod("q", ask(4, 10), gpu_policy="mutex")) == [("n", ("g3", "g2", "g1", "g0"))]
    assert place(scheduler, pod("r", ask(1, 10), gpu_policy="mutex")) == [(None, ())]


def test_numa_takes_the_highest_numa_node_then_the_highest_index() -> None:
    assert taken([eight()], pod("p", ask(5, 10), gpu_policy="numa")) == ["g7", "g6", "g5", "g4", "g3"]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("binpack", "g1"),  # the fullest, wherever it is
        ("binpack,numa", "g1"),
        ("numa,binpack", "g5"),  # the fullest of NUMA 1
        ("numa,spread", "g7"),  # the emptiest of NUMA 1, highest index
        ("spread,numa", "g7"),
        ("mutex,binpack", "g7"),  # idle cards only, all equally full: highest index
        ("mutex,numa,spread", "g7"),
    ],
)
def test_chains_apply_their_keys_in_order(chain: str, expected: str) -> None:
    scheduler = cluster(eight())
    use(scheduler, "n", "g1", 3, 3000, 0)
    use(scheduler, "n", "g5", 2, 2000, 0)
    assert place(scheduler, pod("p", ask(1, 100), gpu_policy=chain)) == [("n", (expected,))]


def test_first_fit_is_the_lowest_index_and_random_the_pods_own_draw() -> None:
    assert taken([eight()], pod("p", ask(2, 10), gpu_policy="first-fit")) == ["g0", "g1"]
    draws = {tuple(taken([eight()], pod(f"p{n}", ask(1, 10), gpu_policy="random"))) for n in range(40)}
    assert len(draws) > 4
    again = pod("p1", ask(1, 10), gpu_policy="random")
    assert taken([eight()], again) == taken([eight()], again)


def links_of(chance: Random, size: int) -> tuple[tuple[int, ...], ...]:
    pairs = {pair: chance.choice((10, 20, 30, 40, 50, 60, 100, 200)) for pair in combinations(range(size), 2)}
    return tuple(tuple(0 if x == y else pairs[min(x, y), max(x, y)] for y in range(size)) for x in range(size))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_topology_aware_finds_what_trying_all_sets_finds(seed: int, count: int) -> None:
    """Highest sum of pairs, on ties the first in the order of trying (last registered first); one card: lowest sum."""
    links = links_of(Random(seed), 8)
    order = [7, 6, 5, 4, 3, 2, 1, 0]  # equal cards: higher NUMA node, then last position
    if count == 1:
        best = min(order, key=lambda a: sum(links[a]))
        expected = [f"g{best}"]
    else:
        sets = list(combinations(order, count))
        best_set = max(sets, key=lambda chosen: sum(links[a][b] for a, b in combinations(chosen, 2)))
        expected = [f"g{n}" for n in best_set]
    assert taken([eight(links)], pod("p", ask(count, 10), gpu_policy="topology-aware")) == expected


@pytest.mark.parametrize("seed", range(6))
def test_topology_aware_with_numa_bind_compares_the_numa_nodes(seed: int) -> None:
    """HAMi looks at the last NUMA node only."""
    links = links_of(Random(seed), 8)
    sets = [*combinations((7, 6, 5, 4), 3), *combinations((3, 2, 1, 0), 3)]
    best = max(sets, key=lambda chosen: sum(links[a][b] for a, b in combinations(chosen, 2)))
    bound = DeviceRules("NVIDIA", numa_bind=True)
    found = taken([eight(links)], pod("p", ask(3, 10), gpu_policy="topology-aware", rules=bound))
    assert found == [f"g{n}" for n in best]


@pytest.mark.parametrize("mode", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def test_topology_aware_on_a_node_with_very_many_cards_grows_a_set(mode: str) -> None:
    """32 cards in four rings of eight, each twice as close as the ring before: 16 of 32 are 601,080,390 sets."""
    links = tuple(tuple((100 << x // 8 if x // 8 == y // 8 else 1) * (x != y) for y in range(32)) for x in range(32))
    large = node("n", *(card(f"g{n}", index=n) for n in range(32)), links=links)
    scheduler = cluster(large, mode=mode)
    ((_, cards),) = place(scheduler, pod("p", ask(16, 10), gpu_policy="topology-aware"))
    assert sorted(int(name[1:]) for name in cards) == list(range(16, 32))


def test_topology_aware_keeps_within_a_quota_that_not_every_set_would_keep() -> None:
    """Half of 10,000 and half of 2,000 MiB are 6,000, all of the quota; two halves of 10,000 would be too much."""
    uneven = node("n", card("large", 10_000), card("small", 2_000, index=1))
    scheduler = cluster(uneven, quotas=(Quota("default", "team", {}, {"NVIDIA": 6_000}, {}),))
    ((where, cards),) = place(scheduler, pod("p", ask(2, percent=50), gpu_policy="topology-aware"))
    assert (where, sorted(cards)) == ("n", ["large", "small"])


def test_topology_aware_without_links_is_spread() -> None:
    scheduler = cluster(eight())
    use(scheduler, "n", "g7", 1, 1000, 0)
    assert place(scheduler, pod("p", ask(2, 10), gpu_policy="topology-aware")) == [("n", ("g6", "g5"))]


def test_mutex_and_topology_aware_together() -> None:
    """The best pair would be g0–g1, but g1 is in use."""
    links = tuple(
        tuple(0 if x == y else 500 if {x, y} == {0, 1} else 100 if {x, y} == {0, 2} else 10 for y in range(8))
        for x in range(8)
    )
    scheduler = cluster(eight(links))
    use(scheduler, "n", "g1", 1, 10, 0)
    ((_, cards),) = place(scheduler, pod("p", ask(2, 10), gpu_policy="mutex,topology-aware"))
    assert set(cards) == {"g0", "g2"}


def test_cards_of_one_container_are_distinct_and_containers_may_share() -> None:
    one: Device = card("only")
    assert place(cluster(node("n", one)), pod("p", ask(1, 100), ask(1, 100))) == [("n", ("only", "only"))]
    assert place(cluster(node("n", one)), pod("p", ask(2, 100))) == [(None, ())]
