"""Writes entries in a thread of its own, into files that are bounded in number of bytes and age.

The loop of the scheduler only appends to a queue. If the disk is slower, full or broken, entries are dropped and
counted; the journal goes on with a gap and a checkpoint.
"""

from __future__ import annotations

import os
import platform
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail import __version__
from dovetail.kube.journal.codec import FileHeader, encode, encode_header
from dovetail.kube.journal.files import MAGIC, SUFFIX, block, create
from dovetail.model.calls import Call, EngineSettings, JournalGap, outcome_of
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.events import Effect

FLUSH_SECONDS = 0.2  # between two writes: what a killed process loses
MAX_PENDING_ENTRIES = 50_000  # more are dropped; of a thousand pods a second, that is ten seconds
ENTRIES_A_BLOCK = 512
RETRY_SECONDS = 30.0  # until a disk that failed is tried again
FILES_OF_A_JOURNAL = 16  # files that together have the configured size
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a journal on disk."""

    bytes: int = 512 * MIB
    seconds: float = 14 * 86_400.0  # age of the oldest file

    @property
    def part_bytes(self) -> int:
        return self.bytes // FILES_OF_A_JOURNAL

    @property
    def part_seconds(self) -> float:
        return self.seconds / FILES_OF_A_JOURNAL


Item = tuple[Call, Sequence[Effect]]


class JournalWriter:
    """`put` is called by the loop; everything else runs in the thread.

    Fields without an underscore are read by the loop: numbers and texts that the thread replaces as a whole.
    """

    def __init__(
        self, folder: Path, run: str, settings: EngineSettings, limits: Limits, now: Callable[[], float]
    ) -> None:
        self._folder, self._run, self._settings, self._limits, self._now = folder, run, settings, limits, now
        self._pending: deque[Item] = deque()
        self._wake, self._ends, self._busy = threading.Event(), False, False
        self._file = -1
        self._part = self._number = self._size = self._first_size = 0
        self._began = self._retry_at = 0.0
        self.entries = self.bytes = self.disk_bytes = 0
        self.problem = ""  # why nothing is written now
        self.broken = False  # entries were dropped: a checkpoint must come next
        self.is_full = False  # the file has its size, or its age: a checkpoint begins the next one
        self._thread = threading.Thread(target=self._run_thread, name="journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, call: Call, effects: Sequence[Effect]) -> bool:
        """Take an entry; False = the queue is full."""
        if len(self._pending) >= MAX_PENDING_ENTRIES:
            return False
        self._pending.append((call, effects))
        return True

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def idle(self) -> bool:
        """Whether all that came is written or dropped."""
        return not self._pending and not self._busy

    def is_due(self, now: float) -> bool:
        """Whether a disk that failed may be tried again."""
        return now >= self._retry_at

    def close(self, seconds: float) -> None:
        """Write what is pending, at most for this time."""
        self._ends = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        while not self._ends:
            self._wake.wait(FLUSH_SECONDS)
            self._write_all()
        self._write_all()
        self._close_file()

    def _write_all(self) -> None:
        self._busy = True
        try:
            self._write_pending()
        finally:
            self._busy = False

    def _write_pending(self) -> None:
        while self._pending:
            if self.problem and self._now() < self._retry_at:
                self._drop(self._pending)
                return
            try:
                self._write_some()
            except Exception as error:  # the disk, or a value that cannot be written: the journal has a gap
                text = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self.problem, self._retry_at, self.broken = str(text), self._now() + RETRY_SECONDS, True
                self._close_file()

    def _write_some(self) -> None:
        items = [self._pending.popleft() for _ in range(min(ENTRIES_A_BLOCK, len(self._pending)))]
        entries: list[bytes] = []
        for call, effects in items:
            if isinstance(call, Checkpoint) or (not self._part and not self.broken):
                self._flush(entries)
                self._next_file()
                entries = []
            self._number += 1 + (call.lost if isinstance(call, JournalGap) else 0)
            if self._file < 0:  # entries behind a gap mean nothing without a checkpoint
                continue
            entries.append(encode(self._number, call, [outcome_of(effect) for effect in effects]))
            if isinstance(call, Checkpoint):
                self._flush(entries)
                entries, self._first_size = [], self._size
        self._flush(entries)

    def _drop(self, items: deque[Item]) -> None:
        self.broken = True
        while items:
            call, _ = items.popleft()
            self._number += 1 + (call.lost if isinstance(call, JournalGap) else 0)

    def _flush(self, entries: list[bytes]) -> None:
        if not entries or self._file < 0:
            return
        self._write(block(entries))
        self.entries += len(entries)
        grown = self._size - self._first_size
        due = self._now() > self._began + self._limits.part_seconds
        self.is_full = grown > self._limits.part_bytes or due
        if grown > 2 * self._limits.part_bytes:  # no checkpoint came
            self._close_file()
            self.broken = True

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self._size += len(data)
        self.bytes += len(data)
        self.disk_bytes += len(data)

    def _next_file(self) -> None:
        self._close_file()
        self._make_room()
        at = self._now()
        self._part += 1
        path = self._folder / f"{int(at):010d}-{self._run}-{self._part:05d}{SUFFIX}"
        self._file, self._size, self._began = create(path), 0, at
        python = platform.python_version()
        header = FileHeader(
            run=self._run, part=self._part, at=at, version=__version__, python=python, settings=self._settings
        )
        self._write(MAGIC + block([encode_header(header)]))
        self._first_size = self._size
        self.problem, self.is_full = "", False

    def _make_room(self) -> None:
        """Delete the oldest files until another one, of twice the usual size, stays within the bounds."""
        there = [(path, path.lstat()) for path in sorted(self._folder.glob(f"*{SUFFIX}"))]
        found = [(path, facts) for path, facts in there if stat.S_ISREG(facts.st_mode)]
        total, room = sum(facts.st_size for _, facts in found), self._limits.bytes - 2 * self._limits.part_bytes
        for path, facts in found:
            if total > room or self._now() > facts.st_mtime + self._limits.seconds:
                path.unlink(missing_ok=True)
                total -= facts.st_size
        self.disk_bytes = total

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
