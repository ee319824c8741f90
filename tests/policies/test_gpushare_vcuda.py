"""gpushare's best fit by card, and gpu-admission's and gpu-manager's share, link and fragment, by their own vectors."""

from __future__ import annotations

import pytest

from dovetail.model.node import Node
from tests.builders import ask, card, cluster, node, place, pod, use

MODES = pytest.mark.parametrize("mode", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
GPU = 16_276  # MiB of each card in gpushare's README
PIX, PHB, SOC = 60, 40, 10


@MODES
def test_gpushare_takes_the_card_with_the_least_free_memory_that_fits(mode: str) -> None:
    scheduler = cluster(node("n", gpus=4, memory=GPU), mode=mode)
    for index, used in enumerate((GPU - 12_207, GPU - 8_138, GPU - 4_069)):
        use(scheduler, "n", f"n/{index}", 1, used, 0)
    wanted = [pod(name, ask(1, 8_138), gpu_policy="gpushare") for name in ("p", "q", "r")]
    # free {12207, 8138, 4069, 16276}: 8138 is the least that fits; then 12207; then 16276.
    assert [cards for _, cards in place(scheduler, *wanted)] == [("n/1",), ("n/0",), ("n/3",)]


@MODES
def test_gpushare_needs_one_card_with_all_of_the_memory(mode: str) -> None:
    scheduler = cluster(*(node(name, gpus=2, memory=GPU) for name in ("n1", "n2", "n3")), mode=mode)
    for name, used in (("n1", (GPU, GPU - 4_069)), ("n2", (GPU - 4_069, GPU - 4_069)), ("n3", (GPU - 8_138, GPU))):
        for index, amount in enumerate(used):
            use(scheduler, name, f"{name}/{index}", 1, amount, 0)
    # n1 has 4069 free; n2 has 4069 + 4069, but on two cards; n3 has 8138 on its first card.
    assert place(scheduler, pod("p", ask(1, 8_138), gpu_policy="gpushare")) == [("n3", ("n3/0",))]


@MODES
def test_equal_cards_are_taken_in_the_order_of_the_node(mode: str) -> None:
    scheduler = cluster(node("n", gpus=3, memory=GPU), mode=mode)
    wanted = [pod(name, ask(1, GPU), gpu_policy="gpushare") for name in ("p", "q", "r")]
    assert [cards for _, cards in place(scheduler, *wanted)] == [("n/0",), ("n/1",), ("n/2",)]


def part(cores: int, blocks: int) -> tuple[int, int, int, int | None]:
    """A part of a card with so many blocks of 256 MiB; 100 cores are a whole card, whatever the memory."""
    return (1, 256 * blocks, cores, None) if cores < 100 else (cores // 100, 0, 100, 100)


@MODES
def test_gpu_admission_fills_the_node_with_the_fewest_free_cores(mode: str) -> None:
    """3 nodes × 2 cards with 4 blocks of memory each (gpu-admission pkg/predicate/gpu_predicate_test.go)."""
    names = ("node0", "node1", "node2")
    scheduler = cluster(*(node(name, gpus=2, memory=4 * 256) for name in names), mode=mode)

    def goes(name: str, *parts: tuple[int, int]) -> str | None:
        asks = [ask(*part(cores, blocks)) for cores, blocks in parts]
        return place(scheduler, pod(name, *asks, node_policy="vcuda", gpu_policy="vcuda"))[0][0]

    assert goes("pod0", (10, 1), (10, 1)) == "node0"  # all equal: the first name; both containers on one card
    assert goes("pod1", (100, 3), (80, 3)) == "node1"  # node0: 80 cores, but 2 blocks, are left of the shared card
    assert goes("pod2", (200, 10)) == "node2"  # two idle cards; the memory of whole cards is not asked for
    assert goes("pod3", (10, 2)) == "node0"  # node2 has 0 cores free, node1 20 and 1 block, node0 180


def six(name: str = "n") -> Node:
    """gpu-manager's test machine: pairs 0-1, 2-3, 4-5 on a switch each; 0 to 3 on one host bridge."""

    def link(a: int, b: int) -> int:
        if a == b:
            return 0
        return PIX if a // 2 == b // 2 else PHB if a < 4 and b < 4 else SOC

    links = tuple(tuple(link(a, b) for b in range(6)) for a in range(6))
    return node(name, *(card(f"g{n}", index=n) for n in range(6)), links=links)


@MODES
def test_link_takes_the_closest_group_with_enough_free_cards(mode: str) -> None:
    scheduler = cluster(six(), mode=mode)
    three, two = (pod(f"p{n}", ask(n, 0, 100, 100), gpu_policy="link") for n in (3, 2))
    # No switch has 3 cards; the host bridge of 0 to 3 has 4.
    assert place(scheduler, three) == [("n", ("g0", "g1", "g2"))]
    scheduler = cluster(six(), mode=mode)
    use(scheduler, "n", "g2", 1, 8_000, 100)
    assert place(scheduler, two) == [("n", ("g0", "g1"))]  # two switches with 2 free cards: the first
    assert place(scheduler, pod("q", ask(2, 0, 100, 100), gpu_policy="link")) == [("n", ("g4", "g5"))]


@MODES
def test_fragment_takes_the_group_with_the_fewest_free_cards(mode: str) -> None:
    scheduler = cluster(six(), mode=mode)
    # The root has the host bridge with 4 free cards, and a switch with 2.
    assert place(scheduler, pod("p", ask(2, 0, 100, 100), gpu_policy="fragment")) == [("n", ("g4", "g5"))]
    scheduler = cluster(six(), mode=mode)
    use(scheduler, "n", "g4", 1, 8_000, 100)
    one = [pod(name, ask(1, 0, 100, 100), gpu_policy="fragment") for name in ("q", "r", "s")]
    # g5: 1 free card in its group. Then only the host bridge is left: 0-1 before 2-3, and then the rest of 0-1.
    assert [cards for _, cards in place(scheduler, *one)] == [("g5",), ("g0",), ("g1",)]


@MODES
def test_fragment_and_link_use_numa_nodes_where_no_links_are_known(mode: str) -> None:
    flat = node("n", *(card(f"g{n}", index=n, numa=n // 2) for n in range(4)))
    for policy in ("link", "fragment"):
        scheduler = cluster(flat, mode=mode)
        use(scheduler, "n", "g0", 1, 8_000, 100)
        assert place(scheduler, pod("p", ask(2, 0, 100, 100), gpu_policy=policy)) == [("n", ("g2", "g3"))]
    scheduler = cluster(flat, mode=mode)
    use(scheduler, "n", "g2", 1, 8_000, 100)
    assert place(scheduler, pod("q", ask(1, 0, 100, 100), gpu_policy="fragment")) == [("n", ("g3",))]


@MODES
def test_vcuda_shares_the_card_with_the_fewest_free_cores(mode: str) -> None:
    scheduler = cluster(six(), mode=mode)

    def goes(name: str, *asked: int | None) -> tuple[str, ...]:
        return place(scheduler, pod(name, ask(*asked), gpu_policy="vcuda"))[0][1]  # type: ignore[arg-type]

    assert goes("half", 1, 256, 50) == ("g0",)
    assert goes("more", 1, 256, 60) == ("g1",)  # 0 has 50 cores left
    assert goes("less", 1, 256, 40) == ("g1",)  # of 50 and 40 free cores, 40 are the fewest that fit
    assert goes("whole", 1, 0, 100, 100) == ("g2",)  # fragment: 2 idle on the bridge, 2 on the switch 4-5: the first
    assert goes("pair", 2, 0, 100, 100) == ("g4", "g5")  # link: the only switch with two idle cards
