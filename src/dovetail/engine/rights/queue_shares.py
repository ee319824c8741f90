"""What each queue deserves and may hold at most, by the arithmetic of its level.

Answers are kept until a count changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.engine.rights.queue_amounts import Asked, Measures
from dovetail.engine.rights.queue_tree import Branch, Tree, above, policy_of
from dovetail.policies.quota.shapes import Entitled, QueueStanding, Stake

NO_AMOUNTS: Mapping[str, int] = {}
MAX_KEPT_LEVELS = 4_096


class QueueClaim(NamedTuple):
    """A waiting pod, for its queue."""

    queue: Branch
    asked: Asked
    new: Mapping[str, int]  # what it asks for, if it is not counted among the waiting pods


class Shares:
    def __init__(self, tree: Tree, measures: Measures) -> None:
        self.tree, self.measures = tree, measures
        self.demand = 0  # grows with every change of what is used or asked for; a pod that gets its place changes none
        self._seen = (-1, -1)
        # (queue, resource) -> what its children deserve, whatever they use
        self._fixed: dict[tuple[str, str], Entitled] = {}
        self._kept: dict[tuple[object, ...], Entitled] = {}

    def entitled(
        self, branch: Branch, resource: str, asker: Branch | None = None, ask: Mapping[str, int] = NO_AMOUNTS
    ) -> int:
        """What the queue deserves. `ask`: what a pod of the queue `asker` asks for, if the pod does not wait yet."""
        if resource not in self.measures.tracked:
            return 0
        level = self._level(above(branch), "" if policy_of(branch).joins_resources else resource, asker, ask)
        return level[resource][branch.rank]

    def _level(self, parent: Branch, resource: str, asker: Branch | None, ask: Mapping[str, int]) -> Entitled:
        """What the children deserve of the resource; "" = of all resources."""
        self._check()
        if not parent.dynamic:
            place = (parent.queue.name, resource)
            if place not in self._fixed:
                self._fixed[place] = self._divide(parent, resource, None, NO_AMOUNTS)
            return self._fixed[place]
        if len(self._kept) > MAX_KEPT_LEVELS:
            self._kept.clear()
        key = (parent.queue.name, resource, asker.queue.name if asker and ask else "", *sorted(ask.items()))
        if key not in self._kept:
            self._kept[key] = self._divide(parent, resource, asker, ask)
        return self._kept[key]

    def _check(self) -> None:
        self.measures.refresh()
        now = (self.measures.version, self.demand)
        if now != self._seen:
            self._kept.clear()
            if now[0] != self._seen[0]:
                self._fixed.clear()
            self._seen = now

    def _divide(self, parent: Branch, resource: str, asker: Branch | None, ask: Mapping[str, int]) -> Entitled:
        tracked = [resource] if resource else sorted(self.measures.tracked)
        line = asker.path if asker is not None else ()
        level = {one: [child.claimant(one, line, ask.get(one, 0)) for child in parent.children] for one in tracked}
        totals = {one: self._to_divide(parent, one, asker, ask) for one in tracked}
        return policy_of(parent.children[0]).entitle(level, totals)

    def _to_divide(self, parent: Branch, resource: str, asker: Branch | None, ask: Mapping[str, int]) -> int:
        """What the children share: all of the cluster, or what their parent deserves, without what its own pods use."""
        if parent.parent is None:
            return self.measures.total(resource)
        own = parent.own[resource] if parent.dynamic else 0
        return max(0, self.entitled(parent, resource, asker, ask) - own)

    def most(self, branch: Branch, resource: str, ask: Mapping[str, int] = NO_AMOUNTS) -> int | None:
        """The most that the queue may hold now by its arithmetic, beside its ceiling; None = no limit."""
        parent, policy = above(branch), policy_of(branch)
        keepers = [one for one in parent.keepers.get(resource, ()) if one is not branch]
        kept = [(one.kept(resource), one.used[resource]) for one in keepers]
        entitled = self.entitled(branch, resource, branch, ask) if policy.bound_by_entitled else 0
        return policy.most(
            QueueStanding(
                branch.used[resource],
                branch.names(resource),
                resource in parent.sums,
                branch.guarantee.get(resource, 0),
                branch.kept(resource) if branch in parent.keepers.get(resource, ()) else 0,
                entitled,
                self._room(parent, resource),
                parent.sums[resource],
                parent.used[resource] - parent.own[resource],
                sum(amount for amount, _ in kept),
                sum(max(0, amount - used) for amount, used in kept),
            )
        )

    def _room(self, parent: Branch, resource: str) -> int:
        """The most that the children could have together."""
        ceilings = [one.queue.ceiling[resource] for one in parent.path if resource in one.queue.ceiling]
        return min((self.measures.total(resource), *ceilings))

    def stake(self, branch: Branch, resource: str, change: int, contested: bool, claim: QueueClaim) -> Stake:
        parent = above(branch)
        return Stake(
            branch.used[resource] if change >= 0 else branch.stays(resource),
            change,
            contested,
            branch.guarantee.get(resource, 0),
            self.entitled(branch, resource, claim.queue, claim.new),
            branch.queue.weight.get(resource),
            parent.sums[resource] - sum(one.kept(resource) for one in parent.keepers.get(resource, ())),
        )
