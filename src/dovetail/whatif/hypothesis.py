"""What another policy, or another scheduler, would have done with the same pods: two ledgers beside each other.

`Reality` follows what happened. `Hypothesis` is given the same nodes and pods, decides itself, and lets each pod run as
long as it ran in reality. Both are measured by the same functions, and time is an argument.

Durations are taken from reality, so they must be known before: the events are gone through twice. A pod that had not
ended when the record ends runs to the end in the hypothesis too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from dovetail.engine.recorded import RecordedScheduler
from dovetail.engine.rights.service import gpus_of
from dovetail.model.calls import EngineSettings
from dovetail.model.decision import Share
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    Evict,
    EvictionRefused,
    GroupArrived,
    PodBound,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
)
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.policies.rows import ACTIVE, CARDS, FLAGS, NODE_FLAGS, SLOTS

MAX_MOMENTS = 500  # points of the series over time

Change = Callable[[Pod], Pod]


class Took(NamedTuple):
    """A pod got a place in reality, by a decision of the scheduler whose run is recorded."""

    at: float
    uid: str
    node: str
    shares: tuple[Share, ...]


class WasStopped(NamedTuple):
    """A running pod was told to stop in reality, for another one."""

    at: float
    uid: str


Happening = Event | Took | WasStopped


@dataclass(slots=True)
class PodHistory:
    """What is known of a pod that arrived to be placed."""

    pod: Pod
    arrived: float
    placed: float | None = None  # when it got the place that it kept
    node: str = ""
    shares: tuple[Share, ...] = ()
    gone: float | None = None
    stops: int = 0  # how often it was stopped for another pod

    @property
    def gpus(self) -> float:
        return gpus_of(self.pod)

    def wait(self, end: float) -> float:
        """Seconds from its arrival to its place, or to its end or the end of the record."""
        until = self.placed if self.placed is not None else self.gone if self.gone is not None else end
        return max(0.0, until - self.arrived)


class Moment(NamedTuple):
    """The GPUs at one moment."""

    cards: int  # of active nodes
    in_use: int  # cards on which a pod is
    whole_free: int
    wanted: float  # GPUs that waiting pods ask for


@dataclass(slots=True)
class Sums:
    """Integrals over time, in GPU-seconds."""

    seconds: float = 0.0
    cards: float = 0.0
    in_use: float = 0.0
    whole_free: float = 0.0
    idle_while_wanted: float = 0.0  # the smaller of free whole GPUs and GPUs that waiting pods ask for

    def add(self, moment: Moment, seconds: float) -> None:
        self.seconds += seconds
        self.cards += moment.cards * seconds
        self.in_use += moment.in_use * seconds
        self.whole_free += moment.whole_free * seconds
        self.idle_while_wanted += min(moment.whole_free, moment.wanted) * seconds


@dataclass(slots=True)
class MeasuredLedger:
    """One ledger, its pods, and what was measured of it."""

    engine: RecordedScheduler
    lives: dict[str, PodHistory] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)  # UID -> GPUs that it asks for
    wanted: float = 0.0
    sums: Sums = field(default_factory=Sums)
    now: float = 0.0
    series: list[tuple[float, Moment]] = field(default_factory=list)
    _moment: Moment = field(default_factory=lambda: Moment(0, 0, 0, 0.0))

    def until(self, at: float) -> None:
        """Measure up to this moment; events of the past count as of now."""
        if self.now and at > self.now:
            self.sums.add(self._moment, at - self.now)
        self.now = max(self.now, at)

    def look(self) -> None:
        """Take in what the ledger shows now."""
        rows = self.engine.ledger.rows
        active = (rows.fact[:, NODE_FLAGS] & ACTIVE) != 0
        width = rows.card.shape[1]
        there = (self._numbers(width) < rows.fact[:, CARDS][:, None]) & active[:, None]
        sound = there & (rows.card[:, :, FLAGS] == 0)
        used = rows.held[:, :, SLOTS] > 0
        wanted = max(0.0, sum(self.waiting.values())) if len(self.waiting) < 64 else max(0.0, self.wanted)
        self._moment = Moment(int(there.sum()), int((there & used).sum()), int((sound & ~used).sum()), wanted)
        if not self.series or self._moment != self.series[-1][1]:
            self.series.append((self.now, self._moment))
            if len(self.series) > 2 * MAX_MOMENTS:
                self.series = self.series[::2]

    @staticmethod
    def _numbers(width: int) -> Sequence[int]:
        import numpy as np

        return np.arange(width)  # type: ignore[return-value]

    def waits(self, pod: Pod) -> None:
        if pod.uid not in self.waiting:
            self.waiting[pod.uid] = gpus_of(pod)
            self.wanted += self.waiting[pod.uid]

    def waits_no_more(self, uid: str) -> None:
        self.wanted -= self.waiting.pop(uid, 0.0)


def _settings(settings: EngineSettings) -> EngineSettings:
    """Retries happen at once: nothing else competes for the time."""
    import msgspec

    return msgspec.structs.replace(settings, deferred=False)


class Reality:
    """What happened: nothing is decided here."""

    def __init__(self, settings: EngineSettings, mode: str = "interpreted") -> None:
        self.world = MeasuredLedger(_engine(settings, mode))

    def take(self, event: Happening) -> None:
        world = self.world
        world.until(event.at)
        match event:
            case GroupArrived(at, group):
                for pod in group.pods:
                    world.lives.setdefault(pod.uid, PodHistory(pod, at)).pod = pod
                    if world.lives[pod.uid].gone is None and pod.uid not in world.engine.ledger.pods:
                        world.waits(pod)
            case Took(at, uid, node, shares):
                if uid in world.lives:
                    self._place(at, RunningPod(world.lives[uid].pod, node, shares))
            case WasStopped(_, uid):
                if uid in world.lives:
                    world.lives[uid].stops += 1
            case PodObserved(at, running):
                self._place(min(at, running.placed + 1.0) if running.placed else at, running, event)  # whole seconds
            case PodGone(at, uid):
                self._end(at, (uid,))
                world.engine.handle(event)
            case PodsGone(at, uids):
                self._end(at, uids)
                world.engine.handle(event)
            case PodBound() | PodNominated() | EvictionRefused():
                pass
            case _:
                world.engine.handle(event)
        world.look()

    def _place(self, at: float, running: RunningPod, event: PodObserved | None = None) -> None:
        world, uid = self.world, running.pod.uid
        world.waits_no_more(uid)
        world.engine.handle(event or PodObserved(at, running))
        life = world.lives.get(uid)
        if life is not None and (life.placed is None or life.node != running.node):
            life.placed, life.node = max(at, life.arrived), running.node
        if life is not None:
            life.shares = running.shares or life.shares

    def _end(self, at: float, uids: Iterable[str]) -> None:
        for uid in uids:
            self.world.waits_no_more(uid)
            if uid in self.world.lives:
                self.world.lives[uid].gone = at


def _engine(settings: EngineSettings, mode: str) -> RecordedScheduler:
    engine = RecordedScheduler(_settings(settings), mode, cache=True)
    engine.faults.tell = lambda subject, error: None
    return engine


class Hypothesis:
    """What would have happened. `durations`: seconds that each pod ran in reality; no entry = to the end."""

    def __init__(
        self,
        settings: EngineSettings,
        durations: Mapping[str, float],
        change: Change = lambda pod: pod,
        mode: str = "interpreted",
    ) -> None:
        self.world = MeasuredLedger(_engine(settings, mode))
        self._durations, self._change = durations, change
        self._ends: list[tuple[float, str]] = []  # a heap: when pods end

    def take(self, event: Happening) -> None:
        """Take in one event of reality; pods that end before it end first."""
        self._let_end(event.at)
        world = self.world
        world.until(event.at)
        match event:
            case GroupArrived(at, group):
                self._arrive(at, group)
            case Took() | WasStopped() | PodBound() | PodNominated() | EvictionRefused():
                pass  # what the other scheduler did
            case PodObserved(_, running) if running.pod.uid in world.lives:
                pass
            case PodGone(at, uid):
                self._left(at, (uid,))
            case PodsGone(at, uids):
                self._left(at, uids)
            case _:
                self._carry_out(event.at, world.engine.handle(event))
        world.look()

    def end(self, at: float) -> None:
        """The record ends here."""
        self._let_end(at)
        self.world.until(at)

    def _arrive(self, at: float, group: Group) -> None:
        world = self.world
        fresh = []
        for pod in group.pods:
            life = world.lives.get(pod.uid)
            if life is None:
                life = world.lives[pod.uid] = PodHistory(self._change(pod), at)
            life.pod = self._change(pod)  # it may be another one now: its PodGroup has become known
            if life.placed is None and life.gone is None:
                fresh.append(life.pod)
                world.waits(life.pod)
        if fresh:
            self._carry_out(at, world.engine.handle(GroupArrived(at, replace(group, pods=tuple(fresh)))))

    def _left(self, at: float, uids: Iterable[str]) -> None:
        """Pods have gone in reality. One that is placed here runs its own time, if it ran in reality."""
        for uid in uids:
            life = self.world.lives.get(uid)
            if life is None or life.placed is None or uid not in self._durations:
                self._gone(at, uid)

    def _let_end(self, at: float) -> None:
        while self._ends and self._ends[0][0] <= at:
            ends, uid = heappop(self._ends)
            self.world.until(ends)
            self._gone(max(ends, self.world.now), uid)
            self.world.look()

    def _gone(self, at: float, uid: str) -> None:
        self.world.waits_no_more(uid)
        life = self.world.lives.get(uid)
        if life is not None:
            if life.gone is not None:
                return
            life.gone = at
        self._carry_out(at, self.world.engine.handle(PodGone(at, uid)))

    def _carry_out(self, at: float, effects: Iterable[Effect]) -> None:
        """Binds succeed at once; a pod that is stopped is gone at once, and does not come back."""
        for effect in list(effects):
            if isinstance(effect, Bind):
                uid = effect.pod.uid
                life = self.world.lives[uid]
                life.placed, life.node = at, str(effect.decision.node)
                life.shares = tuple(effect.decision.shares)
                self.world.waits_no_more(uid)
                if uid in self._durations:
                    heappush(self._ends, (at + self._durations[uid], uid))
                self._carry_out(at, self.world.engine.handle(PodBound(at, uid)))
            elif isinstance(effect, Evict):
                life_ = self.world.lives.get(effect.pod.uid)
                if life_ is not None:
                    life_.stops += 1
                self._gone(at, effect.pod.uid)


def durations_of(lives: Mapping[str, PodHistory]) -> dict[str, float]:
    """How long each pod ran that got a place and ended."""
    return {
        uid: max(0.0, life.gone - life.placed)
        for uid, life in lives.items()
        if life.placed is not None and life.gone is not None
    }
