"""A bound on the memory that the requests under way hold together."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Bytes that requests may hold together. Who finds too few waits, first come, first served."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        if not self._queue and size <= self._free:
            self._free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            self._serve()
            raise

    def give(self, size: int) -> None:
        self._free += size
        self._serve()

    def _serve(self) -> None:
        while self._queue and (self._queue[0][1].done() or self._queue[0][0] <= self._free):
            size, turn = self._queue.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)
