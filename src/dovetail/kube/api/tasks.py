"""Ends tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

CANCEL_AGAIN_SECONDS = 1.0  # between two cancellations of a task that goes on


async def end_tasks(tasks: Callable[[], Iterable[asyncio.Task[Any]]]) -> None:
    """Cancel all `tasks()` until they have ended; their results are not looked at.

    A task can miss a cancellation: one that arrives while a connection ends by a time-out of its own is taken for that
    time-out. So it is repeated. A caller that is cancelled meanwhile ends them first: what is left would outlive it.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in tasks() if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the block runs, then end it. If it has failed, the end of the block raises its exception."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end_tasks(lambda: (task,))
        if not task.cancelled():
            task.result()
