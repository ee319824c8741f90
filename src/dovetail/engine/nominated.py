"""Nodes kept for pods that were nominated to them after a preemption, until these pods are bound or gone.

As in kube-scheduler (RunFilterPluginsWithNominatedPods), a node must fit a pod in two states: as it is, and with its
nominated pods of the same or a higher priority. A nominated pod counts only on the node it is nominated to. Scores
ignore nominated pods: they are in the ledger only while a node is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from dovetail.engine.kernel.build import Kernel
from dovetail.engine.kernel.state import INACTIVE, NONE, Batch
from dovetail.engine.ledger.in_force import Rule
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.rules.affinity_spread import included, per_domain
from dovetail.engine.rules.pod_rules import Related
from dovetail.engine.wake import News
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, Profile
from dovetail.model.reason import Reason
from dovetail.model.relations import SpreadConstraint
from dovetail.policies.rows import Bytes


class Promise(NamedTuple):
    pod: Pod
    node: str
    shares: tuple[Share, ...] | None = None  # cards planned for the pod; None = no cards were chosen


class Nominated:
    """The nominated pods, and the node of each."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.promised: dict[str, Promise] = {}  # by the pod's UID
        self._on_node: dict[str, dict[str, Promise]] = {}  # node -> by the pod's UID
        # Whether a nominated pod keeps its place against a pod.
        self.outranks: Callable[[Pod, Pod], bool] = lambda nominated, pod: nominated.priority >= pod.priority
        self.cards_for: Callable[[Pod, str], tuple[Share, ...]] = lambda pod, node: ()  # the cards it would get there

    def promise(self, pod: Pod, node: str, shares: tuple[Share, ...] | None = None) -> None:
        """Keep the node for the pod, instead of an earlier one. The node may not exist yet.

        Cards that were planned on the same node stay planned: the API server stores the node only.
        """
        known = self.promised.get(pod.uid)
        if shares is None and known is not None and known.node == node:
            shares = known.shares
        self.forget(pod.uid)
        self.promised[pod.uid] = promise = Promise(pod, node, shares)
        self._on_node.setdefault(node, {})[pod.uid] = promise
        self._ledger.in_force.put(Rule.NOMINATION, True)

    def forget(self, uid: str) -> None:
        promise = self.promised.pop(uid, None)
        if promise is not None:
            there = self._on_node[promise.node]
            del there[uid]
            if not there:
                del self._on_node[promise.node]
            self._ledger.in_force.put(Rule.NOMINATION, bool(self.promised))

    def row_of(self, uid: str) -> int:
        """The row that is kept for the pod, or NONE."""
        promise = self.promised.get(uid)
        return NONE if promise is None else self._ledger.row_of.get(promise.node, NONE)

    def matter(self, pod: Pod) -> bool:
        """Whether the pod is nominated itself, or must yield to a nominated pod."""
        return any(one.pod.uid == pod.uid or self.outranks(one.pod, pod) for one in self.promised.values())

    def before(self, pod: Pod) -> dict[int, list[Promise]]:
        """By row, the nominations that the pod must yield to.

        A nominated pod that holds a node already does not count.
        """
        found: dict[int, list[Promise]] = {}
        for node in self._on_node:
            row = self._ledger.row_of.get(node, NONE)
            if row != NONE and (held := self.on_row(pod, row)):
                found[row] = held
        return found

    def on_row(self, pod: Pod, row: int) -> list[Promise]:
        """The nominations on this row that the pod must yield to."""
        there = self._on_node.get(self._ledger.nodes[row].name)
        if not there or not self._ledger.is_active(row):
            return []
        return [promise for uid, promise in there.items() if self._counts(uid, promise, pod)]

    def _counts(self, uid: str, promise: Promise, pod: Pod) -> bool:
        return uid != pod.uid and uid not in self._ledger.pods and self.outranks(promise.pod, pod)

    @contextmanager
    def booked(self, promises: Iterable[Promise]) -> Iterator[None]:
        """Book the nominated pods in their order, until the end of the block. Waiting pods are not woken by this trial.

        Cards that were not planned are chosen now: more may be known of the node than at the nomination.
        """
        told = [news for news in self._news() if news.wanted]
        for news in told:
            news.wanted = False
        try:
            with self._ledger.transaction():
                for one in sorted(promises, key=lambda one: (one.pod.order, one.pod.uid)):
                    self._ledger.book_observed(one.pod, one.node, self.cards_of(one), assumed=True)
                yield
        finally:
            for news in told:
                news.wanted = True

    def cards_of(self, promise: Promise) -> tuple[Share, ...]:
        """The cards planned for the pod, or those that it would get on its node now."""
        if not promise.pod.wants_devices:
            return ()
        column = self._ledger.places.columns(self._ledger.row_of[promise.node])
        if promise.shares is not None and all(share.uuid in column for share in promise.shares):
            return promise.shares
        return self.cards_for(promise.pod, promise.node)

    def _news(self) -> list[News]:
        return [witness for witness in self._ledger.witnesses if isinstance(witness, News)]


