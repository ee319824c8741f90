"""Kubernetes' MostAllocated: the node with the least left of the requested resources."""

from __future__ import annotations

from dovetail.policies.kube_resources import only_weights, weighted_mean
from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return weighted_mean(rows, i, wants, s, args, True)


POLICY = NodePolicy(
    "most-allocated", "The node with least left, by Kubernetes' MostAllocated formula.", score, arguments=only_weights
)
