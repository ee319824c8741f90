"""Why gangs wait, with numbers: one sentence for all members, kept current with a bounded number of writes.

Every arrival changes the numbers of all members. The first condition of a gang is written at once. After that, at most
`1 / SECONDS_PER_MEMBER` conditions are written for a gang each second.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.engine.gangs.planner import is_incomplete
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.gathering import gathered, incomplete, waits_singly
from dovetail.kube.conversion.groups import Standing, group_name
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.tell import ScheduledCondition
from dovetail.kube.live.words import condition_reason, cut, why_refused, without_numbers
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason

SECONDS_PER_MEMBER = 0.02
SHORTEST_PAUSE = 1.0  # seconds between two checks of one gang
# Seconds for which a gang does not report that its kind's watch is behind: usually it has caught up by then.
CATCH_UP_SECONDS = 5.0
Condense = Callable[[Pod, Reason], ScheduledCondition | None]  # what one pod lacks, by the present answers of all nodes


class GangReasons:
    """Gangs that are to be checked again, each with its time."""

    def __init__(self, scheduler: Scheduler, now: Callable[[], float]) -> None:
        self._scheduler, self._now = scheduler, now
        self._due: dict[str, float] = {}  # group name -> when to check it
        self._not_before: dict[str, float] = {}  # group name -> when a gang that was checked may be checked again

        self._behind: dict[str, float] = {}  # group name -> since when its kind's watch is behind

    def note(self, name: str) -> None:
        """Note that something about the gang has changed."""
        due = max(self._now(), self._not_before.get(name, 0.0))
        self._due[name] = min(due, self._due.get(name, due))

    def note_all(self) -> None:
        """Check every waiting gang, and forget the others."""
        there = [group.name for group in self._scheduler.waiting if group.pods[0].group == group.name]
        self._not_before = {name: self._not_before[name] for name in there if name in self._not_before}
        self._behind = {name: self._behind[name] for name in there if name in self._behind}
        for name in there:
            self.note(name)

    def is_due(self) -> bool:
        now = self._now()
        return any(due <= now for due in self._due.values())

    def next(self, mirror: Mirror) -> Group | None:
        """A waiting gang that is due; members that hold a place are counted."""
        now = self._now()
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            waiting = self._scheduler.waiting.find(name)
            if waiting is None:
                continue
            if mirror.gangs.standing(group_name(name).api_group) is not Standing.BEHIND:
                self._behind.pop(name, None)
            elif now < self._behind.setdefault(name, now) + CATCH_UP_SECONDS:
                self._due[name] = self._behind[name] + CATCH_UP_SECONDS
                continue
            self._not_before[name] = now + max(SHORTEST_PAUSE, SECONDS_PER_MEMBER * len(waiting.pods))
            return self._scheduler.members.current(waiting)
        return None

    def condition(self, group: Group, mirror: Mirror, condense: Condense) -> ScheduledCondition | None:
        """One condition for all members; None if they fit now or wait singly."""
        if is_incomplete(group):
            if len(mirror.gangs.members(group.name)) > len(group.pods):
                return None  # the others pause after a refused bind, and their conditions say so
            return ScheduledCondition(condition_reason(Reason.GROUP_INCOMPLETE), cut(f"{incomplete(group)}."))
        if waits_singly(group):
            return None
        with gathered(self._scheduler, group) as gathering:
            pod = gathering.left_out
            if group.is_plain and (pod is None or gathering.fit >= group.needed):
                return None
            if pod is None:
                return ScheduledCondition(condition_reason(Reason.GROUP_NOT_PLACED), cut(f"{gathering.sentence}."))
            lacks = condense(pod, self._scheduler.reason(group, pod))
            if lacks is None:
                return ScheduledCondition(condition_reason(Reason.GROUP_NOT_PLACED), cut(f"{gathering.sentence}."))
            return ScheduledCondition(lacks.reason, cut(f"{gathering.sentence}; the next finds {lacks.message}"))


def own_refusal(pod: Pod) -> ScheduledCondition | None:
    """What is wrong with the pod itself, or with an object that it names."""
    if pod.refusal is None:
        return None
    return ScheduledCondition(condition_reason(pod.refusal.reason), why_refused(pod, pod.refusal.reason))


def gist(reason: str, message: str) -> tuple[str, str, str]:
    """The part of a condition whose change causes a new write.

    For a gang, this includes how many members exist or fit, but not the number of nodes with each reason.
    """
    head, _, rest = message.partition("; the next finds ")
    if not rest and "members of" not in head:
        return reason, "", without_numbers(head)
    return reason, head, without_numbers(rest)


def same_but_numbers(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether two conditions differ in numbers only: no event is sent for that."""
    return before[0] == now[0] and without_numbers(before[1]) == without_numbers(now[1])
