"""Reads journals for the commands: files as parts of a run, times as people write them, and pods by name."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dovetail.cli.errors import Refused
from dovetail.cli.output.terminal import say
from dovetail.engine.recorded import rights_from
from dovetail.kube.journal.files import JournalFile, UnreadableJournal, journal_files, open_journal, read_entries
from dovetail.model.calls import Call, Handled, KeptWaiting, Offered, Outcome, PlacedPod
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.events import GroupArrived, PodObserved
from dovetail.model.pod import Group, Pod
from dovetail.whatif.rerun import Begun, Recorded

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])(?:\s*ago)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(slots=True)
class JournalReader:
    """The files of one folder, or one file. Reading fills in what was found: torn ends, damage."""

    files: list[JournalFile]

    @classmethod
    def of(cls, place: str) -> JournalReader:
        try:
            files = [open_journal(path) for path in journal_files(Path(place))]
        except UnreadableJournal as error:
            raise Refused(str(error)) from error
        for one in files:
            _check_settings(one)
        return cls(files)

    def parts(self) -> Iterator[tuple[Begun, Iterator[Recorded]]]:
        for one in self.files:
            header = one.header
            begun = Begun(header.settings, header.part == 1, header.run, one.path.name)
            yield begun, (Recorded(*entry) for entry in self._entries(one))

    def _entries(self, one: JournalFile) -> Iterator[Recorded]:
        one.entries = 0
        return (Recorded(*entry) for entry in read_entries(one))

    def all(self) -> Iterator[Recorded]:
        return (recorded for _, entries in self.parts() for recorded in entries)

    def complaints(self) -> list[str]:
        """What could not be read, after reading."""
        return [f"{one.path}: {one.damage}" for one in self.files if one.damage]

    def tell(self) -> None:
        """Say what was found while reading."""
        for one in self.files:
            if one.torn:
                say(f"{one.path.name}: the last {one.torn:,} bytes are incomplete: a process was killed meanwhile")
        for complaint in self.complaints():
            say(complaint)


def _check_settings(one: JournalFile) -> None:
    """Raise Refused if the header names an order or a discipline that this version does not have."""
    try:
        rights_from(one.header.settings)
    except ValueError as error:
        raise Refused(f"{one.path}: the header cannot be used: {error}; use the version that wrote it") from error


def at_of(call: Call) -> float:
    """When the call was made; 0 = it has no time of its own."""
    if isinstance(call, Handled):
        return call.event.at
    if isinstance(call, Checkpoint):
        return call.state.at
    return float(getattr(call, "at", 0.0))


def written_time(at: float) -> str:
    """A moment in UTC; short numbers are seconds of a test."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else ""


def parse_time(text: str, option: str) -> float:
    """Seconds since the epoch: `2026-11-10T14:00`, `2026-11-10 14:00:30Z`, or `2h`, `3d` ago."""
    if found := _AGO.fullmatch(text.strip()):
        return time.time() - float(found[1]) * _SECONDS[found[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        example = "2026-11-10T14:00, 2026-11-10T14:00:30+01:00, or 90m, 2h, 3d ago"
        raise Refused(f"{option}: {text!r} is no time; write {example} (UTC unless it says otherwise)") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def groups_of(call: Call) -> Sequence[Group]:
    """The groups that the call brings."""
    match call:
        case Handled(GroupArrived(_, group)) | Offered(_, group):
            return (group,)
        case Checkpoint(_, state):
            return state.waiting
    return ()


def pods_of(call: Call) -> Iterator[Pod]:
    """The pods that the call names in full."""
    for group in groups_of(call):
        yield from group.pods
    match call:
        case Handled(PodObserved(_, running)):
            yield running.pod
        case Checkpoint(facts, state):
            yield from (holding.pod for holding in state.held)
            yield from (event.running.pod for event in facts if isinstance(event, PodObserved))


@dataclass(slots=True)
class PodDecision:
    """The decision about a pod that a question means."""

    pod: Pod
    number: int
    run: str
    outcome: Outcome
    at: float


@dataclass(slots=True)
class PodSearch:
    """Finds the decision about a pod: the last one before a moment, a place rather than a reason to wait."""

    namespace: str
    name: str
    until: float
    pods: dict[str, Pod] = field(default_factory=dict)  # by UID
    placed: PodDecision | None = None
    waits: PodDecision | None = None
    _now: float = 0.0

    def look(self, run: str, recorded: Recorded) -> None:
        self._now = at_of(recorded.call) or self._now
        for pod in pods_of(recorded.call):
            if (pod.namespace, pod.name) == (self.namespace, self.name):
                self.pods[pod.uid] = pod
        if self._now > self.until:
            return
        for outcome in recorded.outcomes:
            uid = outcome.uid if isinstance(outcome, (PlacedPod, KeptWaiting)) else ""
            if uid in self.pods:
                found = PodDecision(self.pods[uid], recorded.number, run, outcome, self._now)
                if isinstance(outcome, PlacedPod):
                    self.placed = found
                else:
                    self.waits = found

    @property
    def found(self) -> PodDecision | None:
        """The last place; or the last reason, if it came later."""
        if self.placed is None or (self.waits is not None and self.waits.at > self.placed.at):
            return self.waits
        return self.placed
