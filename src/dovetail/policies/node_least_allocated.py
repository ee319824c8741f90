"""Kubernetes' LeastAllocated: the node with the most left of the requested resources."""

from __future__ import annotations

from dovetail.policies.kube_resources import only_weights, weighted_mean
from dovetail.policies.rows import Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return weighted_mean(rows, i, wants, s, args, False)


POLICY = NodePolicy(
    "least-allocated", "The node with most left, by Kubernetes' LeastAllocated formula.", score, arguments=only_weights
)
