"""Schedulers that disturb running jobs when a test wants it, and what a run left behind: for tests of time mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from dovetail.engine.ledger import audit
from dovetail.engine.queue import WaitingRoom
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Effect, Event, Evict, GroupArrived, Move, PodsGone, Resize, RoundBegins
from dovetail.model.pod import POD_GROUP, Group, Profile
from dovetail.sim.lives import Life
from dovetail.sim.results import Timed
from dovetail.sim.running import RunningJobs
from dovetail.sim.stage import stage
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Trace

Disturb = Callable[["ToyEngine", Event], Sequence[Effect]]


@dataclass(slots=True)
class ToyEngine:
    """A real scheduler whose effects are followed by those that a test adds."""

    scheduler: Scheduler
    disturb: Disturb

    @property
    def waiting(self) -> WaitingRoom:
        return self.scheduler.waiting

    def handle(self, event: Event) -> tuple[Effect, ...]:
        effects = self.scheduler.handle(event)
        return (*effects, *self.disturb(self, event))

    def running(self) -> list[str]:
        """UIDs of pods whose binding came true."""
        ledger = self.scheduler.ledger
        return sorted(uid for uid in ledger.pods if not ledger.is_reserved(uid))

    def evict(self, uid: str) -> Evict:
        ledger = self.scheduler.ledger
        return Evict(ledger.pods.pod(uid), ledger.node_of(uid), "", "the test says so")

    def move(self, uid: str, policy: str = "spread") -> Move:
        """To where this policy puts the pod, which gives up its place for it."""
        ledger = self.scheduler.ledger
        pod = replace(ledger.pods.pod(uid), profile=Profile(policy, ("best-fit",)))
        ledger.release(uid)
        (decision,) = self.scheduler.place((Group(f"moved/{uid}", (pod,)),))
        return Move(pod, decision)


@dataclass(frozen=True, slots=True)
class Played:
    """All that a run leaves behind."""

    result: Timed
    log: list[LogEntry]
    lives: dict[str, Life]  # job -> life

    def times(self, job: str) -> list[tuple[str, float]]:
        """What happened to the job's first pod."""
        return [(entry.what, entry.at) for entry in self.log if entry.pod in (job, f"{job}.0")]

    def ends(self) -> dict[str, float | None]:
        return {name: life.end for name, life in self.lives.items()}


def play(trace: Trace, disturb: Disturb | None = None, queue: str = "backfill", **more: Any) -> Played:
    """One interpreted run, which leaves its ledger empty."""
    made: list[Scheduler] = []
    jobs: list[RunningJobs] = []
    log: list[LogEntry] = []

    def staged(*args: Any, **options: Any) -> Scheduler | ToyEngine:
        made.append(stage(*args, **options))
        first = len(made) == 1  # which is asked what could run on the empty cluster
        return made[-1] if disturb is None or first else ToyEngine(made[-1], disturb)

    def remembered(*args: Any) -> RunningJobs:
        jobs.append(RunningJobs(*args))
        return jobs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.sim.timeline.stage", staged)
        patch.setattr("dovetail.sim.timeline.RunningJobs", remembered)
        result = replay(trace, "best-fit", queue=queue, mode="interpreted", log=log, **more)
    audit.validate(made[-1].ledger)
    assert not made[-1].ledger.pods
    assert not len(made[-1].waiting)
    return Played(result, log, {job.name: life for job, life in zip(trace.jobs, jobs[0].lives, strict=True)})


class RandomDisturbance:
    """Stops, moves and resizes of running jobs, so many in all, by a seed. `what`: the kinds, each once or more."""

    def __init__(self, trace: Trace, seed: int, what: Sequence[str], budget: int = 12) -> None:
        self._jobs = {job.name: job for job in trace.jobs}
        self._chance, self._what, self._left = Random(seed), what, budget

    def __call__(self, engine: ToyEngine, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        if not isinstance(event, GroupArrived | PodsGone | RoundBegins):
            return effects
        while self._left and (running := engine.running()) and self._chance.random() < 0.6:
            self._left -= 1
            uid, kind = self._chance.choice(running), self._chance.choice(self._what)
            if kind == "stop":
                effects.append(engine.evict(uid))
            elif kind == "move":
                effects.append(engine.move(uid, self._chance.choice(("spread", "first-fit"))))
            else:
                job = self._jobs[uid if uid in self._jobs else uid.rpartition(".")[0]]
                name = f"trace/{job.name}" if job.pods == 1 else f"{POD_GROUP}trace/{job.name}"
                effects.append(Resize(name, self._chance.randint(1, job.pods), "the test says so"))
        return effects
