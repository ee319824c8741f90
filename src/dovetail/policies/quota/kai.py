"""KAI's fair share (pkg/scheduler/plugins/proportion, v0.17).

Each queue gets its quota, as far as it asks for it. What is left is divided by over-quota weight, in order of queue
priority. A queue that used much in the past gets a smaller part: P = max(0, n + k × (n − usage)). Here n is its part of
the weights, and usage its average use of the cluster; older use counts less.

A queue may use free GPUs beyond its fair share, up to its limit. It may take back what another queue has beyond its
fair share, or beyond its quota.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.policies.quota.shapes import (
    Claimant,
    QueueStanding,
    QuotaPolicy,
    Stake,
    each_resource,
    owed_and_borrowed,
)
from dovetail.policies.quota.split import scaled

USAGE_WEIGHT = 1000  # k in milli; KAI's default is 1
DEFAULT_WEIGHT = 1
MILLI = 1000


def entitle(claimants: Sequence[Claimant], total: int, usage_weight: int = USAGE_WEIGHT) -> list[int]:
    """The fair shares. Quotas that sum to more than the total are reduced in proportion; KAI keeps them as they are."""
    wanted = [one.wanted_within for one in claimants]
    quotas = [min(one.guarantee, want) for one, want in zip(claimants, wanted, strict=True)]
    shares = scaled(quotas, total, [one.name for one in claimants])
    left = total - sum(shares)
    for priority in sorted({one.priority for one in claimants}, reverse=True):
        bucket = [n for n, one in enumerate(claimants) if one.priority == priority]
        left = _fill(claimants, bucket, wanted, shares, left, usage_weight)
    return shares


def _fill(
    claimants: Sequence[Claimant],
    bucket: Sequence[int],
    wanted: Sequence[int],
    shares: list[int],
    left: int,
    usage_weight: int,
) -> int:
    """Divide what is left among the queues of one priority; returns what they do not want.

    Parts are rounded down; a queue that wants less gets that, and the rest is divided again. In the end, single units
    go to the largest remainders, then to the oldest queues.
    """
    while left > 0:
        hungry = [n for n in bucket if shares[n] < wanted[n]]
        parts = _parts([claimants[n] for n in hungry], usage_weight)
        total = sum(parts)
        if not total:
            return left
        given, remainders = 0, []
        satisfied = False
        for n, part in zip(hungry, parts, strict=True):
            amount, remainder = divmod(left * part, total)
            missing = wanted[n] - shares[n]
            if missing <= amount:
                amount, satisfied = missing, True
            elif part:
                remainders.append((-remainder, claimants[n].created, claimants[n].name, n))
            shares[n] += amount
            given += amount
        left -= given
        if not satisfied:
            for *_, n in sorted(remainders)[:left]:
                shares[n] += 1
                left -= 1
            return left
    return left


def _parts(claimants: Sequence[Claimant], usage_weight: int) -> list[int]:
    """P of each queue, times the sum of the weights and 10^6: an integer."""
    weights = [DEFAULT_WEIGHT if one.weight is None else one.weight for one in claimants]
    total = sum(weights)
    return [
        max(0, weight * MILLI * (MILLI + usage_weight) - usage_weight * one.history * total) if weight else 0
        for one, weight in zip(claimants, weights, strict=True)
    ]


def remember(history: float, now: float, seconds: float, half_life: float) -> float:
    """The average use, `seconds` after it was `history`, if the use was `now` since.

    Use that is t seconds old counts 0.5^(t / half-life) as much as use now.
    """
    faded = float(0.5 ** (seconds / half_life))
    return history * faded + now * (1 - faded)


def most(standing: QueueStanding) -> int | None:
    """No limit but the ceiling: what is free may be used."""
    return None


def reclaims(to: Sequence[Stake], held: Sequence[Stake]) -> bool:
    """KAI's two strategies: maintain the fair share, or guarantee the deserved quota."""
    if owed_and_borrowed(to, held):
        return True
    within = all(stake.used + stake.change <= stake.guarantee for stake in to if stake.contested)
    return within and any(stake.used > stake.guarantee for stake in held if stake.contested)


POLICY = QuotaPolicy(
    "kai",
    "Quota first, the rest by weight and past use; a queue may use what is free.",
    "KAI Scheduler (fair share)",
    each_resource(entitle),
    most,
    reclaims,
)
