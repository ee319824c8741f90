"""GPUs that are idle while somebody waits who could use them, did their places not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

from dovetail.model.device import type_matches
from dovetail.sim.cast import model_name
from dovetail.sim.trace import WHOLE, Job, Machine

Models = tuple[str, ...]  # sorted


class Acceptance:
    """Which of a cluster's models jobs accept, by the engine's rule: `A100` accepts `A100-SXM4-80GB`."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.models: Models = tuple(sorted({model_name(machine) for machine in machines if machine.gpus}))
        self._known: dict[tuple[str, ...], Models] = {(): self.models}

    def of(self, job: Job) -> Models:
        known = self._known.get(job.models)
        if known is None:
            known = tuple(m for m in self.models if any(type_matches(m, wanted) for wanted in job.models))
            self._known[job.models] = known
        return known


class Sizes:
    """Demands that wait, in milli. Only the smallest is ever asked for."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()
        self._heap: list[int] = []  # every size that waits, and some that no longer do

    def add(self, size: int) -> None:
        if not self._times[size]:
            heappush(self._heap, size)
        self._times[size] += 1

    def remove(self, size: int) -> None:
        self._times[size] -= 1

    def smallest(self) -> int | None:
        while self._heap and not self._times[self._heap[0]]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class Pending:
    """What is idle by model, and who waits by the models they accept. Gangs count as one, by the demand of all pods."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._acceptance = Acceptance(machines)
        self.idle: dict[str, int] = dict.fromkeys(self._acceptance.models, 0)  # model -> milli
        for machine in machines:
            if machine.gpus:
                self.idle[model_name(machine)] += machine.gpus * WHOLE
        self._waiting: dict[Models, Sizes] = {}
        self.jobs = 0  # that wait, with those that ask for no GPU

    def add(self, job: Job) -> None:
        self.jobs += 1
        if job.gpu_demand_milli:
            self._waiting.setdefault(self._acceptance.of(job), Sizes()).add(job.gpu_demand_milli)

    def remove(self, job: Job) -> None:
        self.jobs -= 1
        if job.gpu_demand_milli:
            self._waiting[self._acceptance.of(job)].remove(job.gpu_demand_milli)

    def idle_while_wanted(self) -> int:
        """Milli idle of the models that somebody accepts who asks for no more than these models have idle in total."""
        if not self.jobs:
            return 0
        wanted: set[str] = set()
        for models, sizes in self._waiting.items():
            smallest = sizes.smallest()
            if smallest is not None and smallest <= sum(self.idle[model] for model in models):
                wanted.update(models)
        return sum(self.idle[model] for model in wanted)
