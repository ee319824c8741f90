"""Queue orders: which waiting group is tried first. One row per policy; the engine sorts by its key.

An order reads what the engine knows of a job (`JobFacts`), and nothing about nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.model.pod import Group

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


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """A row of the table. Partly started groups come first in every order (docs/adr/0014).

    Equal keys are ordered by priority, age and name: an order is total.
    """

    name: str
    title: str
    key: Callable[[Group, JobFacts], Key]
    reads_service: bool = False  # service, gpus and stops are counted only for such orders
    changes: bool = False  # keys may change while groups wait: the queue is sorted again at each event


def _by_priority(group: Group, facts: JobFacts) -> Key:
    return ()  # all orders end with priority, age and name


BY_PRIORITY = QueueOrder("priority", "The highest priority first, then the oldest.", _by_priority)
ORDERS = {order.name: order for order in (BY_PRIORITY,)}
