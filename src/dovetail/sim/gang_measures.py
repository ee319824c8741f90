"""Measures of gangs in time mode: waiting, spread over racks, and what fragmentation costs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from dovetail.policies.rows import Floats, Ints
from dovetail.sim import cast
from dovetail.sim.lives import Life
from dovetail.sim.racks import rack_of
from dovetail.sim.results import Delays, GangMeasures
from dovetail.sim.trace import Job, Machine

Pair = tuple[Job, Life]


class IdleSteps(Protocol):
    """The idle milli of all GPUs from each moment to the next."""

    times: list[float]
    idle: list[int]


def gang_measures(
    pairs: Iterable[Pair],
    machines: Sequence[Machine],
    steps: IdleSteps,
    delays: Callable[[Iterable[Pair]], Delays],
) -> GangMeasures | None:
    """Measures of the jobs of several pods; None = there are none, or no machine has a rack.

    Each role of a gang counts as a job.
    """
    gangs = [(job, life) for job, life in pairs if job.pods > 1]
    if not gangs or not any(machine.rack for machine in machines):
        return None
    started = [(job, life) for job, life in gangs if life.runs]
    rack = {node.name: rack_of(node) for node in cast.nodes_of(machines)}
    racks = [len({rack[str(place.node)] for place in life.runs[0].places}) for _, life in started]
    nodes = [len({place.node for place in life.runs[0].places}) for _, life in started]
    sizes = _rack_sizes(machines)
    fewest = [_fewest(sizes, job.pods * job.gpus) for job, _ in started]
    times, idle = np.array(steps.times), np.array(steps.idle)
    waits = [_waited_beside_idle(job, life, times, idle) for job, life in started]
    return GangMeasures(
        **msgspec.structs.asdict(delays(gangs)),
        racks_mean=_mean(racks),
        racks_fewest_mean=_mean(fewest),
        one_rack_pct=100 * sum(count == 1 for count in racks) / max(1, len(racks)),
        nodes_mean=_mean(nodes),
        fragmented_wait_mean=_mean(waits),
    )


def _rack_sizes(machines: Sequence[Machine]) -> list[int]:
    """GPUs of each rack, the largest first."""
    sizes: dict[tuple[str, str], int] = {}
    for node, machine in zip(cast.nodes_of(machines), machines, strict=True):
        sizes[rack_of(node)] = sizes.get(rack_of(node), 0) + machine.gpus
    return sorted(sizes.values(), reverse=True)


def _fewest(sizes: Sequence[int], gpus: int) -> int:
    """The number of racks with so many GPUs."""
    for count, size in enumerate(sizes, 1):
        gpus -= size
        if gpus <= 0:
            return count
    return len(sizes)


def _waited_beside_idle(job: Job, life: Life, times: Floats, idle: Ints) -> float:
    """Seconds between arrival and start in which as much GPU was idle as all pods of the job ask for."""
    if life.start is None or life.start <= job.arrival:
        return 0.0
    first = max(int(np.searchsorted(times, job.arrival, side="right")) - 1, 0)
    last = int(np.searchsorted(times, life.start, side="left"))
    edges = np.clip(np.append(times[first:last], life.start), job.arrival, life.start)
    enough = idle[first:last] >= job.gpu_demand_milli
    return float(np.diff(edges)[enough].sum())


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
