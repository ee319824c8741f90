"""Rounds: who may run until the next round. A policy sees all jobs and the cluster's size, and names those that may.

Gavel, Pollux and other round-based schedulers of the literature are of this shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.policies.orders import JobFacts


@dataclass(frozen=True, slots=True)
class Standing:
    """A job as a round sees it."""

    job: str  # the group's name
    asks: float  # GPUs that all its pods ask for, or hold
    running: bool
    facts: JobFacts


@dataclass(frozen=True, slots=True)
class Round:
    """A row of the table. `entitle` returns the names of the jobs that may run until the next round, the one to be
    placed first at the front. The engine stops jobs that run without being named, and places none of the others."""

    name: str
    title: str
    entitle: Callable[[Sequence[Standing], float], Sequence[str]]  # (jobs by name, GPUs of the cluster)
