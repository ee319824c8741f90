"""Who may write: the Lease, with a clock that tests turn."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Conflict, NotFound, Unavailable
from dovetail.kube.api.retry import World
from dovetail.kube.live.election import Arrival, Election, Terms
from dovetail.kube.log import silent

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
        meta = {**self.lease["metadata"], "resourceVersion": str(self.version)}
        return msgspec.json.encode({**self.lease, "metadata": meta})


class Clock:
    """Sleeping turns it."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def candidate(api: Leases, clock: Clock, name: str, quick: bool = True) -> Election:
    world = World(now=lambda: clock.now, sleep=clock.sleep, chance=lambda: 0.0)
    log = silent
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


async def test_a_lease_that_runs_out_is_taken_at_that_moment() -> None:
    """And one that is given back within one look: a quarter of the time between two renewals, 0.5 to 0.6 s."""
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b", quick=False)
    await first.acquire()
    assert await second.acquire() is Arrival.TAKEN_OVER
    assert 15.0 <= clock.now < 15.01
    waiting = asyncio.create_task(first.acquire())
    await second.release()
    given_back = clock.now
    assert await waiting is Arrival.AFTER_GOODBYE
    assert clock.now <= given_back + 0.6


async def test_after_a_goodbye_nobody_waits() -> None:
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.acquire()
    await first.release()
    assert await second.acquire() is Arrival.AFTER_GOODBYE
    assert clock.now == 0.0


async def test_a_holder_that_stops_before_its_writes_are_known_is_fenced_and_not_waited_for() -> None:
    """It was told to stop before it was ready: writes of its predecessor may still be on the wire."""
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.acquire()
    await first.release(clean=False)
    assert not first.is_sure()
    assert await second.acquire() is Arrival.TAKEN_OVER
    assert 1.0 <= clock.now < 2.0  # instead of the 15 s of the lease


async def test_one_that_was_killed_and_comes_back_under_its_name_takes_over_at_once() -> None:
    api, clock = Leases(), Clock()
    old = candidate(api, clock, "a")
    await old.acquire()
    new = candidate(api, clock, "a")
    assert await new.acquire() is Arrival.TAKEN_OVER
    assert clock.now == 0.0
    assert old.epoch != new.epoch
    await asyncio.wait_for(old.keep(), 5)  # a namesake that is not dead after all must stop


async def test_whoever_knows_that_another_leads_is_not_sure_any_more() -> None:
    """However little of the lease has passed: what waits to be written must not be."""
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a", quick=False), candidate(api, clock, "b", quick=False)
    await first.acquire()
    api.lease = None  # somebody deletes it
    assert await second.acquire() is Arrival.FIRST
    await asyncio.wait_for(first.keep(), 5)
    assert clock.now < 10.0
    assert not first.is_sure()
    assert second.is_sure()


@pytest.mark.parametrize("way", ["cancelled", "failed"])
async def test_nobody_is_sure_who_has_ceased_to_renew(way: str) -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    await asyncio.sleep(0)
    assert first.is_sure()
    if way == "failed":
        api.put = lambda path, body: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    keeping.cancel() if way == "cancelled" else first.doubt()
    await asyncio.wait({keeping}, timeout=5)
    assert keeping.done()
    assert not first.is_sure()


async def test_nobody_is_sure_who_has_said_goodbye() -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    await first.release()
    assert not first.is_sure()


async def test_a_doubt_is_settled_by_a_look_that_came_after_it() -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    look = first.doubt()
    assert not first.has_looked(look)
    keeping = asyncio.create_task(first.keep())
    while not first.has_looked(look):
        await asyncio.sleep(0)
    api.down = True
    second_look = first.doubt()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not first.has_looked(second_look)
    keeping.cancel()


async def test_doubts_do_not_become_a_flood_of_renewals() -> None:
    """Anybody who may write to a pod can make us doubt."""
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a", quick=False)
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    while clock.now < 10.0:
        first.doubt()
        await asyncio.sleep(0)
    keeping.cancel()
    assert api.version <= 1 + 10.0 / 0.1


async def test_a_lease_that_cannot_be_read_is_asked_for_again() -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    garbled, put = [b"{", b"[]"], api.put

    async def answer(path: str, body: Any) -> bytes:
        whole = await put(path, body)
        return garbled.pop() if garbled else whole

    api.put = answer  # type: ignore[method-assign]
    keeping = asyncio.create_task(first.keep())
    while garbled or api.version < 5:
        await asyncio.sleep(0)
        assert not keeping.done()
    keeping.cancel()


async def test_who_has_seen_a_lease_that_was_deleted_goes_on_counting() -> None:
    """Else its epoch would look older than that of the reign before it."""
    api, clock = Leases(), Clock()
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b", quick=False)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(0)
    api.lease = None
    await waiting
    assert second.epoch.startswith("1.")


async def test_a_holder_that_cannot_renew_stops() -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "a")
    await first.acquire()
    assert first.is_sure()
    api.down, clock.now = True, 11.0  # later than the deadline, sooner than the lease ends
    assert not first.is_sure()
    await asyncio.wait_for(first.keep(), 5)
