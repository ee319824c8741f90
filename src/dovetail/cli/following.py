"""Follows a live cluster for `get --watch` and `top`: a new board whenever something has changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail.cli import board as boards
from dovetail.cli.board import Board
from dovetail.cli.options import ClusterOptions
from dovetail.cli.sources import GatheredInput, clock, connection_of, of_cluster, running_schedulers
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.files.snapshot import SnapshotMarker, second_of
from dovetail.kube.objects.problems import Problems

PAUSE_SECONDS = 1.0  # between two boards at least; more where a board takes long
REST = 2.0  # the pause is so many times as long as the board took


class BoardStream:
    """Boards of a live cluster. Use it within `following`."""

    def __init__(self, asked: ClusterOptions, follower: object, schedulers: tuple[str, ...]) -> None:
        from dovetail.kube.live.cluster_follower import ClusterFollower

        assert isinstance(follower, ClusterFollower)
        self._asked, self._follower, self._schedulers = asked, follower, schedulers
        self._took = 0.0

    async def next(self, explained: bool = True) -> Board:
        """The next board that differs from the last one."""
        follower = self._follower
        if self._took:
            await asyncio.sleep(max(PAUSE_SECONDS, REST * self._took))
        while not (follower.complete and follower.changed.is_set()):
            follower.changed.clear()
            await follower.changed.wait()
        follower.changed.clear()
        began, documents = time.monotonic(), follower.documents()
        marker = SnapshotMarker(second_of(clock()), schedulers=list(self._schedulers))

        def gathered(settings: Settings, problems: Problems) -> GatheredInput:
            return of_cluster(self._asked, settings, documents, marker, tell=False)

        board = await asyncio.to_thread(boards.read, self._asked, gathered, explained)
        self._took = time.monotonic() - began
        return board


@asynccontextmanager
async def following(asked: ClusterOptions) -> AsyncIterator[BoardStream]:
    """Watch the cluster while the block runs. Errors of the API server at the start are raised in the block."""
    connection = connection_of(asked.kubeconfig, asked.context)
    from dovetail.kube.api.auth import Credentials
    from dovetail.kube.api.client import Api
    from dovetail.kube.api.tasks import end_tasks
    from dovetail.kube.live.cluster_follower import ClusterFollower

    async with Api(Credentials(connection, environ=os.environ)) as api:
        follower = ClusterFollower(api, DEFAULT_VENDORS)
        stream = BoardStream(asked, follower, await running_schedulers(api))
        main = asyncio.current_task()
        task = asyncio.create_task(follower.run())
        failed: list[BaseException] = []

        def ended(done: asyncio.Task[None]) -> None:
            if not done.cancelled() and done.exception() is not None and main is not None:
                failed.append(_first(done.exception()))
                main.cancel()

        task.add_done_callback(ended)
        try:
            yield stream
        except asyncio.CancelledError:
            if failed:
                raise failed[0] from None
            raise
        finally:
            await end_tasks(lambda: (task,))


def _first(error: BaseException | None) -> BaseException:
    """The error itself, out of its group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is not None
    return error
