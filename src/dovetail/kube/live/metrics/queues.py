"""What each queue uses, wants and may have, in the units of Prometheus: GPUs, bytes, cores."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.engine.rights.queues import Queues
from dovetail.model.node import CPU
from dovetail.model.rights import GPU_COMPUTE, GPU_MEMORY, GPUS, gpu_amount
from dovetail.model.units import WHOLE_CARD

MOST_QUEUES = 200
MIB = 2**20
IN_UNITS = {GPUS: 1 / WHOLE_CARD, GPU_COMPUTE: 1 / WHOLE_CARD, GPU_MEMORY: MIB, CPU: 1 / 1000}


def queue_metrics(queues: Queues) -> dict[str, float | dict[tuple[str, ...], float]]:
    """The metrics of queues, by name. The first MOST_QUEUES queues by name are shown."""
    made: dict[str, dict[tuple[str, ...], float]] = {
        f"dovetail_queue_{what}": {} for what in ("used", "wanted", "guarantee", "deserved", "ceiling", "borrowed")
    }
    names = queues.names()
    for name in names[:MOST_QUEUES]:
        status = queues.status(name)
        if status is None:
            continue
        for what, amounts in (
            ("used", status.used),
            ("wanted", status.wanted),
            ("guarantee", status.guarantee),
            ("deserved", status.deserved),
            ("ceiling", queues.ceiling_of(name)),
            ("borrowed", status.borrowed),
        ):
            made[f"dovetail_queue_{what}"].update(_labelled(name, amounts))
    return {**made, "dovetail_queues_left_out": float(max(0, len(names) - MOST_QUEUES))}


def _labelled(queue: str, amounts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {
        (queue, resource): amount * IN_UNITS.get(gpu_amount(resource)[0] or resource, 1)
        for resource, amount in amounts.items()
    }
