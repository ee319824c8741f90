"""Fairness over time: Jain's index of what tenants hold, against what they are entitled to at that moment.

A tenant's fair part of the GPUs is the weighted max-min share: capacity is divided by entitlements, no tenant gets more
than its jobs ask for, and what is left is divided again. With x = held / fair part, the index of n tenants is
(Σx)² / (n · Σx²) (Jain, Chiu, Hawe 1984): 1 if all have the same part of what is fair, 1/n if one has everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dovetail.policies.rows import Floats
from dovetail.sim.lives import Life
from dovetail.sim.trace import Job

MOST_MOMENTS = 500


class Fairness(NamedTuple):
    mean: float  # over the moments at which two tenants or more asked for GPUs; 1 if there are none
    samples: list[float]  # at the middle of equal parts of the run; empty if there is one tenant


class JobStay(NamedTuple):
    """A job of a tenant: how much it takes, when it asks for it, and when it has it."""

    tenant: int
    milli: float
    arrival: float
    end: float
    held: Sequence[tuple[float, float]]  # (begin, end) of its runs


def fairness(stays: Sequence[JobStay], weights: Sequence[float], capacity: float, begin: float, end: float) -> Fairness:
    """`weights`: the entitlement of each tenant, by its number."""
    if len(weights) < 2 or end <= begin or not capacity:
        return Fairness(1.0, [])
    edges = np.linspace(begin, end, MOST_MOMENTS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    asked = [_amounts([s for s in stays if s.tenant == n], middles, held=False) for n in range(len(weights))]
    held = [_amounts([s for s in stays if s.tenant == n], middles, held=True) for n in range(len(weights))]
    entitled = np.array(weights, dtype=np.float64)
    counted, samples = [], []
    for demand, have in zip(np.array(asked).T, np.array(held).T, strict=True):
        found = index(have, fair_parts(demand, entitled, capacity))
        samples.append(round(found, 6))
        if np.count_nonzero(demand) > 1:
            counted.append(found)
    return Fairness(float(np.mean(counted)) if counted else 1.0, samples)


def _amounts(stays: Sequence[JobStay], moments: Floats, held: bool) -> Floats:
    """The milli that these jobs hold, or ask for, at each moment."""
    changes: list[tuple[float, float]] = []
    for stay in stays:
        for begin, end in stay.held if held else ((stay.arrival, stay.end),):
            changes += [(begin, stay.milli), (end, -stay.milli)]
    if not changes:
        return np.zeros(len(moments))
    changes.sort()
    times, deltas = (np.array(column, dtype=np.float64) for column in zip(*changes, strict=True))
    levels = np.concatenate([[0.0], np.cumsum(deltas)])
    return np.asarray(levels[np.searchsorted(times, moments, side="right")], dtype=np.float64)


def fair_parts(demand: Floats, weights: Floats, capacity: float) -> Floats:
    """The weighted max-min share of each tenant."""
    parts = np.zeros(len(demand))
    left, open_ = capacity, demand > 0
    while left > 0 and open_.any():
        level = left / weights[open_].sum()
        full = open_ & (demand <= weights * level + 1e-9)
        if not full.any():
            parts[open_] = weights[open_] * level
            break
        parts[full] = demand[full]
        left -= float(demand[full].sum())
        open_ &= ~full
    return parts


def index(held: Floats, fair: Floats) -> float:
    """Jain's index of held / fair, over the tenants that have a fair part."""
    ratio = held[fair > 0] / fair[fair > 0]
    square = float((ratio**2).sum())
    return float(ratio.sum()) ** 2 / (len(ratio) * square) if square > 0 else 1.0


def stays_of(
    jobs: Sequence[Job], lives: Sequence[Life], numbers: Mapping[str, int], milli: Sequence[float]
) -> list[JobStay]:
    """The jobs that ran. `numbers`: tenant -> number; `milli`: what each job takes of the GPUs."""
    return [
        JobStay(numbers[job.tenant], amount, job.arrival, life.end, [(run.begin, run.end) for run in life.runs])
        for job, life, amount in zip(jobs, lives, milli, strict=True)
        if amount and life.end is not None
    ]
