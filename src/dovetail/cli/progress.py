"""A sign of life on stderr for what takes more than two seconds; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds


@contextmanager
def progress(what: str, patience: float = PATIENCE) -> Iterator[None]:
    """Says what is being done, and for how long already; wipes its line in the end."""
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


def _show(what: str, done: threading.Event, patience: float) -> None:
    started = time.monotonic()
    if done.wait(patience):
        return
    while True:
        sys.stderr.write(f"\r{what} … {time.monotonic() - started:.0f} s ")
        sys.stderr.flush()
        if done.wait(1.0):
            break
    sys.stderr.write("\r\033[K")
    sys.stderr.flush()
