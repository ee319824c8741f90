"""Kubernetes' RequestedToCapacityRatio: use mapped through a piecewise linear shape (helper/shape_score.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import is_scored, refuse_unknown, requested, weights
from dovetail.policies.rows import ColumnOf, Ints, NodePolicy, Rows, Wants

# args: draw, number of shape points, (utilization, score × 10) …, (column, weight) …
POINT_COUNT_AT = 1


def shaped(args: Ints, utilization: int) -> int:
    """The score of a utilization: linear between the points, constant outside; `/` truncates toward zero as in Go."""
    count = args[POINT_COUNT_AT]
    for p in range(count):
        at = POINT_COUNT_AT + 1 + 2 * p
        if utilization <= args[at]:
            if p == 0:
                return int(args[at + 1])
            run = args[at] - args[at - 2]
            rise = (args[at + 1] - args[at - 1]) * (utilization - args[at - 2])
            return int(args[at - 1] + (rise // run if rise >= 0 else -(-rise // run)))
    return int(args[POINT_COUNT_AT + 2 * count])


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    total, weight_sum = 0, 0
    for at in range(POINT_COUNT_AT + 1 + 2 * args[POINT_COUNT_AT], len(args), 2):
        column, weight = args[at], args[at + 1]
        if is_scored(rows, i, wants, s, column):
            asked, cap = requested(rows, i, wants, s, column), rows.cap[i, column]
            points = shaped(args, 100 if asked > cap else asked * 100 // cap)
            if points > 0:  # a resource with score 0 counts in neither sum
                total += points * weight
                weight_sum += weight
    return float((2 * total + weight_sum) // (2 * weight_sum)) if weight_sum > 0 else 0.0


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("resources", "shape"))
    shape = given.get("shape", ({"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}))
    points: list[int] = []
    if not isinstance(shape, list | tuple) or not shape:
        raise ValueError("shape: expected a list of {utilization: 0..100, score: 0..10}")
    for n, point in enumerate(shape):
        points += [_within(point, n, "utilization", 100), _within(point, n, "score", 10) * 10]
    if any(a >= b for a, b in zip(points[::2], points[2::2], strict=False)):
        raise ValueError("shape: utilization must rise from point to point")
    return [len(shape), *points, *weights(given, column)]


def _within(point: object, n: int, key: str, highest: int) -> int:
    value = point.get(key) if isinstance(point, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise ValueError(f"shape[{n}].{key}: expected an integer from 0 to {highest}, got {value!r}")
    return value


POLICY = NodePolicy(
    "requested-to-capacity-ratio",
    "Kubernetes' RequestedToCapacityRatio: use mapped through a shape of your own (default: fuller is better).",
    score,
    arguments=arguments,
)
