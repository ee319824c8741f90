"""What every arithmetic of queues keeps, whatever the queues are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.policies.quota import kai, koordinator
from dovetail.policies.quota.shapes import Claimant
from dovetail.policies.quota.split import scaled, split
from dovetail.policies.quota.table import QUOTA_POLICIES

amounts = st.integers(0, 60)
weights = st.one_of(st.none(), st.integers(0, 9))


@st.composite
def levels(draw: st.DrawFn, guarantees: bool = True) -> list[Claimant]:
    made = []
    for n in range(draw(st.integers(1, 6))):
        ceiling = draw(st.one_of(st.none(), amounts))
        made.append(
            Claimant(
                f"q{n}",
                draw(amounts) if guarantees else 0,
                ceiling,
                draw(weights) if guarantees else draw(st.integers(1, 9)),
                draw(st.integers(0, 10)) if guarantees else 0,
                draw(st.booleans()),
                draw(st.integers(0, 1)) if guarantees else 0,
                draw(st.integers(0, 3)),
                wanted=draw(amounts),
                history=draw(st.integers(0, 1000)) if guarantees else 0,
            )
        )
    return made


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**15), min_size=1, max_size=8))
def test_the_parts_sum_to_the_amount(amount: int, by: list[int]) -> None:
    parts = split(amount, by, range(len(by)))
    assert sum(parts) == (amount if sum(by) else 0)
    for part, weight in zip(parts, by, strict=True):
        assert amount * weight // max(1, sum(by)) <= part <= -(-amount * weight // max(1, sum(by)))


@given(st.lists(amounts, min_size=1, max_size=6), st.integers(0, 200))
def test_scaled_amounts_fit(given: list[int], total: int) -> None:
    fitting = scaled(given, total, range(len(given)))
    assert sum(fitting) == min(total, sum(given))
    assert all(new <= old for new, old in zip(fitting, given, strict=True))


@pytest.mark.parametrize("policy", QUOTA_POLICIES.values(), ids=lambda policy: policy.name)
@given(level=levels(), other=levels(), total=st.integers(0, 200), more=st.integers(0, 200))
def test_entitlements_never_exceed_the_capacity(policy, level, other, total, more) -> None:  # type: ignore[no-untyped-def]
    count = min(len(level), len(other))
    both = {"gpus": level[:count], "cpu": other[:count]}
    given = policy.entitle(both, {"gpus": total, "cpu": more})
    assert sum(given["gpus"]) <= total
    assert sum(given["cpu"]) <= more
    assert all(part >= 0 for parts in given.values() for part in parts)
    assert policy.entitle(both, {"gpus": total, "cpu": more}) == given


@pytest.mark.parametrize("policy", [QUOTA_POLICIES["koordinator"], QUOTA_POLICIES["kai"], QUOTA_POLICIES["drf"]])
@given(level=levels(), total=st.integers(0, 200))
def test_no_share_is_more_than_what_is_wanted(policy, level, total) -> None:  # type: ignore[no-untyped-def]
    shares = policy.entitle({"gpus": level}, {"gpus": total})["gpus"]
    for one, share in zip(level, shares, strict=True):
        kept = max(one.guarantee, one.reserved) if policy.name == "koordinator" and not one.lends else 0
        assert share <= max(one.wanted_within, kept)


@pytest.mark.parametrize("policy", [QUOTA_POLICIES["koordinator"], QUOTA_POLICIES["kai"], QUOTA_POLICIES["drf"]])
@given(level=levels(guarantees=False), total=st.integers(0, 200))
def test_no_hungry_queue_has_less_per_weight_than_another(policy, level, total) -> None:  # type: ignore[no-untyped-def]
    """Water filling. Each round of a division rounds by less than one unit; `slack` is their sum at most."""
    shares = policy.entitle({"gpus": level}, {"gpus": total})["gpus"]
    slack = len(level)
    for one, share in zip(level, shares, strict=True):
        if share < one.wanted_within:
            for other, more in zip(level, shares, strict=True):
                assert (share + slack) * (other.weight or 1) >= (more - slack) * (one.weight or 1)
            assert sum(shares) >= total - (slack if policy.name == "drf" else 0)  # nothing is left over


@given(level=levels(), total=st.integers(0, 200))
def test_a_guarantee_that_is_wanted_is_given(level: list[Claimant], total: int) -> None:
    if sum(max(one.guarantee, one.reserved) for one in level) > total:
        return
    for entitle in (koordinator.entitle, kai.entitle):
        for one, share in zip(level, entitle(level, total), strict=True):
            assert share >= min(one.guarantee, one.wanted_within)
