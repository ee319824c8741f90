"""Koordinator's NodeResourcesFitPlus: pack some resources, spread others, each with its weight.

A resource counts if it is configured and the pod asks for it. A pod that asks for none scores 100 on every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import least, most, refuse_unknown, requested, weight
from dovetail.policies.rows import ColumnOf, Ints, NodePolicy, Rows, Wants

LEAST_ALLOCATED, MOST_ALLOCATED = 0, 1
_TYPES = {"LeastAllocated": LEAST_ALLOCATED, "MostAllocated": MOST_ALLOCATED}


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    total, weight_sum = 0, 0
    for at in range(1, len(args), 3):
        column, direction, weight_of = args[at], args[at + 1], args[at + 2]
        if wants.need[s, column] > 0:
            cap = rows.cap[i, column]
            if cap > 0:
                asked = requested(rows, i, wants, s, column)
                total += (most(asked, cap) if direction == MOST_ALLOCATED else least(asked, cap)) * weight_of
            weight_sum += weight_of
    return float(total // weight_sum) if weight_sum > 0 else 100.0


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("resources",))
    resources = given.get("resources", {})
    if not isinstance(resources, Mapping):
        raise ValueError("resources: expected a mapping from resource name to {type, weight}")
    flat: list[int] = []
    for name in sorted(resources):
        row = resources[name]
        kind = row.get("type") if isinstance(row, Mapping) else None
        if kind not in _TYPES:
            raise ValueError(f"resources.{name}.type: expected MostAllocated or LeastAllocated, got {kind!r}")
        flat += [column(name), _TYPES[kind], weight(f"resources.{name}.weight", row.get("weight", 1))]
    return flat


POLICY = NodePolicy(
    "fit-plus",
    "Koordinator's NodeResourcesFitPlus: pack some resources and spread others, each with a weight.",
    score,
    arguments=arguments,
)
