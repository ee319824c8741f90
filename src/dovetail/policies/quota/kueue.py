"""Kueue's fair sharing (pkg/cache/scheduler/fair_sharing.go, v0.19).

A queue has its nominal quota (the guarantee) and borrows what others in its cohort lend, up to nominal quota and
borrowing limit (the ceiling). Its share is what it borrows as a part of what can be lent, of the resource where this is
largest, divided by its weight. A waiting pod takes from a borrowing queue only if this does not reverse their order:
two pods cannot take each other's place in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf

from dovetail.policies.quota.capacity import entitle
from dovetail.policies.quota.capacity import most as within_all_guarantees
from dovetail.policies.quota.shapes import QuotaPolicy, Stake, each_resource

SHARE_OF_ALL = 1000  # the share of a queue that borrows all that can be lent, with weight 1


def share(stakes: Sequence[Stake], changed: bool = False) -> Fraction | float:
    """The weighted share of a queue; with `changed`, after the change. 0 = it borrows nothing; weight 0: infinite."""
    largest, borrows = Fraction(0), False
    for stake in stakes:
        borrowed = stake.used + (stake.change if changed else 0) - stake.guarantee
        if borrowed > 0:
            borrows = True
            if stake.lendable > 0:
                largest = max(largest, Fraction(borrowed * SHARE_OF_ALL, stake.lendable))
    given = [stake.weight for stake in stakes if stake.weight is not None]
    weight = max(given, default=1)
    if weight == 0:
        return inf if borrows else Fraction(0)
    return largest / weight


def reclaims(to: Sequence[Stake], held: Sequence[Stake]) -> bool:
    """LessThanOrEqualToFinalShare, or LessThanInitialShare, against a queue that borrows what is contested."""
    if not any(stake.used > stake.guarantee for stake in held if stake.contested):
        return False
    after = share(to, changed=True)
    return after <= share(held, changed=True) or after < share(held)


POLICY = QuotaPolicy(
    "kueue",
    "A queue borrows from its cohort; the one that borrows the largest weighted share gives back first.",
    "Kueue (fair sharing)",
    each_resource(entitle),
    within_all_guarantees,
    reclaims,
    reads_wanted=False,
)
