"""The loop's side of the journal: hands calls to the writer, and makes checkpoints when the writer needs one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from dovetail import own_folder
from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal.writer import JournalWriter, Limits
from dovetail.kube.log import INFO, WARNING, Log
from dovetail.model.calls import Call, JournalGap
from dovetail.model.events import Effect

CHECKPOINT_SECONDS = 10.0  # between two checkpoints, whatever happens
CLOSE_SECONDS = 5.0  # for writing what is pending when the process ends


NO_JOURNAL: dict[str, float] = {
    "dovetail_journal_entries_total": 0.0,
    "dovetail_journal_bytes_total": 0.0,
    "dovetail_journal_lost_total": 0.0,
    "dovetail_journal_gaps_total": 0.0,
    "dovetail_journal_disk_bytes": 0.0,
    "dovetail_journal_failing": 0.0,
}


class NoJournal(Exception):
    """The folder cannot be used; the text says why, and what to do."""


def prepare(folder: Path) -> int:
    """Make the folder and lock it for this process; returns the lock's descriptor. Raises NoJournal."""
    why = own_folder.why_not_ours(folder)
    if why:
        raise NoJournal(f"nothing is written to {folder}: {why}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise NoJournal(f"{folder} cannot be used for the journal: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise NoJournal(f"{folder} is in use by another dovetail: give each process a folder of its own") from None
    return lock


class Recorder:
    def __init__(
        self, scheduler: RecordedScheduler, folder: Path, limits: Limits, *, now: Callable[[], float], log: Log
    ) -> None:
        """Begins at once. Raises NoJournal if the folder cannot be used."""
        self._lock = prepare(folder)
        self._scheduler, self._now, self._log = scheduler, now, log
        self.writer = JournalWriter(folder, os.urandom(4).hex(), scheduler.settings, limits, now)
        self.lost = self.gaps = self.checkpoints = 0
        self._gap = ""  # why entries are dropped until the next checkpoint
        self._lost_here = 0  # entries dropped in this gap
        self._last = 0.0  # when the last checkpoint was made
        self._told = ""
        scheduler.record(self._keep)
        self.writer.start()

    def _keep(self, call: Call, effects: Sequence[Effect]) -> None:
        """Take one call. The queue holds references: they are written down by the thread."""
        if isinstance(call, JournalGap):
            self.disturbed(call.reason)
        elif self._gap or not self.writer.put(call, effects):
            self._gap = self._gap or "the writer is slower than the scheduler"
            self.lost += 1
            self._lost_here += 1

    def disturbed(self, reason: str) -> None:
        """The state was changed in another way than by calls: nothing can be repeated until the next checkpoint."""
        self._gap = self._gap or reason

    def step(self) -> None:
        """Make a checkpoint if one is due. Called by the loop between two turns."""
        self._tell()
        writer, now = self.writer, self._now()
        if writer.broken:
            self._gap = self._gap or writer.problem or "the file grew too long"
        if not (self._gap or writer.is_full):
            return
        if now < self._last + CHECKPOINT_SECONDS or not writer.idle or (writer.problem and not writer.is_due(now)):
            return
        self._checkpoint(now)

    def _checkpoint(self, now: float) -> None:
        if self._gap:
            self.gaps += 1
            self.writer.put(JournalGap(now, self._gap, self._lost_here), ())
        self._gap, self._lost_here, self._last = "", 0, now
        self.checkpoints += 1
        self.writer.broken = False
        self.writer.put(self._scheduler.checkpoint(now), ())

    def _tell(self) -> None:
        problem = self.writer.problem
        if problem != self._told:
            self._told = problem
            if problem:
                self._log(f"the journal is not written: {problem}; it is tried again, scheduling goes on", WARNING)
            else:
                self._log("the journal is written again, after a gap", INFO)

    def close(self) -> None:
        self.writer.close(CLOSE_SECONDS)
        os.close(self._lock)

    def numbers(self) -> dict[str, float]:
        """For metrics."""
        writer = self.writer
        return {
            "dovetail_journal_entries_total": writer.entries,
            "dovetail_journal_bytes_total": writer.bytes,
            "dovetail_journal_lost_total": self.lost,
            "dovetail_journal_gaps_total": self.gaps,
            "dovetail_journal_disk_bytes": writer.disk_bytes,
            "dovetail_journal_failing": float(bool(writer.problem)),
        }
