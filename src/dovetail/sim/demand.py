"""How much of a cluster's GPUs jobs ask for, in milli: the larger of what they ask of compute and of memory."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model.device import type_matches
from dovetail.sim.cast import card_memory, model_name
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


class Demand:
    """Memory is a part of a card only once it is known which: it counts as what it is of the largest accepted one."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.acceptance = Acceptance(machines)
        self._memory: dict[str, int] = {}  # model -> MiB of its largest card
        for machine in machines:
            if machine.gpus:
                model = model_name(machine)
                self._memory[model] = max(self._memory.get(model, 0), card_memory(machine))

    def of(self, job: Job) -> int:
        """Of all its pods."""
        return job.pods * job.gpus * self.share(job)

    def share(self, job: Job) -> int:
        """Of each of its GPUs."""
        if not job.gpu_memory_mib or job.gpu_milli >= WHOLE:
            return job.gpu_milli
        largest = max((self._memory[model] for model in self.acceptance.of(job)), default=0)
        part = -(-job.gpu_memory_mib * WHOLE // largest) if largest else 0
        return max(job.gpu_milli, min(part, WHOLE))
