"""The tree of queues: what the pods of each queue hold, what it may still have, and from which queues it may take."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.queue_amounts import Asked
from dovetail.engine.rights.queue_claims import may_reclaim
from dovetail.engine.rights.queue_counts import QueueCounts
from dovetail.engine.rights.queue_shares import NO_AMOUNTS, QueueClaim
from dovetail.engine.rights.queue_status import Loan, QueueState, loans, status
from dovetail.engine.rights.queue_tree import Branch, above, apart
from dovetail.engine.rights.queue_wording import beyond_ceiling, beyond_share
from dovetail.model.pod import DeviceRules, Pod
from dovetail.model.reason import Reason
from dovetail.policies.yielding import Right

MAX_KEPT_RULES = 1_024


class QueueRefusal(NamedTuple):
    """Why a queue does not admit a pod."""

    reason: Reason  # QUEUE_CEILING or QUEUE_BORROWING
    message: str  # for users, with amounts


class Queues(QueueCounts):
    """The counts, and the answers that follow from them."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._rules: dict[tuple[object, ...], tuple[tuple[DeviceRules, ...], Pod]] = {}

    def queue_of(self, pod: Pod) -> str:
        """The name of the pod's queue; "" = it has none."""
        branch = self._fresh().of(pod)
        return branch.queue.name if branch is not None else ""

    def apply_to(self, pod: Pod) -> bool:
        return self._fresh().of(pod) is not None

    def refusal(self, pod: Pod) -> QueueRefusal | None:
        """Why the pod's queue does not admit it with what its pods hold now; None = it does."""
        branch = self._fresh().of(pod)
        if branch is None:
            return None
        asked = self._measures.asked(pod)
        new = self._not_waiting(pod, asked)
        for one in branch.path:
            for resource, amount in sorted(asked.plain.items()):
                refused = self._over(one, resource, amount, new)
                if refused is not None:
                    return refused
        return self._no_model_left(self._excluded(branch, asked, new), asked)

    def within(self, pod: Pod) -> Pod:
        """The pod without the GPU models of which its queue may not have as many as it asks for.

        The same pod if there are none. Equal pods get the same rules object, as requests are known by their objects.
        """
        branch = self._fresh().of(pod)
        asked = self._measures.asked(pod)
        if branch is None or not asked.by_model:
            return pod
        models = tuple(sorted(self._excluded(branch, asked, self._not_waiting(pod, asked))))
        if not models:
            return pod
        key = (id(pod.device_rules), id(pod.containers), models)
        if key not in self._rules:
            if len(self._rules) >= MAX_KEPT_RULES:
                self._rules.clear()
            self._rules[key] = (_without(pod, models), pod)  # the pod: so that no other object gets the ids
        return replace(pod, device_rules=self._rules[key][0])

    def model_limits(self, pod: Pod) -> dict[str, str]:
        """GPU model -> why the pod's queue may not have as many of it as the pod asks for."""
        branch = self._fresh().of(pod)
        if branch is None:
            return {}
        asked = self._measures.asked(pod)
        excluded = self._excluded(branch, asked, self._not_waiting(pod, asked))
        return {model: refused.message for model, refused in sorted(excluded.items())}

    def right(self, held: Pod, to: Pod) -> Right:
        """By which right the running pod's place may be taken for `to`, with what all queues hold now."""
        tree = self._fresh()
        theirs, mine = tree.of(held), tree.of(to)
        if mine is theirs:
            return Right.RANK
        if mine is None or theirs is None or held.uid not in self._held:
            return Right.NONE
        self._count_ending()
        asked = self._measures.asked(to)
        claim = QueueClaim(mine, asked, self._not_waiting(to, asked))
        return Right.RECLAIM if may_reclaim(self._shares, claim, theirs, self._held[held.uid].holding) else Right.NONE

    @property
    def demand(self) -> int:
        """A number that grows with every change of what queues use or ask for, also with changes that are undone."""
        return self._shares.demand

    def standing(self) -> Hashable:
        """What all queues use and ask for."""
        return tuple((_amounts(one.used), _amounts(one.waits)) for one in self._fresh().by_name.values())

    def is_owed(self, name: str) -> bool:
        """Whether the queue, or a queue above it, deserves more of a resource than its pods hold."""
        branch = self._fresh().by_name.get(name)
        return branch is not None and any(
            self._shares.entitled(one, resource) > one.used[resource]
            for one in branch.path
            for resource in above(one).named
        )

    def may_owe(self, held: Pod, to: Pod) -> bool:
        """Whether a pod of the queue of `held` could yield to `to` by reclaim, whatever it holds.

        A quick check for many pods at once: `right` then decides for each of them. `held` need not exist any more.
        """
        tree = self._fresh()
        theirs, mine = tree.of(held), tree.of(to)
        siblings = apart(mine, theirs) if mine is not None and theirs is not None else None
        if siblings is None:
            return False
        self._count_ending()
        asked, other = self._measures.asked(to).all, siblings[1]
        named = (resource for resource in asked if resource in above(other).named)
        return any(other.stays(one) > other.guarantee.get(one, 0) for one in named)

    def dominant_share(self, pod: Pod) -> float:
        """The largest part of a resource of the cluster that the pods of the pod's queue hold; 0 without a queue."""
        branch = self._fresh().of(pod) if self.active else None
        if branch is None:
            return 0.0
        totals = ((branch.used[one], self._measures.total(one)) for one in self._measures.tracked)
        return max((used / total for used, total in totals if total > 0), default=0.0)

    def status(self, name: str) -> QueueState | None:
        """What the queue uses, is guaranteed, deserves, has borrowed and has lent; None = there is no such queue."""
        branch = self._fresh().by_name.get(name)
        return None if branch is None else status(branch, self._shares, self._measures)

    def names(self) -> list[str]:
        """The names of all queues, in order."""
        return list(self._fresh().by_name)

    def ceiling_of(self, name: str) -> dict[str, int]:
        """The most that the pods of a queue may use, by resource: the lowest ceiling on the way to the root."""
        branch = self._fresh().by_name.get(name)
        found: dict[str, int] = {}
        for one in branch.path if branch is not None else ():
            for resource, most in one.queue.ceiling.items():
                found[resource] = min(most, found.get(resource, most))
        return found

    def borrowing(self) -> tuple[Loan, ...]:
        """Which queue borrows how much from which other queue, by name."""
        return loans(self._fresh().root, sorted(self._measures.tracked))

    def _not_waiting(self, pod: Pod, asked: Asked) -> Mapping[str, int]:
        """What the pod asks for, if it is not counted among the waiting pods or those with a place."""
        return NO_AMOUNTS if pod.uid in self._asking or pod.uid in self._held else asked.all

    def _over(self, branch: Branch, resource: str, amount: int, new: Mapping[str, int]) -> QueueRefusal | None:
        """Why the queue may not have this amount more; None = it may."""
        used, ceiling = branch.used[resource], branch.queue.ceiling.get(resource)
        if ceiling is not None and used + amount > ceiling:
            return QueueRefusal(Reason.QUEUE_CEILING, beyond_ceiling(branch, resource, amount, ceiling))
        most = self._shares.most(branch, resource, new)
        if most is not None and used + amount > most:
            return QueueRefusal(Reason.QUEUE_BORROWING, beyond_share(branch, resource, amount, most))
        return None

    def _excluded(self, branch: Branch, asked: Asked, new: Mapping[str, int]) -> dict[str, QueueRefusal]:
        """The GPU models of which the queue may not have as many as the pod asks for, with the reason."""
        found: dict[str, QueueRefusal] = {}
        for model, amounts in asked.by_model.items():
            named = [(f"{what}/{model}", amount) for what, amount in amounts.items() if f"{what}/{model}" in asked.all]
            for resource, amount in named:
                for one in branch.path:
                    refused = self._over(one, resource, amount, new)
                    if refused is not None:
                        found.setdefault(model, refused)
        return found

    def _no_model_left(self, excluded: Mapping[str, QueueRefusal], asked: Asked) -> QueueRefusal | None:
        """The first of the reasons, if the pod can use no other GPU model of one of its vendors."""
        if not excluded:
            return None
        matching = self._measures.matching
        all_vendors = {kind.vendor for kind in asked.kinds}
        free = {kind.vendor for kind in asked.kinds if excluded.keys().isdisjoint(matching(kind.model))}
        return excluded[min(excluded)] if all_vendors - free else None


def _amounts(counted: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset((resource, amount) for resource, amount in counted.items() if amount)


def _without(pod: Pod, models: tuple[str, ...]) -> tuple[DeviceRules, ...]:
    vendors = dict.fromkeys(ask.vendor for container in pod.containers for ask in container.asks)
    rules = {one.vendor: one for one in pod.device_rules}
    for vendor in vendors:
        known = rules.get(vendor, DeviceRules(vendor))
        rules[vendor] = replace(known, nouse_types=(*known.nouse_types, *models))
    return tuple(rules.values())
