"""A trace in a few numbers, to compare traces by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.demand import Demand
from dovetail.sim.trace import Job, Trace

JOB_SIZES = ("cpu only", "share", "1 GPU", "2-7 GPUs", "8+ GPUs")


@dataclass(frozen=True, slots=True)
class Summary:
    jobs: int
    pods: int
    machines: int
    gpus: int
    gpu_hours: float  # that jobs ask for; jobs without an end count 0
    hours: float  # from the start of the trace to the last arrival
    load: float | None  # GPU-hours / (GPUs × hours); None without GPUs or without a duration
    sizes: dict[str, int]  # size -> jobs
    tenants: dict[str, int]  # tenant -> jobs, most first
    gangs: int
    constrained: int  # jobs that name GPU models


def size_of(job: Job) -> str:
    """The size class of a job, by the GPUs of all its pods together."""
    gpus = job.gpus * job.pods
    if not gpus:
        return JOB_SIZES[0]
    if gpus == 1:
        return JOB_SIZES[2] if job.gpu_milli == WHOLE_CARD else JOB_SIZES[1]
    return JOB_SIZES[3] if gpus < 8 else JOB_SIZES[4]


def summarise(trace: Trace) -> Summary:
    gpus = sum(machine.gpus for machine in trace.machines)
    demand = Demand(trace.machines)
    gpu_hours = sum(demand.of(job) * (job.duration or 0.0) for job in trace.jobs) / WHOLE_CARD / 3600
    hours = max((job.arrival for job in trace.jobs), default=0.0) / 3600
    counts = Counter(size_of(job) for job in trace.jobs)
    tenants = Counter(job.tenant for job in trace.jobs)
    return Summary(
        jobs=len(trace.jobs),
        pods=sum(job.pods for job in trace.jobs),
        machines=len(trace.machines),
        gpus=gpus,
        gpu_hours=gpu_hours,
        hours=hours,
        load=gpu_hours / (gpus * hours) if gpus and hours else None,
        sizes={size: counts[size] for size in JOB_SIZES},
        tenants={name: tenants[name] for name in sorted(tenants, key=lambda name: (-tenants[name], name))},
        gangs=sum(job.pods > 1 for job in trace.jobs),
        constrained=sum(bool(job.models) for job in trace.jobs),
    )
