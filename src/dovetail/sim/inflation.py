"""Inflation: pods arrive one after another and stay, until they ask for more than the cluster has (the FGD paper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.stream import Stream
from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Group
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import SLOTS, Floats, Ints
from dovetail.sim import cast, fragments
from dovetail.sim.demand import Demand
from dovetail.sim.load_model import MEASURE_EVERY, LoadModel
from dovetail.sim.orders import Order
from dovetail.sim.profiles import profile_of
from dovetail.sim.results import Column, Inflation, ModelUse, NodeMap
from dovetail.sim.stage import expected, stage
from dovetail.sim.trace import Job, Machine, Trace, TraceError

LAST_COLUMN = 130  # of the FGD paper's analysis
CHUNK = 16_384  # pods per call: Ctrl-C and progress are handled between calls
Progress = Callable[[int], None]


def replay(
    trace: Trace,
    order: Order,
    policy: str,
    told: bool = True,
    mode: str = "compiled",
    progress: Progress | None = None,
) -> Inflation:
    """Make one run. `told`: joint policies are given the typical pods of the trace, otherwise they learn them."""
    arriving, machines = _arriving(trace, order), order.machines(trace)
    jobs = [pod for job in arriving for pod in _single(job)]
    scheduler = stage(trace, machines, policy, told, mode)
    players = cast.cast(jobs, profile_of(policy))
    for template in players.templates:
        scheduler.requests.signature(template)  # intern the requests before the clock starts, as for the nodes
    scheduler.ledger.make_room(len(jobs), sum(max(1, job.gpus) for job in jobs))
    made: list[fragments.DecisionLog] = []
    seconds, done, load = 0.0, 0, LoadModel(scheduler, policy)
    for groups in _portions(arriving, jobs, players, MEASURE_EVERY if load.active else CHUNK):
        load.measure(float(done))
        started = perf_counter()
        decided = scheduler.place(groups)
        seconds += perf_counter() - started
        made.append(fragments.log_of(decided, scheduler.ledger.row_of))
        done += len(decided)
        if progress is not None:
            progress(done)
    demand = _demand(jobs, machines)
    return Inflation(
        trace=trace.name,
        policy=policy,
        seed=order.seed,
        decisions=len(jobs),
        failed=sum(int((part.rows == NONE).sum()) for part in made),
        arrived_pct=round(100 * int(demand.sum()) / (trace.gpu_capacity_milli or 1), 2),
        seconds=seconds,
        decisions_per_second=len(jobs) / seconds if seconds else 0.0,
        columns=_columns(trace, scheduler, jobs, demand, made, compiled=mode != "interpreted"),
        **final_state(scheduler, machines),
    )


def _arriving(trace: Trace, order: Order) -> list[Job]:
    jobs = list(order.jobs(trace))
    if any(job.gang for job in jobs):
        raise TraceError(f"{trace.name}: gangs of several roles need --mode time, as copies of jobs would mix them")
    return jobs


def _single(job: Job) -> list[Job]:
    if job.pods == 1:
        return [job]
    return [replace(job, name=uid, pods=1) for uid in cast.uids(job)]


def _portions(arriving: Sequence[Job], pods: Sequence[Job], players: cast.Cast, size: int) -> Iterator[Sequence[Group]]:
    """The pods in portions of this size.

    Without gangs, a portion is a stream, which is fastest. Of a gang, all pods are placed or none.
    """
    names = [pod.name for pod in pods]
    if len(arriving) == len(pods):
        for start in range(0, len(pods), size):
            part = slice(start, start + size)
            yield Stream(players.templates, players.kinds[part], names[part])
        return
    groups, at = [], 0
    for job in arriving:
        members = range(at, at + job.pods)
        groups.append(cast.group_of(job, [players.templates[players.kinds[n]].named(names[n]) for n in members]))
        at += job.pods
    for start in range(0, len(groups), size):
        yield groups[start : start + size]


def _demand(pods: Sequence[Job], machines: Sequence[Machine]) -> Ints:
    demand = Demand(machines)
    return np.array([demand.of(pod) for pod in pods], dtype=np.int64)


def _columns(
    trace: Trace,
    scheduler: Scheduler,
    jobs: Sequence[Job],
    demand: Ints,
    made: Sequence[fragments.DecisionLog],
    compiled: bool,
) -> dict[str, Column]:
    """One column per percent of the GPU capacity that arrivals asked for, as in the paper's analysis."""
    if not scheduler.outlook.told:  # the measure uses the typical pods of the trace, whatever the policy knew
        scheduler.outlook.expect(expected(trace, "first-fit"))
    cluster, at, fragmented, used = fragments.empty_cluster(scheduler), 0, [], []
    cpu = np.array([job.cpu_milli for job in jobs], dtype=np.int64)
    for part in made:
        here = slice(at, at + len(part.rows))
        fragments_here, used_here = fragments.follow(cluster, part, cpu[here], compiled)
        fragmented.append(fragments_here)
        used.append(used_here)
        at += len(part.rows)
    return columns(demand, np.concatenate(used), np.concatenate(fragmented), trace.gpu_capacity_milli)


def columns(demand: Ints, used: Ints, fragmented: Floats, capacity: int) -> dict[str, Column]:
    """Column c: the mean over the arrivals at which demand was c percent of the capacity.

    A column without arrivals takes the value of a neighbour, or of the column before. One large job can raise the
    demand by several percent, and nothing changes after the last arrival.
    """
    if not len(demand) or not capacity:
        return {}
    allocated = np.round(100 * used / capacity, 2)
    share = 100 * fragmented / capacity
    ratio = 100 * fragmented / np.maximum(1, capacity - used)
    arrived = np.rint(100 * np.cumsum(demand) / capacity).astype(np.int64)
    last = int(arrived[-1])
    times = np.bincount(arrived, minlength=last + 1)
    means = [
        np.bincount(arrived, weights=of, minlength=last + 1) / np.maximum(1, times) for of in (allocated, share, ratio)
    ]
    found: dict[str, Column] = {}
    first = int(np.flatnonzero(times)[0])
    shown = Column(0.0, *(round(float(mean[first]), 4) for mean in means[1:]))  # before the first arrival
    for c in range(max(last, LAST_COLUMN) + 1):
        near = next((n for n in (c, c + 1, c - 1) if 0 <= n <= last and times[n]), None)
        if near is not None:
            shown = Column(*(round(float(mean[near]), 4) for mean in means))
        found[str(c)] = shown
    return found


def final_state(scheduler: Scheduler, machines: Sequence[Machine]) -> dict[str, Any]:
    """The nodes, GPUs and models at the end of a run, read from the ledger."""
    rows = scheduler.ledger.rows
    models: dict[str, list[Machine]] = {}
    nodes, idle_nodes = [], 0
    idle: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for i, machine in enumerate(machines):
        models.setdefault(machine.model, []).append(machine)
        taken = (WHOLE_CARD - rows.left[i, : machine.gpus]).tolist()
        idle_nodes += not rows.hosts[i].any()
        idle[machine.model] += int((rows.held[i, : machine.gpus, SLOTS] == 0).sum())
        used[machine.model] += sum(taken)
        nodes.append(NodeMap(machine.name, machine.model, taken))
    gpus = {model: sum(machine.gpus for machine in of) for model, of in models.items()}
    return {
        "nodes_free": idle_nodes,
        "gpus_free": idle.total(),
        "models": {
            model: ModelUse(count, round(100 * used[model] / (WHOLE_CARD * count), 2), idle[model])
            for model, count in sorted(gpus.items())
            if count
        },
        "map": nodes,
    }
