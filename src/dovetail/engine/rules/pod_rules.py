"""Pods whose place depends on other pods: affinity, spread, ports, volumes, and Kubernetes' preferences.

Only such pods cost more. Their refusals become a separate mask for one decision, and nothing is kept for them.
Preferences come first and the policy decides among the best nodes, unless the profile gives the policy a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from dovetail.engine.kernel.build import Kernel
from dovetail.engine.kernel.state import FRESH, INACTIVE, Batch
from dovetail.engine.ledger.in_force import ABOUT_PODS_AND_NODES, Rule
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests, unlimited
from dovetail.engine.rules.affinity_spread import Relational
from dovetail.engine.rules.node_columns import Flags
from dovetail.engine.rules.pod_counts import Neighbours
from dovetail.engine.rules.preferences import Preferred
from dovetail.engine.rules.volumes import Volumes
from dovetail.model.pod import Pod, Profile
from dovetail.model.reason import Reason
from dovetail.policies.rows import Bytes, Floats, Ints
from dovetail.policies.table import NODE_POLICIES


class Related:
    """All rules about other pods, volumes and images."""

    def __init__(self, ledger: Ledger, requests: Requests, kernel: Callable[[Profile], Kernel]) -> None:
        self._ledger, self._requests, self._kernel = ledger, requests, kernel
        self.neighbours = Neighbours(ledger)
        self.relational = Relational(ledger, self.neighbours)
        self.preferred = Preferred(ledger, self.neighbours)
        self.volumes = Volumes(ledger)
        self._outside: Bytes | None = None  # [row]: not 0 = no pod may go there now
        ledger.witnesses += [self.neighbours, self.volumes]

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Store the labels of a namespace; None = it is gone."""
        if labels is None:
            self.neighbours.drop_namespace(name)
        else:
            self.neighbours.set_namespace(name, labels)

    @contextmanager
    def confined(self, rows: Flags | None, reason: int = INACTIVE) -> Iterator[None]:
        """Until the end of the block, place pods on these rows only; None = on all rows.

        `reason`: why the other rows refuse pods; INACTIVE = they are not counted.
        """
        before, self._outside = self._outside, None if rows is None else np.where(rows, 0, reason).astype(np.uint8)
        self._ledger.in_force.put(Rule.CONFINEMENT, self._outside is not None)
        try:
            yield
        finally:
            self._outside = before
            self._ledger.in_force.put(Rule.CONFINEMENT, before is not None)

    @property
    def is_confined(self) -> bool:
        return self._outside is not None

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod must be placed by `batch`."""
        if self._outside is not None:
            return True
        if pod.is_plain and self._ledger.in_force.isdisjoint(ABOUT_PODS_AND_NODES):
            return False
        return self.restricts(pod) or self.preferred.concerns(pod)

    def restricts(self, pod: Pod) -> bool:
        """Whether nodes may refuse the pod because of other pods or volumes."""
        return self.relational.concerns(pod) or self.volumes.concerns(pod)

    def refusal(self, pod: Pod) -> Reason | None:
        """Why no node can take the pod, or None."""
        return self.volumes.refusal(pod) if self.volumes.concerns(pod) else None

    def refusals(self, pod: Pod) -> Bytes:
        """[row]: 0, or why the node refuses the pod because of other pods or volumes."""
        found: Bytes = np.zeros(len(self._ledger.nodes), dtype=np.uint8)
        if self.relational.concerns(pod):
            found = self.relational.refusals(pod)
        if self.volumes.concerns(pod):
            found = np.where(found != 0, found, self.volumes.refusals(pod)).astype(np.uint8)
        if self._outside is not None:
            found = np.where(self._outside != 0, self._outside, found).astype(np.uint8)
        return found

    def wakes(self, waiting: Pod, changed: Pod) -> bool:
        """Whether an arriving or leaving pod may help a waiting pod, on any node."""
        volumes = self.volumes
        return self.relational.wakes(waiting, changed) or volumes.helped(waiting, volumes.freed_by(changed))

    def batch(self, pod: Pod) -> Batch:
        """A batch of this pod, with a mask for its rules and preferences."""
        refusals = self.refusals(pod)
        batch = self.alone(pod, refusals)
        if self.preferred.concerns(pod):
            others = self._not_preferred(pod, batch)
            self._ledger.places.write_own_mask(pod.node_rules, np.where(refusals != 0, refusals, others))
        return batch

    def reasons(self, pod: Pod, under_quota: bool = True) -> dict[Reason, int]:
        """The nodes' reasons for a pod, and the number of nodes for each. OK = the node would take it."""
        counts = np.bincount(self.codes(pod, under_quota), minlength=INACTIVE + 1)
        return {Reason(code): int(counts[code]) for code in np.flatnonzero(counts[:INACTIVE]).tolist()}

    def codes(self, pod: Pod, under_quota: bool = True) -> Bytes:
        """[row]: 0 if the node would take the pod, else one of the kernel's reasons: the first found."""
        batch = self.alone(pod, self.refusals(pod))
        if not under_quota:
            batch = batch._replace(quota=unlimited(self._ledger.intern.vendors))
        return self._survey(pod, batch)[0].copy()

    def alone(self, pod: Pod, refusals: Bytes) -> Batch:
        """A batch of this pod, with these refusals of rows beside those of its node rules."""
        batch = self._requests.own_batch(pod, self._requests.signature(pod))
        self._ledger.places.write_own_mask(pod.node_rules, refusals)
        return batch

    def _survey(self, pod: Pod, batch: Batch) -> tuple[Bytes, Floats]:
        """[row]: 0 or why the node cannot take the pod; and its score. The next call overwrites both."""
        ledger, size = self._ledger, len(self._ledger.nodes)
        ledger.make_room(1, len(batch.taken), 1)
        profile = self._requests.in_force(pod.profile)
        survey = self._kernel(profile).survey  # first: it may make new tables for the policy
        state = ledger.state()
        survey(state, batch)
        return state.vectors.refused[FRESH, :size], state.vectors.score[FRESH, :size]

    def _not_preferred(self, pod: Pod, batch: Batch) -> Bytes:
        """[row]: INACTIVE if another node that fits is better."""
        said, scores = self._survey(pod, batch)
        fits = said == 0
        if fits.sum() < 2:
            return np.zeros(len(said), dtype=np.uint8)
        points = self.worth(pod, scores, fits)
        best = points[fits].max()
        return np.where(fits & (points < best), INACTIVE, 0).astype(np.uint8)

    def worth(self, pod: Pod, scores: Floats, fits: Flags) -> Ints:
        """By row the points of the nodes that fit, by the pod's preferences, and by its policy if that has a weight."""
        points, weight = self.preferred.points(pod, fits, pod.profile.preferences), pod.profile.policy_weight
        if not weight:
            return points
        in_points = NODE_POLICIES[self._requests.in_force(pod.profile).node].in_points
        return points + weight * (whole(scores, fits) if in_points else percent(scores, fits))


def whole(scores: Floats, fits: Flags) -> Ints:
    """Scores of a policy that already counts in points."""
    return np.where(fits, scores, 0.0).astype(np.int64)


def percent(scores: Floats, fits: Flags) -> Ints:
    """The policy's scores in the scale of Kubernetes' plugins: 0 for the worst node that fits, 100 for the best."""
    low, high = scores[fits].min(), scores[fits].max()
    if high == low:
        return np.where(fits, 100, 0)
    return np.where(fits, (100 * (np.where(fits, scores, low) - low) / (high - low)), 0).astype(np.int64)
