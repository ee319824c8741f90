"""What the reader of manifests is told beforehand: defaults, the names of policies, and how resources are called."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.kube.vendors import DEFAULT_VENDORS, Vendors
from dovetail.model.pod import DEFAULT_PROFILE, Profile


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile = DEFAULT_PROFILE
    node_policies: frozenset[str] = frozenset({"binpack", "spread"})
    device_policies: frozenset[str] = frozenset({"binpack", "spread", "mutex", "numa", "topology-aware"})
    joint_policies: frozenset[str] = frozenset()  # node policies that choose the GPUs themselves
    vendors: Vendors = DEFAULT_VENDORS
