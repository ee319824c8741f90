"""Gangs that stay below their minimum: after a time-out, the members that hold a node are evicted (docs/gangs-live.md).

A scheduler that dies between two binds leaves a gang with too few members. The next one completes it first of all
(docs/adr/0014). Where the room is gone, the bound members would hold their devices for nothing. The time-out runs from
times that the API server stores, so that a restart does not begin it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dovetail.kube.api.client import Api
from dovetail.kube.conversion.groups import Standing, group_name
from dovetail.kube.live.evictor import Evictor
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.pod_group_objects import PodGroupObject
from dovetail.kube.live.tell import EventSubject, Note, ScheduledCondition
from dovetail.kube.live.words import cut
from dovetail.kube.log import WARNING, Log
from dovetail.model.events import Evict, GroupArrived
from dovetail.model.gang import Role
from dovetail.model.pod import group_title

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver

RELEASE_AFTER = 600.0  # seconds; the default of gangs.releaseAfterSeconds
LOOK_SECONDS = 2.0  # between two looks for gangs below their minimum
SHORTEST_TIME_LIMIT = 5.0  # seconds; a shorter one in a PodGroup counts as this
NEW_LEADER_SECONDS = 10.0  # in which a scheduler that has just started only completes gangs
RELEASE_AGAIN_SECONDS = 60.0  # until members whose eviction was refused are evicted again
MAX_RELEASES = 8  # gangs that are released in one look
GANG_RELEASED = "GangBelowMinimum"  # reason of the condition DisruptionTarget and of the events


class _IncompleteGang(NamedTuple):
    """A gang with fewer members than its minimum."""

    name: str  # Group.name
    minimum: int
    done: int  # members that succeeded
    roles: tuple[Role, ...]
    held: list[Known]  # members that have a node and are not ending
    waiting: list[Known]

    @property
    def missing(self) -> int:
        """How many members must get a node, for the gang or for its roles. Which roles succeeded is not known."""
        bound = Counter(known.pod.role for known in self.held)
        in_roles = 0 if self.done else sum(max(0, role.minimum - bound[role.name]) for role in self.roles)
        return max(self.minimum - self.done - len(self.held), in_roles)


@dataclass(slots=True)
class _Patience:
    """What is remembered of a gang while it stays below its minimum."""

    seen: float  # since when
    offered: bool = False  # it was tried once more when its time was up
    again_at: float = 0.0  # after a release: when members that were not evicted are evicted


@dataclass(slots=True)
class ReleaseCounts:
    """Counters for metrics."""

    gangs: int = 0
    pods: int = 0
    below: int = 0  # gangs below their minimum at the last look


class GangReleases:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.after: float | None = None  # seconds; None = no gang is released
        self.schedulers: frozenset[str] = frozenset()  # the scheduler names that we serve
        self.evictor: Evictor | None = None  # made by `write_by`
        self.counts = ReleaseCounts()
        self._patience: dict[str, _Patience] = {}  # by Group.name
        self._next_look = self._began = 0.0

    def write_by(self, api: Api, may_write: Callable[[], bool], log: Log) -> None:
        """Send evictions through this client, while `may_write` says that we lead."""
        preemptions = self._driver.preemptions
        self.evictor = Evictor(
            api,
            runs=preemptions.runs,
            exists=self._driver.mirror.pods.__contains__,
            wanted=lambda effect: self._is_below(effect.by),
            nominated=self._nothing_before,
            evicted=self._evicted,
            refused=lambda effect, why: None,  # the next look comes
            may_write=may_write,
            now=self._driver.now,
            log=log,
            condition=lambda effect: ScheduledCondition(GANG_RELEASED, effect.reason),
        )

    def allow(self, after: float | None, schedulers: Iterable[str]) -> None:
        """Release gangs of these schedulers after these seconds; None = none."""
        self.after, self.schedulers = after, frozenset(schedulers)

    async def _nothing_before(self, effect: Evict) -> None:
        """No nomination is written: the place is kept for no pod."""

    # ---- which gangs --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Release gangs whose time is up. Called by the loop; does nothing until the next look is due."""
        now = self._driver.now()
        self._began = self._began or now
        if self.after is None or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._forget_ended()
        below = self._gangs_below()
        self.counts.below = len(below)
        names = {gang.name for gang in below}
        for name in [name for name in self._patience if name not in names]:
            del self._patience[name]
        released = 0
        for gang in below:
            patience = self._patience.setdefault(gang.name, _Patience(now))
            seconds = self._limit(gang)
            due = patience.again_at or self._since(gang, patience) + seconds
            if now < max(due, self._began + NEW_LEADER_SECONDS) or released == MAX_RELEASES:
                continue
            if not self._has_hope(gang, patience):
                released += 1
                patience.again_at = now + RELEASE_AGAIN_SECONDS
                self._release(gang, seconds)

    def _forget_ended(self) -> None:
        """Forget what gangs without any member have done: a later gang may have the same name."""
        gangs, past = self._driver.mirror.gangs, self._driver.mirror.past
        for name in list(past):
            if not gangs.members(name) and not self._driver.scheduler.members.holding(name):
                past.begin_again(name)

    def _gangs_below(self) -> list[_IncompleteGang]:
        """Gangs of which some members have a node, but fewer than the minimum, and that we promised to start whole."""
        mirror = self._driver.mirror
        return self._below((*mirror.gangs.waiting_keys(), *mirror.past), mirror.pods.values())

    def _below(self, names: Iterable[str], pods: Iterable[Known]) -> list[_IncompleteGang]:
        """Which of these gangs are such. `pods`: at least their members."""
        gangs, past = self._driver.mirror.gangs, self._driver.mirror.past
        concerned = {
            name: _IncompleteGang(name, gangs.minimum(name), past.done(name), gangs.terms(name).roles, [], [])
            for name in dict.fromkeys(names)
            if gangs.minimum(name) > 1 and (gangs.members(name) or past.lost_at(name))
        }
        if not concerned:
            return []
        for known in pods:
            gang = concerned.get(known.pod.group)
            if gang is not None and known.stand is Stand.HOLDS and not known.pod.leaving:
                gang.held.append(known)
            elif gang is not None and known.stand is Stand.WAITS:
                gang.waiting.append(known)
        found = [gang for gang in concerned.values() if gang.held and gang.missing > 0]
        return [gang for gang in found if self._is_promised(gang)]

    def _is_promised(self, gang: _IncompleteGang) -> bool:
        """Whether these members were placed by us, as a gang, and their PodGroup is known to be as it is."""
        name = group_name(gang.name)
        if self._driver.mirror.gangs.standing(name.api_group) is Standing.BEHIND:
            return False
        if any(known.pod.scheduler not in self.schedulers for known in gang.held):
            return False
        first = min(_placed(known) or float("inf") for known in gang.held)
        return all(source.created <= first + 1.0 for source in self._sources(gang))  # both are whole seconds

    def _is_below(self, name: str) -> bool:
        """Whether the gang is still below its minimum, for the last check before an eviction."""
        mirror, kept = self._driver.mirror, self._driver.rooms.kept
        if mirror.gangs.terms(name).roles:
            uids = dict.fromkeys((*self._driver.scheduler.members.places(name), *mirror.gangs.members(name)))
            return bool(self._below([name], [mirror.pods[uid] for uid in uids if uid in mirror.pods]))
        rooms = sum(key == name for key in kept.values())
        holding = self._driver.scheduler.members.holding(name) - rooms
        return 0 < holding < mirror.gangs.minimum(name) - mirror.past.done(name)

    # ---- when ---------------------------------------------------------------------------------------------------

    def _since(self, gang: _IncompleteGang, patience: _Patience) -> float:
        """When its time-out began: the last bind, the creation of a member that waits, or the loss of a member."""
        lost = self._driver.mirror.past.lost_at(gang.name)
        bound = max(_placed(known) or patience.seen for known in gang.held)
        created = max((known.pod.created for known in gang.waiting), default=lost or patience.seen)
        return max(bound, created, lost)

    def _limit(self, gang: _IncompleteGang) -> float:
        """Seconds that its bound members wait for the others.

        The gang's own time-out is that of a start. A gang that has run whole and lost a member waits for at least the
        configured time: its running members have done work.
        """
        after, own = self.after or RELEASE_AFTER, self._driver.mirror.gangs.terms(gang.name).time_limit
        return max(own, SHORTEST_TIME_LIMIT) if own is not None and _is_starting(gang) else max(after, own or 0.0)

    def _sources(self, gang: _IncompleteGang) -> list[PodGroupObject]:
        """Its PodGroup; several for gangs that start together; none for a gang that only its pods describe."""
        found = (self._driver.mirror.pod_groups.get(name.key) for name in group_name(gang.name).parts)
        return [source for source in found if source is not None]

    def _has_hope(self, gang: _IncompleteGang, patience: _Patience) -> bool:
        """Whether the gang is about to be completed: a member is being bound, room is being made, or it fits now."""
        if any(known.pod.uid in self._driver.binder.under_way for known in gang.waiting):
            return True
        if any(self._driver.preemptions.makes_room_for(known.pod.uid) for known in gang.waiting):
            return True
        scheduler = self._driver.scheduler
        group = scheduler.waiting.find(gang.name)
        if patience.offered or group is None:
            return False
        patience.offered = True
        with scheduler.trial():
            fits = any(decision.placed for decision in scheduler.place([scheduler.members.current(group)]))
        if fits:
            self._driver.happened((GroupArrived(self._driver.now(), group),))
        return fits

    # ---- release ------------------------------------------------------------------------------------------------

    def _release(self, gang: _IncompleteGang, seconds: float) -> None:
        if self.evictor is None:
            return
        title = group_title(gang.name)
        text = (
            f"{len(gang.held)} of {gang.minimum} members of {title} have a node; "
            f"{gang.missing} more did not get one within {seconds:.0f} s"
        )
        self.counts.gangs += 1
        self._driver.log(f"{title} is released: {text}", WARNING, object=title)
        self._tell_group(gang, f"Members are evicted: {text}.")
        node_of = {known.pod.uid: known.running.node for known in gang.held if known.running is not None}
        self.evictor.submit([Evict(one.pod, node_of[one.pod.uid], gang.name, cut(text)) for one in gang.held])

    def _tell_group(self, gang: _IncompleteGang, text: str) -> None:
        concerned = {known.pod.namespace for known in gang.held}  # a tenant may name gangs of other namespaces
        for source in (one for one in self._sources(gang) if one.name.namespace in concerned):
            about = EventSubject.of_pod_group(source)
            note = Note(gang.held[0].pod, GANG_RELEASED, text, warning=True, action="Evicting", about=about)
            self._driver.teller.note(note)

    def _evicted(self, effect: Evict) -> None:
        self.counts.pods += 1
        text = f"Evicted from node {effect.node}: {effect.reason}"
        self._driver.teller.note(Note(effect.pod, GANG_RELEASED, text, warning=True, action="Evicting"))

    async def drain(self) -> None:
        """Cancel evictions that were not sent: the next leader continues."""
        if self.evictor is not None:
            await self.evictor.drain()


def _placed(known: Known) -> float:
    """When the pod got its node; 0 = not known."""
    return known.running.placed if known.running is not None else 0.0


def _is_starting(gang: _IncompleteGang) -> bool:
    """Whether the gang was never whole: the members that miss a node exist, and are as old as those that have one."""
    bound = max(_placed(known) for known in gang.held)
    together = [known for known in gang.waiting if known.pod.created <= bound + 1.0]
    return len(gang.held) + gang.done + len(together) >= gang.minimum
