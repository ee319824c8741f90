"""Reclaim: whether a queue may take back from another queue what it is owed and the other one has borrowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.engine.rights.queue_amounts import Asked, Holding
from dovetail.engine.rights.queue_shares import QueueClaim, Shares
from dovetail.engine.rights.queue_tree import Branch, above, apart, policy_of
from dovetail.model.rights import gpu_amount


def may_reclaim(shares: Shares, claim: QueueClaim, theirs: Branch, holding: Holding) -> bool:
    """Whether the waiting pod may take the place of a pod of another queue, which holds this.

    The arithmetic of the level where the two queues part decides. No queue falls below its guarantee by it.
    """
    (mine, asked, new), siblings = claim, apart(claim.queue, theirs)
    if siblings is None:
        return False
    x, y = siblings
    cards, others = _contested(shares, x, asked, holding)
    entitled_cards = [one for one in cards if x.names(one) or shares.entitled(x, one, mine, new) > 0]
    if (cards and not entitled_cards) or not (cards or others):
        return False
    held_cards = [one for one in holding.amounts if gpu_amount(one)[0]] if cards else []
    if not _keeps_guarantees(theirs, y, (*held_cards, *others), holding.amounts):
        return False
    at_stake = {*entitled_cards, *others}
    named = sorted(above(x).named | at_stake)
    to = [shares.stake(x, one, asked.all.get(one, 0), one in at_stake, claim) for one in named]
    held = [shares.stake(y, one, -holding.amounts.get(one, 0), one in at_stake, claim) for one in named]
    return policy_of(x).reclaims(to, held)


def _contested(shares: Shares, sibling: Branch, asked: Asked, holding: Holding) -> tuple[list[str], list[str]]:
    """What the waiting pod asks for and the running pod holds: of cards, and of other resources that are scarce.

    Cards count only if the waiting pod can use one of those that the running pod holds. Another resource counts if the
    cluster has less of it left than the pod asks for, or if nothing else is contested.
    """
    usable = not holding.products.isdisjoint(kind.model for kind in asked.kinds)
    cards, others = [], []
    for resource in holding.amounts:
        if resource not in above(sibling).named:
            continue
        if gpu_amount(resource)[0]:
            if usable and asked.all.get(resource, 0):
                cards.append(resource)
        elif resource in asked.plain:
            others.append(resource)
    total, used = shares.measures.total, shares.tree.root.used
    scarce = [one for one in others if total(one) - used[one] < asked.plain[one]]
    return cards, (scarce if cards or scarce else others)


def _keeps_guarantees(queue: Branch, top: Branch, resources: Sequence[str], amounts: Mapping[str, int]) -> bool:
    """Whether the queue, and the queues above it up to `top`, keep their guarantees without these amounts."""
    for one in queue.path:
        for resource in resources:
            if resource in one.guarantee and one.stays(resource) - amounts[resource] < one.guarantee[resource]:
                return False
        if one is top:
            break
    return True
