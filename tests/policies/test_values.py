"""The tables of snug, by hand and against an enumeration of every way to cut a card. In millionths of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import exp, log
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.policies.typical import TypicalPod
from dovetail.policies.values import card_values, cpu_factors, prices
from tests.properties import with_examples

some = with_examples(40)


def part(milli: int, times: int = 1, cpu: int = 0, kinds: Sequence[int] = (0,)) -> TypicalPod:
    """So many pods that want so much of one card."""
    return TypicalPod(times, cpu, 1, tuple((kind, milli) for kind in kinds))


def whole(cards: int = 1, times: int = 1, cpu: int = 0, kinds: Sequence[int] = (0,)) -> TypicalPod:
    return TypicalPod(times, cpu, cards, tuple((kind, 1000) for kind in kinds))


# ---- what a card is worth


def worth_of(*typical: TypicalPod) -> list[int]:
    """[milli left]: of a card of the only kind."""
    found: list[int] = card_values(typical, 1)[0].tolist()
    return found


def test_by_hand_a_rest_that_nobody_asks_for_is_worth_nothing() -> None:
    """All want 810 milli: with 810 left a card is as good as idle, with 809 useless."""
    values = worth_of(part(810))
    assert (values[0], values[190], values[809]) == (0, 0, 0)
    assert (values[810], values[999], values[1000]) == (1_000_000, 1_000_000, 1_000_000)


@pytest.mark.parametrize("pieces", [2, 4, 5, 10])
def test_by_hand_equal_parts_that_fill_a_card_are_worth_their_size(pieces: int) -> None:
    """All want a half: half a card is worth a half, and so is anything up to a whole one. Likewise fourths, fifths."""
    milli = 1000 // pieces
    values = worth_of(part(milli, times=7))
    assert values == pytest.approx([1_000_000 * (left // milli) / pieces for left in range(1001)], abs=1)


def test_by_hand_three_parts_of_300_make_a_card() -> None:
    """The 100 milli that no third 300 can use are nobody's: each of the three is worth a third of the card."""
    values = worth_of(part(300))
    assert [values[left] for left in (299, 300, 599, 600, 899, 900)] == [0, 333_333, 333_333, 666_667, 666_667, 10**6]


def test_by_hand_parts_that_fit_together_share_the_card() -> None:
    """As many 810s as 190s: every card is cut into one of each, so both together are worth a whole card."""
    values = worth_of(part(810), part(190))
    assert values[190] + values[810] == 1_000_000
    assert 180_000 < values[190] < 200_000
    # Three 810s for each 190: the rest beside two of three 810s is nobody's, so 190 milli are worth next to nothing.
    values = worth_of(part(810, times=3), part(190))
    assert values[190] + values[810] == 1_000_000
    assert values[190] < 10_000


