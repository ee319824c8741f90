"""The least busy node first (HAMi). It looks at use, not at replicas: see spread-replicas."""

from __future__ import annotations

from dovetail.policies.hami_score import node_busyness
from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return node_busyness(rows, i)


POLICY = NodePolicy(
    "spread",
    "Take the least busy node first, against contention and for availability (HAMi).",
    score,
    lowest_wins=True,
    sees_request=False,
)
