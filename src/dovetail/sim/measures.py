"""What a run in time mode amounts to: waits, use of the GPUs over time, and the cluster at its busiest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.engine.state import Floats
from dovetail.model.decision import Decision, Share
from dovetail.sim import cast
from dovetail.sim.gpu_models import UNKNOWN_MEMORY_MIB
from dovetail.sim.pending import Pending
from dovetail.sim.results import Delays, ModelUse, NodeMap, Sample
from dovetail.sim.summary import SIZES, size_of
from dovetail.sim.trace import WHOLE, Job, Machine
from dovetail.sim.unavoidable import unavoidable

MOST_SAMPLES = 500
MILLI_SECONDS_AN_HOUR = WHOLE * 3600  # milli of a GPU × seconds in a GPU-hour


@dataclass(slots=True)
class Life:
    """Of a job: when it ran, and where its pods were."""

    start: float | None = None
    end: float | None = None
    places: list[Decision] = field(default_factory=list)


@dataclass(slots=True)
class Steps:
    """What holds from one moment to the next; amounts in milli. The last step has no length."""

    times: list[float] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)  # of what is idle
    waiting: list[int] = field(default_factory=list)  # jobs

    def add(self, at: float, pending: Pending) -> None:
        self.times.append(at)
        self.idle.append(sum(pending.idle.values()))
        self.wanted.append(pending.idle_while_wanted())
        self.waiting.append(pending.jobs)


def measured(jobs: Sequence[Job], lives: Sequence[Life], machines: Sequence[Machine], steps: Steps) -> dict[str, Any]:
    """The part of `Timed` that comes from what happened."""
    pairs = list(zip(jobs, lives, strict=True))
    capacity = sum(machine.gpus for machine in machines) * WHOLE
    begin, end = steps.times[0], steps.times[-1]
    allocated = capacity - np.array(steps.idle, dtype=np.float64)
    ran = [job for job, life in pairs if life.end is not None]
    return {
        "jobs": len(jobs),
        "finished": len(ran),
        "never_placed": len(jobs) - len(ran),
        "makespan": end - begin,
        "delays": delays(pairs),
        "by_tenant": _by(pairs, lambda job: job.tenant),
        "by_size": _by(pairs, size_of, SIZES),
        "hours_capacity": capacity * (end - begin) / MILLI_SECONDS_AN_HOUR,
        "hours_allocated": _area(steps, allocated) / MILLI_SECONDS_AN_HOUR,
        "hours_idle_while_wanted": _area(steps, np.array(steps.wanted, dtype=np.float64)) / MILLI_SECONDS_AN_HOUR,
        "hours_idle_while_wanted_bound": unavoidable(machines, ran) / MILLI_SECONDS_AN_HOUR,
        "samples": samples(steps, allocated, capacity),
        **busiest(pairs, machines, steps),
    }


def delays(pairs: Iterable[tuple[Job, Life]]) -> Delays:
    """Of jobs without an end only the wait counts: when they leave is the replay's choice."""
    count, waits, completions = 0, [], []
    for job, life in pairs:
        count += 1
        if life.start is not None and life.end is not None:
            waits.append(life.start - job.arrival)
            if job.duration is not None:
                completions.append(life.end - job.arrival)
    waits.sort()
    completions.sort()
    return Delays(
        jobs=count,
        started=len(waits),
        mean=_mean(waits),
        p50=percentile(waits, 50),
        p95=percentile(waits, 95),
        p99=percentile(waits, 99),
        longest=percentile(waits, 100),
        completion_mean=_mean(completions),
        completion_p95=percentile(completions, 95),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else 0.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _by(
    pairs: Sequence[tuple[Job, Life]], of: Callable[[Job], str], known: Sequence[str] | None = None
) -> dict[str, Delays]:
    found: dict[str, list[tuple[Job, Life]]] = {}
    for job, life in pairs:
        found.setdefault(of(job), []).append((job, life))
    return {name: delays(found[name]) for name in (known or sorted(found)) if name in found}


def _area(steps: Steps, values: Floats) -> float:
    return float(np.dot(values[:-1], np.diff(np.array(steps.times))))


def samples(steps: Steps, allocated: Floats, capacity: int) -> list[Sample]:
    """The run in equal parts, each by its mean over time."""
    times = np.array(steps.times)
    if times[-1] <= times[0]:
        return []
    edges = np.linspace(times[0], times[-1], MOST_SAMPLES + 1)
    used = _means(times, allocated, edges)
    waiting = _means(times, np.array(steps.waiting, dtype=np.float64), edges)
    return [
        Sample(round(at, 3), round(100 * milli / capacity, 3) if capacity else 0.0, round(jobs))
        for at, milli, jobs in zip(edges[:-1].tolist(), used.tolist(), waiting.tolist(), strict=True)
    ]


def _means(times: Floats, values: Floats, edges: Floats) -> Floats:
    """The area under steps grows in straight lines between them, so that it can be looked up anywhere."""
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    return np.asarray(np.diff(np.interp(edges, times, area)) / np.diff(edges), dtype=np.float64)


def busiest(pairs: Sequence[tuple[Job, Life]], machines: Sequence[Machine], steps: Steps) -> dict[str, Any]:
    """Models and nodes in the first of the moments with most allocated."""
    lasting = [n for n in range(len(steps.times) - 1) if steps.times[n] < steps.times[n + 1]]
    at = steps.times[min(lasting, key=lambda n: (steps.idle[n], n))] if lasting else None
    compute = {node.name: [0] * len(node.devices) for node in cast.nodes_of(machines)}
    memory = {name: list(zeros) for name, zeros in compute.items()}
    held = {name: list(zeros) for name, zeros in compute.items()}
    for _, life in pairs:
        if at is None or life.start is None or life.end is None or not life.start <= at < life.end:
            continue
        for decision in life.places:
            for share in decision.shares:
                node, gpu = str(decision.node), gpu_index(share)
                compute[node][gpu] += share.compute_milli
                memory[node][gpu] += share.memory_mib
                held[node][gpu] += 1
    return _use(machines, list(compute.values()), list(memory.values()), list(held.values()))


def _use(
    machines: Sequence[Machine], compute: list[list[int]], memory: list[list[int]], held: list[list[int]]
) -> dict[str, Any]:
    nodes, gpus, used, idle = [], dict[str, int](), dict[str, int](), dict[str, int]()
    for machine, milli, mib, pods in zip(machines, compute, memory, held, strict=True):
        size = machine.gpu_memory_mib or UNKNOWN_MEMORY_MIB
        taken = [max(part, -(-of_memory * WHOLE // size)) for part, of_memory in zip(milli, mib, strict=True)]
        nodes.append(NodeMap(machine.name, machine.model, taken))
        gpus[machine.model] = gpus.get(machine.model, 0) + machine.gpus
        used[machine.model] = used.get(machine.model, 0) + sum(taken)
        idle[machine.model] = idle.get(machine.model, 0) + pods.count(0)
    models = {
        model: ModelUse(count, round(100 * used[model] / (WHOLE * count), 2), idle[model])
        for model, count in sorted(gpus.items())
        if count
    }
    return {"models": models, "map": nodes}


def gpu_index(share: Share) -> int:
    """Which GPU of its node: `cast` puts it at the end of the UUID."""
    return int(share.uuid.rpartition("/")[2])
