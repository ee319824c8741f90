"""Queues and quotas of other projects, as custom resources: the fields that we read, with their projects' names.

scheduler-plugins v0.35 and Koordinator v1.8 (ElasticQuota), Volcano v1.15 and KAI v0.16 (Queue).
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from dovetail.kube.objects.core import Meta, Quantities, Struct

SCHEDULER_PLUGINS, KOORDINATOR = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"  # API groups
VOLCANO_GROUP, KAI_GROUP = "scheduling.volcano.sh", "scheduling.run.ai"


class ElasticQuotaSpec(Struct, frozen=True):
    min: Quantities = field(default_factory=dict)
    max: Quantities = field(default_factory=dict)


class ElasticQuotaStatus(Struct, frozen=True):
    used: Quantities = field(default_factory=dict)


class ElasticQuota(Struct, frozen=True):
    metadata: Meta
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class VolcanoGuarantee(Struct, frozen=True):
    resource: Quantities = field(default_factory=dict)


class VolcanoQueueSpec(Struct, frozen=True):
    weight: int = 1
    capability: Quantities = field(default_factory=dict)
    deserved: Quantities = field(default_factory=dict)
    guarantee: VolcanoGuarantee = VolcanoGuarantee()
    parent: str = ""
    priority: int = 0
    reclaimable: bool = True


class VolcanoStatus(Struct, frozen=True):
    """The part of the status that Dovetail writes."""

    allocated: Quantities = field(default_factory=dict)


class VolcanoQueue(Struct, frozen=True):
    metadata: Meta
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoStatus = VolcanoStatus()


class KaiStatus(Struct, frozen=True):
    """The part of the status that Dovetail writes."""

    allocated: Quantities = field(default_factory=dict)
    requested: Quantities = field(default_factory=dict)


class KaiAmounts(Struct, frozen=True):
    """One resource of a KAI queue: GPUs, millicores or megabytes; -1 is unlimited."""

    quota: float = 0
    over_quota_weight: float = 0
    limit: float = 0  # KAI: a limit that is not written is 0, and no pod may run
    lending_limit: float | None = None


class KaiResources(Struct, frozen=True):
    gpu: KaiAmounts = KaiAmounts()
    cpu: KaiAmounts = KaiAmounts()
    memory: KaiAmounts = KaiAmounts()


class KaiQueueSpec(Struct, frozen=True):
    parent_queue: str = ""
    priority: int = 100  # KAI's default
    preempt_min_runtime: str = ""  # a duration of Go: "5m", "1h30m"
    reclaim_min_runtime: str = ""
    resources: KaiResources = KaiResources()


class KaiQueue(Struct, frozen=True):
    metadata: Meta
    spec: KaiQueueSpec = KaiQueueSpec()
    status: KaiStatus = KaiStatus()


QUEUE_KINDS: dict[tuple[str, str], type[Any]] = {
    (SCHEDULER_PLUGINS, "ElasticQuota"): ElasticQuota,
    (KOORDINATOR, "ElasticQuota"): ElasticQuota,
    (VOLCANO_GROUP, "Queue"): VolcanoQueue,
    (KAI_GROUP, "Queue"): KaiQueue,
}
QueueObject = ElasticQuota | VolcanoQueue | KaiQueue
