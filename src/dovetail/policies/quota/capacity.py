"""Capacity scheduling, as the ElasticQuota of scheduler-plugins (pkg/capacityscheduling, v0.34).

A queue is owed its `min`. It may borrow what other queues leave of the sum of all `min`, up to its `max`. Only queues
above their `min` give back.

Two differences. A resource that is absent from `max` has no limit, and one that no `min` names is not bounded; upstream
reads an absent cpu, memory or ephemeral-storage as 0, and then refuses every pod. Upstream also takes a last pod that
leaves its queue below `min`; the engine never does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.policies.quota.shapes import Claimant, QueueStanding, QuotaPolicy, each_resource, owed_and_borrowed
from dovetail.policies.quota.split import scaled


def entitle(claimants: Sequence[Claimant], total: int) -> list[int]:
    """The guarantees; reduced in proportion if the cluster cannot keep them all."""
    return scaled([one.guarantee for one in claimants], total, [one.name for one in claimants])


def most(standing: QueueStanding) -> int | None:
    """What is left of the sum of all guarantees, without what the others do not lend."""
    if not standing.guaranteed_here:
        return None
    return standing.used + standing.sum_guarantee - standing.sum_used - standing.others_idle


POLICY = QuotaPolicy(
    "capacity",
    "A queue is owed its guarantee and borrows what the other guarantees leave.",
    "scheduler-plugins CapacityScheduling",
    each_resource(entitle),
    most,
    owed_and_borrowed,
    reads_wanted=False,
)
