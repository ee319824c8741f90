"""Runs beside another scheduler and writes nothing to the cluster: what would Dovetail have decided?

The parts of the live scheduler that list and watch are used as they are; those that write are never started. Each group
that arrives is tried on the cluster as it is now, alone, and the trial is undone: the other scheduler places the pods.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.live.concerned import concerned
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.election import either
from dovetail.kube.live.lease import Lease
from dovetail.kube.live.server_version import server_version
from dovetail.kube.live.service import COLLECT, LiveScheduler
from dovetail.kube.live.turns import BOOKING_SECONDS, TURN_SECONDS
from dovetail.kube.log import WARNING
from dovetail.model.calls import Offered
from dovetail.model.events import Bind, Effect, Event, GroupArrived, Warn
from dovetail.model.pod import Group

TRY_AGAIN_SECONDS = 2.0  # between two tries of groups that found no place
TRIED_AGAIN = 200  # groups in one such try
LOGGED_WARNINGS = 10
MAX_WATCHED_GROUPS = 20_000  # groups without a place that are tried again


class ShadowDriver(Driver):
    """Books facts as the live driver does, and tries groups instead of placing them."""

    def __init__(self, *given: object, **options: object) -> None:
        super().__init__(*given, **options)  # type: ignore[arg-type]
        self._unplaced: dict[str, tuple[Group, int]] = {}  # by name: the group, and how many of its pods had a place
        self._warnings = 0

    async def run(self) -> None:
        again = 0.0
        while True:
            await either(self._wake, 1.0)
            self._wake.clear()
            if self.recorder is not None:
                self.recorder.step()
            self._inbox += self.mirror.settled_by_now()
            while (self._inbox or self.arrivals) and not self.paused:
                self.take_in(self._now() + BOOKING_SECONDS)
                if not self._inbox:
                    self._try_arrivals()
                await asyncio.sleep(0)
            if self._now() > again and not self.paused:
                again = self._now() + TRY_AGAIN_SECONDS
                await self._try_again()

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Nothing is carried out; the first warnings are logged: other schedulers record no cards, for any pod."""
        for effect in effects:
            if isinstance(effect, Warn) and self._warnings < LOGGED_WARNINGS:
                self._warnings += 1
                last = "; further warnings are not logged" if self._warnings == LOGGED_WARNINGS else ""
                self.log(f"{effect.subject}: {effect.message}{last}", WARNING, object=effect.subject)

    def _take(self, event: Event) -> None:
        """A pod that arrived and was placed or deleted since the last turn is tried before this is booked."""
        for uid in () if self.paused or isinstance(event, GroupArrived) else concerned(event):
            group = self.arrivals.take(uid)
            if group is not None:
                self._try(group)
        super()._take(event)

    def _try_arrivals(self) -> None:
        until = self._now() + TURN_SECONDS
        while self._now() <= until and (group := self.arrivals.pop()) is not None:
            self._try(group)

    async def _try_again(self) -> None:
        """Try groups without a place, the oldest tries first."""
        for name in list(self._unplaced)[:TRIED_AGAIN]:
            group, placed = self._unplaced.pop(name, (None, 0))
            if group is not None and any(self.mirror.known.waits(pod.uid) for pod in group.pods):
                self._try(group, placed)
            await asyncio.sleep(0)

    def _try(self, group: Group, before: int = -1) -> None:
        """Try the group; recorded if it is the first try, or more of its pods have a place than `before`."""
        engine = self.scheduler
        assert isinstance(engine, RecordedScheduler), "a shadow records"
        try:
            effects = engine.would_place(self._now(), group)
        except Exception as error:
            self.set_aside.group(group, error)
            return
        placed = sum(isinstance(effect, Bind) for effect in effects)
        if placed > before:
            engine.keep(Offered(self._now(), group), effects)
        if placed < len(group.pods) and len(self._unplaced) < MAX_WATCHED_GROUPS:
            self._unplaced[group.name] = group, max(before, placed)


class ShadowScheduler(LiveScheduler):
    """The live scheduler without a Lease and without any write. The options' profiles name the other scheduler."""

    driver_class = ShadowDriver

    async def _serve(self) -> None:
        gc.set_threshold(*COLLECT)
        self.state = "connecting"
        server = await server_version(self._api, self._no_answer)
        self.election._held = Lease()  # its parts are named after one; without a renewal nothing may write
        driver = self.driver = self._put_together(server)
        await self._list(driver)
        driver.take_truth()
        await self._measure(driver)
        self.ready, self.state, driver.paused = True, "watching", False
        self._log(f"watching {', '.join(self._options.profiles)}: {len(self.mirror.nodes)} nodes")
        driver.happened(())
        await self._watch_over(self._start(asyncio.Event().wait()))

    def _start_writers(self, driver: Driver) -> None:
        """A shadow writes nothing."""

    async def _say_goodbye(self, driver: Driver) -> None:
        driver.paused = True
        await self._end_tasks()
