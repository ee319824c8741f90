"""The end of the process: at once, after commands that built a lot and printed it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_freeing_is_waste = False


@contextmanager
def ends_soon() -> Iterator[None]:
    """For a command that reads, prints and ends: garbage is not searched, and nothing is freed at the end.

    With 5,000 nodes the process keeps a million objects. To search them takes 0.4 s, to free them one by one 0.3 s.
    """
    from dovetail.engine.kernel.collector import collector_off

    global _freeing_is_waste
    _freeing_is_waste = True
    with collector_off():
        yield


def end(code: int) -> NoReturn:
    """End the process with this code. mypy ends in the same way (mypy.util.hard_exit)."""
    if not _freeing_is_waste:
        sys.exit(code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
