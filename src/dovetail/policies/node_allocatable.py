"""scheduler-plugins' NodeResourcesAllocatable: the smallest nodes first, or the largest, whatever is in use.

Source: pkg/noderesources/allocatable.go. The score is the weighted sum of what the node has, then stretched to 0–100.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.rows import ColumnOf, Ints, NodePolicy, Rows, Wants
from dovetail.policies.scaling import normalise

SIZE_WEIGHTS: Mapping[str, int] = {"cpu": 2**20, "memory": 1}  # one milli of CPU counts like one MiB
MAX_WEIGHT = 2**40


def most_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """The weighted size of the node. Upstream divides by the sum of weights, which changes no normalised score."""
    total = 0.0
    for at in range(1, len(args), 2):
        total += float(rows.cap[i, args[at]]) * float(args[at + 1])
    return total


def least_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return -most_score(rows, i, wants, s, args)


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("resources",))
    resources = given.get("resources", SIZE_WEIGHTS)
    if not isinstance(resources, Mapping) or not resources:
        raise ValueError("resources: expected a mapping from name to weight, such as {cpu: 1048576, memory: 1}")
    flat: list[int] = []
    for name in sorted(resources):
        weight = resources[name]
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(f"resources.{name}: expected a weight from 1 to {MAX_WEIGHT}, got {weight!r}")
        flat += [column(name), weight]
    return flat


LEAST_ALLOCATABLE = NodePolicy(
    "least-allocatable",
    "The smallest node first, whatever is in use: large nodes stay free for large pods.",
    least_score,
    normalise=normalise,
    keeps_order=True,
    sees_request=False,
    arguments=arguments,
)
MOST_ALLOCATABLE = NodePolicy(
    "most-allocatable",
    "The largest node first, whatever is in use.",
    most_score,
    normalise=normalise,
    keeps_order=True,
    sees_request=False,
    arguments=arguments,
)
