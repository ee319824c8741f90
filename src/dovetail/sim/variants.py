"""Traces derived from other traces: the same jobs with faster arrivals, or on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.sim.chance import Chance
from dovetail.sim.trace import Machine, Trace, TraceError


def compressed(trace: Trace, factor: float) -> Trace:
    """The trace with arrivals `factor` times as fast. Durations stay the same."""
    if not 0 < factor < float("inf"):
        raise TraceError(f"compress: {factor} is not a number above 0")
    if factor == 1:
        return trace
    return replace(trace, jobs=tuple(replace(job, arrival=job.arrival / factor) for job in trace.jobs))


def on_cluster(trace: Trace, machines: Sequence[Machine]) -> Trace:
    """The same jobs on other machines."""
    return replace(trace, machines=tuple(machines))


def tie_order(machines: Sequence[Machine], seed: int) -> list[Machine]:
    """Machines in tie-break order (of equally good ones the first is taken): as in the trace for seed 0, else drawn."""
    if not seed:
        return list(machines)
    return [machines[index] for index in Chance(seed).permutation(len(machines))]
