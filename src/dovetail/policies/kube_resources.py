"""Kubernetes' resource arithmetic (pkg/scheduler/framework/plugins/noderesources), with the same integer arithmetic.

`requested` counts the incoming pod. For cpu and memory, a container without a request counts as 100m and 200 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.rows import CPU_COLUMN, MEMORY_COLUMN, ColumnOf, Ints, Rows, Wants

DEFAULT_WEIGHTS: Mapping[str, int] = {"cpu": 1, "memory": 1}


def requested(rows: Rows, i: int, wants: Wants, s: int, column: int) -> int:
    """The requests of the node's pods and of this pod together."""
    if column <= MEMORY_COLUMN:  # CPU_COLUMN is 0, MEMORY_COLUMN is 1
        return int(rows.scored[i, column] + wants.scored[s, column])
    return int(rows.used[i, column] + wants.need[s, column])


def is_scored(rows: Rows, i: int, wants: Wants, s: int, column: int) -> bool:
    """Whether the resource counts: cpu and memory always; others if the pod asks for them and the node has them."""
    if rows.cap[i, column] == 0:
        return False
    return column <= MEMORY_COLUMN or wants.need[s, column] > 0


def least(asked: int, cap: int) -> int:
    return 0 if asked > cap else (cap - asked) * 100 // cap


def most(asked: int, cap: int) -> int:
    return min(asked, cap) * 100 // cap


def weighted_mean(rows: Rows, i: int, wants: Wants, s: int, args: Ints, packing: bool) -> float:
    """The weighted mean of `most` or `least` of each resource in args (draw, column, weight, …), in Go's integers."""
    total, weight_sum = 0, 0
    for at in range(1, len(args), 2):
        column, weight_of = args[at], args[at + 1]
        if is_scored(rows, i, wants, s, column):
            asked, cap = requested(rows, i, wants, s, column), rows.cap[i, column]
            total += (most(asked, cap) if packing else least(asked, cap)) * weight_of
            weight_sum += weight_of
    return float(total // weight_sum) if weight_sum > 0 else 0.0


def only_weights(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    """The arguments of a policy that takes only `resources`."""
    refuse_unknown(given, ("resources",))
    return weights(given, column)


def weights(arguments: Mapping[str, Any], column: ColumnOf) -> list[int]:
    """`resources: {cpu: 1, nvidia.com/gpu: 5}` → [column, weight, column, weight, …]."""
    resources = arguments.get("resources", DEFAULT_WEIGHTS)
    if not isinstance(resources, Mapping) or not resources:
        raise ValueError("resources: expected a mapping from resource name to weight, such as {cpu: 1, memory: 1}")
    flat: list[int] = []
    for name in sorted(resources):
        flat += [column(name), weight(f"resources.{name}", resources[name])]
    return flat


def weight(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise ValueError(f"{where}: expected a weight from 1 to 100, got {value!r}")
    return value


def refuse_unknown(arguments: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in arguments:
        if name not in known:
            raise ValueError(f"{name}: no such argument; there is {', '.join(known)}")


assert (CPU_COLUMN, MEMORY_COLUMN) == (0, 1)
