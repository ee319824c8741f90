"""Tasks end although one of them misses a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.kube.api.tasks import beside, end_tasks


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


async def test_a_caller_that_is_cancelled_ends_its_tasks_first() -> None:
    """As what runs the watches: one of them misses its cancellation, and the caller is cancelled again."""
    missed = 0

    async def deaf() -> None:
        nonlocal missed
        while missed < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                missed += 1
        await asyncio.sleep(3600)

    inner = asyncio.create_task(deaf())

    async def runs_it() -> None:
        try:
            await asyncio.wait({inner})
        finally:
            await end_tasks(lambda: (inner,))

    outer = asyncio.create_task(runs_it())
    for _ in range(2):
        await asyncio.sleep(0)
        outer.cancel()
    await asyncio.wait({outer}, timeout=30)
    ended = (outer.cancelled(), inner.cancelled(), missed)
    await end_tasks(lambda: (inner,))
    assert ended == (True, True, 2)


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


async def test_work_beside_a_block_ends_with_the_block_although_it_misses_a_cancellation() -> None:
    missed = 0

    async def deaf() -> None:
        nonlocal missed
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            missed += 1
        await asyncio.sleep(3600)

    async with asyncio.timeout(30) as patience:
        async with beside(deaf()):
            await asyncio.sleep(0)
    assert (missed, patience.expired()) == (1, False)


async def test_work_that_failed_beside_a_block_is_told_at_its_end() -> None:
    async def broken() -> None:
        raise RuntimeError("broken on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        async with beside(broken()):
            await asyncio.sleep(0)
