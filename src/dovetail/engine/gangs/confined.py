"""Placing equal pods on some rows only: the policy decides among these rows.

Limits say how many of the pods each domain may get. The kernel knows no limits, so it is asked for as many pods at a
time as cannot break one; then rows of full domains are closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dovetail.engine.kernel.build import Kernel
from dovetail.engine.kernel.state import FRESH, INACTIVE, NONE, OWN, RESULT_ROW, Batch
from dovetail.engine.ledger.decisions import joined
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests, Signature
from dovetail.engine.ledger.stream import pods_of
from dovetail.engine.rules.node_columns import Flags
from dovetail.engine.rules.pod_rules import Related
from dovetail.model.decision import Decision
from dovetail.model.pod import Pod, Profile
from dovetail.policies.rows import Ints


class PlacesAlone(Protocol):
    """What is needed of the placer."""

    ledger: Ledger
    requests: Requests

    @property
    def related(self) -> Related: ...

    def kernel(self, profile: Profile) -> Kernel: ...

    def is_special(self, pod: Pod) -> bool: ...

    def place_alone(self, pod: Pod) -> Decision: ...


@dataclass(slots=True)
class Limit:
    """How many more pods each domain may get; they are counted as pods are placed."""

    of_row: Ints  # [row]: number of the domain
    left: Ints  # [domain]

    def closed(self) -> Flags:
        """[row]: whether the row's domain may get no more pods."""
        closed: Flags = self.left[self.of_row] <= 0
        return closed

    def count(self, rows: Ints) -> None:
        np.subtract.at(self.left, self.of_row[rows], 1)


class Placed(NamedTuple):
    decisions: Sequence[Decision]
    rows: Ints  # [pod]: NONE = not placed


class Confined:
    def __init__(self, placer: PlacesAlone) -> None:
        self._placer = placer

    def fill(self, pods: Sequence[Pod], rows: Flags, limits: Sequence[Limit]) -> Placed:
        """Place equal pods on these rows, until one finds no place: the others would find none either."""
        made: list[Placed] = []
        done = 0
        while done < len(pods):
            allowed = rows
            for limit in limits:
                allowed = allowed & ~limit.closed()
            some = pods[done : done + _at_once(limits, allowed)]
            made.append(self._place(some, allowed))
            there = made[-1].rows[made[-1].rows != NONE]
            for limit in limits:
                limit.count(there)
            done += len(made[-1].rows)
            if len(there) < len(some):
                made.append(_not_tried(pods[done:], made[-1]))
                break
        if len(made) == 1:
            return made[0]
        found = np.concatenate([one.rows for one in made]) if made else np.zeros(0, dtype=np.int64)
        return Placed(joined([one.decisions for one in made]), found)

    def _place(self, pods: Sequence[Pod], allowed: Flags) -> Placed:
        if any(map(self._placer.is_special, pods)):
            return self._one_by_one(pods, allowed)
        if len(pods) == 1:
            return self._place_one(pods[0], allowed)
        ledger, requests = self._placer.ledger, self._placer.requests
        signatures = [requests.signature(pod) for pod in pods]
        batch = self._batch(pods, signatures, allowed)
        ledger.make_room(len(pods), len(batch.taken), len(pods))
        self._placer.kernel(signatures[0].profile).place_groups(ledger.state(), batch)
        made = ledger.adopt(pods_of(pods), batch)
        return Placed(made, batch.results[:, RESULT_ROW].copy())

    def _place_one(self, pod: Pod, allowed: Flags) -> Placed:
        """As below for one pod, without building arrays: a limit of one pod for each domain needs many such calls."""
        ledger, signature = self._placer.ledger, self._placer.requests.signature(pod)
        ledger.make_room(1, signature.entries, 1)
        batch = self._placer.requests.batch_of_one(pod, signature)
        ledger.places.write_own_mask(pod.node_rules, np.where(allowed, 0, INACTIVE).astype(np.uint8))
        batch.mask[0] = OWN
        if batch.vector[0] != FRESH:
            shared, slot = batch.scores[0] == batch.vector[0], self._own_vector()
            batch.vector[0] = slot
            batch.scores[0] = slot if shared else batch.scores[0]
        self._placer.kernel(signature.profile).place_groups(ledger.state(), batch)
        decision = ledger.adopt_one(pod, batch, signature.entries)
        return Placed((decision,), batch.results[:, RESULT_ROW].copy())

    def _own_vector(self) -> int:
        """The vector for what depends on the mask of one call, with nothing kept in it."""
        vectors = self._placer.ledger.vectors
        slot = vectors.slot("confined")
        vectors.reset(slot)
        return slot

    def _batch(self, pods: Sequence[Pod], signatures: Sequence[Signature], allowed: Flags) -> Batch:
        """A batch with a mask of its own, and with scores that are dropped afterwards where they depend on it."""
        ledger = self._placer.ledger
        batch = self._placer.requests.batch(pods, signatures, [(len(pods), 0)])
        ledger.places.write_own_mask(pods[0].node_rules, np.where(allowed, 0, INACTIVE).astype(np.uint8))
        mask = np.full(len(pods), OWN, dtype=np.int64)
        if batch.vector[0] == FRESH:
            return batch._replace(mask=mask)
        own = np.full(len(pods), self._own_vector(), dtype=np.int64)
        return batch._replace(mask=mask, vector=own, scores=own if batch.scores[0] == batch.vector[0] else batch.scores)

    def _one_by_one(self, pods: Sequence[Pod], allowed: Flags) -> Placed:
        decisions: list[Decision] = []
        with self._placer.related.confined(allowed):
            for pod in pods:
                decisions.append(self._placer.place_alone(pod))
                if not decisions[-1].placed:
                    break
        nodes = self._placer.ledger.row_of
        rows = [NONE if decision.node is None else nodes[decision.node] for decision in decisions]
        return Placed(decisions, np.array(rows, dtype=np.int64))


def _not_tried(pods: Sequence[Pod], before: Placed) -> Placed:
    """The pods after the first that found no place, with its reason."""
    if not pods:
        return Placed((), np.zeros(0, dtype=np.int64))
    last = before.decisions[int(np.flatnonzero(before.rows == NONE)[0])]
    decisions = [Decision(pod.uid, None, (), last.reason, last.generation) for pod in pods]
    return Placed(decisions, np.full(len(pods), NONE, dtype=np.int64))


def _at_once(limits: Sequence[Limit], allowed: Flags) -> int:
    """The most pods that cannot break a limit, wherever they go."""
    most = 2**40
    for limit in limits:
        left = limit.left[limit.of_row[allowed]]
        if len(left):
            most = min(most, int(left.min()))
    return max(1, most)
