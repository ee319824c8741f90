"""Trying again, and how many at once, without waiting for anything."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.kube.api.errors import Conflict, Throttled, Unavailable
from dovetail.kube.api.retry import Backoff, Gate, retrying
from tests.kube.api.stub import Clock


def test_waits_double_up_to_the_longest_and_are_drawn_from_their_upper_half() -> None:
    backoff = Backoff(first=1, longest=10)
    assert [backoff.wait(n, chance=0.0) for n in range(1, 7)] == [0.5, 1, 2, 4, 5, 5]
    assert [backoff.wait(n, chance=1.0) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert backoff.wait(10_000, chance=0.0) == 5


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    backoff = Backoff(first=1, longest=10)
    assert backoff.wait(1, chance=0.0, retry_after=30) == 30
    assert backoff.wait(1, chance=0.5, retry_after=30) == 30.5  # not all clients in the same instant
    assert backoff.wait(1, chance=0.0, retry_after=86_400) == 120  # a day is not meant


async def test_throttling_and_outages_are_waited_out() -> None:
    troubles = [Throttled("busy", retry_after=3), Unavailable("down")]
    clock = Clock()

    async def bind() -> str:
        if troubles:
            raise troubles.pop(0)
        return "bound"

    told: list[str] = []
    assert (
        await retrying(bind, backoff=Backoff(first=1), world=clock.world, tell=lambda error: told.append(str(error)))
        == "bound"
    )
    assert clock.slept == [3, 1]  # as asked; then 2 s, the lower half
    assert told == ["busy", "down"]  # at once, not after the last try


async def test_after_the_last_try_the_error_is_the_callers() -> None:
    tries = 0

    async def bind() -> None:
        nonlocal tries
        tries += 1
        raise Unavailable("down")

    with pytest.raises(Unavailable):
        await retrying(bind, tries=3, world=Clock().world)
    assert tries == 3


async def test_a_conflict_is_an_answer_and_not_tried_again() -> None:
    clock = Clock()

    async def bind() -> None:
        raise Conflict("already assigned to node n1")

    with pytest.raises(Conflict):
        await retrying(bind, world=clock.world)
    assert clock.slept == []


async def throttle(gate: Gate) -> None:
    with pytest.raises(Throttled):
        async with gate():
            raise Throttled("busy")


async def test_a_throttled_gate_halves_and_grows_slowly() -> None:
    gate = Gate(most=8)
    await throttle(gate)
    assert gate.limit == 4
    await throttle(gate)
    assert gate.limit == 2
    for _ in range(2):
        async with gate():
            pass
    assert gate.limit == 2 + 1 / 2 + 1 / 2.5  # one more a round
    for _ in range(100):
        async with gate():
            pass
    assert gate.limit == 8


async def test_a_gate_never_closes() -> None:
    gate = Gate(most=8)
    for _ in range(10):
        await throttle(gate)
    async with gate():
        assert gate.inside == 1


async def test_a_burst_of_429_halves_once() -> None:
    gate, release = Gate(most=8), asyncio.Event()

    async def bind() -> None:
        async with gate():
            await release.wait()
            raise Throttled("busy")

    tasks = [asyncio.create_task(bind()) for _ in range(8)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gate.limit == 4
    assert gate.throttled == 8


async def test_no_more_than_the_limit_are_inside_and_all_get_through() -> None:
    gate, most, done = Gate(most=3), 0, 0

    async def bind() -> None:
        nonlocal most, done
        async with gate():
            most = max(most, gate.inside)
            await asyncio.sleep(0)
        done += 1

    await asyncio.gather(*(bind() for _ in range(20)))
    assert (most, done, gate.inside) == (3, 20, 0)


async def test_who_gives_up_waiting_takes_no_place() -> None:
    gate, release = Gate(most=1), asyncio.Event()

    async def bind() -> None:
        async with gate():
            await release.wait()

    first, second, third = (asyncio.create_task(bind()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert gate.inside == 0
    async with gate():
        pass


async def test_cancelled_at_the_moment_of_being_let_in() -> None:
    gate = Gate(most=1)

    async def bind() -> None:
        async with gate():
            raise AssertionError("cancelled before it ran")

    async with gate():
        second = asyncio.create_task(bind())
        await asyncio.sleep(0)  # it waits
    assert gate.inside == 1  # it has its place, but has not run
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert gate.inside == 0
