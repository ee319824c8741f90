"""What an arithmetic reads and returns. All amounts are integers in the unit of the resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimant:
    """A queue among its siblings, for one resource."""

    name: str
    guarantee: int = 0
    ceiling: int | None = None  # None = no ceiling
    weight: int | None = None  # None = the default of the arithmetic
    reserved: int = 0  # never lent
    lends: bool = True
    priority: int = 0
    created: float = 0.0
    used: int = 0  # by pods that hold a place
    wanted: int = 0  # used, and asked for by waiting pods
    history: int = 0  # milli of the total: its average use in the past

    @property
    def kept(self) -> int:
        """How much stays free for the queue while it does not use it."""
        return self.reserved if self.lends else max(self.guarantee, self.reserved)

    @property
    def wanted_within(self) -> int:
        """What it wants, up to its ceiling."""
        return self.wanted if self.ceiling is None else min(self.wanted, self.ceiling)


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """A queue's use of one resource beside that of its siblings: enough to say how much it may have now."""

    used: int
    named: bool = True  # the queue has a guarantee, a ceiling or a weight for the resource
    guaranteed_here: bool = True  # one of the siblings has a guarantee for the resource
    guarantee: int = 0
    kept: int = 0
    entitled: int = 0  # by `entitle`; 0 if the policy is not bound by it
    total: int = 0  # the most that all siblings can have
    sum_guarantee: int = 0  # of all siblings
    sum_used: int = 0
    others_kept: int = 0  # what the others never lend
    others_idle: int = 0  # the part of it that they do not use


@dataclass(frozen=True, slots=True)
class Stake:
    """What a queue holds of a resource, and what would change if a pod of another queue yielded to one of its pods."""

    used: int
    change: int  # > 0: the waiting pod's request; < 0: what the running pod holds
    contested: bool  # the waiting pod asks for it, the running pod holds it, and it is scarce
    guarantee: int
    entitled: int
    weight: int | None = None
    lendable: int = 0  # what all siblings together may lend


Level = Mapping[str, Sequence[Claimant]]  # resource -> the siblings, always in the same order
Entitled = Mapping[str, Sequence[int]]  # resource -> what each of them deserves


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """A row of the table."""

    name: str
    title: str
    source: str  # whose arithmetic it is
    entitle: Callable[[Level, Mapping[str, int]], Entitled]  # what each sibling deserves of these totals
    most: Callable[
        [QueueStanding], int | None
    ]  # the most that a queue may hold now, beside its ceiling; None = no limit
    reclaims: Callable[[Sequence[Stake], Sequence[Stake]], bool]  # of the waiting pod's queue, of the running pod's
    reads_wanted: bool = True  # what a queue deserves depends on what is used and asked for
    bound_by_entitled: bool = False  # `most` reads QueueStanding.entitled
    joins_resources: bool = False  # `entitle` needs all resources at once


def each_resource(
    entitle: Callable[[Sequence[Claimant], int], list[int]],
) -> Callable[[Level, Mapping[str, int]], Entitled]:
    """An arithmetic that divides every resource for itself."""

    def entitle_all(level: Level, totals: Mapping[str, int]) -> Entitled:
        return {resource: entitle(claimants, totals.get(resource, 0)) for resource, claimants in level.items()}

    return entitle_all


def owed_and_borrowed(to: Sequence[Stake], held: Sequence[Stake]) -> bool:
    """Whether the waiting pod stays within what its queue deserves, and the other queue has more than it deserves."""
    owed = all(stake.used + stake.change <= stake.entitled for stake in to if stake.contested)
    return owed and any(stake.used > stake.entitled for stake in held if stake.contested)
