"""Yielding: which running pods may lose their place to a waiting group, and in which order.

A policy gives each candidate a cost. The engine finds the place, and stops no more pods than the place needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.model.pod import Group, Pod
from dovetail.policies.orders import JobFacts

Cost = tuple[Any, ...]  # compared as a tuple; the smallest is taken first


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that holds a place."""

    pod: Pod
    node: str
    facts: JobFacts


@dataclass(frozen=True, slots=True)
class Yielding:
    """A row of the table. `cost` of a candidate, for this group and its facts; None = this pod does not yield to it."""

    name: str
    title: str
    cost: Callable[[Candidate, Group, JobFacts], Cost | None]
    reason: str = "yields to a group that outranks it"  # shown to users for a stopped pod
