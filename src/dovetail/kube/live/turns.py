"""How time is shared: short turns of deciding, as much time for reading and writing, and turns between namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Generic, TypeVar

T = TypeVar("T")

BOOKING_SECONDS = 0.05  # of a turn, for booking events; the rest of them wait for the next turn
TURN_SECONDS = 0.02  # of a turn, for each kind of decision: retries of waiting pods, arrivals
IDLE_PASS = 0.0002  # seconds; a pass of the event loop that took less found little to do


async def let_others_run(began: float, now: Callable[[], float]) -> None:
    """After a turn that began at `began`, run the event loop until it is idle, or for as long as the turn took.

    A pass of the event loop reads at most 256 KiB of a connection (asyncio's `max_size`). A watch with megabytes of one
    tenant's large pods needs many passes. With one pass a turn, another tenant's pod behind them would wait as many
    turns.
    """
    ended = before = now()
    while True:
        await asyncio.sleep(0)
        at = now()
        if at - before < IDLE_PASS or at - ended >= ended - began:
            return
        before = at


class Turns(Generic[T]):
    """Values waiting to be reported or written, by key, in a line for each namespace. The lines take turns.

    A namespace with ten thousand pods delays another one by one value, not by ten thousand.
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, T]] = {}  # namespace, next turn first -> key -> value
        self._line_of: dict[str, str] = {}  # key -> namespace

    def __len__(self) -> int:
        return len(self._line_of)

    def __contains__(self, key: object) -> bool:
        return key in self._line_of

    def put(self, namespace: str, key: str, value: T) -> None:
        """Set the key's value; an existing key keeps its place. A key belongs to one namespace."""
        self._line_of[key] = namespace
        self._lines.setdefault(namespace, {})[key] = value

    def first(self, but: Container[str] = ()) -> str | None:
        """The key whose turn it is, except those in `but`; None = there is no such key."""
        return next((key for line in self._lines.values() for key in line if key not in but), None)

    def get(self, key: str) -> T:
        return self._lines[self._line_of[key]][key]

    def pop(self, key: str) -> T:
        """Take the value out. Its namespace's next turn comes after those of the others."""
        namespace = self._line_of.pop(key)
        line = self._lines.pop(namespace)
        value = line.pop(key)
        if line:
            self._lines[namespace] = line
        return value

    def discard(self, key: str) -> None:
        """Take the value out, if it is there; turns stay as they are."""
        namespace = self._line_of.pop(key, None)
        if namespace is not None:
            del self._lines[namespace][key]
            if not self._lines[namespace]:
                del self._lines[namespace]

    def drop_one(self) -> None:
        """Drop the oldest value of the namespace with the most values."""
        longest = max(self._lines.values(), key=len)
        self.discard(next(iter(longest)))
