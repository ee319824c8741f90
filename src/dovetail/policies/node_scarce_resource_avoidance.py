"""Koordinator's ScarceResourceAvoidance: pods keep off nodes with scarce resources that they do not ask for.

Source: pkg/scheduler/plugins/scarceresourceavoidance. Types of resource are counted, not amounts. All resources that
are counted by cards, such as nvidia.com/gpu and nvidia.com/gpumem, are one type: a node has cards or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.rows import (
    CARDS,
    FIRST_ASK,
    LAST_ASK,
    PODS_COLUMN,
    ColumnOf,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

DEFAULT_SCARCE = ("nvidia.com/gpu",)


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """100 × the part of the resources not asked for that is not scarce; 100 if none of them is scarce."""
    unasked, scarce = 0, 0
    if rows.fact[i, CARDS] > 0 and wants.shape[s, FIRST_ASK] == wants.shape[s, LAST_ASK]:
        unasked += 1
        for at in range(1, len(args)):
            if rows.enforced[args[at]] == 0:
                scarce = 1
    for r in range(rows.cap.shape[1]):
        if r == PODS_COLUMN or rows.enforced[r] == 0 or rows.cap[i, r] == 0 or wants.need[s, r] > 0:
            continue
        unasked += 1
        for at in range(1, len(args)):
            if args[at] == r:
                scarce += 1
    return float((unasked - scarce) * 100 // unasked) if scarce > 0 else 100.0


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("resources",))
    names = given.get("resources", DEFAULT_SCARCE)
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("resources: expected a list of resource names, such as [nvidia.com/gpu]")
    return [column(name) for name in sorted(set(names))]


POLICY = NodePolicy(
    "scarce-resource-avoidance",
    "Nodes without scarce resources first, such as GPUs that the pod does not ask for.",
    score,
    arguments=arguments,
)
