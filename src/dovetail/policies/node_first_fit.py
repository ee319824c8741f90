"""Baseline: the first node by name that fits."""

from __future__ import annotations

from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0  # all equal: ties go to the smallest name


POLICY = NodePolicy("first-fit", "Baseline: the first node by name that fits.", score, sees_request=False)
