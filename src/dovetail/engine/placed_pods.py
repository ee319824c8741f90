"""Events of pods that hold a node: book, confirm and release them, and offer what they give up to waiting groups.

A pod that is gone may also have waited for a node, or one may have been nominated to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.claims import Claims
from dovetail.engine.disciplines import Discipline
from dovetail.engine.kernel.state import NONE
from dovetail.engine.observe import Observed
from dovetail.engine.placer import Placer
from dovetail.engine.queue import WaitingRoom
from dovetail.engine.rights.occupants import Times
from dovetail.model.events import Effect, Warn
from dovetail.model.pod import RunningPod


class PlacedPods:
    """Handles one event about pods on nodes. The discipline says which waiting groups are tried after it."""

    def __init__(
        self, placer: Placer, waiting: WaitingRoom, claims: Claims, observed: Observed, discipline: Discipline
    ) -> None:
        self._ledger, self._nominated, self._waiting = placer.ledger, placer.nominated, waiting
        self._claims, self._observed, self._discipline = claims, observed, discipline

    def observe(self, at: float, running: RunningPod) -> tuple[Effect, ...]:
        """Book a pod that runs.

        It no longer waits, and what it held before and does not hold now may help other pods.
        """
        uid = running.pod.uid
        if self._observed.is_as_known(running):
            if self._ledger.pods.pod(uid).labels != running.pod.labels:
                self._ledger.relabel(running.pod)
            self._observed.note(running)
            return self.bound(at, uid, Times(running.placed, running.started))
        rest = self._waiting.drop_pod(uid, runs=1)
        row, before = self._row_of(uid), self._held(uid)
        self._nominated.forget(uid)
        warnings = tuple(Warn(running.pod.key, text) for text in self._observed.book(running))
        self._claims.placed(uid, Times(running.placed, running.started))
        if row != NONE:
            self._observed.settle(row)
        if rest is not None:
            return (*warnings, *self._discipline.rest(at, rest))
        same = row == self._ledger.row_holding(uid) and before == self._held(uid)
        return (*warnings, *self._discipline.left(at, NONE if same else row))

    def bound(self, at: float, uid: str, times: Times | None = None) -> tuple[Effect, ...]:
        """Confirm the reservation, and drop the nomination.

        The nominated node may help other pods if it is not the pod's node.
        """
        kept = self._nominated.row_of(uid)
        self._ledger.confirm(uid)
        if not self._claims.plain:
            self._claims.placed(uid, Times(at, at) if times is None else times)
        self._nominated.forget(uid)
        return tuple(self._discipline.freed(at, (kept,))) if kept not in (NONE, self._ledger.row_holding(uid)) else ()

    def gone(self, at: float, uid: str) -> tuple[Effect, ...]:
        """Release a pod that is gone, or take it out of the waiting room."""
        row = self._row_of(uid)
        self._nominated.forget(uid)
        self._claims.withdrawn(self._waiting.name_of(uid))
        rest = self._waiting.drop_pod(uid)
        if rest is not None:
            return tuple(self._discipline.rest(at, rest))
        self._release((uid,), (row,))
        return tuple(self._discipline.left(at, row)) if len(self._waiting) else ()

    def all_gone(self, at: float, uids: Sequence[str]) -> tuple[Effect, ...]:
        """As `gone`, for several pods at once: no waiting group is tried before all of them are released."""
        rows = [row for uid in uids if (row := self._row_of(uid)) != NONE]
        smaller = {name for uid in uids if (name := self._waiting.name_of(uid))}
        for uid in uids:
            self._nominated.forget(uid)
            self._claims.withdrawn(self._waiting.name_of(uid))
            self._waiting.drop_pod(uid)
        self._release(uids, rows)
        effects: list[Effect] = []
        for name in sorted(smaller):  # all pods that are gone are dropped already: none is placed
            rest = self._waiting.find(name)
            effects += self._discipline.rest(at, rest) if rest is not None else self._discipline.left(at, NONE)
        if rows and len(self._waiting):
            effects += self._discipline.freed(at, tuple(dict.fromkeys(rows)))
        return tuple(effects)

    def _release(self, uids: Sequence[str], rows: Sequence[int]) -> None:
        """Release pods that are gone from these rows. Guessed pods on the rows may fit now."""
        counted = () if self._claims.plain else uids
        ended = [self._ledger.pods.pod(uid) for uid in counted if uid in self._ledger.pods]
        self._ledger.release_all(uids)
        self._claims.gone(ended)
        for uid in uids:
            self._observed.forget(uid)
        for row in dict.fromkeys(rows):
            self._observed.settle(row)

    def _row_of(self, uid: str) -> int:
        """The row that the pod holds, or that is kept for it. Other pods may wait for either."""
        row = self._ledger.row_holding(uid)
        return row if row != NONE else self._nominated.row_of(uid)

    def _held(self, uid: str) -> tuple[object, ...]:
        """What the pod holds, with its resources: a running pod may be resized."""
        resources = self._ledger.pods.pod(uid).resources if uid in self._ledger.pods else {}
        return (self._ledger.held_shares(uid), resources)
