"""Ends tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

CANCEL_AGAIN_SECONDS = 1.0  # between two cancellations of a task that goes on


async def end_tasks(tasks: Callable[[], Iterable[asyncio.Task[Any]]]) -> None:
    """Cancel all `tasks()` until they have ended; their results are not looked at.

    A task can miss a cancellation: one that arrives while a connection ends by a time-out of its own is taken for that
    time-out. So it is repeated.
    """
    while left := {task for task in tasks() if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
