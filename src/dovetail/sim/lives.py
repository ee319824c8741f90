"""What happened to a job in time mode: its runs, the work that is left, and the work that was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.model.decision import Decision
from dovetail.sim.clock import NEVER


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to disturb a job, in seconds.

    Traces have no such numbers, so the default is 0. The first start of a job costs nothing: a trace's durations
    include it.
    """

    # work (at speed 1) since the last checkpoint, which a stopped job repeats; at most the work that was done
    stop: float = 0.0
    start: float = 0.0  # a resumed job holds its cards for this time before it works
    move: float = 0.0  # likewise, after a pod was moved or the job was resized


NO_COSTS = Costs()


@dataclass(slots=True)
class JobRun:
    """A period of a job's life in which its places and its speed do not change."""

    begin: float
    works_from: float  # until then the job starts or moves: it holds its cards, but does no work
    speed: float
    places: Sequence[Decision]  # one for each pod
    end: float = NEVER
    repeated: float = 0.0  # work of this run that a later stop lost

    @property
    def work(self) -> float:
        """Work done in seconds at speed 1. Only valid after the run has ended."""
        return self.speed * max(0.0, self.end - self.works_from)

    @property
    def seconds_lost(self) -> float:
        """Seconds in which the job held its cards for nothing: it started or moved, or its work was lost."""
        starting = min(self.works_from, self.end) - self.begin
        return starting + (self.repeated / self.speed if self.repeated else 0.0)


@dataclass(slots=True)
class Life:
    """The life of a job: when it ran, and where its pods were."""

    left: float  # work left at the begin of the current run, or now if the job does not run; NEVER = the job has no end
    start: float | None = None  # of its first run
    end: float | None = None
    runs: list[JobRun] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        return bool(self.runs) and self.runs[-1].end == NEVER

    @property
    def places(self) -> Sequence[Decision]:
        """Where the job's pods are, or were last."""
        return self.runs[-1].places if self.runs else ()

    @property
    def ends_at(self) -> float:
        """The end of a running job, if its speed does not change."""
        run = self.runs[-1]
        if not self.left:
            return run.works_from
        return run.works_from + self.left / run.speed if run.speed else NEVER

    def close(self, at: float) -> None:
        """End the current run."""
        run = self.runs[-1]
        run.end = at
        self.left = max(0.0, self.left - run.work)

    def go_on(self, run: JobRun) -> None:
        """Continue with another run. Drop the current run if it had no length."""
        self.close(run.begin)
        if self.runs[-1].begin == run.begin:
            self.runs.pop()
        self.runs.append(run)

    def lose(self, work: float) -> None:
        """Add up to `work` of the latest work to what is left: it must be done again."""
        for run in reversed(self.runs):
            part = min(work, run.work - run.repeated)
            run.repeated += part
            self.left += part
            work -= part
            if work <= 0:
                break
