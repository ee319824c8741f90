"""Members of gangs that have ended: how many succeeded and failed, and when a gang last lost a member without success.

A member that succeeded has done its part: its gang is not below its minimum because of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from dovetail.kube.conversion.groups import group_name
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.objects import core as objects
from dovetail.model.pod import Pod

# Beyond it, the namespace with most gangs loses one: first those without members, then that longest without news.
MAX_REMEMBERED_GANGS = 10_000


@dataclass(slots=True)
class _Ended:
    succeeded: set[str] = field(default_factory=set)  # uids of pods that exist
    failed: set[str] = field(default_factory=set)  # likewise
    done: int = 0  # members that succeeded since the gang last had no member at all; also those that are deleted
    lost_at: float = 0.0


class GangPast:
    def __init__(self) -> None:
        self._gangs: OrderedDict[str, _Ended] = OrderedDict()  # by Group.name, that with the last news last
        self._names: dict[str, OrderedDict[str, None]] = {}  # by namespace, in the order in which they are forgotten

    def __iter__(self) -> Iterator[str]:
        return iter(self._gangs)

    def ended(self, key: str, uid: str, succeeded: bool) -> None:
        """Note a pod that has finished and still exists."""
        past = self._of(key)
        if succeeded and uid not in past.succeeded:
            past.succeeded.add(uid)
            past.done += 1
        elif not succeeded:
            past.failed.add(uid)

    def leave_out_earlier_runs(self, ended: Iterable[tuple[str, float]], there: Iterable[Pod]) -> None:
        """Do not count members that had ended before the oldest present member was created: they were another run's.

        `ended`: gangs and times of pods that had succeeded before this scheduler saw them. `there`: pods that wait or
        hold a node. A pod that ended later ran together with the present members.
        """
        ended = [(key, at) for key, at in ended if key in self._gangs]
        if not ended:
            return
        began: dict[str, float] = {}
        for pod in there:
            if pod.group in self._gangs:
                began[pod.group] = min(began.get(pod.group, inf), pod.created)
        for key, at in ended:
            if at < began.get(key, -inf):
                self._gangs[key].done = max(0, self._gangs[key].done - 1)

    def lost(self, key: str, at: float) -> None:
        """Note that a member that waited or held a node is gone, without success."""
        self._of(key).lost_at = at

    def deleted(self, uid: str, key: str) -> None:
        """Note that a pod does not exist any more. A pod that had succeeded still counts as done."""
        past = self._gangs.get(key)
        if past is not None:
            past.succeeded.discard(uid)
            past.failed.discard(uid)

    def begin_again(self, key: str) -> None:
        """Note that the gang has no member: the next one of this name has done nothing yet."""
        past = self._gangs.get(key)
        if past is not None:
            past.done, past.lost_at = 0, 0.0
            self._names[group_name(key).namespace].move_to_end(key, last=False)
            if not past.succeeded and not past.failed:
                self._forget(key)

    def succeeded(self, key: str) -> int:
        return len(self._gangs[key].succeeded) if key in self._gangs else 0

    def failed(self, key: str) -> int:
        return len(self._gangs[key].failed) if key in self._gangs else 0

    def done(self, key: str) -> int:
        return self._gangs[key].done if key in self._gangs else 0

    def lost_at(self, key: str) -> float:
        """When the gang last lost a member without success, as far as this scheduler saw it; 0 = it did not."""
        return self._gangs[key].lost_at if key in self._gangs else 0.0

    def _of(self, key: str) -> _Ended:
        past = self._gangs.setdefault(key, _Ended())
        self._gangs.move_to_end(key)
        names = self._names.setdefault(group_name(key).namespace, OrderedDict())
        names[key] = None
        names.move_to_end(key)
        if len(self._gangs) > MAX_REMEMBERED_GANGS:
            most = max(self._names.values(), key=len)
            self._forget(next(iter(most)))
        return past

    def _forget(self, key: str) -> None:
        namespace = group_name(key).namespace
        del self._gangs[key], self._names[namespace][key]
        if not self._names[namespace]:
            del self._names[namespace]


def ended_at(status: objects.PodStatus) -> float:
    """When a finished pod ended, as its conditions tell: the last change of one. Infinite = they do not."""
    times = (seconds_of(condition.last_transition_time) for condition in status.conditions)
    return max((at for at in times if at is not None), default=inf)
