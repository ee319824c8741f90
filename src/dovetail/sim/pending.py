"""GPUs that are idle while a waiting job could use them, if it did not matter where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

from dovetail.model.decision import Share
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import part_left
from dovetail.sim.cast import card_memory, model_name
from dovetail.sim.demand import Demand, Models
from dovetail.sim.trace import Job, Machine


class Sizes:
    """Demands of waiting jobs in milli. Only the smallest is read."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()
        self._heap: list[int] = []  # every size that waits, and some that no longer wait

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


class IdleAndWaiting:
    """Idle milli by model, and waiting jobs by the models they accept.

    A gang counts once, with the demand of all pods.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._demand = Demand(machines)
        self.idle: dict[str, int] = dict.fromkeys(self._demand.acceptance.models, 0)  # model -> milli
        for machine in machines:
            if machine.gpus:
                self.idle[model_name(machine)] += machine.gpus * WHOLE_CARD
        self._held: dict[str, tuple[int, int]] = {}  # card -> compute and memory that pods hold
        self._waiting: dict[Models, Sizes] = {}
        self.jobs = 0  # waiting jobs, including those without GPU

    def add(self, job: Job) -> None:
        self.jobs += 1
        if demand := self._demand.of(job):
            self._waiting.setdefault(self._demand.acceptance.of(job), Sizes()).add(demand)

    def remove(self, job: Job) -> None:
        self.jobs -= 1
        if demand := self._demand.of(job):
            self._waiting[self._demand.acceptance.of(job)].remove(demand)

    def take(self, machine: Machine, shares: Sequence[Share], sign: int = 1) -> None:
        """Add shares of the machine's cards to what pods hold; with sign −1, remove them."""
        memory, model = card_memory(machine), model_name(machine)
        for share in shares:
            compute_held, memory_held = self._held.get(share.uuid, (0, 0))
            before = part_left(WHOLE_CARD, compute_held, memory, memory_held)
            held = (compute_held + sign * share.compute_milli, memory_held + sign * share.memory_mib)
            self._held[share.uuid] = held
            self.idle[model] += part_left(WHOLE_CARD, held[0], memory, held[1]) - before

    def idle_while_wanted(self) -> int:
        """Idle milli of the wanted models.

        Models are wanted if a waiting job accepts them and asks for no more than they have idle in total.
        """
        if not self.jobs:
            return 0
        wanted: set[str] = set()
        for models, sizes in self._waiting.items():
            smallest = sizes.smallest()
            if smallest is not None and smallest <= sum(self.idle[model] for model in models):
                wanted.update(models)
        return sum(self.idle[model] for model in wanted)
