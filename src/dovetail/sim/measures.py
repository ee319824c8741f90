"""Measures of a run in time mode: waits, use of the GPUs over time and by tenant, and the cluster at its busiest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from dovetail.model.decision import Decision, Share
from dovetail.model.rights import Queue
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import part_left
from dovetail.policies.outlook import TOTAL
from dovetail.policies.rows import Floats
from dovetail.sim import cast, fragments
from dovetail.sim.fairness import fairness, stays_of
from dovetail.sim.gang_measures import gang_measures
from dovetail.sim.lives import Life
from dovetail.sim.pending import IdleAndWaiting
from dovetail.sim.regime import entitlements
from dovetail.sim.results import Delays, ModelUse, NodeMap, Sample, Usage
from dovetail.sim.stage import stage
from dovetail.sim.summary import JOB_SIZES, size_of
from dovetail.sim.trace import Job, Machine, Trace
from dovetail.sim.unavoidable import unavoidable

MOST_SAMPLES = 500
MILLI_SECONDS_AN_HOUR = WHOLE_CARD * 3600  # milli of a GPU × seconds in a GPU-hour


@dataclass(slots=True)
class Load:
    """What pods hold of one machine at a moment. Lists are by GPU."""

    machine: Machine
    pods: int = 0
    cpu_milli: int = 0
    compute: list[int] = field(init=False)
    memory: list[int] = field(init=False)
    held: list[int] = field(init=False)  # number of shares: a share of 0 milli and 0 MiB counts too

    def __post_init__(self) -> None:
        self.compute, self.memory, self.held = ([0] * self.machine.gpus for _ in range(3))

    def add(self, job: Job, shares: Iterable[Share]) -> None:
        """Add one pod of the job."""
        self.pods += 1
        self.cpu_milli += job.cpu_milli
        for share in shares:
            gpu = cast.card_index(share)
            self.compute[gpu] += share.compute_milli
            self.memory[gpu] += share.memory_mib
            self.held[gpu] += 1

    @property
    def taken(self) -> list[int]:
        """Milli taken of each GPU: the larger of its compute and its memory."""
        memory = cast.card_memory(self.machine)
        held = zip(self.compute, self.memory, strict=True)
        return [WHOLE_CARD - part_left(WHOLE_CARD, milli, memory, mib) for milli, mib in held]

    @property
    def gpus_free(self) -> int:
        return self.held.count(0)


@dataclass(slots=True)
class Steps:
    """The state from each moment to the next; amounts in milli. The last step has no length."""

    times: list[float] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)  # the part of `idle` that waiting jobs could use
    waiting: list[int] = field(default_factory=list)  # jobs

    def add(self, at: float, pending: IdleAndWaiting) -> None:
        self.times.append(at)
        self.idle.append(sum(pending.idle.values()))
        self.wanted.append(pending.idle_while_wanted())
        self.waiting.append(pending.jobs)


def measured(
    jobs: Sequence[Job],
    lives: Sequence[Life],
    machines: Sequence[Machine],
    steps: Steps,
    bound_holds: bool,
    queues: Sequence[Queue] = (),
) -> dict[str, Any]:
    """The fields of `Timed` that come from the run. The bound is 0 if it does not hold for this run."""
    pairs = list(zip(jobs, lives, strict=True))
    capacity = sum(machine.gpus for machine in machines) * WHOLE_CARD
    begin, end = steps.times[0], steps.times[-1]
    hours = capacity * (end - begin) / MILLI_SECONDS_AN_HOUR
    allocated = capacity - np.array(steps.idle, dtype=np.float64)
    ran = [job for job, life in pairs if life.end is not None]
    by_tenant, by_size = _by(pairs, lambda job: job.tenant), _by(pairs, size_of)
    memory_of = {node.name: cast.card_memory(m) for node, m in zip(cast.nodes_of(machines), machines, strict=True)}
    return {
        "jobs": len(jobs),
        "finished": len(ran),
        "never_placed": len(jobs) - len(ran),
        "makespan": end - begin,
        "delays": delays(pairs),
        "by_tenant": {tenant: usage(by_tenant[tenant], hours, memory_of) for tenant in sorted(by_tenant)},
        "by_size": {size: usage(by_size[size], hours, memory_of) for size in JOB_SIZES if size in by_size},
        "hours_capacity": hours,
        "hours_allocated": _area(steps, allocated) / MILLI_SECONDS_AN_HOUR,
        "hours_idle_while_wanted": _area(steps, np.array(steps.wanted, dtype=np.float64)) / MILLI_SECONDS_AN_HOUR,
        "hours_idle_while_wanted_bound": unavoidable(machines, ran) / MILLI_SECONDS_AN_HOUR if bound_holds else 0.0,
        "samples": samples(steps, allocated, capacity),
        **busiest(pairs, machines, steps),
        "hours_lost": lost(lives, memory_of) / MILLI_SECONDS_AN_HOUR,
        **fair(pairs, memory_of, queues, capacity, begin, end),
        "gangs": gang_measures(pairs, machines, steps, delays),
    }


def fair(
    pairs: Sequence[tuple[Job, Life]],
    memory_of: Mapping[str, int],
    queues: Sequence[Queue],
    capacity: int,
    begin: float,
    end: float,
) -> dict[str, Any]:
    """Jain's index over time, in per cent. A job counts with what its pods take in its first run."""
    tenants = sorted({job.tenant for job, _ in pairs})
    weights = entitlements(queues, tenants)
    milli = [sum(_taken(place, memory_of) for place in life.runs[0].places) if life.runs else 0 for _, life in pairs]
    numbers = {tenant: n for n, tenant in enumerate(tenants)}
    stays = stays_of([job for job, _ in pairs], [life for _, life in pairs], numbers, milli)
    found = fairness(stays, [weights[tenant] for tenant in tenants], capacity, begin, end)
    return {
        "fairness_pct": round(100 * found.mean, 4),
        "fairness_samples": [round(100 * one, 2) for one in found.samples],
    }


