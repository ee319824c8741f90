"""Volcano's capacity plugin (pkg/scheduler/plugins/capacity, v1.15).

`deserved` (the guarantee) is what a queue is owed. `guarantee` (here: reserved) is never lent. `capability` (the
ceiling) is the most that it may have, without what is reserved for others. A queue above its `deserved` gives back.

Where no queue of a level has a `deserved` of a resource, what a queue is owed follows from the weights, as in Volcano's
proportion plugin.

Upstream takes a last pod that leaves its queue below `deserved`, but not below `guarantee`; the engine does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.policies.quota.koordinator import entitle as by_weight
from dovetail.policies.quota.shapes import Claimant, QueueStanding, QuotaPolicy, each_resource, owed_and_borrowed
from dovetail.policies.quota.split import scaled


def entitle(claimants: Sequence[Claimant], total: int) -> list[int]:
    """What is reserved for it, and the rest of what it deserves; reduced in proportion if there is not enough."""
    names = [one.name for one in claimants]
    if not any(one.guarantee or one.reserved for one in claimants):
        weighted = [one if one.weight is not None else replace(one, weight=0) for one in claimants]
        return by_weight(weighted, total)
    reserved = scaled([one.kept for one in claimants], total, names)
    rest = [max(0, _deserved(one) - kept) for one, kept in zip(claimants, reserved, strict=True)]
    more = scaled(rest, total - sum(reserved), names)
    return [kept + part for kept, part in zip(reserved, more, strict=True)]


def _deserved(claimant: Claimant) -> int:
    return claimant.guarantee if claimant.ceiling is None else min(claimant.guarantee, claimant.ceiling)


def most(standing: QueueStanding) -> int | None:
    """All but what is reserved for others (Volcano's real capability)."""
    return standing.total - standing.others_kept if standing.others_kept else None


POLICY = QuotaPolicy(
    "volcano",
    "A queue is owed what it deserves, uses what is free, and never gets what is reserved for others.",
    "Volcano (capacity plugin)",
    each_resource(entitle),
    most,
    owed_and_borrowed,
)
