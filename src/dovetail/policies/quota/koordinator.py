"""Koordinator's runtime quota (pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go, July 2026).

Per resource and level: a queue that wants no more than its `min` gets what it wants, and lends the rest if it lends.
The others get their `min`; what is left is divided by weight among them, until each has what it wants. A pod is
admitted while its queue stays within this runtime quota.

Upstream takes nothing back unless its revoke loop is on (`monitorAllQuotas`). Here a queue above its runtime quota
gives back when another queue, below its own, asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.policies.quota.shapes import Claimant, QueueStanding, QuotaPolicy, each_resource, owed_and_borrowed
from dovetail.policies.quota.split import scaled, split


def entitle(claimants: Sequence[Claimant], total: int) -> list[int]:
    """The runtime quotas. `reserved` is Koordinator's `guaranteed`: it raises the `min`.

    If the sum of the `min` is more than the total, they are reduced in proportion (`scale_minquota`).
    """
    names = [one.name for one in claimants]
    floors = scaled([max(one.guarantee, one.reserved) for one in claimants], total, names)
    wanted = [one.wanted_within for one in claimants]
    runtime = [
        floor if want > floor or not one.lends else want
        for one, floor, want in zip(claimants, floors, wanted, strict=True)
    ]
    hungry = [n for n in range(len(claimants)) if wanted[n] > floors[n]]
    left = total - sum(runtime)
    while left > 0 and hungry:
        parts = split(left, [_weight(claimants[n], total) for n in hungry], [names[n] for n in hungry])
        left -= sum(parts)
        if not any(parts):
            break
        for n, part in zip(hungry, parts, strict=True):
            given = min(part, wanted[n] - runtime[n])
            runtime[n] += given
            left += part - given
        hungry = [n for n in hungry if runtime[n] < wanted[n]]
    return runtime


def _weight(claimant: Claimant, total: int) -> int:
    """The shared weight; by default the ceiling, and without one all that there is."""
    if claimant.weight is not None:
        return claimant.weight
    return total if claimant.ceiling is None else claimant.ceiling


def most(standing: QueueStanding) -> int | None:
    """The runtime quota; a resource that the queue does not name is not bounded."""
    return standing.entitled if standing.named else None


POLICY = QuotaPolicy(
    "koordinator",
    "A queue has its guarantee and, by weight, a part of what others leave; not more at any time.",
    "Koordinator ElasticQuota (runtime quota)",
    each_resource(entitle),
    most,
    owed_and_borrowed,
    bound_by_entitled=True,
)
