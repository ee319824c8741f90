"""Time mode: jobs arrive, wait, run and leave on a virtual clock. The engine alone decides what runs where, and when.

`Play` sends events to the engine and performs its effects at once. `running.py` keeps the state of running jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, assert_never

from dovetail.engine.disciplines import BACKFILL, DISCIPLINES
from dovetail.engine.queue import WaitingRoom
from dovetail.engine.scheduler import Rights
from dovetail.model.decision import Decision
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    Evict,
    GangChanged,
    GroupArrived,
    Move,
    PodBound,
    PodGone,
    PodsGone,
    QueueChanged,
    Resize,
    RoundBegins,
    Wait,
    Warn,
)
from dovetail.model.pod import Group, Pod
from dovetail.model.rights import Queue
from dovetail.sim import cast, measures
from dovetail.sim.clock import NEVER, RoundClock
from dovetail.sim.lives import NO_COSTS, Costs
from dovetail.sim.load_model import LoadModel
from dovetail.sim.measures import Steps
from dovetail.sim.players import Players, hopeless
from dovetail.sim.regime import queues_by_tenant
from dovetail.sim.results import Timed
from dovetail.sim.run_log import LogEntry, RunLog
from dovetail.sim.running import RunningJobs
from dovetail.sim.speed import NO_MODEL, SpeedModel
from dovetail.sim.stage import stage
from dovetail.sim.trace import Trace, TraceError
from dovetail.sim.variants import tie_order

__all__ = ["CannotPerform", "LogEntry", "replay"]

REPORT_EVERY = 256  # jobs that ended
Progress = Callable[[int], None]


class CannotPerform(RuntimeError):
    """The engine asked for an effect that time mode cannot perform: it does not match the state of the jobs."""


class Engine(Protocol):
    """The part of a scheduler that time mode uses."""

    @property
    def waiting(self) -> WaitingRoom: ...

    def handle(self, event: Event) -> tuple[Effect, ...]: ...


def replay(
    trace: Trace,
    policy: str,
    seed: int = 0,
    queue: str = BACKFILL,
    told: bool = True,
    mode: str = "compiled",
    progress: Progress | None = None,
    log: list[LogEntry] | None = None,
    *,
    speed: SpeedModel = NO_MODEL,
    costs: Costs = NO_COSTS,
    rights: Rights | None = None,
    round_seconds: float | None = None,
    queues: Sequence[Queue] = (),
) -> Timed:
    """Make one run.

    `seed` draws which of equally good nodes is taken (0: the first in the trace). `queue` is `backfill` or `strict`.
    `told`: joint policies are given the typical pods of the trace, otherwise they learn them. `speed` and `costs`: how
    fast jobs work, and what it costs to stop, resume or move them. `rights` replace the queue and may need rounds. A
    round begins every `round_seconds`; 0 = whenever jobs arrived or ended. `queues`: what tenants may have.
    """
    if queue not in DISCIPLINES:
        raise TraceError(f"queue {queue!r}: there is {' and '.join(DISCIPLINES)}")
    machines = tie_order(trace.machines, seed)
    plain, rights = Rights(queue), rights or Rights(queue)
    players = Players(trace, policy, rights != plain or bool(queues), queues_by_tenant(queues))
    refused = hopeless(players, stage(trace, machines, policy, told, mode))
    scheduler = stage(trace, machines, policy, told, mode, rights=rights)
    for event in _given(players, queues, rights):
        scheduler.handle(event)
    machine_of = {node.name: machine for node, machine in zip(cast.nodes_of(machines), machines, strict=True)}
    run_log = None if log is None else RunLog(machine_of, log)
    running = RunningJobs(trace.jobs, machine_of, speed, costs, run_log)
    play = Play(players, scheduler, running, refused, run_log, progress, measure=LoadModel(scheduler, policy).measure)
    play.run(round_seconds)
    found = measures.measured(trace.jobs, running.lives, machines, play.steps, running.bound_holds, queues)
    return Timed(
        trace=trace.name, policy=policy, seed=seed, queue=rights.queue, **play.counted, **running.counted, **found
    )


def _given(players: Players, queues: Sequence[Queue], rights: Rights) -> Iterator[Event]:
    """What the engine knows from the start: the queues, and where jobs may be stopped, how many pods a gang needs."""
    yield from (QueueChanged(0.0, queue.name, queue) for queue in queues)
    if rights.yielding is not None:
        yield from (GangChanged(0.0, gang.name, gang.minimum, gang.roles) for gang in players.gangs())


@dataclass(slots=True)
class Play:
    """The clock and its events. At the same moment, departures come before arrivals."""

    players: Players
    scheduler: Engine
    running: RunningJobs
    hopeless: set[int]
    log: RunLog | None
    progress: Progress | None = None
    now: float = 0.0
    events: int = 0
    decisions: int = 0
    seconds: float = 0.0
    ended: int = 0
    steps: Steps = field(default_factory=Steps)
    measure: Callable[[float], None] = lambda _: None  # measures the cluster, for policies that read signals
    _rounds: RoundClock | None = None
    _arriving: list[int] = field(init=False)  # jobs that have not arrived yet; the next one is at the end
    # job -> its bound pods, while other pods of it are not bound yet
    _bound: dict[int, list[Decision]] = field(default_factory=dict)
    _joining: dict[int, list[str]] = field(default_factory=dict)  # running job -> pods that wait to join it
    _moving: dict[int, list[Decision]] = field(default_factory=dict)  # job -> new places of its pods
    _resizing: dict[int, int] = field(default_factory=dict)  # job -> number of pods that it shall run with
    _stopping: dict[int, None] = field(default_factory=dict)  # jobs
    _came: dict[int, None] = field(default_factory=dict)  # jobs whose gang is not complete yet

    def run(self, round_seconds: float | None = None) -> None:
        self._arriving = self.players.by_arrival()[::-1]
        self.now = self.players.jobs[self._arriving[-1]].arrival if self._arriving else 0.0
        self._rounds = None if round_seconds is None else RoundClock(round_seconds, self.now)
        while self._go_on():
            pass
        self.steps.add(self.now, self.running.pending)
        if self.progress is not None:
            self.progress(self.ended)

    @property
    def counted(self) -> dict[str, Any]:
        """The fields of `Timed` about the engine."""
        speed = self.decisions / self.seconds if self.seconds else 0.0
        return {"events": self.events, "seconds": self.seconds, "decisions_per_second": speed}

    # ---- what happens next --------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Perform the next event; False after the last one.

        After the last arrival, jobs without an end leave when all jobs with an end have left. Then waiting jobs may
        start.
        """
        arrival = self.players.jobs[self._arriving[-1]].arrival if self._arriving else NEVER
        departure = self.running.departures.next_at()
        if self._rounds is not None and self._begin_round(self._rounds, min(arrival, departure)):
            pass
        elif departure <= arrival and departure != NEVER:
            self._tick(departure)
            self._leave(self.running.departures.take(departure))
        elif self._arriving:
            self._tick(arrival)
            self._arrive(self._arriving.pop())
        elif self.running.endless:
            self._leave(list(self.running.endless))
        elif self.running.count:
            raise CannotPerform(f"{self.running.count} jobs run at speed 0, and nothing can happen that changes it")
        elif len(self.scheduler.waiting):
            self._give_up(min(self.scheduler.waiting, key=lambda group: group.order))
        else:
            return False
        return True

    def _begin_round(self, rounds: RoundClock, other: float) -> bool:
        """Begin a round if one is due before `other`, the time of the next event.

        No round begins if no job runs or waits until then, or if rounds alone would go on forever.
        """
        if rounds.at >= other:
            return False
        if not self.running.count and not len(self.scheduler.waiting):
            rounds.skip_to(other)
            return False
        if other == NEVER and not rounds.is_last_resort():
            return False
        self._tick(rounds.at)
        rounds.begun()
        self._handle(RoundBegins(self.now))
        return True

    def _tick(self, at: float) -> None:
        """Advance the clock, and record the state until then."""
        if at > self.now:
            self.steps.add(self.now, self.running.pending)
            self.now = at
            self.measure(at)

    def _arrive(self, n: int) -> None:
        job = self.players.jobs[n]
        if n in self.hopeless:
            self._refuse(n)
            return
        if self._rounds is not None:
            self._rounds.changed(self.now)
        self.running.pending.add(job)
        self._came[n] = None
        together = self.players.together(n)
        if all(one in self._came for one in together):  # the roles of a gang arrive at the same moment
            for one in together:
                del self._came[one]
            self._handle(GroupArrived(self.now, self.players.group(n)))

    def _leave(self, together: Sequence[int]) -> None:
        """End all jobs of this moment together: waiting jobs are then offered the room of all of them."""
        if self._rounds is not None:
            self._rounds.changed(self.now)
        ending = self._withdraw(together) if self._joining else together
        for n in ending:
            self.running.end(n, self.now)
            self._count_end()
        self._handle(PodsGone(self.now, self._uids(ending)))

    def _uids(self, jobs: Sequence[int]) -> tuple[str, ...]:
        """The pods of these jobs that run, or ran last."""
        return tuple(decision.uid for n in jobs for decision in self.running.lives[n].places)

    def _give_up(self, group: Group) -> None:
        """Refuse a waiting group: the cluster is empty and still did not take it.

        This can happen to a gang that the policy sometimes places badly.
        """
        for n in dict.fromkeys(self.players.job_of[pod.uid] for pod in group.pods):
            self.running.give_up(n)
            self._refuse(n)
        self._handle(PodsGone(self.now, tuple(pod.uid for pod in group.pods)))

    def _refuse(self, n: int) -> None:
        if self.log is not None:
            self.log.refused(self.now, self.players.jobs[n])
        self._count_end()

    def _count_end(self) -> None:
        self.ended += 1
        if self.progress is not None and self.ended % REPORT_EVERY == 0:
            self.progress(self.ended)

    # ---- the engine and its effects -----------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Send the event to the engine, and perform its effects: first those of single pods, then those of jobs."""
        effects = list(self._tell(event))
        for effect in effects:  # grows: the engine gets an event for each performed effect, and may answer with more
            match effect:
                case Bind(pod, decision):
                    effects += self._bind(pod, decision)
                case Wait() | Warn():  # a waiting job is counted when it arrives; warnings concern running pods
                    pass
                case Move(pod, decision):
                    self._moving.setdefault(self._job_of(pod, "Move"), []).append(decision)
                    effects += self._tell(PodBound(self.now, pod.uid))
                case Evict(pod):
                    self._stopping[self._job_of(pod, "Evict")] = None
                case Resize(group, pods):
                    self._resizing[self._job_to_resize(group, pods)] = pods
                case _:
                    assert_never(effect)
        if self._moving or self._resizing or self._stopping:
            self._move_jobs()
            self._resize_jobs()
            self._stop_jobs()
        if self.running.unsettled:
            self.running.settle(self.now)

    def _tell(self, event: Event) -> tuple[Effect, ...]:
        started = perf_counter()
        effects = self.scheduler.handle(event)
        self.seconds += perf_counter() - started
        self.events += 1
        self.decisions += len(effects)
        return effects

    def _bind(self, pod: Pod, decision: Decision) -> Sequence[Effect]:
        """Bind a pod. The job starts when its last pod is bound; a running job continues with one more pod."""
        answer = self._tell(PodBound(self.now, pod.uid))
        n = self.players.job_of[pod.uid]
        if self.running.lives[n].is_running:
            self._joining[n].remove(pod.uid)
            self.running.grow(n, decision, self.now)
            return answer
        places = self._bound.setdefault(n, [])
        places.append(decision)
        if len(places) == self.players.jobs[n].pods:
            self.running.start(n, self._bound.pop(n), self.now)
        return answer

    def _job_of(self, pod: Pod, effect: str) -> int:
        n = self.players.job_of.get(pod.uid)
        if n is None or pod.uid not in self._uids_running(n):
            raise CannotPerform(f"{effect} of pod {pod.uid}: it does not run")
        return n

    def _uids_running(self, n: int) -> tuple[str, ...]:
        return self._uids((n,)) if self.running.lives[n].is_running else ()

    def _move_jobs(self) -> None:
        moving, self._moving = self._moving, {}
        for n, places in moving.items():
            self.running.move(n, places, self.now)

    def _stop_jobs(self) -> None:
        """Stop whole jobs.

        Their room is offered to other jobs first. A stopped job then waits again with its original arrival time.
        """
        if not self._stopping:
            return
        asked = list(dict.fromkeys(one for n in self._stopping for one in self.players.together(n)))
        asked, self._stopping = [n for n in asked if self.running.lives[n].is_running], {}
        stopping = self._withdraw(asked) if self._joining else asked
        for n in stopping:
            self.running.stop(n, self.now)
        self._handle(PodsGone(self.now, self._uids(stopping)))
        for n in stopping:
            if n == min(one for one in stopping if one in self.players.together(n)):
                self._handle(GroupArrived(self.now, self.players.group(n, stopping)))

    # ---- other numbers of pods ----------------------------------------------------------------------------------

    def _job_to_resize(self, group: str, pods: int) -> int:
        n = self.players.job_named.get(group)
        if n is None or not self.running.lives[n].is_running:
            raise CannotPerform(f"Resize of group {group}: it does not run")
        if not 1 <= pods <= self.players.jobs[n].pods:
            raise CannotPerform(f"Resize of group {group} to {pods} pods: it has 1 to {self.players.jobs[n].pods}")
        return n

    def _resize_jobs(self) -> None:
        """Change the number of pods of running jobs.

        For fewer pods, the last ones leave. For more, the missing ones arrive, and each joins its job when it is bound.
        A job that is also to be stopped is only stopped.
        """
        resizing, self._resizing = self._resizing, {}
        for n in self._withdraw([n for n in resizing if n not in self._stopping]):
            have, pods = self._uids_running(n), resizing[n]
            if pods < len(have):
                self.running.shrink(n, have[pods:], self.now)
                self._handle(PodsGone(self.now, have[pods:]))
            elif pods > len(have):
                missing = [uid for uid in cast.uids(self.players.jobs[n]) if uid not in have]
                self._joining[n] = missing[: pods - len(have)]
                self._handle(GroupArrived(self.now, self.players.more_pods(n, self._joining[n], len(have))))

    def _withdraw(self, jobs: Sequence[int]) -> Sequence[int]:
        """Remove the pods that wait to join one of these jobs. Return the jobs that still run.

        One pod at a time: when a pod of a group is gone, the engine offers room to the other pods of the group.
        """
        for n in jobs:
            while waiting := self._joining.get(n):
                self._handle(PodGone(self.now, waiting.pop()))
            self._joining.pop(n, None)
        return [n for n in jobs if self.running.lives[n].is_running]
