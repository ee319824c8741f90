"""Keeps `dovetail scheduler` processes running: restarts one that ends, after a pause that grows."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.process import Failed, Process, free_ports

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds between the end of a run and the start of the next
LONG_RUN = 60.0  # seconds; after a run of at least this length, the next pause is short
WRONG_CONFIGURATION = 2  # exit code of `dovetail scheduler`: another start would end the same way


@dataclass(frozen=True)
class Ending:
    """A run that ended by itself."""

    name: str
    code: int
    log: Path
    pause: float  # seconds until the next run

    def __str__(self) -> str:
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"{self.name} {how}; its log is {self.log}; the next run starts in {self.pause:.0f} s"


class Replica:
    """One scheduler: its process, and a log file for each of its runs (NAME.1.log, NAME.2.log …)."""

    def __init__(
        self, name: str, command: Sequence[str | Path], logs: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.runs, self.port = name, 0, free_ports(1)[0]
        self._logs, self._clock = logs, clock
        self._command = [*command, "--identity", name, "--listen", f"127.0.0.1:{self.port}"]
        self._process: Process | None = None
        self._started = self._due = 0.0
        self._failures = 0  # number of short runs in a row

    @property
    def log(self) -> Path:
        """The log of the current or the last run."""
        return self._logs / f"{self.name}.{self.runs}.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self.runs += 1
        self._started = self._clock()
        self._process = Process(self.name, self._command, self.log, PYTHONUNBUFFERED="1")
        (self._logs.parent / f"{self.name}.pid").write_text(f"{self._process.pid}\n", encoding="utf-8")

    def look(self) -> Ending | None:
        """Start the next run when it is due. Returns the ending of a run, once."""
        process = self._process
        if process is None:
            if self._clock() >= self._due:
                self.start()
            return None
        code = process.exit_code()
        if code is None:
            return None
        if code == WRONG_CONFIGURATION:
            raise Failed(f"{self.name} ended with exit code {code}; it said last:\n{process.last_words()}")
        self._process = None
        self._failures = 0 if self._clock() - self._started >= LONG_RUN else self._failures + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** max(0, self._failures - 1))
        self._due = self._clock() + pause
        return Ending(self.name, code, self.log, pause)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
