"""PodDisruptionBudgets (policy/v1), typed: only the fields that we use."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.objects.core import LabelSelector, Meta, Struct

IntOrPercent = int | str  # 2, or "50%"


class PodDisruptionBudgetSpec(Struct, frozen=True):
    selector: LabelSelector | None = None  # None selects no pod
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None


class PodDisruptionBudgetStatus(Struct, frozen=True):
    disruptions_allowed: int = 0
    # By name: pods whose eviction was granted and that still exist.
    disrupted_pods: dict[str, Any] = msgspec.field(default_factory=dict)


class PodDisruptionBudget(Struct, frozen=True):
    metadata: Meta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus | None = None  # None = no controller has seen it: a file
