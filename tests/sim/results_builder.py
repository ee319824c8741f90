"""Results as replays make them, without a replay: curves that saturate, queues that grow by day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import msgspec

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.results import Column, Delays, Inflation, ModelUse, NodeMap, Result, Sample, Timed, Usage

OPENB = {"G2": (549, 8), "T4": (421, 2), "G3": (39, 8), "P100": (133, 2), "V100M32": (51, 4), "V100M16": (20, 8)}
SMALL = {"A100": (4, 8), "T4": (6, 2)}
QUALITY = {"best-fit": 93.9, "snug": 95.0, "fgd": 94.6, "spread": 91.2, "random": 90.4}  # policy -> % it can place
Models = dict[str, tuple[int, int]]  # model -> nodes, GPUs of each


def inflation(
    policy: str = "best-fit", seed: int = 42, trace: str = "openb", models: Models = OPENB, last: int = 130
) -> Inflation:
    """Allocation follows demand, then bends towards what the policy can place."""
    chance = Random(f"{trace} {seed}")  # what the seeds have in common is common to all policies
    luck = chance.gauss(0, 0.35) + Random(f"{trace} {seed} {policy}").gauss(0, 0.12)
    ceiling = min(99.9, QUALITY.get(policy, 93.0) + luck)
    columns = {str(at): _column(at, ceiling) for at in range(last + 1)}
    nodes = _map(Random(f"{trace} {seed} {policy} map"), models, ceiling)
    failed = round((last - columns[str(last)].allocated_pct) * 21.4)
    return Inflation(
        trace=trace,
        policy=policy,
        seed=seed,
        decisions=8152,
        failed=failed,
        arrived_pct=float(last),
        seconds=1.25,
        decisions_per_second=6521.6,
        columns=columns,
        nodes_free=sum(not any(node.gpus) for node in nodes),
        gpus_free=sum(milli == 0 for node in nodes for milli in node.gpus),
        models=_use(nodes),
        map=nodes,
    )


def _column(arrived: int, ceiling: float) -> Column:
    """A smooth minimum of what arrived and what fits."""
    sharpness = 0.35
    allocated = -math.log(math.exp(-sharpness * arrived) + math.exp(-sharpness * ceiling)) / sharpness
    allocated = max(0.0, allocated)
    idle = 100 - allocated
    ratio = 0.06 + 0.92 * (allocated / ceiling) ** 9
    return Column(round(allocated, 4), round(idle * ratio, 4), round(100 * ratio, 4))


def _map(chance: Random, models: Models, ceiling: float) -> list[NodeMap]:
    nodes = []
    for model, (count, gpus) in models.items():
        full = ceiling / 100 - chance.uniform(0.04, 0.1)
        for at in range(count):
            busy = chance.random() > 0.012
            milli = [_milli(chance, full) if busy else 0 for _ in range(gpus)]
            nodes.append(NodeMap(f"openb-node-{model.lower()}-{at:04}", model, milli))
    return nodes


def _milli(chance: Random, full: float) -> int:
    roll = chance.random()
    if roll < full:
        return WHOLE_CARD
    return chance.randrange(250, WHOLE_CARD, 10) if roll < full + (1 - full) * 0.8 else 0


def _use(nodes: Sequence[NodeMap]) -> dict[str, ModelUse]:
    cells: dict[str, list[int]] = {}
    for node in nodes:
        cells.setdefault(node.model, []).extend(node.gpus)
    return {
        model: ModelUse(len(milli), 100 * sum(milli) / WHOLE_CARD / len(milli), milli.count(0))
        for model, milli in cells.items()
    }


def timed(
    policy: str = "best-fit",
    seed: int = 42,
    trace: str = "philly",
    models: Models = SMALL,
    queue: str = "backfill",
) -> Timed:
    """A week: demand follows the day, what does not fit waits."""
    chance = Random(f"{trace} {seed}")
    ceiling = QUALITY.get(policy, 93.0) + chance.gauss(0, 0.3) - (3 if queue == "strict" else 0)
    samples, backlog, idle = [], 0.0, 0.0
    gpus = sum(count * each for count, each in models.values())
    for step in range(7 * 96):
        hour = step / 4
        demand = 72 + 34 * math.sin((hour - 8) / 24 * 2 * math.pi) + chance.gauss(0, 3)
        demand = demand if hour < 150 else 0.0
        used = max(0.0, min(ceiling, demand + backlog))
        backlog = max(0.0, backlog + demand - used)
        idle += (100 - used) / 100 * gpus / 4 if backlog > 1 else 0
        samples.append(Sample(step * 900.0, round(used, 3), round(backlog * 1.7)))
    end = 7 * 24 * 3600.0
    capacity = gpus * end / 3600
    nodes = _map(Random(f"{trace} {seed} {policy} map"), models, ceiling)
    wait = 40 * (100 - ceiling) ** 2
    return Timed(
        trace=trace,
        policy=policy,
        seed=seed,
        queue=queue,
        events=24000,
        seconds=2.5,
        decisions_per_second=9600.0,
        jobs=12000,
        finished=11990,
        never_placed=10,
        makespan=end - 60 * ceiling,
        delays=_delays(12000, wait),
        by_tenant={
            f"team-{name}": _usage(1000 * (9 - at), wait * (0.6 + 0.2 * at), capacity) for at, name in enumerate("abcd")
        },
        by_size={
            size: _usage(jobs, wait * factor, capacity)
            for size, jobs, factor in (
                ("cpu only", 2000, 0.05),
                ("share", 4000, 0.3),
                ("1 GPU", 4200, 0.8),
                ("2-7 GPUs", 1300, 2.1),
                ("8+ GPUs", 500, 4.4),
            )
        },
        hours_capacity=capacity,
        hours_allocated=math.fsum(sample.allocated_pct for sample in samples) / len(samples) / 100 * capacity,
        hours_idle_while_wanted=idle,
        hours_idle_while_wanted_bound=idle * (100 - 97) / (100 - ceiling) * 0.8,
        samples=samples,
        nodes_free=sum(not any(node.gpus) for node in nodes),
        gpus_free=sum(milli == 0 for node in nodes for milli in node.gpus),
        frag_pct=round(0.7 * (100 - ceiling), 4),
        frag_ratio_pct=70.0,
        models=_use(nodes),
        map=nodes,
    )


def _delays(jobs: int, wait: float) -> Delays:
    return Delays(
        jobs=jobs,
        started=jobs - 1,
        mean=wait,
        p50=wait * 0.3,
        p95=wait * 4.1,
        p99=wait * 7.5,
        longest=wait * 16,
        completion_mean=wait + 5400,
        completion_p95=wait * 4.1 + 31000,
    )


def _usage(jobs: int, wait: float, capacity: float) -> Usage:
    """More jobs are given more hours."""
    share = jobs / 500
    return Usage(**msgspec.structs.asdict(_delays(jobs, wait)), gpu_hours=share / 100 * capacity, gpu_hours_pct=share)


def inflations(policies: Sequence[str], seeds: Sequence[int], *traces: str, models: Models = OPENB) -> list[Result]:
    """Every trace × policy × seed."""
    return [
        inflation(policy, seed, trace, models)
        for trace in traces or ("openb",)
        for policy in policies
        for seed in seeds
    ]


def timeds(policies: Sequence[str], seeds: Sequence[int], *traces: str) -> list[Result]:
    return [timed(policy, seed, trace) for trace in traces or ("philly",) for policy in policies for seed in seeds]
