"""What the whole scheduler keeps does not grow while objects of all kinds come and go with new names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dovetail.engine.ledger import intern, remembered
from dovetail.engine.rules import pod_counts
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.election import Terms
from dovetail.kube.live.rights import PreemptionOptions
from dovetail.kube.live.service import LiveScheduler, Options
from dovetail.kube.log import silent
from tests.kube.live.census import census
from tests.kube.live.memory_server import MemoryServer, ServerApi, ServerClient
from tests.live.chaos.machines import CANARY, Machine
from tests.live.fuzz.churn import Churn

pytestmark = pytest.mark.asyncio
STEPS = 1_500
STEP_SECONDS = 1 / 20  # of the scheduler's clock
SAMPLES = 6  # in each half
FEW = 40  # by so many a number may differ by chance: there are 120 pods at most
TIMES = 1.2


class World:
    """A live scheduler, an API server in memory, and a churn: `await world.step()`."""

    def __init__(self, seed: int) -> None:
        self.clock = 1_800_000_000.0
        self.server = MemoryServer()
        client, machines = ServerClient(self.server), {CANARY: Machine(CANARY, "hami", 1)}
        for name in ("kube-system", CANARY):
            client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        client.create(machines[CANARY].node())
        forever = Terms(1e9, 1e8, 2.0)  # of the Lease: the clock is ahead of the renewals
        options = Options("me", {"dovetail": Settings()}, terms=forever, preemption=PreemptionOptions(enabled=False))
        self.service = LiveScheduler(ServerApi(self.server), options, now=lambda: self.clock, log=silent)
        self.churn = Churn(client, machines, seed)  # type: ignore[arg-type]
        self._steps = 0

    async def step(self) -> None:
        self.churn.step()
        self.clock += STEP_SECONDS
        self._steps += 1
        if self._steps % 20 == 0:
            self.server.end_namespaces()
            await asyncio.sleep(0.005)
        for _ in range(4):
            await asyncio.sleep(0)


@asynccontextmanager
async def churning(seed: int = 7) -> AsyncIterator[World]:
    world = World(seed)
    running = asyncio.create_task(world.service.run())
    try:
        while not world.service.ready:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.01)
        yield world
        assert not running.done(), running.exception()
    finally:
        world.service.stop()
        await running


async def largest(world: World, steps: int) -> Counter[str]:
    """The largest length of each container, among some looks in the course of these steps."""
    found: Counter[str] = Counter()
    for number in range(1, steps + 1):
        await world.step()
        if number % (steps // SAMPLES) == 0:
            found |= Counter(census(world.service))
    return found


async def test_nothing_grows_with_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each container of the whole process is as long in the last third of a churn as in the second one.

    Limits of caches are lower here, so that they are reached in the first third.
    """
    for module, name, limit in (
        (remembered, "LEAST_REMEMBERED", 64),
        (intern, "SWEEP_FROM", 128),
        (intern, "SWEEP_COSTLY_FROM", 32),
        (pod_counts, "MAX_LOGGED", 400),
    ):
        monkeypatch.setattr(module, name, limit)
    async with churning() as world:
        await largest(world, STEPS // 3)
        before = await largest(world, STEPS // 3)
        after = await largest(world, STEPS // 3)
        assert world.service.driver is not None
        assert world.service.driver.counts.bound > STEPS / 5
    grown = {path: (before[path], size) for path, size in after.items() if size > TIMES * before[path] + FEW}
    assert grown == {}
