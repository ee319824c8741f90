"""The state of queues for people and for the status of CRDs: used, deserved, borrowed, lent, and who lends to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.engine.rights.queue_amounts import Measures
from dovetail.engine.rights.queue_shares import Shares
from dovetail.engine.rights.queue_tree import Branch, above

UNASSIGNED = ""  # the lender of what no queue is guaranteed


class Loan(NamedTuple):
    """An amount that a queue uses beyond its guarantee, and the sibling whose guarantee it is."""

    borrower: str
    lender: str  # "" = no queue is guaranteed it
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """Amounts by resource, of the queue and the queues below it."""

    used: Mapping[str, int]
    guarantee: Mapping[str, int]
    deserved: Mapping[str, int]  # now, by its arithmetic: `min`, runtime quota, fair share
    borrowed: Mapping[str, int]  # used beyond the guarantee
    lent: Mapping[str, int]  # the part of its guarantee that siblings use
    wanted: Mapping[str, int]  # used, and asked for by waiting pods; of each queue below, at most its ceiling


def status(branch: Branch, shares: Shares, measures: Measures) -> QueueState:
    asked = branch.used + branch.waits
    resources = [one for one in sorted(measures.tracked) if branch.names(one) or asked[one]]
    used = {one: branch.used[one] for one in resources}
    guarantee = {one: branch.guarantee[one] for one in resources if one in branch.guarantee}
    borrowed = {one: amount for one in resources if (amount := used[one] - guarantee.get(one, 0)) > 0}
    lent: dict[str, int] = {}
    for loan in _between(above(branch).children, resources):
        if loan.lender == branch.queue.name:
            lent[loan.resource] = lent.get(loan.resource, 0) + loan.amount
    deserved = {one: shares.entitled(branch, one) for one in resources}
    return QueueState(used, guarantee, deserved, borrowed, lent, {one: branch.wanted(one) for one in resources})


def loans(root: Branch, resources: Sequence[str]) -> tuple[Loan, ...]:
    """All loans between siblings, level by level."""
    found = list(_between(root.children, resources))
    for child in root.children:
        found += loans(child, resources)
    return tuple(found)


def _between(siblings: Sequence[Branch], resources: Iterable[str]) -> Iterable[Loan]:
    """The loans between siblings. Who gets what from whom is by name; the sums of each queue do not depend on it.

    What the siblings leave of their guarantees is lent first, as borrowers must give it back; the rest is unassigned.
    """
    for resource in resources:
        idle = [(one.queue.name, _idle(one, resource)) for one in siblings]
        lenders = [(name, left) for name, left in idle if left > 0]
        for branch in siblings:
            open_amount = branch.used[resource] - branch.guarantee.get(resource, 0)
            while open_amount > 0 and lenders:
                name, left = lenders[0]
                part = min(left, open_amount)
                yield Loan(branch.queue.name, name, resource, part)
                open_amount -= part
                lenders = [(name, left - part), *lenders[1:]] if left > part else lenders[1:]
            if open_amount > 0:
                yield Loan(branch.queue.name, UNASSIGNED, resource, open_amount)


def _idle(branch: Branch, resource: str) -> int:
    """What the queue does not use of its guarantee, and may lend."""
    return branch.guarantee.get(resource, 0) - max(branch.used[resource], branch.kept(resource))
