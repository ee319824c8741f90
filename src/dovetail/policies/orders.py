"""Queue orders: which of the waiting groups is tried first. One row a policy; the engine asks for a key and sorts.

Knows what the engine tells of a job (`JobFacts`), and nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.model.pod import Group

Key = tuple[Any, ...]  # compared as a tuple; the smallest is tried first


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the engine knows of a job: a gang by its group's name, a pod outside gangs by its own name."""

    arrival: float  # seconds; of the oldest pod that waits
    priority: int  # the highest among its pods
    tenant: str
    service: float = 0.0  # GPU-seconds that its pods have had so far (attained service)
    gpus: float = 0.0  # GPUs that its pods hold now
    stops: int = 0  # times that the scheduler stopped it to give its place away
    length: float | None = None  # seconds that it is said to take; None = not told


@dataclass(frozen=True, slots=True)
class Order:
    """A row of the table. Groups that are partly started come first in every order (docs/adr/0014), and equal keys are
    ordered by priority, age and name: an order is total."""

    name: str
    title: str
    key: Callable[[Group, JobFacts], Key]
    reads_service: bool = False  # service, gpus and stops are counted only for orders that read them
    changes: bool = False  # keys of waiting groups may change while they wait: the queue is sorted again at each event


def _by_priority(group: Group, facts: JobFacts) -> Key:
    return ()  # what all orders end with


BY_PRIORITY = Order("priority", "The highest priority first, then the oldest.", _by_priority)
ORDERS = {order.name: order for order in (BY_PRIORITY,)}
