"""Workloads generated from a seed, for users without a trace.

The same parameters give the same bytes on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.arrivals import Rhythm
from dovetail.sim.chance import Chance, Weighted
from dovetail.sim.demand import Demand
from dovetail.sim.shapes import CPU_ONLY, MULTI_GPU, ONE_GPU, SHAPES, SHARE, Kind, Site
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from dovetail.sim.workload import WorkloadParameters

GANG_SIZES = Weighted(((2, 5.0), (4, 3.0), (8, 2.0)))
MULTI_SIGMA = 0.8  # added for jobs of several GPUs, which vary more in length: 2.7 in openb, against 1.9 of all jobs
SWEEP_SIGMA = 0.3  # jobs of one burst are similar
BURST_GAP = 5.0  # seconds between two jobs of a burst, on average
URGENT = 100  # priority
SECOND_MODEL = 0.3  # of the jobs that name a model: the share that accepts a second one

# The tenants, and the factor by which each has more (or fewer) jobs of a kind than others. After the last, the list
# begins again.
TENANTS: tuple[tuple[str, dict[Kind, float]], ...] = (
    ("serving", {SHARE: 3.0}),
    ("research", {ONE_GPU: 3.0}),
    ("training", {MULTI_GPU: 10.0, ONE_GPU: 1.5, CPU_ONLY: 0.2}),
    ("data", {CPU_ONLY: 5.0}),
)


def generate(workload: WorkloadParameters, machines: Sequence[Machine]) -> Trace:
    """A trace on these machines. Its jobs are named in order of arrival."""
    if not machines:
        raise TraceError("the cluster has no machine; add some")
    site = Site(machines)
    if not site.largest and workload.cpu_only < 1:
        raise TraceError("the cluster has no GPU; add machines that have, or set cpu_only to 1")
    chance = Chance(workload.seed)
    bursts = list(_bursts(workload, site, chance))
    span = _span(workload, machines, [job for burst in bursts for job in burst if job.gpus <= site.largest])
    rhythm = Rhythm(workload.rhythm)
    whole = rhythm.amount(span)
    moments = sorted(rhythm.moment(chance.uniform() * whole) for _ in bursts)
    jobs = [job for burst, begin in zip(bursts, moments, strict=True) for job in _arriving(burst, begin, chance)]
    jobs.sort(key=lambda job: job.arrival)
    digits = max(5, len(str(len(jobs))))
    named = (replace(job, name=f"job-{number:0{digits}}") for number, job in enumerate(jobs, 1))
    return Trace(f"generated-{workload.seed}", tuple(machines), tuple(named))


def _bursts(workload: WorkloadParameters, site: Site, chance: Chance) -> Iterator[list[Job]]:
    """Jobs that arrive together; most arrive alone."""
    one, share, many = 1 - workload.cpu_only - workload.share - workload.multi_gpu, workload.share, workload.multi_gpu
    kinds = Weighted(((CPU_ONLY, workload.cpu_only), (SHARE, share), (ONE_GPU, max(one, 0.0)), (MULTI_GPU, many)))
    tenants = {kind: _tenants(workload.tenants, kind) for kind in kinds.items}
    # the probability per arrival, so that the wanted share of jobs (not of arrivals) is in bursts
    burst = workload.bursts / (workload.bursts + (1 - workload.bursts) * workload.burst_size)
    left = workload.jobs
    while left:
        kind = kinds.draw(chance)
        job = replace(_job(kind, workload, site, chance), tenant=tenants[kind].draw(chance))
        size = 1
        if chance.happens(burst):
            size = min(left, 2 + int(chance.exponential(workload.burst_size - 1.5)))
        yield [job, *(_similar(job, workload, chance) for _ in range(size - 1))]
        left -= size


def _tenants(count: int, kind: Kind) -> Weighted[str]:
    """The tenants of one kind of job, with their weights: 1, 1/2, 1/3 and so on, times their factor for this kind."""
    weights = []
    for number in range(count):
        role, bias = TENANTS[number % len(TENANTS)]
        again = number // len(TENANTS)
        weights.append((f"{role}-{again + 1}" if again else role, bias.get(kind, 1.0) / (number + 1)))
    return Weighted(weights)


def _job(kind: Kind, workload: WorkloadParameters, site: Site, chance: Chance) -> Job:
    """A job without name, tenant and arrival.

    Some machine can take each of its pods, and the empty cluster can take all of them.
    """
    shape = SHAPES[kind].draw(chance)
    sigma = workload.sigma + (MULTI_SIGMA if kind == MULTI_GPU and workload.sigma else 0.0)
    job = Job(
        "",
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
        gpus=min(shape.gpus, site.largest),
        gpu_milli=shape.gpu_milli,
        duration=_bounded(chance.lognormal(workload.median_seconds, sigma), workload),
        priority=URGENT if chance.happens(workload.urgent) else 0,
    )
    if job.gpus and chance.happens(workload.constrained):
        job = replace(job, models=_models(job, site, chance))
    if kind == SHARE and chance.happens(workload.gpu_memory):
        job = replace(job, gpu_memory_mib=_gpu_memory(job, site, chance))
    if kind in (ONE_GPU, MULTI_GPU) and chance.happens(workload.gangs):
        job = replace(job, pods=GANG_SIZES.draw(chance))
    job = site.cut_to_fit(job)
    if workload.one_rack and job.pods > 1 and chance.happens(workload.one_rack):
        job = site.cut_to_rack(job)
    if chance.happens(workload.impossible):
        job = replace(job, gpus=site.largest + 1, gpu_milli=WHOLE_CARD, gpu_memory_mib=0, models=(), pods=1)
    return job


def _models(job: Job, site: Site, chance: Chance) -> tuple[str, ...]:
    """One or two models that have enough GPUs in one machine, drawn by the number of their GPUs."""
    choice = Weighted(site.models_with(job.gpus))
    first = choice.draw(chance)
    second = choice.draw(chance) if chance.happens(SECOND_MODEL) else first
    return tuple(sorted({first, second} - {""}))


def _gpu_memory(job: Job, site: Site, chance: Chance) -> int:
    """MiB that a job asks for; 0 if the GPUs' memory is not known.

    It is about the same part of the memory as of the compute, of the smallest GPU that the job accepts.
    """
    smallest = min(machine.gpu_memory_mib for machine in site.hosts(job))
    part = smallest * job.gpu_milli * (0.6 + 0.4 * chance.uniform()) / WHOLE_CARD
    return min(smallest, max(256, int(part) // 256 * 256))


def _similar(job: Job, workload: WorkloadParameters, chance: Chance) -> Job:
    assert job.duration is not None
    return replace(job, duration=_bounded(chance.lognormal(job.duration, SWEEP_SIGMA), workload))


def _bounded(seconds: float, workload: WorkloadParameters) -> float:
    return _to_milliseconds(min(max(seconds, 1.0), workload.longest_seconds))


def _to_milliseconds(seconds: float) -> float:
    return int(seconds * 1000) / 1000


def _span(workload: WorkloadParameters, machines: Sequence[Machine], jobs: Sequence[Job]) -> float:
    """Seconds in which the jobs must arrive to reach the wanted load of GPUs, or of CPUs if no job asks for GPUs."""
    demand = Demand(machines)
    offered = sum(demand.of(job) * (job.duration or 0.0) for job in jobs)
    capacity = sum(machine.gpus for machine in machines) * WHOLE_CARD
    if not offered:
        offered = sum(job.pods * job.cpu_milli * (job.duration or 0.0) for job in jobs)
        capacity = sum(machine.cpu_milli for machine in machines) or 1
    return max(1.0, offered / (capacity * workload.load))


def _arriving(burst: Sequence[Job], begin: float, chance: Chance) -> Iterator[Job]:
    for position, job in enumerate(burst):
        if position:
            begin += chance.exponential(BURST_GAP)
        yield replace(job, arrival=_to_milliseconds(begin))
