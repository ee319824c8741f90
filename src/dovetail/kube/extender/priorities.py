"""Scores of nodes for kube-scheduler, 0 to 10: the pod's policy, scaled over the nodes that it is asked about."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import Look, with_preferences
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.policies.table import NODE_POLICIES

MAX_EXTENDER_PRIORITY = 10  # k8s.io/kube-scheduler/extender/v1: MaxExtenderPriority
MAX_SCORED = 500  # nodes of one request, each of which takes up to 0.3 ms; beyond, all nodes get 0


def priorities(scheduler: Scheduler, pod: Pod, offered: Sequence[str]) -> dict[str, int]:
    """By node. Nodes that are not for the pod, or that cannot be told apart, get 0."""
    scores = dict.fromkeys(offered, 0)
    ledger = scheduler.ledger
    rows = [(name, ledger.row_of[name]) for name in offered if name in ledger.row_of]
    if not rows or len(rows) > MAX_SCORED:
        return scores
    look = Look(scheduler, pod)
    found = with_preferences(scheduler, pod, tuple(look.node(ledger.nodes[row], row) for _, row in rows))
    sign = -1 if NODE_POLICIES[scheduler.requests.in_force(pod.profile).node].lowest_wins else 1
    fitting = {one.node: sign * (one.score or 0.0) for one in found if one.reason is Reason.OK}
    if not fitting:
        return scores
    low, high = min(fitting.values()), max(fitting.values())
    for node, score in fitting.items():
        scores[node] = (
            MAX_EXTENDER_PRIORITY if high == low else int(MAX_EXTENDER_PRIORITY * (score - low) / (high - low))
        )
    return scores