def delays(pairs: Iterable[tuple[Job, Life]]) -> Delays:
    """Waits and completion times of these jobs.

    A job without an end counts only for the wait: the replay decides when it leaves.
    """
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
    """The smallest value that `percent` of the values do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else 0.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def usage(pairs: Sequence[tuple[Job, Life]], hours_capacity: float, memory_of: Mapping[str, int]) -> Usage:
    """Delays of some of the jobs, and the GPU-hours that their pods held while they ran.

    Each pod counts with what it would take of a card alone. So two pods that share a card can sum up to more than the
    card.
    """
    given = sum(
        _taken(decision, memory_of) * (run.end - run.begin)
        for _, life in pairs
        for run in life.runs
        for decision in run.places
    )
    hours = given / MILLI_SECONDS_AN_HOUR
    share = 100 * hours / hours_capacity if hours_capacity else 0.0
    return Usage(**msgspec.structs.asdict(delays(pairs)), gpu_hours=hours, gpu_hours_pct=share)


def lost(lives: Iterable[Life], memory_of: Mapping[str, int]) -> float:
    """Milli of a GPU × seconds that jobs held for nothing, because they were stopped, moved or resized."""
    return sum(
        _taken(decision, memory_of) * run.seconds_lost
        for life in lives
        for run in life.runs
        if run.repeated or run.works_from > run.begin
        for decision in run.places
    )


def _taken(decision: Decision, memory_of: Mapping[str, int]) -> int:
    """Milli of the cards that a pod holds. `memory_of`: node -> MiB of each card."""
    memory = memory_of[str(decision.node)]
    return sum(WHOLE_CARD - part_left(WHOLE_CARD, s.compute_milli, memory, s.memory_mib) for s in decision.shares)


def _by(pairs: Iterable[tuple[Job, Life]], of: Callable[[Job], str]) -> dict[str, list[tuple[Job, Life]]]:
    found: dict[str, list[tuple[Job, Life]]] = {}
    for job, life in pairs:
        found.setdefault(of(job), []).append((job, life))
    return found


def _area(steps: Steps, values: Floats) -> float:
    return float(np.dot(values[:-1], np.diff(np.array(steps.times))))


def samples(steps: Steps, allocated: Floats, capacity: int) -> list[Sample]:
    """The run in MOST_SAMPLES equal parts, each with its mean over time."""
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
    """The mean of each part.

    The area under the steps grows linearly between them, so that it can be interpolated at any time.
    """
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    return np.asarray(np.diff(np.interp(edges, times, area)) / np.diff(edges), dtype=np.float64)


def busiest(pairs: Sequence[tuple[Job, Life]], machines: Sequence[Machine], steps: Steps) -> dict[str, Any]:
    """Free and allocated capacity at the first of the moments with the most allocated."""
    loads = _loads(pairs, machines, _busiest_moment(steps))
    return {
        "nodes_free": sum(not load.pods for load in loads),
        "gpus_free": sum(load.gpus_free for load in loads),
        **fragmented([job for job, _ in pairs], loads),
        "models": _models(loads),
        "map": [NodeMap(load.machine.name, load.machine.model, load.taken) for load in loads],
    }


def _busiest_moment(steps: Steps) -> float | None:
    lasting = [n for n in range(len(steps.times) - 1) if steps.times[n] < steps.times[n + 1]]
    return steps.times[min(lasting, key=lambda n: (steps.idle[n], n))] if lasting else None


def _loads(pairs: Iterable[tuple[Job, Life]], machines: Sequence[Machine], at: float | None) -> list[Load]:
    loads = {node.name: Load(machine) for node, machine in zip(cast.nodes_of(machines), machines, strict=True)}
    for job, life in pairs:
        for run in life.runs:
            if at is not None and run.begin <= at < run.end:
                for decision in run.places:
                    loads[str(decision.node)].add(job, decision.shares)
    return list(loads.values())


def fragmented(jobs: Sequence[Job], loads: Sequence[Load]) -> dict[str, float]:
    """Idle GPU that the typical pods of these jobs cannot use, measured as in inflation mode."""
    machines = tuple(load.machine for load in loads)
    empty = stage(Trace("", machines, tuple(jobs)), machines, "first-fit", told=True, mode="interpreted")
    cluster = fragments.empty_cluster(empty)
    idle, pieces = 0, 0
    for i, load in enumerate(loads):
        left, cpu = cluster.left[i], int(cluster.cpu[i]) - load.cpu_milli
        left[: load.machine.gpus] = [WHOLE_CARD - milli for milli in load.taken]
        idle += int(left.sum())
        pieces += fragments.fragments(cluster.outlook, int(cluster.kind[i]), cpu, left, load.machine.gpus)
    milli = pieces / max(1, int(cluster.outlook[TOTAL]))
    capacity = WHOLE_CARD * sum(machine.gpus for machine in machines)
    return {
        "frag_pct": round(100 * milli / max(1, capacity), 4),
        "frag_ratio_pct": round(100 * milli / max(1, idle), 4),
    }


def _models(loads: Iterable[Load]) -> dict[str, ModelUse]:
    by_model: dict[str, list[Load]] = {}
    for load in loads:
        if load.machine.gpus:
            by_model.setdefault(load.machine.model, []).append(load)
    return {model: _use(of) for model, of in sorted(by_model.items())}


def _use(loads: Sequence[Load]) -> ModelUse:
    gpus, taken = sum(load.machine.gpus for load in loads), sum(sum(load.taken) for load in loads)
    return ModelUse(gpus, round(100 * taken / (WHOLE_CARD * gpus), 2), sum(load.gpus_free for load in loads))
