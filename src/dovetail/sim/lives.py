"""What happened to a job in time mode: its runs, the work that is left, and the work that was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.model.decision import Decision
from dovetail.sim.clock import NEVER


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to disturb a job, in seconds. Traces have no such figures, so the default is 0. The first start
    of a job costs nothing: a trace's durations include it."""

    stop: float = 0.0  # work, at speed 1, since the last checkpoint: a stopped job repeats it; at most what was done
    start: float = 0.0  # a job that is resumed holds its cards so long before it works
    move: float = 0.0  # likewise, where a pod was moved or the job was resized


NO_COSTS = Costs()


@dataclass(slots=True)
class Run:
    """A part of a job's life in which neither its places nor its speed change."""

    begin: float
    works_from: float  # until then the job starts or moves: it holds its cards and does no work
    speed: float
    places: Sequence[Decision]  # one for each pod
    end: float = NEVER
    repeated: float = 0.0  # work of this run that a later stop lost

    @property
    def work(self) -> float:
        """Seconds at speed 1. The run has ended."""
        return self.speed * max(0.0, self.end - self.works_from)

    @property
    def seconds_lost(self) -> float:
        """Seconds in which the job held its cards for nothing: it started or moved, or what it did was lost."""
        starting = min(self.works_from, self.end) - self.begin
        return starting + (self.repeated / self.speed if self.repeated else 0.0)


@dataclass(slots=True)
class Life:
    """Of a job: when it ran, and where its pods were."""

    left: float  # work to do when its current run began, or from now on if it does not run; NEVER = it has no end
    start: float | None = None  # of its first run
    end: float | None = None
    runs: list[Run] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        return bool(self.runs) and self.runs[-1].end == NEVER

    @property
    def places(self) -> Sequence[Decision]:
        """Where its pods are, or were last."""
        return self.runs[-1].places if self.runs else ()

    @property
    def ends_at(self) -> float:
        """Of a job that runs, as things stand."""
        run = self.runs[-1]
        if not self.left:
            return run.works_from
        return run.works_from + self.left / run.speed if run.speed else NEVER

    def close(self, at: float) -> None:
        """The current run ends."""
        run = self.runs[-1]
        run.end = at
        self.left = max(0.0, self.left - run.work)

    def go_on(self, run: Run) -> None:
        """The job runs on in another way. A run that had no length leaves no trace."""
        self.close(run.begin)
        if self.runs[-1].begin == run.begin:
            self.runs.pop()
        self.runs.append(run)

    def lose(self, work: float) -> None:
        """So much of the latest work must be done again; at most all of it."""
        for run in reversed(self.runs):
            part = min(work, run.work - run.repeated)
            run.repeated += part
            self.left += part
            work -= part
            if work <= 0:
                break
