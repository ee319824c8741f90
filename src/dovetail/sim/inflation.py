"""Inflation: pods come one after another and stay, until they ask for more than the cluster has (the FGD paper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.decisions import Decisions
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.state import NONE, Floats
from dovetail.engine.stream import Stream
from dovetail.policies.rows import SLOTS, Ints
from dovetail.sim import cast, fragments
from dovetail.sim.orders import Order
from dovetail.sim.profiles import profile_of
from dovetail.sim.results import Column, Inflation, ModelUse, NodeMap
from dovetail.sim.stage import expected, stage
from dovetail.sim.trace import WHOLE, Job, Machine, Trace

LAST_COLUMN = 130  # of the paper's analysis
CHUNK = 16_384  # pods a call: Ctrl-C and progress come in between
Progress = Callable[[int], None]


def replay(
    trace: Trace,
    order: Order,
    policy: str,
    told: bool = True,
    mode: str = "compiled",
    progress: Progress | None = None,
) -> Inflation:
    """One run. `told`: policies that prepare for typical pods are given those of the trace, else they learn."""
    jobs, machines = [pod for job in order.jobs(trace) for pod in _single(job)], order.machines(trace)
    scheduler = stage(trace, machines, policy, told, mode)
    players = cast.cast(jobs, profile_of(policy))
    for template in players.templates:
        scheduler.requests.signature(template)  # known from the start, like the nodes
    scheduler.ledger.make_room(len(jobs), sum(max(1, job.gpus) for job in jobs))
    uids = [job.name for job in jobs]
    made: list[Decisions] = []
    seconds = 0.0
    for start in range(0, len(jobs), CHUNK):
        part = slice(start, start + CHUNK)
        stream = Stream(players.templates, players.kinds[part], uids[part])
        started = perf_counter()
        decided = scheduler.place(stream)
        seconds += perf_counter() - started
        assert isinstance(decided, Decisions)
        made.append(decided)
        if progress is not None:
            progress(min(start + CHUNK, len(jobs)))
    failed = sum(int((part.rows == NONE).sum()) for part in made)
    return Inflation(
        trace=trace.name,
        policy=policy,
        seed=order.seed,
        decisions=len(jobs),
        failed=failed,
        seconds=seconds,
        decisions_per_second=len(jobs) / seconds if seconds else 0.0,
        columns=_columns(trace, scheduler, jobs, made, compiled=mode != "interpreted"),
        **final_state(scheduler, machines),
    )


def _single(job: Job) -> list[Job]:
    """The pods of a gang come one after another, too: nobody leaves, so nothing is gained by waiting for all."""
    if job.pods == 1:
        return [job]
    return [replace(job, name=f"{job.name}.{n}", pods=1) for n in range(job.pods)]


def _columns(
    trace: Trace, scheduler: Scheduler, jobs: Sequence[Job], made: Sequence[Decisions], compiled: bool
) -> dict[str, Column]:
    """One per percent of the capacity that arrivals asked for, as the paper's analysis makes them."""
    if not scheduler.outlook.told:  # the measure is of the trace, whatever the policy knew
        scheduler.outlook.expect(expected(trace, "first-fit"))
    cluster, at, fragmented = fragments.empty_cluster(scheduler), 0, []
    cpu = np.array([job.cpu_milli for job in jobs], dtype=np.int64)
    milli = np.array([job.gpu_milli for job in jobs], dtype=np.int64)
    for part in made:
        here = slice(at, at + len(part))
        fragmented.append(fragments.follow(cluster, part, cpu[here], milli[here], compiled))
        at += len(part)
    demand = np.array([job.gpu_demand_milli for job in jobs], dtype=np.int64)
    placed = np.concatenate([part.rows for part in made]) != NONE
    return columns(demand, placed, np.concatenate(fragmented), trace.gpu_capacity_milli)


def columns(demand: Ints, placed: npt.NDArray[np.bool_], fragmented: Floats, capacity: int) -> dict[str, Column]:
    """Column c is the mean over the arrivals at which demand was c percent; an empty one is its neighbour's."""
    if not len(demand) or not capacity:
        return {}
    used = np.cumsum(np.where(placed, demand, 0))
    allocated = np.round(100 * used / capacity, 2)
    share = 100 * fragmented / capacity
    ratio = 100 * fragmented / np.maximum(1, capacity - used)
    arrived = np.rint(100 * np.cumsum(demand) / capacity).astype(np.int64)
    last = int(arrived[-1])
    times = np.bincount(arrived, minlength=last + 1)
    means = [
        np.bincount(arrived, weights=of, minlength=last + 1) / np.maximum(1, times) for of in (allocated, share, ratio)
    ]
    found = {}
    for c in range(max(last, LAST_COLUMN) + 1):
        near = next((n for n in (c, c + 1, c - 1) if 0 <= n <= last and times[n]), None)
        if near is not None:
            found[str(c)] = Column(*(round(float(mean[near]), 4) for mean in means))
    return found


def final_state(scheduler: Scheduler, machines: Sequence[Machine]) -> dict[str, Any]:
    """What is left in the end, from the ledger itself."""
    rows = scheduler.ledger.rows
    models: dict[str, list[Machine]] = {}
    nodes, idle_nodes = [], 0
    idle: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for i, machine in enumerate(machines):
        models.setdefault(machine.model, []).append(machine)
        taken = (WHOLE - rows.left[i, : machine.gpus]).tolist()
        idle_nodes += not rows.hosts[i].any()
        idle[machine.model] += int((rows.held[i, : machine.gpus, SLOTS] == 0).sum())
        used[machine.model] += sum(taken)
        nodes.append(NodeMap(machine.name, machine.model, taken))
    gpus = {model: sum(machine.gpus for machine in of) for model, of in models.items()}
    return {
        "nodes_free": idle_nodes,
        "gpus_free": idle.total(),
        "models": {
            model: ModelUse(count, round(100 * used[model] / (WHOLE * count), 2), idle[model])
            for model, count in sorted(gpus.items())
            if count
        },
        "map": nodes,
    }
