"""The sum of Kubernetes' two resource scores, as in kube-scheduler: LeastAllocated and BalancedAllocation."""

from __future__ import annotations

import math

from dovetail.policies.kube_resources import is_scored, only_weights, weighted_mean
from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants

MAX_SCORE = 100  # the highest value of one score (fwk.MaxNodeScore)


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return weighted_mean(rows, i, wants, s, args, False) + float(balance(rows, i, wants, s, args))


def balance(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> int:
    """50 to 100: how much more evenly the node is used with the pod than without it (balanced_allocation.go, 1.36).

    0 for a pod that asks for none of the resources: kube-scheduler skips the score.
    """
    asked = 0
    for at in range(1, len(args), 2):
        asked += wants.need[s, args[at]]
    if asked == 0:
        return 0
    change = evenness(rows, i, wants, s, args, 1) - evenness(rows, i, wants, s, args, 0)
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + change) // 2  # change is at least -50: nothing negative is divided


def evenness(rows: Rows, i: int, wants: Wants, s: int, args: Ints, pods: int) -> int:
    """100 × (1 - standard deviation of the parts in use), with `pods` more pods of this request."""
    count, total, before, last = 0, 0.0, 0.0, 0.0
    for at in range(1, len(args), 2):
        if is_scored(rows, i, wants, s, args[at]):
            before, last = last, part_in_use(rows, i, wants, s, args[at], pods)
            total += last
            count += 1
    deviation = 0.0
    if count == 2:
        deviation = abs((before - last) / 2.0)
    elif count > 2:
        mean, squares = total / count, 0.0
        for at in range(1, len(args), 2):
            if is_scored(rows, i, wants, s, args[at]):
                off = part_in_use(rows, i, wants, s, args[at], pods) - mean
                squares += off * off
        deviation = math.sqrt(squares / count)
    return int((1.0 - deviation) * MAX_SCORE)


def part_in_use(rows: Rows, i: int, wants: Wants, s: int, column: int, pods: int) -> float:
    """The part of the resource in use, by real requests: only LeastAllocated fills in defaults for missing ones."""
    used = float(rows.used[i, column] + pods * wants.need[s, column])
    return min(1.0, used / float(rows.cap[i, column]))


POLICY = NodePolicy(
    "kubernetes",
    "kube-scheduler's default: LeastAllocated plus BalancedAllocation.",
    score,
    arguments=only_weights,
    in_points=True,
)
