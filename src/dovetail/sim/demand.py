"""How much GPU jobs ask for, in milli: the larger of compute and memory."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model.device import type_matches
from dovetail.model.units import WHOLE_CARD
from dovetail.sim.cast import card_memory, model_name
from dovetail.sim.trace import Job, Machine

Models = tuple[str, ...]  # sorted


class Acceptance:
    """Which of a cluster's GPU models a job accepts, by the engine's rule: `A100` accepts `A100-SXM4-80GB`."""

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
    """The GPU demand of jobs in milli.

    The card is not known yet, so memory counts as a part of the largest card that the job accepts.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.acceptance = Acceptance(machines)
        self._memory: dict[str, int] = {}  # model -> MiB of its largest card
        for machine in machines:
            if machine.gpus:
                model = model_name(machine)
                self._memory[model] = max(self._memory.get(model, 0), card_memory(machine))

    def of(self, job: Job) -> int:
        """Milli of all pods of the job."""
        return job.pods * job.gpus * self.share(job)

    def share(self, job: Job) -> int:
        """Milli of each GPU that the job asks for."""
        if not job.gpu_memory_mib or job.gpu_milli >= WHOLE_CARD:
            return job.gpu_milli
        largest = max((self._memory[model] for model in self.acceptance.of(job)), default=0)
        part = -(-job.gpu_memory_mib * WHOLE_CARD // largest) if largest else 0
        return max(job.gpu_milli, min(part, WHOLE_CARD))