def test_without_parts_of_a_card_half_a_card_is_half_a_card() -> None:
    for typical in ([], [whole(), whole(8)], [TypicalPod(5, 2000, 0, ())]):
        assert worth_of(*typical) == [left // 10 * 10_000 for left in range(1001)]


def test_sizes_are_rounded_up_to_hundredths_and_rests_down() -> None:
    """801 milli are 81 hundredths, so 809 milli, 80 hundredths, do not do; two requests of 81 hundredths are one."""
    assert worth_of(part(801)) == worth_of(part(810)) == worth_of(part(803), part(809, times=3))


def test_a_pod_counts_on_kinds_that_it_does_not_accept_too() -> None:
    """Half a card is worth the same on both; one that takes 500 milli here and 250 there is worth its size on each."""
    both = card_values([part(500, kinds=[1])], 2)
    assert both[0].tolist() == both[1].tolist() == worth_of(part(500))
    here, there = card_values([TypicalPod(1, 0, 1, ((0, 500), (1, 250)))], 2)
    assert (here.tolist(), there.tolist()) == (worth_of(part(500)), worth_of(part(250)))


Pattern = tuple[int, ...]  # how many pieces of each size


def patterns(sizes: Sequence[int]) -> list[Pattern]:
    """Every way to cut pieces of these sizes out of a card of 100 hundredths, the empty one included."""
    tried = product(*(range(100 // size + 1) for size in sizes))
    return [counts for counts in tried if sum(map(mul, counts, sizes)) <= 100]


def weights(cuts: list[Pattern], price: Sequence[float]) -> list[float]:
    """Of each pattern exp((sum of its prices − 1) / smoothness) are cut."""
    return [exp((sum(map(mul, counts, price)) - 1) / 0.006) for counts in cuts]


def prices_of(cuts: list[Pattern], sizes: Sequence[int], demand: Sequence[float]) -> tuple[list[float], bool]:
    """Raised and lowered until what is cut meets the demand; False where 400 rounds are not enough."""
    price = [size / 100 for size in sizes]
    for _ in range(400):
        weight, before = weights(cuts, price), price
        cut = [sum(w * counts[k] for w, counts in zip(weight, cuts, strict=True)) for k in range(len(sizes))]
        slope = [sum(w * counts[k] ** 2 for w, counts in zip(weight, cuts, strict=True)) for k in range(len(sizes))]
        price = [
            min(2.0, max(0.0, p + 0.7 * min(1.0, c / s) * 0.006 * log(d / c)))
            for p, c, s, d in zip(price, cut, slope, demand, strict=True)
        ]
        if max(abs(a - b) for a, b in zip(price, before, strict=True)) < 1e-7:
            return price, True
    return price, False


@some
@given(st.dictionaries(st.integers(19, 99), st.integers(1, 20), min_size=1, max_size=4))
def test_the_worth_of_a_card_is_that_of_all_its_patterns(mix: dict[int, int]) -> None:
    """log Σ exp(prices of a pattern / smoothness) over the patterns that fit what is left, as a part of that of all."""
    sizes = sorted(mix)
    cuts, hundredths = patterns(sizes), sum(size * mix[size] for size in sizes)
    demand = [100 * mix[size] / hundredths for size in sizes]  # parts that make one card's worth of demand
    price, settled = prices_of(cuts, sizes, demand)
    weight, length = weights(cuts, price), [sum(map(mul, counts, sizes)) for counts in cuts]
    for k, asked in enumerate(demand):
        cut = sum(w * counts[k] for w, counts in zip(weight, cuts, strict=True))
        free = price[k] == 0 and cut > asked  # more rests than anybody asks for: they cost nothing
        assert free or not settled or cut == pytest.approx(asked, rel=1e-3)
    ways = [1 / 0.006 + log(sum(w for w, n in zip(weight, length, strict=True) if n <= room)) for room in range(101)]
    found = worth_of(*(part(10 * size, times) for size, times in mix.items()))
    assert found == pytest.approx([1_000_000 * ways[left // 10] / ways[100] for left in range(1001)], abs=2)


@some
@given(st.dictionaries(st.integers(1, 999), st.integers(1, 1000), max_size=30))
def test_more_left_is_never_worth_less(mix: dict[int, int]) -> None:
    values = worth_of(*(part(milli, times) for milli, times in mix.items()))
    assert (values[0], values[1000]) == (0, 1_000_000)
    assert values == sorted(values)


# ---- what CPU beside it makes of it


def test_by_hand_half_of_the_cpu_lets_half_of_the_pods_in() -> None:
    """Half a card and 4 cores: 8 cores per GPU. A quarter of what CPU is missing for is lost."""
    here, elsewhere = cpu_factors([part(500, cpu=4000)], 2)
    assert here[80:].tolist() == [65_536] * 433  # 8 cores and more: all of it
    assert here[40] == 57_344  # 4 cores: 1 − 0.25 × (1 − 4/8) = 0.875
    assert here[0] == 49_152  # 0.75
    assert elsewhere.tolist() == [65_536] * 513  # of that kind nobody wants any


def test_by_hand_cpu_counts_by_the_gpus_that_are_asked_for() -> None:
    """One pod of 2 cards and 12 cores: 6 per GPU. Two pods of half a card and no CPU: one GPU of three in all."""
    (factors,) = cpu_factors([whole(2, cpu=12_000), part(500, times=2)], 1)
    assert factors[30] == round(65_536 * (1 - 0.25 * 2 / 3 * (1 - 3 / 6)))  # 3 cores per GPU
    assert factors[1] == round(65_536 * (1 - 0.25 * 2 / 3 * (1 - 0.1 / 6)))
    assert factors[60] == 65_536


# ---- what a kind costs


def test_by_hand_a_kind_that_others_depend_on_is_dearer() -> None:
    """A quarter of the demand takes kind 0 only, which is a quarter of the cards: a pressure of 1, 20 %."""
    demand = [whole(times=1, kinds=[0]), whole(times=3, kinds=[0, 1])]
    assert prices(demand, [10_000, 30_000]).tolist() == [200, 0]
    # Kind 0 is half of the cards: pressure 0.5, 0.5³ × 20 % = 2.5 %.
    assert prices(demand, [20_000, 20_000]).tolist() == [25, 0]
    # A tenth of them: pressure 2.5, and no more than 1.5 counts: 1.5³ × 20 % = 67.5 %.
    assert prices(demand, [4_000, 36_000]).tolist() == [675, 0]


def test_by_hand_demand_is_counted_in_gpus() -> None:
    """4 cards for kind 1 only, and 8 halves for any of the kinds: half of the demand on half of the cards."""
    demand = [whole(4, kinds=[1]), part(500, times=8, kinds=[0, 1]), TypicalPod(99, 1000, 0, ())]
    assert prices(demand, [8_000, 8_000]).tolist() == [0, 200]


def test_by_hand_who_takes_two_of_three_kinds_presses_on_both() -> None:
    """All want kind 0 or 1, which are 4 of 5 cards: 1.25³ × 20 % = 39.0625 %."""
    assert prices([part(300, kinds=[0, 1])], [3_000, 1_000, 1_000]).tolist() == [391, 391, 0]


def test_nobody_is_constrained_where_all_kinds_that_are_there_will_do() -> None:
    assert prices([whole(kinds=[0, 1])], [5_000, 5_000]).tolist() == [0, 0]
    assert prices([whole(kinds=[0])], [5_000, 0]).tolist() == [0, 0]  # of kind 1 there is none
    assert prices([whole(kinds=[1])], [5_000, 0]).tolist() == [0, 0]  # nobody can help it
    assert prices([TypicalPod(3, 500, 0, ())], [5_000, 5_000]).tolist() == [0, 0]
    assert prices([], []).tolist() == []
