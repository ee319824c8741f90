"""A recorded run, executed again: the same calls on a new engine, whose outcomes must be the same bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from dovetail.engine.recorded import RecordedScheduler
from dovetail.model.calls import (
    AllRetried,
    Call,
    Compiled,
    EngineSettings,
    Handled,
    JournalGap,
    Offered,
    Outcome,
    Rebuilt,
    Retried,
    SearchedAgain,
    Withdrawn,
    outcome_of,
)
from dovetail.model.checkpoint import WHOLE_STATE, Checkpoint, EngineState, Expected, ServiceState
from dovetail.model.events import Effect

MAX_DIFFERENCES = 20  # that are kept


class Begun(NamedTuple):
    """A file begins: `fresh` = with an empty engine, as a process does when it starts."""

    settings: EngineSettings
    fresh: bool
    run: str
    source: str  # name of the file


class Recorded(NamedTuple):
    """A call with its number in the run, and what came of it."""

    number: int
    call: Call
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class RunDifference:
    """The first place where the outcomes of a call differ. None = there is no such outcome."""

    source: str
    number: int
    call: Call
    recorded: Outcome | None
    executed: Outcome | None


@dataclass(slots=True)
class RerunCounts:
    calls: int = 0
    decisions: int = 0  # outcomes that were compared
    checkpoints: int = 0  # that were compared with the state
    restored: int = 0  # states that were taken from a checkpoint
    gaps: int = 0
    skipped: int = 0  # calls behind a gap, before the next checkpoint
    different: int = 0
    differences: list[RunDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Rerun:
    """Executes recorded calls. `engine` is None until the first file, and behind a gap."""

    def __init__(self, mode: str = "interpreted", *, restores: bool = False, cache: bool = False) -> None:
        """`restores`: take the state of every checkpoint, even where the engine has it already."""
        self._mode, self._cache, self._restores = mode, cache, restores
        self.engine: RecordedScheduler | None = None
        self.counts = RerunCounts()
        self._settings = EngineSettings()
        self._run, self._source, self._next = "", "", 0

    def begin(self, begun: Begun) -> None:
        if begun.fresh:
            self.engine = self._new(begun.settings)
            self._next = 1
        elif begun.run != self._run:
            self.engine = None  # earlier files of this run were deleted: it begins with a checkpoint
            self._next = 0
        self._settings, self._run, self._source = begun.settings, begun.run, begun.source

    def _new(self, settings: EngineSettings) -> RecordedScheduler:
        engine = RecordedScheduler(settings, self._mode, self._cache)
        engine.faults.tell = lambda subject, error: None  # the live scheduler, too, goes on without the object
        engine.record(lambda call, effects: None)
        return engine

    def step(self, recorded: Recorded) -> list[Effect]:
        """Execute one call and compare what comes of it. Returns the effects."""
        call = recorded.call
        expected, self._next = self._next, recorded.number + 1
        self.counts.calls += 1
        if isinstance(call, JournalGap):
            self._lose(f"{self._source}, entry {recorded.number:,}: {call.reason} ({call.lost:,} entries were dropped)")
            return []
        if expected and recorded.number != expected:
            self._lose(f"{self._source}: entries {expected:,} to {recorded.number - 1:,} are missing")
        if isinstance(call, Checkpoint):
            self._at_checkpoint(recorded.number, call)
            return []
        if self.engine is None:
            self.counts.skipped += 1
            return []
        try:
            effects = perform(self.engine, call)
        except Exception as error:
            self._lose(f"{self._source}, entry {recorded.number:,}: the engine failed: {type(error).__name__}: {error}")
            self.counts.different += 1
            return []
        self._compare(recorded, [outcome_of(effect) for effect in effects])
        return effects

    def _lose(self, why: str) -> None:
        if self.engine is not None:
            self.counts.gaps += 1
            self.counts.notes.append(why)
        self.engine = None

    def _at_checkpoint(self, number: int, checkpoint: Checkpoint) -> None:
        if self.engine is not None:
            own = self.engine.checkpoint(checkpoint.state.at)
            self.counts.checkpoints += 1
            if (other := unlike(own, checkpoint)) and not checkpoint.state.inexact:
                self.counts.different += 1
                self.counts.notes.append(f"{self._source}, entry {number:,}: the state differs in {', '.join(other)}")
            if not self._restores:
                return
        self.engine = self._new(self._settings)
        self.engine.restore(checkpoint)
        assert self.engine.facts is not None
        self.engine.facts.take_in(checkpoint.facts)
        self.counts.restored += 1
        if checkpoint.state.inexact:
            self.counts.notes.append(
                f"{self._source}: the state at its begin is not complete: {checkpoint.state.inexact}"
            )

    def _compare(self, recorded: Recorded, executed: Sequence[Outcome]) -> None:
        counts = self.counts
        counts.decisions += len(recorded.outcomes)
        if tuple(executed) == recorded.outcomes:
            return
        counts.different += 1
        if len(counts.differences) < MAX_DIFFERENCES:
            mine, theirs = _first_unequal(executed, recorded.outcomes)
            counts.differences.append(RunDifference(self._source, recorded.number, recorded.call, theirs, mine))


def _first_unequal(executed: Sequence[Outcome], recorded: Sequence[Outcome]) -> tuple[Outcome | None, Outcome | None]:
    for n in range(max(len(executed), len(recorded))):
        mine, theirs = (one[n] if n < len(one) else None for one in (executed, recorded))
        if mine != theirs:
            return mine, theirs
    return None, None


def perform(engine: RecordedScheduler, call: Call) -> list[Effect]:
    """Call the engine as its driver did."""
    match call:
        case Handled(event):
            return list(engine.handle(event))
        case Retried(at, pods):
            return engine.retry_some(at, pods)
        case SearchedAgain(at):
            return list(engine.search_again(at))
        case AllRetried(at):
            return list(engine.retry_all(at))
        case Offered(at, group):
            return engine.would_place(at, group)
        case Compiled(profile):
            engine.note_compiled(profile)
        case Withdrawn(group):
            engine.withdraw(group)
        case Rebuilt(nodes, running, reserved):
            engine.rebuild(nodes, running, reserved)
        case Checkpoint() | JournalGap():
            pass
    return []


def unlike(one: Checkpoint, other: Checkpoint) -> list[str]:
    """The parts in which two states differ. The order of entries does not matter."""
    names: tuple[str, ...] = ("held", "gone", "promised", "waiting", "times", "spared", "helpless")
    if one.state.form == other.state.form == WHOLE_STATE:
        names = EngineState.__struct_fields__
    found = [name for name in names if _sorted(getattr(one.state, name)) != _sorted(getattr(other.state, name))]
    return found + ["facts"] * (_sorted(one.facts) != _sorted(other.facts))


def _sorted(part: object) -> list[bytes]:
    """The part of a state, whatever the order of its entries."""
    if isinstance(part, Expected):  # pods only stand for their shape
        return [b"%d" % n for n in (sum(n for _, n in part.times), sum(n for _, n in part.basis), part.until_next)]
    if isinstance(part, ServiceState):  # sums of seconds: trials that were undone have added them up in other steps
        jobs = (msgspec.structs.replace(job, service=round(job.service, 3)) for job in part.jobs)
        return [*_sorted(tuple(jobs)), *_sorted(part.failed), *_sorted(part.stopped)]
    entries = part if isinstance(part, tuple) else (part,)
    return sorted(msgspec.msgpack.encode(entry, order="deterministic") for entry in entries)


Part = tuple[Begun, Iterable[Recorded]]


def calls_of(parts: Iterable[Part], rerun: Rerun) -> Iterator[tuple[Recorded, list[Effect]]]:
    """Execute all calls of these files; yields each with its effects."""
    for begun, entries in parts:
        rerun.begin(begun)
        for recorded in entries:
            yield recorded, rerun.step(recorded)
