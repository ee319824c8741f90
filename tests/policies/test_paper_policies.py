"""The baselines of the FGD paper, by hand. Amounts are parts of its largest node: 128 cores and 8 GPUs."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Share
from dovetail.model.events import PodObserved
from dovetail.model.pod import DeviceAsk, Pod, RunningPod
from tests.builders import ask, card, cluster, node, place, pod, use
from tests.policies.scores import scores

BASELINES = ("best-fit", "dot-product", "gpu-clustering", "gpu-packing")


def whole(count: int = 1) -> DeviceAsk:
    """So many cards for itself: all memory, all compute."""
    return ask(count, percent=100, cores=100)


def said(scheduler: Scheduler, wanted: Pod) -> dict[str, float | None]:
    return {verdict.node: verdict.score for verdict in verdicts(scheduler, wanted)}


def worn(*parts: tuple[int, int], name: str = "n", cpu: int = 64_000) -> Scheduler:
    """One node; of each card so many MiB of 8,000 and so many per cent of compute are in use."""
    scheduler = cluster(node(name, gpus=len(parts), cpu=cpu))
    for n, (memory, cores) in enumerate(parts):
        if memory or cores:
            use(scheduler, name, f"{name}/{n}", 1, memory, cores)
    return scheduler


def run(scheduler: Scheduler, one: Pod, where: str, *uuids: str) -> None:
    """It has these cards for itself."""
    shares = tuple(Share(0, uuid, 8000, 1000) for uuid in uuids)
    scheduler.handle(PodObserved(0.0, RunningPod(one, where, shares)))


# ---- best-fit: least left afterwards


def test_best_fit_leaves_least_cpu_and_gpu() -> None:
    """4 cores and 2,000 of 8,000 MiB, so 250 milli."""
    nodes = [node("small", gpus=1), node("large", gpus=2), node("wide", gpus=1, cpu=128_000)]
    assert scores("best-fit", nodes, pod("p", ask(1, 2000), node_policy="best-fit", cpu=4000)) == {
        "small": 71.0,  # 100 × (1 − 60/128/2 − (1,000 − 250)/8,000/2) = 71.875
        "large": 65.0,  # 100 × (1 − 60/128/2 − (2,000 − 250)/8,000/2) = 65.625
        "wide": 46.0,  # 100 × (1 − 124/128/2 − 750/8,000/2) = 46.875
    }


def test_best_fit_counts_a_card_by_the_smaller_of_its_two_free_parts() -> None:
    """Cards with 50 % of memory and 70 % of compute left, and with 90 % and 20 %: 500 + 200 milli."""
    scheduler = worn((4000, 30), (800, 80))
    # 100 × (1 − 64/128/2 − (700 − 100)/8,000/2) = 71.25
    assert said(scheduler, pod("p", ask(1, cores=10), node_policy="best-fit")) == {"n": 71.0}
    # By memory: 400 of 8,000 MiB = 50 milli. 100 × (0.75 − 650/8,000/2) = 70.9
    assert said(scheduler, pod("p", ask(1, 400), node_policy="best-fit")) == {"n": 70.0}
    # The larger part counts: 5 % of memory, 20 % of compute: 100 × (0.75 − 500/8,000/2) = 71.875
    assert said(scheduler, pod("p", ask(1, 400, 20), node_policy="best-fit")) == {"n": 71.0}


def test_best_fit_of_pods_without_and_with_many_cards() -> None:
    nodes = [node("n", gpus=4)]
    # 100 × (1 − 32/128/2 − 4,000/8,000/2) = 62.5
    assert scores("best-fit", nodes, pod("p", node_policy="best-fit", cpu=32_000)) == {"n": 62.0}
    # 100 × (1 − 64/128/2 − (4,000 − 3 × 1,000)/8,000/2) = 68.75
    assert scores("best-fit", nodes, pod("p", whole(3), node_policy="best-fit")) == {"n": 68.0}
    # Two containers, 2 × 1,000 + 500: 100 × (0.75 − 1,500/8,000/2) = 65.6
    assert scores("best-fit", nodes, pod("p", whole(2), ask(1, 4000), node_policy="best-fit")) == {"n": 65.0}


# ---- dot-product: least in common


def test_dot_product_avoids_what_looks_like_the_request() -> None:
    nodes = [node("few", gpus=1), node("many", gpus=4), node("wide", gpus=1, cpu=128_000)]
    wanted = pod("p", whole(), node_policy="dot-product", cpu=32_000)
    assert scores("dot-product", nodes, wanted) == {
        "few": 92.0,  # 100 × (1 − (64/128 × 32/128 + 1/8 × 1/8)/2) = 92.97
        "many": 90.0,  # 100 × (1 − (0.125 + 4/8 × 1/8)/2) = 90.6
        "wide": 86.0,  # 100 × (1 − (128/128 × 32/128 + 1/64)/2) = 86.7
    }


def test_dot_product_by_memory_without_cards_and_with_many() -> None:
    # left: min(50 %, 70 %) and min(90 %, 20 %) = 700 milli; asked: 400 of 8,000 MiB = 50 milli
    scheduler = worn((4000, 30), (800, 80))
    # 100 × (1 − (0.5 × 16/128 + 700/8,000 × 50/8,000)/2) = 96.85
    assert said(scheduler, pod("p", ask(1, 400), node_policy="dot-product", cpu=16_000)) == {"n": 96.0}
    # 100 × (1 − 0.5 × 64/128/2) = 87.5: without a card only CPU counts
    assert said(scheduler, pod("p", node_policy="dot-product", cpu=64_000)) == {"n": 87.0}
    # 100 × (1 − 8/8 × 8/8 / 2) = 50
    assert scores("dot-product", [node("n", gpus=8)], pod("p", whole(8), node_policy="dot-product")) == {"n": 50.0}


# ---- gpu-clustering: one size here, another there


def test_gpu_clustering_keeps_sizes_apart() -> None:
    nodes = [node(name, gpus=2) for name in ("bare", "mixed", "parts", "whole")]
    scheduler = cluster(*nodes)
    use(scheduler, "parts", "parts/0", 1, 2000, 0)
    use(scheduler, "mixed", "mixed/0", 1, 2000, 0)
    run(scheduler, pod("one", whole()), "mixed", "mixed/1")
    run(scheduler, pod("two", whole()), "whole", "whole/0")
    part = pod("p", ask(1, 2000), node_policy="gpu-clustering")
    one = pod("q", whole(), node_policy="gpu-clustering")
    # GPU left: bare 2,000, parts 1,750, mixed 750, whole 1,000 milli.
    # 25 × (8,000 − left)/8,000 = 18.75, 19.5, 22.7, 21.9.
    assert said(scheduler, part) == {"bare": 25 + 18.0, "parts": 75 + 19.0, "mixed": 50 + 22.0, "whole": 0 + 21.0}
    # `mixed` has no whole card left
    assert said(scheduler, one) == {"bare": 25 + 18.0, "parts": 0 + 19.0, "mixed": None, "whole": 75 + 21.0}


def test_gpu_clustering_has_no_opinion_on_pods_without_cards_and_tells_one_card_from_several() -> None:
    scheduler = cluster(node("a", gpus=8), node("b", gpus=8))
    run(scheduler, pod("pair", whole(2)), "b", "b/0", "b/1")
    assert said(scheduler, pod("p", node_policy="gpu-clustering", cpu=1000)) == {"a": 0.0, "b": 0.0}
    # 25 × (8,000 − 6,000)/8,000 = 6.25
    assert said(scheduler, pod("p", whole(2), node_policy="gpu-clustering")) == {"a": 25.0, "b": 75 + 6.0}
    assert said(scheduler, pod("p", whole(4), node_policy="gpu-clustering")) == {"a": 25.0, "b": 6.0}
    assert said(scheduler, pod("p", whole(1), node_policy="gpu-clustering")) == {"a": 25.0, "b": 6.0}


# ---- gpu-packing: cards in use, then idle cards, then idle nodes


@pytest.mark.parametrize(("cards", "points"), [(1, 32.0), (2, 31.0), (4, 29.0), (8, 25.0), (20, 20.0)])
def test_gpu_packing_takes_idle_nodes_last_and_small_ones_first(cards: int, points: float) -> None:
    """max(33 − cards, cards)."""
    assert scores("gpu-packing", [node("n", gpus=cards)], pod("p", ask(1, 1), node_policy="gpu-packing")) == {
        "n": points
    }


def test_gpu_packing_prefers_the_tightest_card_in_use() -> None:
    scheduler = worn((4800, 0), (5200, 0), (0, 0))  # 400, 350 and 1,000 milli left
    asks = {
        "tight": ask(1, 2400),  # 300 milli: 100 − ⌊35/10⌋
        "middle": ask(1, 2960),  # 370 milli: only the first card: 100 − ⌊40/10⌋
        "idle": ask(1, 4000),  # 500 milli: an idle card of a busy node: 50 − 1
        "one": whole(1),  # 50 − 1
        "pair": ask(2, 2400),  # 300 milli on each of the two in use: as the tightest
        "all": ask(3, 2400),  # two in use and an idle one: 50 − 1
    }
    found = {name: said(scheduler, pod("p", one, node_policy="gpu-packing"))["n"] for name, one in asks.items()}
    assert found == {"tight": 97.0, "middle": 96.0, "idle": 49.0, "one": 49.0, "pair": 97.0, "all": 49.0}
    assert said(scheduler, pod("p", node_policy="gpu-packing", cpu=1000)) == {"n": 0.0}


def test_gpu_packing_sees_the_smaller_of_two_free_parts() -> None:
    """40 % of memory and 90 % of compute left are 400 milli: 100 − ⌊40/10⌋."""
    assert said(worn((4800, 10)), pod("p", ask(1, 800), node_policy="gpu-packing")) == {"n": 96.0}


def test_gpu_packing_does_not_go_below_33_for_many_idle_cards() -> None:
    scheduler = cluster(node("n", gpus=21))
    use(scheduler, "n", "n/0", 1, 1, 0)
    assert said(scheduler, pod("p", whole(20), node_policy="gpu-packing")) == {"n": 33.0}  # not 50 − 20


# ---- ties, and the card


@pytest.mark.parametrize("policy", BASELINES)
def test_of_equal_nodes_the_smallest_name_is_taken(policy: str) -> None:
    scheduler = cluster(*(node(name, gpus=2) for name in "cab"))
    assert place(scheduler, pod("p", ask(1, 100), node_policy=policy, gpu_policy="best-fit")) == [("a", ("a/0",))]


@pytest.mark.parametrize(
    ("asked", "cards"),
    [
        (ask(1, 2400), ("n/1",)),  # of two with 400 milli left the first
        (ask(1, 4000), ("n/1",)),  # it still has 6,400 MiB
        (ask(1, cores=50), ("n/2",)),  # n/1 has 40 % of its compute left, n/2 90 %
        (ask(1, 3600, 45), ("n/0",)),  # neither: n/2 has 3,200 MiB left
        (ask(1, 7000), ("n/3",)),
        (ask(2, 2400), ("n/1", "n/2")),
        (ask(3, 2400), ("n/1", "n/2", "n/0")),
        (whole(1), ("n/3",)),
        (whole(2), ("n/3", "n/4")),  # idle ones: lowest index
    ],
)
def test_the_card_with_least_left_is_taken(asked: DeviceAsk, cards: tuple[str, ...]) -> None:
    """600, 400, 400, 1,000 and 1,000 milli left: by memory or by compute, whichever is scarcer."""
    scheduler = worn((3200, 0), (1600, 60), (4800, 10), (0, 0), (0, 0))
    assert place(scheduler, pod("p", asked, gpu_policy="best-fit")) == [("n", cards)]


def test_the_lowest_index_is_taken_whatever_the_order_of_registration() -> None:
    scheduler = cluster(node("n", *(card(f"g{n}", index=n) for n in (2, 0, 1))))
    assert place(scheduler, pod("p", ask(2, 10), gpu_policy="best-fit")) == [("n", ("g0", "g1"))]
