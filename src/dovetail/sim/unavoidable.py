"""A lower bound of the GPU-time that is idle while wanted, for any scheduler. docs/time-mode.md has the proof.

For a set of models: compute the most that the jobs that have arrived could allocate at once on these machines. The rest
is certainly idle. Then take the jobs that must be present and ask for no more than this rest. If they do not all fit,
one of them waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import Floats
from dovetail.sim.cast import card_memory, model_name
from dovetail.sim.demand import Acceptance
from dovetail.sim.trace import Job, Machine

Amounts = tuple[int, int, int]  # GPU milli, CPU milli, MiB


def unavoidable(machines: Sequence[Machine], jobs: Sequence[Job]) -> float:
    """The bound in milli of GPUs × seconds. `jobs` are those that run at some time."""
    acceptance = Acceptance(machines)
    asking = [(acceptance.of(job), job) for job in jobs if job.gpus and (job.gpu_milli or job.gpu_memory_mib)]
    if not asking:
        return 0.0
    last = max(job.arrival for job in jobs)
    times = np.unique([moment for _, job in asking for moment in (job.arrival, _gone(job, last))])
    most = np.zeros(len(times))
    for models in sorted({models for models, _ in asking}):
        here = [machine for machine in machines if machine.gpus and model_name(machine) in models]
        some = [(own == models, job) for own, job in asking if not set(own).isdisjoint(models)]
        if any(_leads_by_memory(job, here) for _, job in some):
            # such a job can share a card with one that asks for more compute, and sums of shares do not bound that
            continue
        np.maximum(most, _forced(here, some, times, last), out=most)
    return float(np.dot(most[:-1], np.diff(times)))


def _leads_by_memory(job: Job, machines: Sequence[Machine]) -> bool:
    """True if the job may take a larger part of a card's memory than of its compute."""
    if job.gpu_milli >= WHOLE_CARD or not job.gpu_memory_mib:
        return False
    return -(-job.gpu_memory_mib * WHOLE_CARD // min(map(card_memory, machines))) > job.gpu_milli


def _gone(job: Job, last: float) -> float:
    """The earliest possible end of the job; without a duration, the last arrival."""
    return max(job.arrival, last) if job.duration is None else job.arrival + job.duration


def _amounts(job: Job) -> Amounts:
    return (job.gpu_demand_milli, job.pods * job.cpu_milli, job.pods * job.memory_mib)


def _forced(machines: Sequence[Machine], jobs: Sequence[tuple[bool, Job]], times: Floats, last: float) -> Floats:
    """For each moment, the milli that are idle while wanted. `jobs`: with whether they accept exactly these models."""
    ceiling, crowd = Ceiling(machines), JobsOfModels(machines)
    forced = np.zeros(len(times))
    arrivals, ends = _moments(jobs, times, last)
    for n in range(len(times)):
        for job in ends.get(n, ()):
            crowd.leave(_amounts(job))
        for bound_here, job in arrivals.get(n, ()):
            ceiling.arrive(job)
            if bound_here and _gone(job, last) > job.arrival:
                crowd.join(_amounts(job))
        idle = ceiling.sure_idle()
        if not idle:
            break  # what could run only grows, so idle stays 0
        if crowd.too_many(idle, ceiling.places):
            forced[n] = idle
    return forced


def _moments(
    jobs: Sequence[tuple[bool, Job]], times: Floats, last: float
) -> tuple[dict[int, list[tuple[bool, Job]]], dict[int, list[Job]]]:
    arrivals: dict[int, list[tuple[bool, Job]]] = {}
    ends: dict[int, list[Job]] = {}
    for bound_here, job in jobs:
        arrivals.setdefault(int(np.searchsorted(times, job.arrival)), []).append((bound_here, job))
        if bound_here and _gone(job, last) > job.arrival:
            ends.setdefault(int(np.searchsorted(times, _gone(job, last))), []).append(job)
    return arrivals, ends


class Knapsack:
    """The most GPU that jobs can get within `room` of another resource, if jobs were divisible."""

    def __init__(self, room: int) -> None:
        self._room = room
        # (−cost per milli, cost, milli): the highest cost per milli on top
        self._taken: list[tuple[float, int, int]] = []
        self._cost = self._milli = 0

    def add(self, milli: int, cost: int) -> None:
        heappush(self._taken, (-cost / milli, cost, milli))
        self._cost += cost
        self._milli += milli
        while self._cost - self._taken[0][1] >= self._room and self._taken[0][1]:
            _, cost, milli = heappop(self._taken)
            self._cost -= cost
            self._milli -= milli

    def most(self) -> int:
        """The most milli, rounded up. The job with the highest cost per milli may fit only in part."""
        if self._cost <= self._room:
            return self._milli
        _, cost, milli = self._taken[0]
        return self._milli - (self._cost - self._room) * milli // cost


class Ceiling:
    """The most that the jobs that have arrived can allocate at once."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._kinds = Counter((m.gpus, m.cpu_milli, m.memory_mib) for m in machines)
        self._capacity = sum(machine.gpus for machine in machines) * WHOLE_CARD
        self._by_cpu = Knapsack(sum(machine.cpu_milli for machine in machines))
        self._by_memory = Knapsack(sum(machine.memory_mib for machine in machines))
        self._shares, self._pods = Reach(WHOLE_CARD), Reach(max(gpus for gpus, _, _ in self._kinds) * WHOLE_CARD)
        self._thrifty = [(0, 1), (0, 1)]  # (milli, cost) of the job with the most GPU per CPU, and per memory
        self.places = 0  # the sum over machines, each considered alone

    def arrive(self, job: Job) -> None:
        milli, cpu, memory = _amounts(job)
        self._by_cpu.add(milli, cpu)
        self._by_memory.add(milli, memory)
        news = [self._shares.add(job.gpu_milli), self._pods.add(job.gpus * job.gpu_milli)]
        for n, cost in enumerate((cpu, memory)):
            best, of = self._thrifty[n]
            if milli * of > best * cost:
                self._thrifty[n] = (milli, cost)
                news.append(True)
        if any(news):
            self.places = sum(times * self._on(*kind) for kind, times in self._kinds.items())

    def _on(self, gpus: int, *room: int) -> int:
        """The most on one machine: by single GPUs, by indivisible pods, by its CPU and memory."""
        most = min(gpus * self._shares.below(WHOLE_CARD), self._pods.below(gpus * WHOLE_CARD))
        for has, (milli, cost) in zip(room, self._thrifty, strict=True):
            if cost:
                most = min(most, has * milli // cost)
        return most

    def sure_idle(self) -> int:
        return self._capacity - min(self.places, self._by_cpu.most(), self._by_memory.most())


class Reach:
    """The sums that any number of the known sizes can make, as the bits of an integer."""

    def __init__(self, limit: int) -> None:
        self._limit, self._sums = limit, 1

    def add(self, size: int) -> bool:
        """Add a size. True if new sums become possible."""
        if self._sums >> size & 1 or size > self._limit:
            return False
        step, mask = size, (1 << self._limit + 1) - 1
        while step <= self._limit:
            self._sums |= self._sums << step & mask
            step *= 2
        return True

    def below(self, limit: int) -> int:
        """The largest sum that does not exceed the limit."""
        return (self._sums & (1 << limit + 1) - 1).bit_length() - 1


class JobsOfModels:
    """Jobs that accept exactly these models and must be present, running or waiting, by their GPU demand."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._room = (sum(m.cpu_milli for m in machines), sum(m.memory_mib for m in machines))
        self._there: dict[int, list[int]] = {}  # milli of a job -> milli, CPU and memory of all jobs that ask for it
        self._all = [0, 0, 0]

    def join(self, amounts: Amounts, sign: int = 1) -> None:
        of_size = self._there.setdefault(amounts[0], [0, 0, 0])
        for n, amount in enumerate(amounts):
            of_size[n] += sign * amount
            self._all[n] += sign * amount

    def leave(self, amounts: Amounts) -> None:
        self.join(amounts, -1)

    def too_many(self, size: int, places: int) -> bool:
        """True if the jobs that ask for no more than `size` cannot all run."""
        return self._exceeds(self._all, places) and self._exceeds(
            [sum(column) for column in zip((0, 0, 0), *self._up_to(size), strict=True)], places
        )

    def _up_to(self, size: int) -> Iterator[list[int]]:
        return (amounts for milli, amounts in self._there.items() if milli <= size)

    def _exceeds(self, amounts: Sequence[int], places: int) -> bool:
        return amounts[0] > places or amounts[1] > self._room[0] or amounts[2] > self._room[1]
