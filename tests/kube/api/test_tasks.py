"""Tasks end although one of them misses a cancellation."""

from __future__ import annotations

import asyncio

from dovetail.kube.api.tasks import end_tasks


async def test_a_task_that_misses_a_cancellation_is_cancelled_again() -> None:
    missed = 0

    async def deaf() -> None:
        nonlocal missed
        while missed < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                missed += 1  # as a client does that takes it for its own time-out
        await asyncio.sleep(3600)

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks(lambda: (task,)), 30)
    assert (missed, task.cancelled()) == (2, True)


async def test_a_task_that_came_meanwhile_ends_too() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def one_more() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            tasks.append(asyncio.create_task(asyncio.sleep(3600)))

    tasks.append(asyncio.create_task(one_more()))
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks(lambda: tasks), 30)
    assert (len(tasks), all(task.done() for task in tasks)) == (2, True)
