"""Yielding: which running pods may lose their place to a waiting group, and in which order.

A policy gives each candidate a cost. The engine finds the place, and stops no more pods than the place needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dovetail.model.pod import Group, Pod, Qos
from dovetail.policies.orders import JobFacts


class Right(Enum):
    """By which right a waiting pod may take the place of a running pod."""

    NONE = "none"  # it may not
    RANK = "rank"  # both are of one queue, or of none: the Yielding policy decides
    RECLAIM = "reclaim"  # the running pod's queue has borrowed what the waiting pod's queue is owed


Cost = tuple[Any, ...]  # compared as a tuple; the smallest is taken first


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that holds a place."""

    pod: Pod
    node: str
    facts: JobFacts
    placed: float = 0.0  # when it got its node, in seconds; 0 = not known
    started: float = 0.0  # when it started; 0 = not known


@dataclass(frozen=True, slots=True)
class Yielding:
    """A row of the table. `cost` of a candidate, for this group and its facts; None = this pod does not yield to it."""

    name: str
    title: str
    cost: Callable[[Candidate, Group, JobFacts], Cost | None]
    reason: str = "yields to a group that outranks it"  # shown to users for a stopped pod
    reads_service: bool = True  # reads service, gpus or stops of the facts, which cost time to count
    # Pods of this priority or more never yield to the group: a quick test before `cost`. None = no such priority.
    below: Callable[[JobFacts], int] | None = None
    # The importance of a running pod. The node whose most important victim has the lowest rank is taken.
    rank: Callable[[Pod], int] = lambda pod: pod.priority


def tolerates(held: Candidate, priority: int, now: float) -> bool:
    """Whether the pod's PriorityClass exempts it from pods of this priority now (scheduler-plugins, KEP-205).

    A pod that got its node at an unknown time has just got it.
    """
    tolerance = held.pod.tolerance
    if tolerance is None or priority >= tolerance.minimum_priority:
        return False
    return tolerance.seconds < 0 or not held.placed or now < held.placed + tolerance.seconds


def is_young(held: Candidate, seconds: float, now: float) -> bool:
    """Whether the pod has run for less than this time. A pod without a start time has not run yet."""
    return seconds > 0 and (not held.started or now < held.started + seconds)


def oldest_last(held: Candidate) -> float:
    """Orders pods of equal rank: the pod that started last yields first, as in kube-scheduler (MoreImportantPod)."""
    return -held.started if held.started else float("-inf")


def _by_priority(held: Candidate, group: Group, facts: JobFacts) -> Cost | None:
    return (held.pod.priority, oldest_last(held)) if held.pod.priority < facts.priority else None


def _by_qos(held: Candidate, group: Group, facts: JobFacts) -> Cost | None:
    """At equal priority BestEffort yields to Burstable, and both to Guaranteed."""
    rank, asking = (held.pod.priority, held.pod.qos), (facts.priority, min(pod.qos for pod in group.pods))
    return (*rank, oldest_last(held)) if rank < asking else None


YIELD_BY_PRIORITY = Yielding(
    "priority",
    "Pods of a lower priority yield, those that started last first.",
    _by_priority,
    reason="yields to a pod of a higher priority",
    reads_service=False,
    below=lambda facts: facts.priority,
)
YIELD_BY_QOS = Yielding(
    "qos",
    "Pods of a lower priority yield; at equal priority BestEffort before Burstable before Guaranteed.",
    _by_qos,
    reason="yields to a pod of a higher priority or quality of service",
    reads_service=False,
    below=lambda facts: facts.priority + 1,
    rank=lambda pod: pod.priority * len(Qos) + pod.qos,
)
YIELDING = {policy.name: policy for policy in (YIELD_BY_PRIORITY, YIELD_BY_QOS)}
