"""Time mode: jobs arrive, wait, run and leave on a virtual clock. Only the engine decides who goes where, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from time import perf_counter
from typing import NamedTuple, assert_never

from dovetail.engine.disciplines import BACKFILL, DISCIPLINES
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.decision import Decision
from dovetail.model.events import (
    Bind,
    Event,
    Evict,
    GroupArrived,
    Move,
    PodBound,
    PodsGone,
    Resize,
    Wait,
    Warn,
)
from dovetail.model.order import natural
from dovetail.model.pod import Group, Pod
from dovetail.sim import cast, measures
from dovetail.sim.measures import Life, Steps
from dovetail.sim.pending import IdleAndWaiting
from dovetail.sim.profiles import profile_of
from dovetail.sim.results import Timed
from dovetail.sim.stage import stage
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from dovetail.sim.variants import tie_order

REPORT_EVERY = 256  # jobs that ended
Progress = Callable[[int], None]


class LogEntry(NamedTuple):
    """A line of the log. What a GPU gives at a moment is the larger of the sums of `milli` and of `memory_mib`, each
    as a part of the card, over the pods that are on it then."""

    at: float
    what: str  # "start", "end", or "refused" and then nothing but the job
    job: str
    pod: str = ""
    node: str = ""  # the machine's name
    gpus: tuple[int, ...] = ()
    milli: int = 0  # of each of these GPUs
    memory_mib: int = 0  # likewise


def replay(
    trace: Trace,
    policy: str,
    seed: int = 0,
    queue: str = BACKFILL,
    told: bool = True,
    mode: str = "compiled",
    progress: Progress | None = None,
    log: list[LogEntry] | None = None,
) -> Timed:
    """One run. `seed` draws which of equally good nodes is taken (0: the first in the trace), `queue` is `backfill`
    or `strict`. `told`: policies that prepare for typical pods are given those of the trace, else they learn."""
    if queue not in DISCIPLINES:
        raise TraceError(f"queue {queue!r}: there is {' and '.join(DISCIPLINES)}")
    machines = tie_order(trace.machines, seed)
    players = Players(trace, policy)
    hopeless = _hopeless(players, stage(trace, machines, policy, told, mode))
    scheduler = stage(trace, machines, policy, told, mode, rights=Rights(queue))
    play = Play(players, scheduler, machines, hopeless, progress, log)
    play.run()
    return Timed(
        trace=trace.name,
        policy=policy,
        seed=seed,
        queue=queue,
        events=play.events,
        seconds=play.seconds,
        decisions_per_second=play.decisions / play.seconds if play.seconds else 0.0,
        **measures.measured(trace.jobs, play.lives, machines, play.steps),
    )


class Players:
    """The trace's jobs as groups for the engine."""

    def __init__(self, trace: Trace, policy: str) -> None:
        self.jobs = trace.jobs
        self._templates, kinds = cast.cast(trace.jobs, profile_of(policy))
        self.kinds: list[int] = kinds.tolist()
        self.job_of = {uid: n for n, job in enumerate(self.jobs) for uid in cast.uids(job)}
        if len(self.job_of) != sum(job.pods for job in self.jobs):
            raise TraceError(f"{trace.name}: names of jobs, or of pods of gangs (JOB.0, JOB.1, …), are not distinct")

    def group(self, n: int) -> Group:
        job, template = self.jobs[n], self._templates[self.kinds[n]]
        pods = [replace(template, name=uid, uid=uid, created=job.arrival) for uid in cast.uids(job)]
        return cast.group_of(job, pods)

    def by_arrival(self) -> list[int]:
        """Who arrives together does so in the order of the queue, however the trace has them."""

        def key(n: int) -> tuple[object, ...]:
            job = self.jobs[n]
            return (job.arrival, -job.priority, natural(job.name))

        return sorted(range(len(self.jobs)), key=key)


def _hopeless(players: Players, empty: Scheduler) -> set[int]:
    """Jobs that even the empty cluster does not take: the engine is asked, once for each distinct request."""
    fits: dict[tuple[int, int], bool] = {}
    for n, job in enumerate(players.jobs):
        key = (players.kinds[n], job.pods)
        if key not in fits:
            decisions = empty.place((players.group(n),))
            fits[key] = all(decision.placed for decision in decisions)
            empty.ledger.release_all([decision.uid for decision in decisions])
    return {n for n, job in enumerate(players.jobs) if not fits[players.kinds[n], job.pods]}


