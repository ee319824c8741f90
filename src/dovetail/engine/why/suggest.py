"""Changes that would place a pending pod: each is tried on the ledger, and undone, before it is suggested.

Kinds of changes are tried in order of cost for the user. Of each kind the first that works is suggested, and no amount
below `changes.LEAST_PART` of what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.changes import (
    CONDITION_TAINTS,
    SuggestedChange,
    constraints_dropped,
    fewer_cards,
    least,
    less,
    other_models,
    other_policies,
    taints_tolerated,
)
from dovetail.engine.why.explain import fits_on
from dovetail.model.decision import Decision
from dovetail.model.node import Node
from dovetail.model.order import NaturalKey, natural
from dovetail.model.pod import Group, Pod
from dovetail.model.rules import CORDON_TAINT

MOST_ALTERNATIVES = 3
MOST_POD_TRIES = 5_000
MOST_NODE_TRIES = 1_000  # per policy
MOST_CORDONED_TRIES = 200  # nodes that are cordoned or have cordoned cards


@dataclass(frozen=True, slots=True)
class Suggestion:
    kind: str  # one of SUGGESTION_KINDS
    sentence: str
    verified_node: str  # the node on which the engine placed the pod with this change


def alternatives(scheduler: Scheduler, group: Group, pod: Pod, most: int = MOST_ALTERNATIVES) -> tuple[Suggestion, ...]:
    """Changes that work, at most one of a kind, cheapest for the user first. The ledger is as before."""
    if pod.refusal is not None:
        return ()
    with scheduler.without_trace():
        found = (next(search(scheduler, group, pod), None) for search in _SEARCHES.values())
        return tuple(islice((one for one in found if one is not None), most))


Search = Callable[[Scheduler, Group, Pod], Iterator[Suggestion]]


def _tried(kind: str, changes: Callable[[Scheduler, Group, Pod], Iterator[SuggestedChange]]) -> Search:
    """A search over changes to the pod: yields those that place it."""

    def search(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[Suggestion]:
        for change in changes(scheduler, group, pod):
            if kind == "policy" and not _policy_may_help(scheduler, group, change.apply(pod)):
                continue
            if node := _places(scheduler, group, pod, change):
                yield Suggestion(kind, change.sentence, node)

    return search


def _less(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[SuggestedChange]:
    biggest: dict[str, int] = {}  # vendor -> MiB of its largest card that the pod accepts
    for node in active_nodes(scheduler):
        for device in node.devices:
            if pod.rules_for(device.vendor).accepts(device.model):
                biggest[device.vendor] = max(device.memory_mib, biggest.get(device.vendor, 0))
    return less(pod, lambda changed: _places(scheduler, group, pod, changed), biggest)


def _models(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[SuggestedChange]:
    there: dict[str, set[str]] = {}  # vendor -> models
    for node in active_nodes(scheduler):
        for device in node.devices:
            there.setdefault(device.vendor, set()).add(device.model)
    return other_models(pod, {vendor: sorted(models) for vendor, models in there.items()})


def _policy_may_help(scheduler: Scheduler, group: Group, changed: Pod) -> bool:
    """Whether another policy may help. A kernel takes seconds to compile, so nodes are checked without one first."""
    if len(group.pods) > 1 or scheduler.quotas.apply_to(changed):
        return True
    nodes = [node.name for node in active_nodes(scheduler) if not changed.node_rules.refusal(node.static)]
    return fits_on(scheduler, changed, nodes[:MOST_NODE_TRIES])


def try_group(scheduler: Scheduler, group: Group, uid: str) -> Decision | None:
    """The decision for one pod if the group were placed now; everything is undone."""
    with scheduler.ledger.transaction():
        decisions = scheduler.place((group,))
    return next((decision for decision in decisions if decision.uid == uid), None)


def _places(scheduler: Scheduler, group: Group, pod: Pod, change: SuggestedChange) -> str | None:
    """The node that the pod would get with the change, which also applies to equal members of its group."""
    pods = tuple(
        change.apply(member) if member.uid == pod.uid or member.containers == pod.containers else member
        for member in group.pods
    )
    with scheduler.ledger.transaction():
        if change.for_replicas:
            _change_replicas(scheduler, pod.owner, change)
        decision = try_group(scheduler, replace(group, pods=pods), pod.uid)
    return decision.node if decision is not None else None


def _change_replicas(scheduler: Scheduler, owner: str, change: SuggestedChange) -> None:
    """Apply the change to placed pods of a workload, in their places: they share the template."""
    ledger = scheduler.ledger
    for uid in [uid for uid in ledger.pods if owner and ledger.pods.pod(uid).owner == owner]:
        held, node = ledger.pods[uid], ledger.node_of(uid)
        shares = ledger.shares(held.slot)
        ledger.release(uid)
        ledger.book_observed(change.apply(held.pod), node, shares, held.assumed)


def active_nodes(scheduler: Scheduler) -> list[Node]:
    ledger = scheduler.ledger
    return [ledger.nodes[row] for _, row in sorted(ledger.row_of.items()) if ledger.is_active(row)]


def fewer_members(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[Suggestion]:
    """A smaller minimum: as many members as fit now."""
    if group.minimum < 2:
        return
    with scheduler.ledger.transaction():
        decisions = scheduler.place((replace(group, minimum=1),))
    placed = [str(decision.node) for decision in decisions if decision.placed]
    members = group.running + len(placed)
    if placed and least(group.minimum) <= members < group.minimum:
        yield Suggestion("min-member", f"lower minMember of {group.title} from {group.minimum} to {members}", placed[0])


def _uncordon(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[Suggestion]:
    """Uncordon one node, one card, or all cordoned cards of a node."""
    cordoned = [node for node in active_nodes(scheduler) if node.unschedulable or any(d.cordoned for d in node.devices)]
    for node in cordoned[:MOST_CORDONED_TRIES]:
        for sentence, changed in _back_in_use(node):
            if pod.node_rules.refusal(changed.static):
                continue
            with _instead(scheduler, changed):
                decision = try_group(scheduler, group, pod.uid)
            if decision is not None and decision.placed:
                yield Suggestion("uncordon", sentence, str(decision.node))


def _back_in_use(node: Node) -> Iterator[tuple[str, Node]]:
    if node.unschedulable:
        taints = tuple(taint for taint in node.taints if taint != CORDON_TAINT)
        yield f"uncordon node {node.name}", replace(node, unschedulable=False, taints=taints)
    cards = [device.uuid for device in node.devices if device.cordoned]
    for uuids in ([uuid] for uuid in cards):
        yield _cards_back(node, uuids)
    if len(cards) > 1:
        yield _cards_back(node, cards)


def _cards_back(node: Node, uuids: list[str]) -> tuple[str, Node]:
    devices = tuple(
        msgspec.structs.replace(device, cordoned=False) if device.uuid in uuids else device for device in node.devices
    )
    return f"uncordon GPU {', '.join(uuids)} of node {node.name}", replace(node, devices=devices)


@contextmanager
def _instead(scheduler: Scheduler, changed: Node) -> Iterator[None]:
    """Replace the node by another version, until the end of the block."""
    ledger = scheduler.ledger
    before = ledger.nodes[ledger.row_of[changed.name]]
    ledger.set_node(changed)
    try:
        yield
    finally:
        ledger.set_node(before)


def _pod_gone(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[Suggestion]:
    """The least important pod whose place is enough; among equals the smallest first."""
    ledger = scheduler.ledger
    allowed = {node.name for node in active_nodes(scheduler) if not pod.node_rules.refusal(node.static)}

    def cost(uid: str) -> tuple[int, int, int, NaturalKey]:
        held = ledger.pods[uid]
        shares = ledger.shares(held.slot)
        return held.pod.priority, len(shares), sum(share.memory_mib for share in shares), natural(held.pod.key)

    def helps_anywhere(victim: Pod) -> bool:
        """Whether the pod may fit on a node other than the victim's: by a shared quota, or rules between pods."""
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
            sentence = f"if pod {victim.key} (priority {victim.priority}) left node {node}"
            yield Suggestion("pod-gone", sentence, str(decision.node))


