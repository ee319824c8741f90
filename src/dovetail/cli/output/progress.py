"""Shows progress on stderr for work of more than two seconds; nothing if stderr is not a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dovetail.model.visible import visible

SHOW_AFTER_SECONDS = 2.0  # seconds
BAR = 24  # characters
What = str | Callable[[], str]  # a function is called every second for the current text


@contextmanager
def progress(what: What, patience: float = SHOW_AFTER_SECONDS) -> Iterator[None]:
    """Show the activity and its duration while the block runs; erase the line at the end."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(what, done, patience), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def told_progress(first: str = "", patience: float = SHOW_AFTER_SECONDS) -> Iterator[Callable[[str], None]]:
    """As `progress`, for work that says itself what it does: the block gets a function to tell it."""
    said = [first]
    with progress(lambda: said[-1], patience):
        yield said.append


class Countdown:
    """The text of an activity: how many steps are done, and about how long the rest will take."""

    def __init__(self, what: str = "") -> None:
        self._what, self._done, self._total = what, 0, 0
        self._started = time.monotonic()

    def say(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self._what, self._started = what, time.monotonic()
        self._done, self._total = done, total

    def __str__(self) -> str:
        if self._total <= 1:
            return self._what
        full = BAR * self._done // self._total
        bar = f"▕{'█' * full}{'·' * (BAR - full)}▏"
        return f"{self._what} {bar} {self._done:,} of {self._total:,}{self._left()}"

    def _left(self) -> str:
        if not 0 < self._done < self._total:
            return ""
        seconds = (time.monotonic() - self._started) / self._done * (self._total - self._done)
        minutes = f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return f", about {minutes} left"


def _show(what: What, done: threading.Event, patience: float) -> None:
    started = time.monotonic()
    if done.wait(patience):
        return
    while True:
        text = visible(what if isinstance(what, str) else what())
        sys.stderr.write(f"\r{text} … {time.monotonic() - started:.0f} s \033[K")
        sys.stderr.flush()
        if done.wait(1.0):
            break
    sys.stderr.write("\r\033[K")
    sys.stderr.flush()
