"""Namespace quotas: what Kubernetes counts per pod, and HAMi's memory and compute over all cards.

Several quotas in one namespace all hold (in HAMi the last one written wins).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.engine.intern import Names
from dovetail.engine.ledger import Ledger
from dovetail.engine.state import UNLIMITED
from dovetail.model.pod import Pod, Quota
from dovetail.policies.rows import Ints


class Quotas:
    def __init__(self, quotas: Sequence[Quota], ledger: Ledger) -> None:
        self._ledger = ledger
        self._of: dict[str, list[Quota]] = {}  # namespace -> its quotas
        for quota in quotas:
            self._of.setdefault(quota.namespace, []).append(quota)

    def __len__(self) -> int:
        return len(self._of)

    def apply_to(self, pod: Pod) -> bool:
        return pod.namespace in self._of

    def refusal(self, pod: Pod) -> str | None:
        """Which quota the pod would break and by how much, as the API server would say at creation."""
        for quota in self._of.get(pod.namespace, ()):
            for resource, hard in sorted(quota.hard.items()):
                asked = pod.quota_use.get(resource, 0)
                used = sum(held.quota_use.get(resource, 0) for held in self._pods(pod.namespace))
                if asked > 0 and used + asked > hard:
                    return f"quota {quota.name}: {resource} requested {asked:,}, used {used:,}, limited to {hard:,}"
        return None

    def left(self, pod: Pod, vendors: Names) -> Ints:
        """[vendor, 2]: MiB and milli that the namespace may still take."""
        left = unlimited(vendors)
        for quota in self._of.get(pod.namespace, ()):
            for column, limits in enumerate((quota.device_memory_mib, quota.device_compute_milli)):
                for vendor, limit in limits.items():
                    row = vendors.known(vendor)
                    if row is not None:
                        used = self._device_use(pod.namespace, vendor)[column]
                        left[row, column] = min(left[row, column], max(0, limit - used))
        return left

    def _pods(self, namespace: str) -> list[Pod]:
        return [held.pod for held in self._ledger.pods.values() if held.pod.namespace == namespace]

    def _device_use(self, namespace: str, vendor: str) -> tuple[int, int]:
        memory = compute = 0
        for held in self._ledger.pods.values():
            if held.pod.namespace == namespace:
                for device, _slots, card_memory, card_compute in self._ledger.peak(held.slot):
                    if device.vendor == vendor:
                        memory += card_memory
                        compute += card_compute
        return memory, compute


def unlimited(vendors: Names) -> Ints:
    return np.full((max(1, len(vendors)), 2), UNLIMITED, dtype=np.int64)
