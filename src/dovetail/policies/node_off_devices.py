"""Nodes without devices first, then as `kubernetes`: pods that need no device leave room for pods that do."""

from __future__ import annotations

from dovetail.policies import node_kubernetes
from dovetail.policies.kube_resources import only_weights
from dovetail.policies.node_kubernetes import score as kubernetes_score
from dovetail.policies.rows import CARDS, Ints, NodePolicy, Rows, Wants

# More than the sum of kube-scheduler's other scores: taints 3, spread 2, pod affinity 2, images 1, resources 2, each
# times 100. Node affinity is not included: pods that state one are not kept away (kube/conversion/settings.py).
APART = 12 * node_kubernetes.MAX_SCORE


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    away = 0.0 if rows.fact[i, CARDS] > 0 else float(APART)
    return away + kubernetes_score(rows, i, wants, s, args)


POLICY = NodePolicy(
    "off-devices",
    "Nodes without devices first, then as kubernetes: for pods that ask for no device.",
    score,
    arguments=only_weights,
    in_points=True,
)
