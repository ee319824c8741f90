"""Who may write: the Lease, with a clock that tests turn."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Conflict, NotFound, Unavailable
from dovetail.kube.api.retry import World
from dovetail.kube.live.election import Arrival, Election, Terms

pytestmark = pytest.mark.asyncio


class Leases:
    """The API server's part: one Lease with a version."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    async def get(self, path: str) -> bytes:
        self._check()
        if self.lease is None:
            raise NotFound("no such lease", code=404)
        return self._answer()

    async def post(self, path: str, body: Any) -> bytes:
        self._check()
        if self.lease is not None:
            raise Conflict("exists", code=409)
        return self._keep(body)

    async def put(self, path: str, body: Any) -> bytes:
        self._check()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("changed", code=409)
        return self._keep(body)

    def _check(self) -> None:
        if self.down:
            raise Unavailable("nobody there")

    def _keep(self, body: Any) -> bytes:
        self.version += 1
        self.lease = msgspec.json.decode(msgspec.json.encode(body))
        return self._answer()

    def _answer(self) -> bytes:
        assert self.lease is not None
        return msgspec.json.encode({**self.lease, "metadata": {"resourceVersion": str(self.version)}})


class Clock:
    """Sleeping turns it."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def candidate(api: Leases, clock: Clock, name: str, quick: bool = True) -> Election:
    world = World(now=lambda: clock.now, sleep=clock.sleep, chance=lambda: 0.0)
    log = list[str]().append
    terms = Terms(duration=15.0, deadline=10.0, retry=0.01 if quick else 2.0)
    given: Any = api
    return Election(given, name, name="d", namespace="n", terms=terms, now=lambda: clock.now, log=log, world=world)


async def test_whoever_is_first_has_it_at_once() -> None:
    api, clock = Leases(), Clock()
    assert await candidate(api, clock, "a").acquire() is Arrival.FIRST
    assert clock.now == 0.0


async def test_a_second_one_waits_until_the_first_falls_silent() -> None:
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b", quick=False)
    await first.acquire()
    assert await second.acquire() is Arrival.TAKEN_OVER
    assert clock.now >= 15.0
    assert first.epoch != second.epoch
    await asyncio.wait_for(first.keep(), 5)  # it comes back, and ends: the lease is another's


async def test_after_a_goodbye_nobody_waits() -> None:
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.acquire()
    await first.release()
    assert await second.acquire() is Arrival.AFTER_GOODBYE
    assert clock.now == 0.0


async def test_one_that_was_killed_and_comes_back_under_its_name_takes_over_at_once() -> None:
    api, clock = Leases(), Clock()
    old = candidate(api, clock, "a")
    await old.acquire()
    new = candidate(api, clock, "a")
    assert await new.acquire() is Arrival.TAKEN_OVER
    assert clock.now == 0.0
    assert old.epoch != new.epoch
    await asyncio.wait_for(old.keep(), 5)  # a namesake that is not dead after all must stop


async def test_a_holder_that_cannot_renew_stops() -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    assert first.is_sure()
    api.down, clock.now = True, 11.0  # later than the deadline, sooner than the lease ends
    assert not first.is_sure()
    await asyncio.wait_for(first.keep(), 5)
