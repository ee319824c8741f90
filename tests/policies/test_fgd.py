"""FGD against its definition, written down a second time: loops over typical pods and cards, in fractions.

Fragments of a node for one typical pod: all that is idle, if the pod cannot go there at all; otherwise what is left of
the cards that are too small for it (Weng et al., USENIX ATC 2023, section 3).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import exp
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.pod import DeviceAsk
from dovetail.model.rules import NodeRules
from dovetail.policies.outlook import points_of, tables, usable
from dovetail.policies.typical import TypicalPod, most_frequent
from tests.builders import ask, card, cluster, node, place, pod, use
from tests.policies.fleet import MODELS, Machine, Request, assert_best, built, pod_of
from tests.properties import with_examples

many = with_examples(400)


def fragments(machine: Machine, workload: list[Request]) -> Fraction:
    """F_n(M): the expectation over the workload."""
    lost = 0
    for typical in workload:
        if typical.cards == 0 or not machine.choices(typical):
            lost += typical.times * sum(machine.left)
        else:
            lost += typical.times * sum(left for left in machine.left if left < typical.part)
    return Fraction(lost, sum(typical.times for typical in workload))


def points(machine: Machine, workload: list[Request], request: Request, cards: tuple[int, ...]) -> int:
    saved = fragments(machine, workload) - fragments(machine.with_less(request, cards), workload)
    return int(100 / (1 + exp(-float(saved / 1000))))


some_models = st.sampled_from([frozenset({0}), frozenset({1}), frozenset({0, 1})])
some_cpu = st.sampled_from([0, 500, 1000, 1500, 4000, 16_000])
part_of_a_card = st.builds(Request, some_cpu, st.just(1), st.integers(1, 999), some_models, st.integers(1, 9))
whole_cards = st.builds(Request, some_cpu, st.sampled_from([1, 2, 4, 8]), st.just(1000), some_models, st.integers(1, 9))
no_card = st.builds(Request, some_cpu, st.just(0), st.just(0), st.just(frozenset()), st.integers(1, 9))
requests = st.one_of(part_of_a_card, whole_cards, no_card)
workloads = st.lists(requests, min_size=1, max_size=8)
machines = st.builds(
    Machine,
    st.sampled_from([0, 499, 500, 1000, 4000, 64_000]),
    st.sampled_from([0, 1]),
    st.lists(st.one_of(st.sampled_from([0, 1000, 1000]), st.integers(0, 1000)), min_size=1, max_size=8).map(tuple),
)


def typical_pod(request: Request) -> TypicalPod:
    return TypicalPod(
        request.times, request.cpu, request.cards, tuple((kind, request.part) for kind in sorted(request.models))
    )


@many
@given(machines, workloads, st.sampled_from([8, 11]))
def test_the_closed_form_is_the_definition(machine: Machine, workload: list[Request], most_cards: int) -> None:
    outlook = tables([typical_pod(request) for request in workload], len(MODELS), most_cards)
    left = np.array([*machine.left, 777], dtype=np.int64)  # what stands behind the last card is nobody's
    total = sum(request.times for request in workload)
    found = sum(machine.left) * total - usable(outlook, machine.model, machine.cpu, left, len(machine.left))
    assert Fraction(found, total) == fragments(machine, workload)


@many
@given(st.integers(-60_000, 60_000), st.integers(0, 999), st.integers(1, 1000))
def test_points_are_the_sigmoid_of_the_gain(milli: int, rest: int, total: int) -> None:
    """Up to 60 GPUs more or less, times the number of pods."""
    outlook, gain = tables([TypicalPod(total, 0, 0, ())], 1, 1), milli * total + rest % total
    assert points_of(outlook, gain) == int(100 / (1 + exp(-gain / (1000 * total))))


# ---- through the front door


@many
@given(st.lists(machines, min_size=1, max_size=4), workloads, requests)
def test_score_and_card_are_those_of_trying_everything(
    fleet: list[Machine], workload: list[Request], request: Request
) -> None:
    scheduler, wanted = built(fleet, workload, "fgd"), pod_of("wanted", request, "fgd")
    best: dict[str, tuple[int, tuple[int, ...]]] = {}  # node -> its points, and the first cards that make them
    for n, machine in enumerate(fleet):
        tried = [(points(machine, workload, request, cards), cards) for cards in machine.choices(request)]
        if tried:
            best[f"{n}"] = max(tried, key=lambda one: one[0])
    assert_best(scheduler, wanted, best)


def expecting(scheduler: Scheduler, *asks: DeviceAsk) -> Scheduler:
    scheduler.outlook.expect((pod(f"typical-{n}", one), 1) for n, one in enumerate(asks))
    return scheduler


def test_by_hand_a_half_card_goes_where_a_half_is_left() -> None:
    """Half the pods ask for half a card, half for a whole one; another half card comes.

    a, two idle cards: nothing is a fragment. With half a card gone, 500 of 1,500 are of no use to those who want a
    whole one: 500 / 2 = 250 milli more, 100 × sigmoid(−0.25) = 43.8.
    b, half a card left: a fragment to half of the pods, 250 milli; none when it is gone: 100 × sigmoid(0.25) = 56.2.
    """
    scheduler = cluster(node("a", gpus=2), node("b", gpus=1))
    use(scheduler, "b", "b/0", 1, 4000, 0)
    expecting(scheduler, ask(1, 4000), ask(1, percent=100, cores=100))
    wanted = pod("p", ask(1, 4000), node_policy="fgd")
    assert {v.node: v.score for v in verdicts(scheduler, wanted)} == {"a": 43.0, "b": 56.0}
    assert place(scheduler, wanted) == [("b", ("b/0",))]


def test_by_hand_the_smaller_of_memory_and_compute_is_what_is_left() -> None:
    """Cards with 60 % of memory and 30 % of compute left, and with 30 % and 60 %: 300 milli each, so a tie.

    All ask for 300 milli; one more takes a card that others could have used: 300 − 300 = 0 fragments before and after.
    """
    scheduler = cluster(node("n", gpus=3))
    use(scheduler, "n", "n/0", 1, 3200, 70)
    use(scheduler, "n", "n/1", 1, 5600, 40)
    expecting(scheduler, ask(1, 2400))
    wanted = pod("p", ask(1, 2400), node_policy="fgd")
    # On an idle card, 700 milli are left and of use: no fragments either. 100 × sigmoid(0) = 50 for all: the first.
    assert {v.node: v.score for v in verdicts(scheduler, wanted)} == {"n": 50.0}
    assert place(scheduler, wanted) == [("n", ("n/0",))]
    # Now 0, 300 and 1,000 are left. 400 milli by compute (60 % of n/1 is left, but of its memory 300): the third.
    assert place(scheduler, pod("q", ask(1, 3200), node_policy="fgd")) == [("n", ("n/2",))]


def test_by_hand_a_pod_without_cards_goes_where_its_cpu_is_not_missed() -> None:
    """Typical pods want a card and 8 cores. a: 12 cores for one card, so 6 make the card useless: 1,000 milli more.

    b: 16 cores, 10 are enough for the card. 100 × sigmoid(−1) = 26.9 and 100 × sigmoid(0) = 50. c has no cards: 50.
    """
    scheduler = cluster(node("a", gpus=1, cpu=12_000), node("b", gpus=1, cpu=16_000), node("c", cpu=8000))
    scheduler.outlook.expect([(pod("typical", ask(1, percent=100, cores=100), cpu=8000), 1)])
    wanted = pod("p", node_policy="fgd", cpu=6000)
    assert {v.node: v.score for v in verdicts(scheduler, wanted)} == {"a": 26.0, "b": 50.0, "c": 50.0}
    assert place(scheduler, wanted) == [("b", ())]


def test_by_hand_several_whole_cards_and_ties() -> None:
    """Equal nodes: the smallest name; the first idle cards."""
    scheduler = cluster(*(node(name, gpus=4) for name in "cab"))
    expecting(scheduler, ask(1, percent=100, cores=100))
    assert place(scheduler, pod("p", ask(2, percent=100, cores=100), node_policy="fgd")) == [("a", ("a/0", "a/1"))]
    use(scheduler, "b", "b/0", 1, 100, 0)
    on_b = NodeRules(node_name="b")
    bound = pod("q", ask(2, percent=100, cores=100), node_policy="fgd", node_rules=on_b)
    assert place(scheduler, bound) == [("b", ("b/1", "b/2"))]


def test_a_pod_that_takes_all_that_is_left_of_an_odd_card() -> None:
    """2 of 3 MiB are left: 666 milli rounded down, asked for 667 rounded up. Nothing is looked up below 0."""
    scheduler = cluster(node("n", card("g", memory=3)))
    use(scheduler, "n", "g", 1, 1, 0)
    expecting(scheduler, ask(1, 1), ask(1, 2))
    assert place(scheduler, pod("p", ask(1, 2), node_policy="fgd")) == [("n", ("g",))]


# ---- which pods are typical


def test_typical_are_the_most_frequent_until_they_make_up_the_part() -> None:
    counted = [((1,), 50), ((2,), 30), ((3,), 15), ((4,), 4), ((5,), 1)]
    assert most_frequent(counted) == counted[:3]  # 95 of 100: enough
    assert most_frequent(counted, 0.96) == counted[:4]
    assert most_frequent(counted, 0.5) == counted[:1]
    assert most_frequent(counted, 1.0) == counted
    assert most_frequent([]) == []


def test_of_equally_frequent_ones_those_with_the_larger_key_come_first() -> None:
    counted = [((1, 9), 1), ((2, 0), 1), ((1, 10), 1), ((0, 0), 7)]
    assert most_frequent(counted, 0.9) == [((0, 0), 7), ((2, 0), 1), ((1, 10), 1)]


@many
@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 20)), st.randoms())
def test_the_cut_is_short_and_ignores_the_order_given(times: dict[tuple[int, int], int], chance: Random) -> None:
    items = list(times.items())
    kept = most_frequent(items)
    chance.shuffle(items)
    assert most_frequent(items) == kept
    total = sum(times.values())
    assert sum(n for _, n in kept) >= 0.95 * total
    assert not kept or sum(n for _, n in kept[:-1]) < 0.95 * total
    assert all((b[1], b[0]) < (a[1], a[0]) for a, b in pairwise(kept))
