"""Fill the busiest node first, so that whole nodes stay free (HAMi)."""

from __future__ import annotations

from dovetail.policies.hami_score import node_busyness
from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return node_busyness(rows, i)


POLICY = NodePolicy(
    "binpack", "Fill the busiest node first, so that whole nodes stay free (HAMi).", score, sees_request=False
)
