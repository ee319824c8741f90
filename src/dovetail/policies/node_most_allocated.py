"""Kubernetes' MostAllocated: the node with least left of what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import is_scored, most, refuse_unknown, requested, weights
from dovetail.policies.rows import ColumnOf, Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    total, weight_sum = 0, 0
    for at in range(1, len(args), 2):
        column, weight = args[at], args[at + 1]
        if is_scored(rows, i, wants, s, column):
            total += most(requested(rows, i, wants, s, column), rows.cap[i, column]) * weight
            weight_sum += weight
    return float(total // weight_sum) if weight_sum > 0 else 0.0


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("resources",))
    return weights(given, column)


POLICY = NodePolicy(
    "most-allocated", "The node with least left, by Kubernetes' MostAllocated formula.", score, arguments=arguments
)
