"""Dominant resource fairness (Ghodsi and others, NSDI 2011), weighted.

The dominant share of a queue is the largest part that it has of any resource. All queues grow at the same rate of
dominant share per weight, each in the proportions of what it wants, until it has that or a resource that it needs is
used up. Guarantees come first; without them, this is the algorithm of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from dovetail.policies.quota.shapes import Claimant, Entitled, Level, QueueStanding, QuotaPolicy, owed_and_borrowed
from dovetail.policies.quota.split import scaled

ALL_OF_IT = Fraction(1)


def entitle(level: Level, totals: Mapping[str, int]) -> Entitled:
    """What each queue deserves, rounded down."""
    resources = [resource for resource in sorted(level) if totals.get(resource, 0) > 0]
    count = max((len(claimants) for claimants in level.values()), default=0)
    floors = {resource: _floors(level[resource], totals[resource]) for resource in resources}
    wants = [
        {resource: level[resource][n].wanted_within - floors[resource][n] for resource in resources}
        for n in range(count)
    ]
    left = {resource: Fraction(totals[resource] - sum(floors[resource])) for resource in resources}
    parts = _grow(wants, [_weight(level, n) for n in range(count)], left, totals)
    given: dict[str, Sequence[int]] = {resource: [0] * count for resource in level}
    for resource in resources:
        grown = [int(parts[n] * max(0, wants[n][resource])) for n in range(count)]
        given[resource] = [floor + more for floor, more in zip(floors[resource], grown, strict=True)]
    return given


def _floors(claimants: Sequence[Claimant], total: int) -> list[int]:
    wanted = [min(one.guarantee, one.wanted_within) for one in claimants]
    return scaled(wanted, total, [one.name for one in claimants])


def _weight(level: Level, n: int) -> int:
    """The largest weight that the queue has for a resource; by default 1."""
    given = [weight for claimants in level.values() if (weight := claimants[n].weight) is not None]
    return max(given, default=1)


def _grow(
    wants: Sequence[Mapping[str, int]],
    weights: Sequence[int],
    left: dict[str, Fraction],
    totals: Mapping[str, int],
) -> list[Fraction]:
    """The part of its wish that each queue gets: progressive filling in exact steps."""
    shares = [max((Fraction(w, totals[r]) for r, w in want.items() if w > 0), default=Fraction(0)) for want in wants]
    parts = [Fraction(0)] * len(wants)
    growing = {n for n, share in enumerate(shares) if share > 0 and weights[n] > 0}
    while growing:
        speed = {n: Fraction(weights[n]) / shares[n] for n in growing}  # parts of its wish per unit of dominant share
        growing -= {n for n in growing if any(left[r] <= 0 and wants[n][r] > 0 for r in left)}
        if not growing:
            break
        rates = {r: sum((speed[n] * max(0, wants[n][r]) for n in growing), Fraction(0)) for r in left}
        step = min(
            [left[r] / rate for r, rate in rates.items() if rate > 0]
            + [(ALL_OF_IT - parts[n]) / speed[n] for n in growing]
        )
        for n in growing:
            parts[n] += step * speed[n]
        left.update({r: left[r] - step * rates[r] for r in left})
        growing = {n for n in growing if parts[n] < 1}
    return parts


def most(standing: QueueStanding) -> int | None:
    """No limit but the ceiling: what is free may be used."""
    return None


POLICY = QuotaPolicy(
    "drf",
    "All queues get the same dominant share per weight.",
    "Dominant Resource Fairness (NSDI 2011)",
    entitle,
    most,
    owed_and_borrowed,
    joins_resources=True,
)
