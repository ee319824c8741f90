"""Traces made out of traces: the same jobs in a hurry, or on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.sim.chance import Chance
from dovetail.sim.trace import Machine, Trace, TraceError


def compressed(trace: Trace, factor: float) -> Trace:
    """Arrivals come `factor` times as fast; jobs run as long as ever."""
    if not 0 < factor < float("inf"):
        raise TraceError(f"compress: {factor} is not a number above 0")
    if factor == 1:
        return trace
    return replace(trace, jobs=tuple(replace(job, arrival=job.arrival / factor) for job in trace.jobs))


def on_cluster(trace: Trace, machines: Sequence[Machine]) -> Trace:
    """The same jobs on other machines."""
    return replace(trace, machines=tuple(machines))


def tie_order(machines: Sequence[Machine], seed: int) -> list[Machine]:
    """The first of equally good machines is taken: as in the trace with seed 0, drawn with others."""
    if not seed:
        return list(machines)
    return [machines[index] for index in Chance(seed).permutation(len(machines))]
