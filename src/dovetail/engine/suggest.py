"""The smallest single change that would place a pending pod, tried on the ledger before it is said.

In this order: ask for less, fewer cards, drop one constraint, tolerate one taint, another policy, one pod gone, one
more node of a kind that exists. Every suggestion was placed in a transaction that was then undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from dovetail.engine.changes import Change, constraints_dropped, fewer_cards, less, other_policies, taints_tolerated
from dovetail.engine.explain import fits_on
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.node import Node
from dovetail.model.order import NaturalKey, natural
from dovetail.model.pod import Group, Pod

MOST_POD_TRIES = 5_000
MOST_NODE_TRIES = 1_000  # of one policy


@dataclass(frozen=True, slots=True)
class Suggestion:
    kind: str  # less | fewer-cards | drop-constraint | tolerate-taint | policy | pod-gone | more-nodes
    sentence: str
    verified_node: str  # where the engine placed the pod with this change


def suggest(scheduler: Scheduler, group: Group, pod: Pod) -> Suggestion | None:
    """The first change that works, or None. The ledger is as before."""
    if pod.refusal is not None:
        return None
    for kind, tries in (
        ("less", less(pod, lambda changed: _places(scheduler, group, pod, changed))),
        ("fewer-cards", fewer_cards(pod)),
        ("drop-constraint", constraints_dropped(pod)),
        ("tolerate-taint", taints_tolerated(pod, _active_nodes(scheduler))),
        ("policy", other_policies(pod, alone=len(group.pods) == 1)),
    ):
        for change in tries:
            if kind == "policy" and not _policy_may_help(scheduler, group, change.apply(pod)):
                continue
            if node := _places(scheduler, group, pod, change):
                return Suggestion(kind, change.sentence, node)
    return _pod_gone(scheduler, group, pod) or _more_nodes(scheduler, group, pod)


def _policy_may_help(scheduler: Scheduler, group: Group, changed: Pod) -> bool:
    """A kernel takes seconds to compile: for a lone pod the nodes are asked without one first."""
    if len(group.pods) > 1 or scheduler.quotas.apply_to(changed):
        return True
    nodes = [node.name for node in _active_nodes(scheduler) if not changed.node_rules.refusal(node)]
    return fits_on(scheduler, changed, nodes[:MOST_NODE_TRIES])


def try_group(scheduler: Scheduler, group: Group, uid: str) -> Decision | None:
    """What would become of one pod if the group were placed now; nothing is kept."""
    with scheduler.ledger.transaction():
        decisions = scheduler.place((group,))
    return next((decision for decision in decisions if decision.uid == uid), None)


def _places(scheduler: Scheduler, group: Group, pod: Pod, change: Change) -> str | None:
    """The node the pod would get with the change, made to every like member of its group."""
    pods = tuple(
        change.apply(member) if member.uid == pod.uid or member.containers == pod.containers else member
        for member in group.pods
    )
    with scheduler.ledger.transaction():
        if change.for_replicas:
            _change_replicas(scheduler, pod.owner, change)
        decision = try_group(scheduler, replace(group, pods=pods), pod.uid)
    return decision.node if decision is not None else None


def _change_replicas(scheduler: Scheduler, owner: str, change: Change) -> None:
    """Those of a workload that have their places get the change where they are: they share the template."""
    ledger = scheduler.ledger
    for uid in [uid for uid in ledger.pods if owner and ledger.pods.pod(uid).owner == owner]:
        held, node = ledger.pods[uid], ledger.node_of(uid)
        shares = ledger.shares(held.slot)
        ledger.release(uid)
        ledger.book_observed(change.apply(held.pod), node, shares, held.assumed)


def _active_nodes(scheduler: Scheduler) -> list[Node]:
    ledger = scheduler.ledger
    return [ledger.nodes[row] for _, row in sorted(ledger.row_of.items()) if ledger.is_active(row)]


def _pod_gone(scheduler: Scheduler, group: Group, pod: Pod) -> Suggestion | None:
    """The least important pod whose place would do, the smallest first among equals."""
    ledger = scheduler.ledger
    allowed = {node.name for node in _active_nodes(scheduler) if not pod.node_rules.refusal(node)}

    def cost(uid: str) -> tuple[int, int, int, NaturalKey]:
        held = ledger.pods[uid]
        shares = ledger.shares(held.slot)
        return held.pod.priority, len(shares), sum(share.memory_mib for share in shares), natural(held.pod.key)

    def helps_anywhere(victim: Pod) -> bool:
        """A lone pod finds no node but the one that changed, unless a quota or the other pods kept it out."""
        shared = victim.namespace == pod.namespace and scheduler.quotas.apply_to(pod)
        return shared or scheduler.related.wakes(pod, victim)

    for uid in sorted(ledger.pods, key=cost)[:MOST_POD_TRIES]:
        node, victim = ledger.node_of(uid), ledger.pods.pod(uid)
        anywhere = helps_anywhere(victim)
        if node not in allowed and not anywhere:
            continue
        with ledger.transaction():
            ledger.release(uid)
            may_help = anywhere or len(group.pods) > 1 or fits_on(scheduler, pod, (node,))
            decision = try_group(scheduler, group, pod.uid) if may_help else None
        if decision is not None and decision.placed:
            return Suggestion(
                "pod-gone", f"if pod {victim.key} (priority {victim.priority}) left node {node}", str(decision.node)
            )
    return None


def _more_nodes(scheduler: Scheduler, group: Group, pod: Pod) -> Suggestion | None:
    """One more node like one that exists, empty; the one with fewest cards first."""
    for like in _kinds(scheduler):
        twin = _empty_twin(like)
        scheduler.ledger.set_node(twin)
        try:
            decision = try_group(scheduler, group, pod.uid)
        finally:
            scheduler.ledger.remove_node(twin.name)
        if decision is not None and decision.placed:
            cards = f" ({len(like.devices)} × {like.devices[0].model})" if like.devices else ""
            where = str(decision.node) if decision.node != twin.name else f"a new node like {like.name}"
            return Suggestion("more-nodes", f"with one more node like {like.name}{cards}", where)
    return None


def _kinds(scheduler: Scheduler) -> Iterator[Node]:
    seen = set()
    for node in sorted(_active_nodes(scheduler), key=lambda n: (len(n.devices), n.name)):
        labels = tuple(sorted((k, v) for k, v in node.labels.items() if v != node.name))
        cards = tuple((d.model, d.memory_mib, d.slots) for d in node.devices)
        kind = (tuple(sorted(node.allocatable.items())), cards, node.taints, node.enforcer, labels)
        if kind not in seen:
            seen.add(kind)
            yield node


def _empty_twin(like: Node) -> Node:
    """A new machine of that kind: other name and UUIDs, everything healthy, nobody there."""
    name = f"{like.name} (one more)"
    devices = tuple(
        msgspec.structs.replace(device, uuid=f"{name}/{n}", healthy=True, cordoned=False)
        for n, device in enumerate(like.devices)
    )
    labels = {key: name if value == like.name else value for key, value in like.labels.items()}
    return replace(like, name=name, devices=devices, labels=labels, unschedulable=False)
