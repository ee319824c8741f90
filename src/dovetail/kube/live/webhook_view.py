"""What the webhook can see of the cluster through the scheduler in whose process it runs.

Only the leader lists nodes and pods. While another replica leads, nothing is known here, and the webhook looks at the
pod alone; the leader applies quotas again when it places the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.kube.live.service import LiveScheduler
from dovetail.model.node import Node
from dovetail.model.pod import Container, ContainerKind, Pod


class LiveCluster:
    """The cluster as the live scheduler knows it."""

    def __init__(self, service: LiveScheduler) -> None:
        self._service = service

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._service.mirror.namespaces.labels_of(name)

    def nodes(self) -> Collection[Node]:
        return self._service.mirror.nodes.values() if self._service.ready else ()

    def over_quota(self, pod: Pod) -> str:
        """As HAMi's webhook: memory in MiB and compute of all cards, against the limits of the namespace."""
        scheduler = self._service.scheduler
        if not self._service.ready or not scheduler.quotas.apply_to(pod):
            return ""
        vendors = scheduler.ledger.intern.vendors
        left = scheduler.quotas.allowance(pod, vendors)
        for vendor, (memory, compute) in asked_in_all(pod).items():
            row = vendors.known(vendor)
            if row is not None and (memory > left[row, 0] or compute > left[row, 1]):
                wants = f"the pod asks for {memory:,} MiB and {compute:,} milli of {vendor}"
                return f"{wants}; {scheduler.quotas.device_limits(pod)}"
        return ""


def asked_in_all(pod: Pod) -> dict[str, tuple[int, int]]:
    """By vendor: MiB and milli of all cards. Init containers run one by one, before the others.

    A percentage is of a card that is not chosen yet, so it counts as no memory, as in HAMi.
    """
    at_once: dict[str, tuple[int, int]] = {}
    alone: list[dict[str, tuple[int, int]]] = []
    for container in pod.containers:
        alone.append(_asked(container))
        if container.kind is not ContainerKind.INIT:
            for vendor, (memory, compute) in alone.pop().items():
                before = at_once.get(vendor, (0, 0))
                at_once[vendor] = (before[0] + memory, before[1] + compute)
    for one in alone:
        for vendor, (memory, compute) in one.items():
            before = at_once.get(vendor, (0, 0))
            at_once[vendor] = (max(before[0], memory), max(before[1], compute))
    return at_once


def _asked(container: Container) -> dict[str, tuple[int, int]]:
    return {ask.vendor: (ask.count * ask.memory_mib, ask.count * ask.compute_milli) for ask in container.asks}
