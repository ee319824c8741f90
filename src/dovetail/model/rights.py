"""Disruption budgets and queues: what limits who may be stopped, and how much the pods of a tenant may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.model.relations import Selector

GPUS, GPU_MEMORY, GPU_COMPUTE = "gpus", "gpu-memory", "gpu-compute"  # cards in milli, MiB, milli
GPU_AMOUNTS = (GPUS, GPU_MEMORY, GPU_COMPUTE)


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget, as its controller last reported it."""

    namespace: str
    name: str
    selector: Selector
    allowed: int = 0  # status.disruptionsAllowed: pods that may be stopped now
    disrupted: frozenset[str] = frozenset()  # names of pods that the API server has counted as stopped already


@dataclass(frozen=True, slots=True)
class Queue:
    """A node of the tree of queues. Amounts are by resource name, in the resource's unit (docs/queues.md).

    Beside Kubernetes' resources there are `gpus` (cards in milli), `gpu-memory` (MiB) and `gpu-compute` (milli), and
    each of them for one GPU model: `gpus/A100`, `gpu-memory/T4`.
    """

    name: str  # unique in the tree
    arithmetic: str  # a row of the table of quota policies: who may have how much
    parent: str = ""  # "" = the root
    namespaces: tuple[str, ...] = ()  # whose pods belong here if they name no queue
    guarantee: Mapping[str, int] = field(default_factory=dict)  # `min`, `deserved`, `quota`
    ceiling: Mapping[str, int] = field(default_factory=dict)  # `max`, `capability`, `limit`; no entry = no ceiling
    weight: Mapping[str, int] = field(default_factory=dict)  # for what is left over; no entry: see the arithmetic
    lends: bool = True  # what it does not use may be borrowed
    priority: int = 0
    created: float = 0.0
    preempt_after: float = 0.0  # seconds that a pod runs before a pod of its own queue may take its place
    reclaim_after: float = 0.0  # the same, for pods of other queues
    reserved: Mapping[str, int] = field(default_factory=dict)  # never lent: Volcano's `guarantee`; see the arithmetic


def gpu_amount(resource: str) -> tuple[str, str]:
    """`gpus/A100` -> (`gpus`, `A100`); `gpus` -> (`gpus`, ""). ("", "") for a resource of Kubernetes."""
    kind, _, model = resource.partition("/")
    return (kind, model) if kind in GPU_AMOUNTS else ("", "")
