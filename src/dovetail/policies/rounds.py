"""Rounds: which jobs may run until the next round. A policy reads all jobs and the cluster's size, and names the jobs.

Gavel, Pollux and other round-based schedulers in the literature have this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.policies.orders import JobFacts


@dataclass(frozen=True, slots=True)
class JobStanding:
    """A job in a round."""

    job: str  # the group's name
    asks: float  # GPUs that all its pods ask for, or hold
    running: bool
    facts: JobFacts


@dataclass(frozen=True, slots=True)
class Round:
    """A row of the table. `entitle` returns the jobs that may run until the next round, first choice first.

    The engine stops running jobs that are not named, and places no other jobs.
    """

    name: str
    title: str
    entitle: Callable[[Sequence[JobStanding], float], Sequence[str]]  # (jobs by name, GPUs of the cluster)
