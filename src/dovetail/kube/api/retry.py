"""Retries, and the number of requests at once. Clock, sleep and randomness are inputs, so that tests do not wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from dovetail.kube.api.errors import ApiError, Throttled, Unavailable

T = TypeVar("T")
LONGEST_RETRY_AFTER = 120.0  # seconds; if a server asks for more, we ask again earlier


@dataclass(frozen=True, slots=True)
class World:
    """The inputs of the client from outside."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random  # 0 ≤ x < 1


REAL = World()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `longest`; each is drawn from its upper half, so that clients spread out."""

    first: float = 0.2
    longest: float = 30.0

    def wait(self, failures: int, chance: float, retry_after: float | None = None) -> float:
        """Seconds before the next try, after that many failures in a row. Never less than the server asked for."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 30))
        drawn = full * (0.5 + chance / 2)
        if retry_after is None:
            return drawn
        return min(retry_after, LONGEST_RETRY_AFTER) + self.first * chance


BACKOFF = Backoff()


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    tries: int = 5,
    backoff: Backoff = BACKOFF,
    world: World = REAL,
    tell: Callable[[ApiError], None] | None = None,
) -> T:
    """The call's answer; it is tried again while the server throttles or is unavailable. `tell` gets each such error.

    Only for calls that may happen twice: reads, deletes, PUT and PATCH with a resourceVersion, server-side apply, and
    Bindings with uid and resourceVersion (a second one gets 409, and the pod shows which one succeeded). Do not use it
    for a POST without a precondition, which may create two objects.
    """
    for failures in range(1, tries):
        try:
            return await call()
        except (Throttled, Unavailable) as error:
            if tell is not None:
                tell(error)
            await world.sleep(backoff.wait(failures, world.chance(), error.retry_after))
    return await call()


@dataclass(slots=True)
class Gate:
    """Limits the requests under way: halved when the server throttles, otherwise increased by one each round.

    Additive increase, multiplicative decrease. Requests under way when the first 429 comes belong to the same burst:
    their 429s do not halve again. Waiting requests are admitted in turns: one for each `turn` (a namespace) in a round.
    """

    most: int = 64
    least: int = 1
    limit: float = field(init=False)
    inside: int = field(default=0, init=False)
    throttled: int = field(default=0, init=False)  # 429s received
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict, init=False)  # the next turn first
    epoch: int = field(default=0, init=False)  # halvings so far

    def __post_init__(self) -> None:
        self.limit = float(self.most)

    def __call__(self, turn: str = "") -> _Passage:
        """`async with gate(): await api.post(…)`: waits for a place, and adapts the limit to the result inside."""
        return _Passage(self, turn)

    def adapt(self, epoch: int, error: BaseException | None) -> None:
        """Adapt the limit to the result of a request that entered in this epoch."""
        if isinstance(error, Throttled):
            self.throttled += 1
            if epoch == self.epoch:
                self.epoch += 1
                self.limit = max(float(self.least), self.limit / 2)
        elif error is None:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)

    async def enter(self, turn: str) -> None:
        """Wait for a place; the caller gives it back with `leave`."""
        if self.inside < int(self.limit) and not self._waiting:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was admitted at the moment of being cancelled
                self.leave()
            raise

    def leave(self) -> None:
        self.inside -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.inside < int(self.limit):
            turn = next(iter(self._waiting))
            line = self._waiting.pop(turn)
            place = line.popleft()
            if line:
                self._waiting[turn] = line  # move it behind the others
            if not place.done():
                self.inside += 1
                place.set_result(None)


class _Passage:
    """One request through the gate. A class, because a generator takes five times as long, for every Binding."""

    __slots__ = ("_epoch", "_gate", "_turn")

    def __init__(self, gate: Gate, turn: str) -> None:
        self._gate, self._turn, self._epoch = gate, turn, 0

    async def __aenter__(self) -> None:
        await self._gate.enter(self._turn)
        self._epoch = self._gate.epoch

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.adapt(self._epoch, error)
        self._gate.leave()