@dataclass(slots=True)
class Play:
    """The clock and what happens. Departures come before arrivals of the same moment."""

    players: Players
    scheduler: Scheduler
    machines: Sequence[Machine]
    hopeless: set[int]
    progress: Progress | None = None
    log: list[LogEntry] | None = None
    now: float = 0.0
    events: int = 0
    decisions: int = 0
    seconds: float = 0.0
    ended: int = 0
    lives: list[Life] = field(init=False)
    pending: IdleAndWaiting = field(init=False)
    steps: Steps = field(init=False)
    _machine_of: dict[str, Machine] = field(init=False)  # by the node's name
    _leaving: list[tuple[float, int]] = field(init=False)  # (when, job): a heap
    _staying: list[int] = field(init=False)  # running jobs without an end of their own

    def __post_init__(self) -> None:
        self.lives = [Life() for _ in self.players.jobs]
        self.pending, self.steps = IdleAndWaiting(self.machines), Steps()
        self._machine_of = {node.name: m for node, m in zip(cast.nodes_of(self.machines), self.machines, strict=True)}
        self._leaving, self._staying = [], []

    def run(self) -> None:
        arriving = self.players.by_arrival()
        self.now = self.players.jobs[arriving[0]].arrival if arriving else 0.0
        for n in arriving:
            at = self.players.jobs[n].arrival
            while self._leaving and self._leaving[0][0] <= at:
                self._next_leave()
            self._tick(at)
            self._arrive(n)
        while self._go_on():
            pass
        self.steps.add(self.now, self.pending)
        if self.progress is not None:
            self.progress(self.ended)

    def _go_on(self) -> bool:
        """After the last arrival. Jobs without an end leave when all that have one did; then others may start."""
        if self._leaving:
            self._next_leave()
        elif self._staying:
            staying, self._staying = self._staying, []
            self._leave(self.now, staying)
        elif len(self.scheduler.waiting):
            self._give_up(min(self.scheduler.waiting, key=lambda group: group.order))
        else:
            return False
        return True

    def _tick(self, at: float) -> None:
        """What holds now holds until then."""
        if at > self.now:
            self.steps.add(self.now, self.pending)
            self.now = at

    def _arrive(self, n: int) -> None:
        job = self.players.jobs[n]
        if n in self.hopeless:
            self._note(LogEntry(self.now, "refused", job.name))
            self._count_end()
            return
        self.pending.add(job)
        self._handle(GroupArrived(self.now, self.players.group(n)))

    def _next_leave(self) -> None:
        """All whose time is up at the same moment: who waits is offered what they leave together."""
        at, first = heappop(self._leaving)
        together = [first]
        while self._leaving and self._leaving[0][0] == at:
            together.append(heappop(self._leaving)[1])
        self._leave(at, together)

    def _leave(self, at: float, together: Sequence[int]) -> None:
        self._tick(at)
        gone = tuple(uid for n in together for uid in self._end(n))
        self._handle(PodsGone(self.now, gone))

    def _end(self, n: int) -> list[str]:
        job, life = self.players.jobs[n], self.lives[n]
        life.end = self.now
        for entry in self._entries("end", job, life.places):
            self._note(entry)
        self._take(job, life.places, -1)
        self._count_end()
        return [decision.uid for decision in life.places]

    def _give_up(self, group: Group) -> None:
        """The cluster is empty and still did not take it: a gang that the policy now and then places badly."""
        job = self.players.jobs[self.players.job_of[group.pods[0].uid]]
        self._note(LogEntry(self.now, "refused", job.name))
        self.pending.remove(job)
        self._count_end()
        self._handle(PodsGone(self.now, tuple(pod.uid for pod in group.pods)))

    def _handle(self, event: Event) -> None:
        started = perf_counter()
        effects = self.scheduler.handle(event)
        self.seconds += perf_counter() - started
        self.events += 1
        self.decisions += len(effects)
        for effect in effects:
            match effect:
                case Bind(pod, decision):
                    self._bind(pod, decision)
                case Wait() | Warn():  # a waiting job is counted when it arrives; warnings are about running pods
                    pass
                case Evict() | Move() | Resize():
                    raise NotImplementedError(f"time mode cannot perform {type(effect).__name__}")
                case _:
                    assert_never(effect)

    def _bind(self, pod: Pod, decision: Decision) -> None:
        """Performed at once. The job runs when its last pod is bound."""
        self._handle(PodBound(self.now, pod.uid))
        n = self.players.job_of[pod.uid]
        job, life = self.players.jobs[n], self.lives[n]
        life.places.append(decision)
        if len(life.places) < job.pods:
            return
        life.start = self.now
        self.pending.remove(job)
        self._take(job, life.places, 1)
        for entry in self._entries("start", job, life.places):
            self._note(entry)
        if job.duration is None:
            self._staying.append(n)
        else:
            heappush(self._leaving, (self.now + job.duration, n))

    def _take(self, job: Job, places: Sequence[Decision], sign: int) -> None:
        if job.gpus:
            for decision in places:
                self.pending.take(self._machine_of[str(decision.node)], decision.shares, sign)

    def _entries(self, what: str, job: Job, places: Sequence[Decision]) -> Iterator[LogEntry]:
        if self.log is not None:
            for decision in places:
                gpus = tuple(map(cast.card_index, decision.shares))
                machine = self._machine_of[str(decision.node)]
                memory = decision.shares[0].memory_mib if gpus else 0
                yield LogEntry(self.now, what, job.name, decision.uid, machine.name, gpus, job.gpu_milli, memory)

    def _note(self, entry: LogEntry) -> None:
        if self.log is not None:
            self.log.append(entry)

    def _count_end(self) -> None:
        self.ended += 1
        if self.progress is not None and self.ended % REPORT_EVERY == 0:
            self.progress(self.ended)
