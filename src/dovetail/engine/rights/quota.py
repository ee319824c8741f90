"""Namespace quotas: what Kubernetes counts per pod, and HAMi's memory and compute over all cards.

Several quotas in one namespace all hold (in HAMi the last one written wins).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dovetail.engine.ledger.in_force import Rule
from dovetail.engine.ledger.intern import Names
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import unlimited
from dovetail.engine.wording import amount_of
from dovetail.model.device import Device
from dovetail.model.pod import Pod, Quota
from dovetail.model.rights import GPU_COMPUTE, GPU_MEMORY
from dovetail.policies.rows import Ints

Held = tuple[Device, int, int, int]  # a card, and what a pod has of it: slots, MiB, milli


class QuotaUse(NamedTuple):
    """One limit of a namespace's quota, and what is in use of it, in the unit of the resource."""

    namespace: str
    quota: str
    resource: str  # as in the ResourceQuota; `gpu-memory/NVIDIA` and `gpu-compute/NVIDIA` for HAMi's limits
    used: int
    hard: int


class Quotas:
    """A witness of the ledger: the pods in namespaces with quotas."""

    def __init__(self, quotas: Sequence[Quota], ledger: Ledger) -> None:
        self._ledger = ledger
        self._of: dict[str, list[Quota]] = {}  # namespace -> its quotas
        self._inside: dict[str, dict[str, None]] = {}  # namespace with quotas -> UIDs in order of arrival
        for quota in quotas:
            self.set(quota)
        ledger.witnesses.append(self)

    def set(self, quota: Quota) -> None:
        """Store a quota that is new or changed."""
        self.drop(quota.namespace, quota.name)
        if quota.namespace not in self._of:
            held, inside = self._ledger.pods, self._inside.setdefault(quota.namespace, {})
            inside.update((uid, None) for uid in held if held.pod(uid).namespace == quota.namespace)
        others = self._of.get(quota.namespace, ())
        self._of[quota.namespace] = sorted((*others, quota), key=lambda one: one.name)  # arrival order does not matter
        self._ledger.attend(self, True)
        self._ledger.in_force.put(Rule.QUOTA, True)

    def drop(self, namespace: str, name: str) -> None:
        left = [quota for quota in self._of.pop(namespace, ()) if quota.name != name]
        if left:
            self._of[namespace] = left
        else:
            self._inside.pop(namespace, None)
        self._ledger.attend(self, bool(self._of))
        self._ledger.in_force.put(Rule.QUOTA, bool(self._of))

    def came(self, pod: Pod, row: int) -> None:
        if pod.namespace in self._inside:
            self._inside[pod.namespace][pod.uid] = None

    def left(self, pod: Pod, row: int) -> None:
        if pod.namespace in self._inside:
            self._inside[pod.namespace].pop(pod.uid, None)

    def clear(self, reserved: Collection[str]) -> None:
        for inside in self._inside.values():
            inside.clear()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, namespace: str) -> bool:
        """Whether the namespace has a quota."""
        return namespace in self._of

    def apply_to(self, pod: Pod) -> bool:
        return pod.namespace in self._of

    def refusal(self, pod: Pod) -> str | None:
        """The quota that the pod would exceed, and by how much, in the API server's words at creation; None = none."""
        for quota in self._of.get(pod.namespace, ()):
            if pod.uid in quota.waiting:
                continue  # the API server has admitted the pod, and counts it already
            for resource, hard in sorted(quota.hard.items()):
                asked = pod.quota_use.get(resource, 0)
                used = self._used(quota, resource)
                if asked > 0 and used + asked > hard:
                    return f"quota {quota.name}: {_sentence(resource, asked, used, hard)}"
        return None

    def allowance(self, pod: Pod, vendors: Names) -> Ints:
        """[vendor, 2]: MiB and milli that the namespace may still use."""
        left = unlimited(vendors)
        for quota in self._of.get(pod.namespace, ()):
            for column, limits in enumerate((quota.device_memory_mib, quota.device_compute_milli)):
                for vendor, limit in limits.items():
                    row = vendors.known(vendor)
                    if row is not None:
                        used = self._device_use(pod.namespace, vendor)[column]
                        left[row, column] = min(left[row, column], max(0, limit - used))
        return left

    def device_limits(self, pod: Pod) -> str:
        """The namespace's limits for cards, and their use: `quota q: NVIDIA memory 6,000 of 8,000 MiB in use`."""
        parts = []
        for quota in self._of.get(pod.namespace, ()):
            for column, (what, unit, limits) in enumerate(
                (("memory", "MiB", quota.device_memory_mib), ("compute", "milli", quota.device_compute_milli))
            ):
                for vendor, limit in sorted(limits.items()):
                    used = self._device_use(pod.namespace, vendor)[column]
                    parts.append(f"quota {quota.name}: {vendor} {what} {used:,} of {limit:,} {unit} in use")
        return "; ".join(parts)

    def uses(self) -> Iterator[QuotaUse]:
        """All limits with what is in use of them, by namespace, quota and resource."""
        for namespace in sorted(self._of):
            for quota in sorted(self._of[namespace], key=lambda one: one.name):
                for resource, hard in sorted(quota.hard.items()):
                    yield QuotaUse(namespace, quota.name, resource, self._used(quota, resource), hard)
                limits = ((GPU_MEMORY, quota.device_memory_mib), (GPU_COMPUTE, quota.device_compute_milli))
                for column, (what, by_vendor) in enumerate(limits):
                    for vendor, hard in sorted(by_vendor.items()):
                        used = self._device_use(namespace, vendor)[column]
                        yield QuotaUse(namespace, quota.name, f"{what}/{vendor}", used, hard)

    def _used(self, quota: Quota, resource: str) -> int:
        """The use by pods that hold a node, and by waiting pods that exist already."""
        held = self._ledger.pods
        placed = (held.pod(uid).quota_use for uid in self._inside[quota.namespace] if uid not in quota.waiting)
        return sum(use.get(resource, 0) for use in (*placed, *quota.waiting.values()))

    def _device_use(self, namespace: str, vendor: str) -> tuple[int, int]:
        memory = compute = 0
        for uid in self._inside[namespace]:
            held = self._ledger.peak(self._ledger.pods.slot_of[uid])
            if len(held) > 1 or (held and not held[0][0].vendor):
                held = _as_many_as_asked(self._ledger.pods.pod(uid), vendor, held)
            for device, _slots, card_memory, card_compute in held:
                if device.vendor in (vendor, ""):
                    memory += card_memory
                    compute += card_compute
        return memory, compute


def _as_many_as_asked(pod: Pod, vendor: str, held: list[Held]) -> list[Held]:
    """The pod's cards of this vendor, at most as many as it asks for, largest first.

    More are booked if its record is not trusted. A card that its node does not register has no vendor: it counts for a
    vendor that the pod asks for.
    """
    asked = sum(ask.count for container in pod.containers for ask in container.asks if ask.vendor == vendor)
    mine = [one for one in held if one[0].vendor in (vendor, "")]
    return mine if len(mine) <= asked else sorted(mine, key=lambda one: one[1:], reverse=True)[:asked]


def _sentence(resource: str, *amounts: int) -> str:
    """`requests.cpu requested 3,000m, used 0m, limited to 2,000m`"""
    counted = resource.removeprefix("requests.").removeprefix("limits.")
    asked, used, hard = (amount_of(counted, amount) for amount in amounts)
    return f"{resource} requested {asked}, used {used}, limited to {hard}"
