"""The arithmetics of queues against published vectors, each with its sums."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import pytest

from dovetail.policies.quota import capacity, drf, kai, koordinator, kueue, volcano
from dovetail.policies.quota.shapes import Claimant, QueueStanding, Stake
from dovetail.policies.quota.split import scaled, split
from dovetail.policies.quota.table import QUOTA_POLICIES

GPU = 1000


def claims(*rows: tuple[int, int, int], reserved: int = 0) -> list[Claimant]:
    """Rows of weight, wanted, min; `reserved` of the last."""
    made = [Claimant(f"node{n + 1}", least, None, weight, wanted=want) for n, (weight, want, least) in enumerate(rows)]
    last = rows[-1]
    return [*made[:-1], Claimant(made[-1].name, last[2], None, last[0], reserved, wanted=last[1])]


def test_the_largest_remainder() -> None:
    """45 by 60 / 50 / 80 of 190: 14.21, 11.84, 18.95 -> 14, 11, 18; two units go to .95 and .84."""
    assert split(45, (60, 50, 80), "abc") == [14, 12, 19]
    assert split(1, (1, 1), "ba") == [0, 1]  # equal remainders: by the tie
    assert split(5, (0, 0), "ab") == [0, 0]
    assert scaled((6, 6), 8, "ab") == [4, 4]
    assert scaled((1, 2), 8, "ab") == [1, 2]


@pytest.mark.parametrize(
    ("last", "reserved", "expected"),
    [
        # node1 wants 5 <= 10: 5. The others get 15 + 20 + 15; 45 are left: 14, 12, 19 by 60, 50, 80. node2 has 29 > 20
        # and returns 9: by 50 and 80 these are 3.46 and 5.54: 3 and 6. 20 + 12 + 3 = 35, 15 + 19 + 6 = 40.
        ((80, 70, 15), 0, [5, 20, 35, 40]),
        # weight 0: 45 are left for node2 and node3, who want 5 and 20 more. node4 keeps its 15, and 20 stay free.
        ((0, 70, 15), 0, [5, 20, 40, 15]),
        # guaranteed 45 > min 15: 15 are left. By 60 and 50: 8.18 and 6.82: 8 and 7. node2 returns 3: 20 + 7 + 3 = 30.
        ((0, 70, 15), 45, [5, 20, 30, 45]),
    ],
)
def test_koordinator_runtime(last: tuple[int, int, int], reserved: int, expected: list[int]) -> None:
    """runtime_quota_calculator_test.go, 100 CPUs; weight, request, min: 40, 5, 10; 60, 20, 15; 50, 40, 20; the last."""
    rows = claims((40, 5, 10), (60, 20, 15), (50, 40, 20), last, reserved=reserved)
    assert koordinator.entitle(rows, 100) == expected


def test_koordinator_strands_no_gpu() -> None:
    """81 GPUs, ten borrowers (koordinator #2876: rounded one by one, the shares summed to 78).

    The report gives the sums only. Weights that lose three: nine of 83 and one of 63, of 810 in all. The shares are
    8.3 and 6.3; rounded one by one 9 × 8 + 6 = 78. By largest remainder three of the equal remainders get one more.
    """
    weights = [83] * 9 + [63]
    assert sum(round(81 * weight / sum(weights)) for weight in weights) == 78
    ten = [Claimant(f"q{n}", weight=weight, wanted=81) for n, weight in enumerate(weights)]
    assert koordinator.entitle(ten, 81) == [9, 9, 9, 8, 8, 8, 8, 8, 8, 6]


def test_koordinator_min_that_is_not_lent() -> None:
    """a (min 60) wants 30, b wants 90 of 100. a lends: 30 and 70. a does not lend: 60 and 40."""
    for lends, expected in ((True, [30, 70]), (False, [60, 40])):
        rows = [Claimant("a", 60, 80, lends=lends, wanted=30), Claimant("b", 40, 100, wanted=90)]
        assert koordinator.entitle(rows, 100) == expected


def test_koordinator_scales_min_that_the_cluster_lost() -> None:
    """min 60 and 40, 50 are there: 30 and 20."""
    rows = [Claimant("a", 60, wanted=60), Claimant("b", 40, wanted=40)]
    assert koordinator.entitle(rows, 50) == [30, 20]
    assert koordinator.most(QueueStanding(7, entitled=9)) == 9
    assert koordinator.most(QueueStanding(7, named=False)) is None


def test_kai_past_use() -> None:
    """Two equal queues, past use 0.8 and 0.1, k = 1: P = 0.5 - 0.3 = 0.2 and 0.5 + 0.4 = 0.9. 0.2 / 1.1 = 18.18 %."""
    rows = [Claimant("a", wanted=10_000, history=800), Claimant("b", wanted=10_000, history=100)]
    assert kai.entitle(rows, 10_000) == [1_818, 8_182]
    assert kai.entitle(rows, 10_000, usage_weight=0) == [5_000, 5_000]
    assert kai.remember(0.8, 0.0, seconds=600, half_life=300) == pytest.approx(0.2)
    assert kai.remember(0.0, 1.0, seconds=300, half_life=300) == pytest.approx(0.5)


def test_kai_quota_weight_priority_and_limit() -> None:
    """10 GPUs. a and b have a quota of 2 each. 6 are left, by 1 : 2: a gets 2 + 2, b 2 + 4."""
    rows = [Claimant("a", 2, weight=1, wanted=10), Claimant("b", 2, weight=2, wanted=10)]
    assert kai.entitle(rows, 10) == [4, 6]
    first = [Claimant("a", 2, wanted=10, priority=5), Claimant("b", 2, wanted=10)]
    assert kai.entitle(first, 10) == [8, 2]  # the higher priority gets the rest, up to what it wants
    limited = [Claimant("a", 2, ceiling=3, wanted=10), Claimant("b", 2, wanted=10)]
    assert kai.entitle(limited, 10) == [3, 7]
    odd = [Claimant("a", wanted=10, created=2.0), Claimant("b", wanted=10, created=1.0)]
    assert kai.entitle(odd, 5) == [2, 3]  # 2.5 each: the unit that is left goes to the older queue
    assert kai.entitle([Claimant("a", weight=0, wanted=9), Claimant("b", wanted=1)], 5) == [0, 1]


def test_dominant_resource_fairness() -> None:
    """The paper's example: 9 CPUs, 18 GB. A runs tasks of (1 CPU, 4 GB), B of (3 CPUs, 1 GB).

    A gets 3 tasks: 3 CPUs, 12 GB; B gets 2: 6 CPUs, 2 GB. Both have two thirds: 12 / 18 and 6 / 9. In thousandths.
    """
    level = {
        "cpu": [Claimant("A", wanted=100 * GPU), Claimant("B", wanted=300 * GPU)],
        "memory": [Claimant("A", wanted=400 * GPU), Claimant("B", wanted=100 * GPU)],
    }
    given = drf.entitle(level, {"cpu": 9 * GPU, "memory": 18 * GPU})
    assert given == {"cpu": [3 * GPU, 6 * GPU], "memory": [12 * GPU, 2 * GPU]}


def test_dominant_resource_fairness_by_weight_and_wish() -> None:
    """12 GPUs: weights 1 and 2 give 4 and 8. If the second wants 5 only, the first gets 7."""
    rows = [Claimant("a", weight=1, wanted=12), Claimant("b", weight=2, wanted=12)]
    assert drf.entitle({"gpus": rows}, {"gpus": 12}) == {"gpus": [4, 8]}
    less = [rows[0], Claimant("b", weight=2, wanted=5)]
    assert drf.entitle({"gpus": less}, {"gpus": 12}) == {"gpus": [7, 5]}


def stake(used: int, change: int, guarantee: int, weight: int | None = None, lendable: int = 10) -> Stake:
    return Stake(used, change, True, guarantee, guarantee, weight, lendable)


def test_kueue_share() -> None:
    """6 used of nominal 4, 10 can be lent: 2 × 1000 / 10 = 200; weight 2: 100. One more: 300."""
    assert kueue.share([stake(6, 1, 4)]) == 200
    assert kueue.share([stake(6, 1, 4)], changed=True) == 300
    assert kueue.share([stake(6, 1, 4, weight=2)]) == 100
    assert kueue.share([stake(6, 0, 4), stake(9, 0, 4)]) == 500  # the dominant resource
    assert kueue.share([stake(3, 0, 4)]) == 0
    assert kueue.share([stake(5, 0, 4, weight=0)]) == inf
    assert kueue.share([stake(5, 0, 4, weight=3, lendable=7)]) == Fraction(1000, 21)


def test_kueue_does_not_reverse_the_order() -> None:
    """Both borrow. 10 can be lent, nominal 0."""
    assert kueue.reclaims([stake(2, 1, 0)], [stake(4, -1, 0)])  # 300 <= 300: final share
    assert kueue.reclaims([stake(2, 1, 0)], [stake(4, -3, 0)])  # 300 > 100, but 300 < 400: initial share
    assert not kueue.reclaims([stake(3, 1, 0)], [stake(4, -1, 0)])  # 400 > 300 and 400 = 400
    assert not kueue.reclaims([stake(0, 1, 4)], [stake(4, -1, 4)])  # it borrows nothing
    assert kueue.reclaims([stake(0, 1, 4)], [stake(5, -1, 4)])  # within its nominal quota: 0 <= 0


def test_volcano() -> None:
    """10 GPUs. a deserves 6, of which 2 are reserved; b deserves 6. 2 + (4 and 6 in 8: 3.2 and 4.8)."""
    rows = [Claimant("a", 6, reserved=2), Claimant("b", 6)]
    assert volcano.entitle(rows, 10) == [5, 5]
    assert volcano.entitle(rows, 12) == [6, 6]
    assert volcano.entitle([Claimant("a", 6, ceiling=3), Claimant("b", 2)], 10) == [3, 2]
    assert volcano.most(QueueStanding(0, total=10, others_kept=2)) == 8
    assert volcano.most(QueueStanding(0, total=10)) is None


def test_capacity() -> None:
    """Sum of min 8, used 6: 2 may be borrowed, unless another queue keeps its own."""
    assert capacity.most(QueueStanding(6, sum_guarantee=8, sum_used=6)) == 8
    assert capacity.most(QueueStanding(6, sum_guarantee=8, sum_used=6, others_idle=2)) == 6
    assert capacity.most(QueueStanding(6, guaranteed_here=False)) is None
    assert capacity.entitle([Claimant("a", 4), Claimant("b", 6)], 10) == [4, 6]
    assert capacity.entitle([Claimant("a", 4), Claimant("b", 6)], 5) == [2, 3]


def test_kai_takes_back_by_fair_share_or_by_quota() -> None:
    to, over = Stake(3, 1, True, 2, 4), Stake(6, -1, True, 5, 5)
    assert kai.reclaims([to], [over])  # 3 + 1 <= 4, and 6 > 5
    assert not kai.reclaims([Stake(4, 1, True, 2, 4)], [over])  # 5 > 4
    assert kai.reclaims([Stake(4, 1, True, 5, 4)], [over])  # beyond its fair share, within its quota
    assert kai.reclaims([to], [Stake(6, -1, False, 9, 9), over])
    assert not kai.reclaims([to], [Stake(6, -1, False, 5, 5)])  # not contested


def test_every_row_of_the_table_has_its_name_and_source() -> None:
    assert list(QUOTA_POLICIES) == ["capacity", "koordinator", "kai", "drf", "kueue", "volcano"]
    assert all(policy.title and policy.source for policy in QUOTA_POLICIES.values())
