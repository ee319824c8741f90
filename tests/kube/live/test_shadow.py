"""The shadow's driver: what it tries, what it records, and that it holds nothing of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.live.binder import Binder
from dovetail.kube.live.shadow import LOGGED_WARNINGS, TRY_AGAIN_SECONDS, ShadowDriver
from dovetail.kube.live.tell import Teller
from dovetail.model.calls import Call, EngineSettings, Offered
from dovetail.model.events import Bind, Effect
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import Object


class ShadowStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[str, int]] = []  # groups that were tried, and how many of their pods had a place
        self.scheduler = RecordedScheduler(EngineSettings(device_resources=("nvidia.com/gpu",)))
        self.scheduler.record(self._keep)
        self.driver = ShadowDriver(self.scheduler, self.mirror, epoch="", now=lambda: self.clock, log=self.log)
        self.driver.binder, self.driver.teller = cast(Binder, self.hands), cast(Teller, self.hands)

    def _keep(self, call: Call, effects: Sequence[Effect]) -> None:
        if isinstance(call, Offered):
            self.recorded.append((call.group.name, sum(isinstance(effect, Bind) for effect in effects)))

    async def later(self) -> None:
        self.clock += TRY_AGAIN_SECONDS + 0.1
        self.driver.happened(())
        await self.settle()


def by_another(name: str, on: str) -> Object:
    """The pod after another scheduler has bound it; it writes down no cards."""
    item = waiting(name, 2)
    item["spec"]["nodeName"] = on
    return item


def test_each_pod_is_tried_alone_and_nothing_is_held_for_it() -> None:
    async def story() -> None:
        async with ShadowStage() as stage:
            stage.nodes(gpu_node())
            stage.pods(waiting("a"), waiting("b"))
            await stage.settle()
            assert stage.recorded == [("ml/a", 1), ("ml/b", 1)]  # one card is free for either
            assert (stage.holders(), stage.hands.binds, len(stage.scheduler.waiting)) == (set(), [], 0)

    asyncio.run(story())


def test_a_pod_without_a_place_is_tried_again_and_recorded_once_it_has_one() -> None:
    async def story() -> None:
        async with ShadowStage() as stage:
            stage.nodes(gpu_node())
            stage.pods(waiting("a"), by_another("a", "n"))
            stage.pods(waiting("b"))
            await stage.settle()
            assert stage.recorded == [("ml/a", 1), ("ml/b", 0)]
            await stage.later()
            assert len(stage.recorded) == 2  # tried again in vain: nothing is written for it
            stage.pod_gone(waiting("a"))
            await stage.later()
            assert stage.recorded[2:] == [("ml/b", 1)]
            await stage.later()
            assert len(stage.recorded) == 3

    asyncio.run(story())


def test_a_pod_that_another_scheduler_binds_at_once_is_tried_before_this_is_booked() -> None:
    """A fast scheduler's bind is heard in the same turn as the pod's arrival."""

    async def story() -> None:
        async with ShadowStage() as stage:
            stage.nodes(gpu_node())
            await stage.settle()
            stage.pods(waiting("a"), by_another("a", "n"))
            await stage.settle()
            assert stage.recorded == [("ml/a", 1)]
            assert stage.holders() == {"a"}

    asyncio.run(story())


def test_cards_that_nobody_wrote_down_are_not_logged_for_every_pod() -> None:
    async def story() -> None:
        async with ShadowStage() as stage:
            stage.nodes(gpu_node(cards=2 * LOGGED_WARNINGS))
            stage.pods(*(by_another(f"p{n}", "n") for n in range(2 * LOGGED_WARNINGS)))
            await stage.settle()
            assert len(stage.holders()) == 2 * LOGGED_WARNINGS
            lines = [line for line in stage.log if "no record of its cards" in line]
            assert len(lines) == LOGGED_WARNINGS
            assert "further warnings are not logged" in lines[-1]

    asyncio.run(story())
