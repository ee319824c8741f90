"""Decide all waiting groups with preemption, as the live scheduler does: one arrival after another.

The groups arrive in the order in which they are served. A pod that is stopped ends at once, and the group that it
yields to gets its place. A pod that this plan had placed itself can be stopped as well, by a group that arrives later
and whose queue is owed the place. Such a pod arrives once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.gathering import waiting
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, Effect, Evict, GroupArrived, PodBound, PodsGone, Wait
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason
from dovetail.whatif.rounds import decide


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running pod that would be stopped, and why."""

    pod: Pod
    node: str
    by: Pod  # the pod, or the first pod of the gang, that gets the place
    group: str  # its group (Group.name)
    reason: str
    breaks_budget: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of all waiting pods."""

    decisions: list[Decision]  # one per pod, in the order of the groups
    evictions: tuple[Eviction, ...] = ()  # in the order in which they are decided


def decide_all(scheduler: Scheduler, groups: Sequence[Group], now: float) -> Decided:
    """Decide all groups, with preemption if the scheduler has a policy for it."""
    if scheduler.claims.plain:
        return Decided(decide(scheduler, groups))
    run = _Run(scheduler, groups, now)
    for group in groups:
        run.arrives(group)
    decisions = [run.decisions[pod.uid] for group in groups for pod in group.pods]
    return Decided(decisions, tuple(run.evictions))


@dataclass(slots=True)
class _Run:
    scheduler: Scheduler
    groups: Sequence[Group]
    now: float
    decisions: dict[str, Decision] = field(default_factory=dict)  # uid -> the first one, or its place
    evictions: list[Eviction] = field(default_factory=list)
    _again: set[str] = field(default_factory=set)  # groups that have arrived a second time

    def arrives(self, group: Group) -> None:
        effects = deque(self.scheduler.handle(GroupArrived(self.now, group)))
        while effects:
            stops = [effect for effect in effects if isinstance(effect, Evict)]
            others = [effect for effect in effects if not isinstance(effect, Evict)]
            effects.clear()
            for effect in others:
                effects.extend(self._perform(effect))
            if stops:
                effects.extend(self._stop(stops))

    def _perform(self, effect: Effect) -> Iterable[Effect]:
        if isinstance(effect, Bind):
            self.decisions[effect.pod.uid] = effect.decision
            return self.scheduler.handle(PodBound(self.now, effect.pod.uid))
        if isinstance(effect, Wait):
            self.decisions.setdefault(effect.pod.uid, effect.decision)
        return ()

    def _stop(self, stops: Sequence[Evict]) -> list[Effect]:
        """The pods end at once; those that this plan has placed wait again."""
        replaced = [stop.pod.uid for stop in stops if stop.pod.uid in self.decisions]
        for stop in stops:
            if stop.pod.uid not in self.decisions and stop.preemptor is not None:
                told = (stop.preemptor, stop.by, stop.reason, stop.breaks_budget)
                self.evictions.append(Eviction(stop.pod, stop.node, *told))
        effects = list(self.scheduler.handle(PodsGone(self.now, tuple(stop.pod.uid for stop in stops))))
        for uid in replaced:
            del self.decisions[uid]
        for group in self.groups if replaced else ():
            if any(pod.uid in replaced for pod in group.pods):
                effects += self._arrives_again(group)
        return effects

    def _arrives_again(self, group: Group) -> Iterable[Effect]:
        """Offer the pods once more, so that they get another place or a reason; only once, so that a plan ends."""
        late = waiting(self.scheduler, group)
        if group.name not in self._again:
            self._again.add(group.name)
            return self.scheduler.handle(GroupArrived(self.now, late))
        for pod in late.pods:
            self.decisions.setdefault(pod.uid, self.scheduler.placer.refused(pod, Reason.NO_NODES))
        return ()
