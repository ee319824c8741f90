"""Follows a live cluster for `get --watch` and `top`: a new board whenever something has changed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dovetail.cli import board as boards
from dovetail.cli.board import Board
from dovetail.cli.options import ClusterOptions
from dovetail.cli.sources import GatheredInput, clock, connection_of, of_cluster, running_schedulers
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.files.snapshot import SnapshotMarker, second_of
from dovetail.kube.objects.problems import Problems

if TYPE_CHECKING:
    from dovetail.cli.measured_load import LoadMeter
    from dovetail.kube.live.cluster_follower import ClusterFollower

PAUSE_SECONDS = 1.0  # between two boards at least; more where a board takes long
REST = 2.0  # the pause is so many times as long as the board took


class BoardStream:
    """Boards of a live cluster. Use it within `following`."""

    def __init__(
        self, asked: ClusterOptions, follower: object, schedulers: tuple[str, ...], meter: LoadMeter | None
    ) -> None:
        from dovetail.kube.live.cluster_follower import ClusterFollower

        assert isinstance(follower, ClusterFollower)
        self._asked, self._follower, self._schedulers, self._meter = asked, follower, schedulers, meter
        self._took = 0.0
        self._last: Board | None = None

    async def next(self, explained: bool = True) -> Board:
        """The next board that differs from the last one, or that has measured load of later."""
        follower = self._follower
        if self._took:
            await asyncio.sleep(max(PAUSE_SECONDS, REST * self._took))
        if not await self._changed(follower):
            assert self._last is not None
            return await self._measured(self._last)
        follower.changed.clear()
        began, documents = time.monotonic(), follower.documents()
        marker = SnapshotMarker(second_of(clock()), schedulers=list(self._schedulers))

        def gathered(settings: Settings, problems: Problems) -> GatheredInput:
            return of_cluster(self._asked, settings, documents, marker, tell=False)

        board = await asyncio.to_thread(boards.read, self._asked, gathered, explained)
        self._took = time.monotonic() - began
        return await self._measured(board)

    async def _changed(self, follower: ClusterFollower) -> bool:
        """Wait for news of the cluster. False: it is time to measure load again."""
        pause = self._meter.pause if self._meter is not None and self._last is not None else None
        try:
            async with asyncio.timeout(pause):
                while not (follower.complete and follower.changed.is_set()):
                    follower.changed.clear()
                    await follower.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _measured(self, board: Board) -> Board:
        if self._meter is None:
            return board
        load = await self._meter.read(use.node for use in board.overview.nodes)
        self._last = dataclasses.replace(board, load=load)
        return self._last


@asynccontextmanager
async def following(asked: ClusterOptions, meter: LoadMeter | None = None) -> AsyncIterator[BoardStream]:
    """Watch the cluster while the block runs. Errors of the API server at the start are raised in the block."""
    connection = connection_of(asked.kubeconfig, asked.context)
    from dovetail.kube.api.auth import Credentials
    from dovetail.kube.api.client import Api
    from dovetail.kube.api.tasks import end_tasks
    from dovetail.kube.live.cluster_follower import ClusterFollower

    async with Api(Credentials(connection, environ=os.environ)) as api:
        follower = ClusterFollower(api, DEFAULT_VENDORS)
        stream = BoardStream(asked, follower, await running_schedulers(api), meter)
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