def _more_nodes(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[Suggestion]:
    """One more empty node like an existing one; the one with the fewest cards first."""
    for like in _kinds(scheduler):
        twin = _empty_twin(like)
        with _one_more(scheduler, twin):
            decision = try_group(scheduler, group, pod.uid)
        if decision is not None and decision.placed:
            cards = f" ({len(like.devices)} × {like.devices[0].model})" if like.devices else ""
            where = str(decision.node) if decision.node != twin.name else f"a new node like {like.name}"
            yield Suggestion("more-nodes", f"with one more node like {like.name}{cards}", where)


@contextmanager
def _one_more(scheduler: Scheduler, node: Node) -> Iterator[None]:
    """Add a node until the end of the block; afterwards the ledger has no trace of it."""
    ledger = scheduler.ledger
    before = list(ledger.nodes)  # by row; the new node may use the row of a node that is gone
    ledger.set_node(node)
    row = ledger.row_of[node.name]
    try:
        yield
    finally:
        ledger.places.give_back(row, before[row] if row < len(before) else None)


def _kinds(scheduler: Scheduler) -> Iterator[Node]:
    seen = set()
    for node in sorted(active_nodes(scheduler), key=lambda n: (len(n.devices), n.name)):
        labels = tuple(sorted((k, v) for k, v in node.labels.items() if v != node.name))
        cards = tuple((d.model, d.memory_mib, d.slots) for d in node.devices)
        kind = (tuple(sorted(node.allocatable.items())), cards, node.taints, node.enforcer, labels)
        if kind not in seen:
            seen.add(kind)
            yield node


def _empty_twin(like: Node) -> Node:
    """A new node of that kind: another name, other UUIDs, all healthy, no pods."""
    name = f"{like.name} (one more)"
    devices = tuple(
        msgspec.structs.replace(device, uuid=f"{name}/{n}", healthy=True, cordoned=False)
        for n, device in enumerate(like.devices)
    )
    labels = {key: name if value == like.name else value for key, value in like.labels.items()}
    taints = tuple(taint for taint in like.taints if not taint.key.startswith(CONDITION_TAINTS))
    return replace(like, name=name, devices=devices, labels=labels, taints=taints, unschedulable=False)


_SEARCHES: dict[str, Search] = {
    "other-model": _tried("other-model", _models),
    "tolerate-taint": _tried(
        "tolerate-taint", lambda scheduler, _, pod: taints_tolerated(pod, active_nodes(scheduler))
    ),
    "uncordon": _uncordon,
    "min-member": fewer_members,
    "fewer-cards": _tried("fewer-cards", lambda _, __, pod: fewer_cards(pod)),
    "less": _tried("less", _less),
    "drop-constraint": _tried("drop-constraint", lambda _, __, pod: constraints_dropped(pod)),
    "policy": _tried("policy", lambda _, group, pod: other_policies(pod, alone=len(group.pods) == 1)),
    "pod-gone": _pod_gone,
    "more-nodes": _more_nodes,
}
SUGGESTION_KINDS = tuple(_SEARCHES)  # in the order in which they are tried
