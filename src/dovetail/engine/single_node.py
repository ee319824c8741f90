"""One node at a time: whether it can take a pod, and placing a pod there. For preemption.

The nodes are tried with other pods than they have now, in transactions of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from dovetail.engine.gangs.planner import GangPlacer
from dovetail.engine.kernel.build import Kernel
from dovetail.engine.kernel.state import INACTIVE, RESERVED, Batch
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.nominated import Nominated, RelatedAndNominated
from dovetail.engine.rights.queues import Queues
from dovetail.engine.rights.quota import Quotas
from dovetail.engine.rules.node_columns import Flags
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod, Profile
from dovetail.model.reason import Reason
from dovetail.policies.rows import Bytes


class AllNodes(Protocol):
    """What is needed of the placer."""

    ledger: Ledger
    queues: Queues
    quotas: Quotas
    requests: Requests
    related: RelatedAndNominated
    nominated: Nominated

    @property
    def gangs(self) -> GangPlacer: ...

    def kernel(self, profile: Profile) -> Kernel: ...

    def place_batch(self, pod: Pod, batch: Batch) -> Decision: ...

    def place_all(self, groups: Sequence[Group]) -> Sequence[Decision]: ...

    def refused(self, pod: Pod, reason: Reason) -> Decision: ...


class SingleNode:
    def __init__(self, placer: AllNodes) -> None:
        self._placer = placer
        self.ledger, self.queues, self.requests = placer.ledger, placer.queues, placer.requests

    def restricts(self, pod: Pod) -> bool:
        """Whether nodes may refuse the pod because of pods that are there, or volumes."""
        return self._placer.related.has_rules(pod)

    def row_kept_for(self, uid: str) -> int:
        """The row that is kept for a nominated pod, or NONE."""
        return self._placer.nominated.row_of(uid)

    def static_refusals(self, pod: Pod) -> Bytes:
        """[row]: 0, or why the node refuses the pod whatever else runs there."""
        ledger = self.ledger
        mask = ledger.places.mask(pod.node_rules)
        return ledger.storage.masks[mask, : len(ledger.nodes)]

    def fits_on(self, pod: Pod, row: int) -> bool:
        """Whether the node can take the pod with the ledger as it is, with all rules and quotas."""
        return self.fit_of(pod, row)()

    def fit_of(self, pod: Pod, row: int) -> Callable[[], bool]:
        """A function that says whether the node can take the pod: for many tries with other pods there."""
        if self._placer.quotas.apply_to(pod) or (self.queues.active and self.queues.apply_to(pod)):
            return lambda: self._fits_within_limits(pod, row)
        return self._fit_of(pod, row)

    def _fits_within_limits(self, pod: Pod, row: int) -> bool:
        if not self.is_admitted(pod):
            return False
        return self._fit_of(self.queues.within(pod) if self.queues.active else pod, row)()

    def is_admitted(self, pod: Pod) -> bool:
        """Whether the quotas of its namespace and its queue admit the pod now."""
        quotas = self._placer.quotas
        if quotas.apply_to(pod) and quotas.refusal(pod) is not None:
            return False
        return not self.queues.active or self.queues.refusal(pod) is None

    def _fit_of(self, pod: Pod, row: int) -> Callable[[], bool]:
        signature, ledger = self.requests.signature(pod), self.ledger
        which_fit = self._placer.kernel(signature.profile).which_fit
        batch = self.requests.batch([pod], [signature], [(1, 1)])
        return self._placer.related.fit_of(pod, row, lambda: which_fit(ledger.state(), batch, row) == 1)

    def place_on(self, pod: Pod, row: int) -> Decision:
        """Place the pod on this node, with the GPUs that its policy chooses there; or refuse it."""
        if self.queues.active and self.queues.apply_to(pod):
            pod = self.queues.within(pod)
        if self._placer.nominated.promised and self._placer.nominated.on_row(pod, row):
            return self.place_beside_nominated(pod, row)
        return self._placer.place_batch(pod, self._only_on(pod, row))

    def book_promised(self, group: Group) -> None:
        """Book the places that are promised to pods which keep them against this group; for a transaction."""
        own = {pod.uid for pod in group.pods}
        for held in self._placer.nominated.before(group.pods[0]).values():
            for one in held:
                if one.pod.uid not in own:
                    shares = self._placer.nominated.cards_of(one)
                    self.ledger.book_observed(one.pod, one.node, shares, assumed=False, status=RESERVED)

    def place_lone(self, pod: Pod) -> Decision:
        """Place one pod of a group as if it came alone."""
        return self._placer.place_all((Group(pod.key, (pod,)),))[0]

    def not_placed(self, pod: Pod) -> Decision:
        return self._placer.refused(pod, Reason.GROUP_NOT_PLACED)

    def place_beside_nominated(self, pod: Pod, row: int) -> Decision:
        """Place the pod on this node, on cards that nominated pods leave free.

        Scores ignore nominated pods, but the cards that were planned for them must not be taken.
        """
        with self._placer.nominated.booked(self._placer.nominated.on_row(pod, row)):
            decision = self._placer.place_batch(pod, self._only_on(pod, row))
        if decision.placed:
            self.ledger.book_observed(pod, str(decision.node), decision.shares, assumed=False, status=RESERVED)
        return decision

    def domain_choices(self, group: Group) -> Iterable[Flags]:
        """The rows of each domain in which a gang could be placed by stopping pods, the most promising first."""
        return self._placer.gangs.domain_choices(group)

    def open_rows(self, group: Group, pod: Pod) -> Flags:
        """[row]: whether the rules of the gang allow this pod there, with the members that hold a place now."""
        return self._placer.gangs.open_rows(group, pod)

    def confined(self, rows: Flags | None) -> AbstractContextManager[None]:
        """Until the end of the block, pods are placed on these rows only."""
        return self._placer.related.confined(rows)

    def broken_rule(self, group: Group, decisions: Sequence[Decision]) -> str:
        """The rule of the gang that these decisions break, with members that run elsewhere; "" = none."""
        return self._placer.gangs.broken_rule(group, decisions)

    def _only_on(self, pod: Pod, row: int) -> Batch:
        elsewhere = np.full(len(self.ledger.nodes), INACTIVE, dtype=np.uint8)
        elsewhere[row] = 0
        return self._placer.related.alone(pod, elsewhere)
