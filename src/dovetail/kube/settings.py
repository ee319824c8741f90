"""What the reader of manifests is told beforehand: defaults, the names of policies, and how resources are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.kube.vendors import DEFAULT_VENDORS, Vendors
from dovetail.model.pod import DEFAULT_PROFILE, Profile

WEBHOOK, IGNORE = "hami.io/webhook", "ignore"  # a label of pods and of namespaces (hami.md §1.3)


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile = DEFAULT_PROFILE
    node_policies: frozenset[str] = frozenset({"binpack", "spread"})
    device_policies: frozenset[str] = frozenset({"binpack", "spread", "mutex", "numa", "topology-aware"})
    joint_policies: frozenset[str] = frozenset()  # node policies that choose the GPUs themselves
    vendors: Vendors = DEFAULT_VENDORS

    def under(self, *labels: Mapping[str, str]) -> Settings:
        """For a pod with these labels, its own and its namespace's: HAMi's webhook passes over what says `ignore`."""
        if all(given.get(WEBHOOK) != IGNORE for given in labels):
            return self
        return replace(self, vendors=self.vendors.without_webhook)