class RelatedAndNominated(Related):
    """What other pods mean for a pod to be placed: pods on nodes, and nominated pods."""

    def __init__(
        self, ledger: Ledger, requests: Requests, kernel: Callable[[Profile], Kernel], nominated: Nominated
    ) -> None:
        super().__init__(ledger, requests, kernel)
        self._nominated = nominated

    def concerns(self, pod: Pod) -> bool:
        return (bool(self._nominated.promised) and self._nominated.matter(pod)) or super().concerns(pod)

    def restricts(self, pod: Pod) -> bool:
        return (bool(self._nominated.promised) and self._nominated.matter(pod)) or super().restricts(pod)

    def refusals(self, pod: Pod) -> Bytes:
        found = super().refusals(pod)
        kept = {row: held for row, held in self._nominated.before(pod).items() if found[row] == 0}
        if kept:  # rows that have no room anyway need no closer look
            said = self._survey(pod, self.alone(pod, found))[0]
            kept = {row: held for row, held in kept.items() if said[row] == 0}
        if kept:
            self._yield(pod, kept, found)
        return found

    def has_rules(self, pod: Pod) -> bool:
        """Whether nodes may refuse the pod because of pods that are there, or volumes; nominated pods do not count."""
        return super().restricts(pod)

    def fit_of(self, pod: Pod, row: int, has_room: Callable[[], bool]) -> Callable[[], bool]:
        """A function that says whether one row can take the pod, as it is and with its nominated pods.

        `has_room`: whether node and cards have room for it. The nominations must stay as they are now.
        """
        related = super().restricts(pod)
        held = self._nominated.on_row(pod, row) if self._nominated.promised else []
        if not related and not held:
            return has_room
        rules = super().refusals

        def fits() -> bool:
            if (related and rules(pod)[row] != 0) or not has_room():
                return False
            if not held:
                return True
            idle = not self._has_affinity(pod)
            with self._nominated.booked(held):
                return has_room() and (not related or self._beside(pod, row, held, idle) == 0)

        return fits

    def batch(self, pod: Pod) -> Batch:
        """The pod's batch. A nominated pod goes to its node if it fits there, whatever other nodes score."""
        row = self._nominated.row_of(pod.uid)
        if row == NONE or self._survey(pod, self.alone(pod, self.refusals(pod)))[0][row] != 0:
            return super().batch(pod)
        elsewhere = np.full(len(self._ledger.nodes), INACTIVE, dtype=np.uint8)
        elsewhere[row] = 0
        return self.alone(pod, elsewhere)

    def _yield(self, pod: Pod, kept: dict[int, list[Promise]], found: Bytes) -> None:
        """Write into `found` why rows refuse the pod once the nominated pods that it must yield to are there."""
        idle = not self._has_affinity(pod)
        batch = self.alone(pod, found)  # built before nominated pods are booked: quotas count booked pods
        with self._nominated.booked(one for held in kept.values() for one in held):
            said = self._survey(pod, batch)[0].copy()
            related = super().restricts(pod)
        for row, held in kept.items():
            found[row] = said[row]
            if related and found[row] == 0:
                with self._nominated.booked(held):
                    found[row] = self._beside(pod, row, held, idle)

    def _beside(self, pod: Pod, row: int, held: list[Promise], idle: bool) -> int:
        """The reason of inter-pod and volume rules on the row, with its nominated pods booked; 0 = none."""
        code = int(self.relational.refusals(pod)[row]) if self.relational.concerns(pod) else 0
        if idle and code == Reason.OTHERS_ANTI_AFFINITY:
            code = 0
        if code == 0 and any(self._is_crowded(pod, one, row, held) for one in pod.relations.spread if one.hard):
            code = Reason.SPREAD
        if code == 0 and self.volumes.concerns(pod):
            code = int(self.volumes.refusals(pod)[row])
        return code

    def _has_affinity(self, pod: Pod) -> bool:
        """Whether kube-scheduler checks affinity for the pod at all.

        If not (Skip), it ignores nominated pods here too.
        """
        if pod.relations.affinity or pod.relations.anti_affinity:
            return True
        facts, labels = self.neighbours.facts, self.neighbours.labels_of(pod.namespace)
        facts.refresh()
        against = self.neighbours.against.matching(pod, labels)
        return any(facts.domains(term.topology_key)[0][list(spots)].any() for term, spots in against)

    def _is_crowded(self, pod: Pod, constraint: SpreadConstraint, row: int, held: list[Promise]) -> bool:
        """Whether nominated pods break a spread constraint whose selector matches everything.

        kube-scheduler counts no running pod for such a selector, but every nominated pod (countPodsMatchSelector,
        updateWithPod).
        """
        selector = constraint.selector
        if selector is None or selector.labels or selector.expressions:
            return False
        facts = self.neighbours.facts
        hard = [facts.domains(one.topology_key)[0] for one in pod.relations.spread if one.hard]
        counted = np.logical_and.reduce([values > 0 for values in hard]) & included(facts, pod, constraint)
        if not counted[row]:
            return False
        values, size = facts.domains(constraint.topology_key)
        here = np.zeros(len(values), dtype=np.int64)
        here[row] = sum(one.pod.namespace == pod.namespace for one in held)
        matching = per_domain(values, size, here)
        exists = np.bincount(values[counted], minlength=size) > 0
        enough = int(np.count_nonzero(exists)) >= max(constraint.min_domains, 1)
        least = int(matching[exists].min()) if enough else 0
        return int(matching[values[row]]) + 1 - least > constraint.max_skew
