"""Queue orders: which waiting group is tried first. One row per policy; the engine sorts by its key.

An order reads what the engine knows of a job (`JobFacts`), and nothing about nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.model.pod import Group

YODA_PRIORITY = "scv/priority"
MAX_DIGITS = 9  # of a number in a label
Key = tuple[Any, ...]  # compared as a tuple; the smallest is tried first


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the engine knows of a job. The job's name is that of its group, or of a pod outside gangs."""

    arrival: float  # seconds; of the oldest waiting pod
    priority: int  # the highest of its pods
    tenant: str
    service: float = 0.0  # GPU-seconds that its pods have had so far (attained service)
    gpus: float = 0.0  # GPUs that its pods hold now
    stops: int = 0  # how often the scheduler stopped it to use its place for others
    length: float | None = None  # expected run time in seconds; None = unknown
    failed: float | None = None  # when it last found no place, in seconds; None = it was not tried yet
    queue_share: float = 0.0  # the dominant share of its queue: the largest part of a resource that its pods hold


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """A row of the table. Partly started groups come first in every order (docs/adr/0014).

    Equal keys are ordered by priority, age and name: an order is total.
    """

    name: str
    title: str
    key: Callable[[Group, JobFacts], Key]
    reads_service: bool = False  # service, gpus, stops and failures are counted only for such orders
    changes: bool = False  # keys may change while groups wait: the queue is sorted again at each event


def _by_priority(group: Group, facts: JobFacts) -> Key:
    return ()  # all orders end with priority, age and name


def _by_qos(group: Group, facts: JobFacts) -> Key:
    """QOSSort of scheduler-plugins. The class of a gang is the lowest of its pods."""
    return (-facts.priority, -min(pod.qos for pod in group.pods))


def _as_coscheduling(group: Group, facts: JobFacts) -> Key:
    """Coscheduling's order since 2026: a group that found no place goes behind those that were not tried since."""
    return (-facts.priority, facts.arrival if facts.failed is None else facts.failed)


def _by_dominant_share(group: Group, facts: JobFacts) -> Key:
    return (facts.queue_share,)


def _by_attained_service(group: Group, facts: JobFacts) -> Key:
    return (facts.service,)


def _by_yoda(group: Group, facts: JobFacts) -> Key:
    """Yoda's order: the label scv/priority of the pods; none, or no whole number, counts as 0."""
    return (-max(_whole(pod.labels.get(YODA_PRIORITY, "")) for pod in group.pods),)


def _whole(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() else 0


def _by_length(group: Group, facts: JobFacts) -> Key:
    return (facts.length is None, facts.length or 0.0)


BY_PRIORITY = QueueOrder("priority", "The highest priority first, then the oldest.", _by_priority)
_ROWS = (
    BY_PRIORITY,
    QueueOrder("qos", "The highest priority first, then Guaranteed, Burstable and BestEffort.", _by_qos),
    QueueOrder(
        "coscheduling",
        "The highest priority first, then the group that is oldest or has waited longest since it was last tried.",
        _as_coscheduling,
        reads_service=True,
    ),
    QueueOrder(
        "dominant-share",
        "Groups of the queue first that has the smallest part of the cluster; without queues as `priority`.",
        _by_dominant_share,
        changes=True,
    ),
    QueueOrder(
        "least-attained-service",
        "The job first that has had the least GPU time.",
        _by_attained_service,
        reads_service=True,
    ),
    QueueOrder("yoda", "The highest label scv/priority first, then as `priority` (Yoda).", _by_yoda),
    QueueOrder("shortest-first", "The shortest job first; jobs of unknown length last.", _by_length),
)
ORDERS = {order.name: order for order in _ROWS}
