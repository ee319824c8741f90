"""`preempt`: the victims that kube-scheduler has chosen by CPU, memory and rules, completed by what the cards need.

kube-scheduler tries the end of pods with its own plugins only (pkg/scheduler/framework/preemption). So a node may
still lack the cards: then more pods of the node are stopped, if the engine's rules of preemption allow it, or the
node is left out. A node that lacks nothing but cards is never in the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.extender.protocol import NodeVictims
from dovetail.model.pod import Group, Pod


def with_cards(
    scheduler: Scheduler, group: Group, pod: Pod, victims: Mapping[str, NodeVictims]
) -> dict[str, NodeVictims]:
    """The nodes on which the pod fits once these, and perhaps more, victims have ended."""
    found = {}
    for node, given in victims.items():
        row = scheduler.ledger.row_of.get(node)
        complete = _on_node(scheduler, group, pod, row, given) if row is not None else None
        if complete is not None and complete.uids:  # kube-scheduler takes a node without victims for an error
            found[node] = complete
    return found


def _on_node(scheduler: Scheduler, group: Group, pod: Pod, row: int, given: NodeVictims) -> NodeVictims | None:
    ledger = scheduler.ledger
    with scheduler.trial():
        ledger.release_all([uid for uid in given.uids if uid in ledger.pods])
        if scheduler.placer.single.fits_on(pod, row):
            return given
        more = scheduler.claims.victims_on(group, pod, row)
        name = ledger.nodes[row].name
        if not more or any(one.held.node != name for one in more):  # kube-scheduler stops pods of one node only
            return None
    uids = (*given.uids, *(one.held.pod.uid for one in more))
    return NodeVictims(uids, given.budget_violations + sum(one.breaks_budget for one in more))
