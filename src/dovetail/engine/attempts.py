"""Attempts to place one group, when it arrives and while it waits, and the effects of what was decided.

A group without a place for each of its pods goes to the waiting room. The scheduler and the queue discipline say when
an attempt is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.claims import Claims
from dovetail.engine.disciplines import Discipline
from dovetail.engine.faults import Faults
from dovetail.engine.placer import Placer
from dovetail.engine.queue import WaitingRoom, left_over
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, Effect, Evict, Wait
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason


class Attempts:
    """Decides groups one by one. An exception takes only the group out on which it was raised (faults.py)."""

    def __init__(
        self, placer: Placer, waiting: WaitingRoom, claims: Claims, faults: Faults, discipline: Discipline
    ) -> None:
        self._placer, self._ledger, self._members = placer, placer.ledger, placer.members
        self._related, self._waiting, self._claims = placer.related, waiting, claims
        self._faults, self._discipline = faults, discipline

    def arrive(self, at: float, group: Group) -> list[Effect]:
        """Decide a group that is new, or that arrives again with other pods."""
        again = group.name in self._waiting
        rows = self._take_back(group)
        effects: list[Effect] = []
        try:
            group = self._members.current(group)
            may_run = self._claims.plain or self._claims.may_run(group)
            effects = self._settle(group, self._discipline.arrive(group) if may_run else self._hold_back(group))
        except Exception as error:
            if not self._faults.group(group, error):
                raise
        if rows:
            effects += self._discipline.freed(at, rows)
        return [*effects, *self._discipline.arrived_again(at)] if again else effects

    def try_waiting(self, at: float, group: Group) -> list[Effect]:
        """Try a waiting group, which the outlook has counted already. Returns the effects without `Wait`."""
        try:
            group = self._members.current(group)
            if not self._claims.may_run(group):
                return []
            decisions = self._claims.planned(group) or self._placer.place_all((group,))
            effects = self._settle(group, decisions)
        except Exception as error:
            if not self._faults.group(group, error):
                raise
            return []
        preempts = any(isinstance(effect, Evict) for effect in effects)
        return [effect for effect in effects if not isinstance(effect, Wait) or (preempts and effect.nominated)]

    def wait(self, group: Group) -> None:
        """Put the group in its line of the waiting room, which may be another line than before."""
        self._waiting.add(group, self._discipline.line_of(group))

    def _take_back(self, group: Group) -> list[int]:
        """Release what the group's pods hold: they are placed again. Returns the rows, for other pods afterwards.

        A member whose bind was refused keeps its room until it is tried again, so that no other pod takes it.
        """
        held = [pod.uid for pod in group.pods if pod.uid in self._ledger.pods]
        rows = [self._ledger.row_holding(uid) for uid in held]
        self._ledger.release_all(held)
        return list(dict.fromkeys(rows))

    def _hold_back(self, group: Group) -> Sequence[Decision]:
        return [self._placer.refused(pod, Reason.QUEUE_ORDER) for pod in group.pods]

    def _settle(self, group: Group, decisions: Sequence[Decision]) -> list[Effect]:
        """Turn decisions into effects. Pods without a place wait, and other pods may have to yield to them."""
        rest = left_over(group, decisions)
        if rest is None:
            self._waiting.remove(group.name)
            if not self._claims.plain:
                self._claims.withdrawn(group.name)
                self._claims.service.succeed(group.name)
            return list(map(self._effect, group.pods, decisions))
        evictions = [] if self._claims.plain else self._claims.make_room(rest)
        effects = [*map(self._effect, group.pods, decisions), *evictions]
        self._claims.service.fail(group.name)
        self.wait(rest)
        return effects

    def _effect(self, pod: Pod, decision: Decision) -> Effect:
        if decision.node is None:
            return Wait(pod, decision, self._claims.nominated_to(pod))
        return Bind(pod, decision, self._related.volumes.take(pod, decision.node) if pod.relations.claims else ())
