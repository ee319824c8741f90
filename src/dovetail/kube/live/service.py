"""The parts put together: find the API server, become the one who may write, list everything, fence, then schedule."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from dovetail.engine.collector import collector_off
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Forbidden, Unavailable
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.retry import retrying
from dovetail.kube.api.typed import version_of
from dovetail.kube.live.binder import Binder
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.election import TERMS, Arrival, Election, Terms
from dovetail.kube.live.fencing import stamp, stamp_of
from dovetail.kube.live.hami_lock import HamiLocks
from dovetail.kube.live.mirror import Mirror, Stand
from dovetail.kube.live.reader import Reader
from dovetail.kube.live.sources import Sources
from dovetail.kube.live.tell import Condition, Teller
from dovetail.kube.live.volume_mirror import VolumeMirror
from dovetail.kube.live.volumes import HeldBack, Task, bind_volumes
from dovetail.kube.settings import Settings
from dovetail.model.events import Bind

COLLECT = (20_000, 10, 10)  # as gc.set_threshold: at Python's 700 a burst is mostly looked through for garbage
FEW = 200  # nodes for which interpreted kernels are quick enough to begin with
GOODBYE = 10.0  # seconds for what is under way when we are asked to end


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. Everything has a default but who we are."""

    identity: str
    profiles: Mapping[str, Settings]  # scheduler name -> how its pods are read
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # policy name -> its arguments
    namespace: str = "kube-system"  # of the lease
    lease: str = "dovetail-scheduler"
    terms: Terms = TERMS
    hami_lock: str = "auto"
    at_once: int = 64  # Bindings on their way
    device_resources: tuple[str, ...] = ("nvidia.com/gpu",)


class Lost(Exception):
    """We must not write any more."""


class Service:
    """`await run()`; ends when `stop` is called, and raises Lost where another one is the scheduler now."""

    def __init__(
        self,
        api: Api,
        options: Options,
        *,
        now: Callable[[], float],
        log: Callable[..., None],
        compile_kernels: Callable[[], bool] = lambda: False,  # blocks; called in a thread; False = interpret them
    ) -> None:
        self._api, self._options, self._now, self._log = api, options, now, log
        self._compile_kernels = compile_kernels
        self.scheduler = Scheduler(
            options.arguments, mode="interpreted", device_resources=options.device_resources, cache=True
        )
        self.mirror = Mirror(Reader(options.profiles), now)
        self.volumes = VolumeMirror()
        self.election = Election(
            api,
            options.identity,
            name=options.lease,
            namespace=options.namespace,
            terms=options.terms,
            now=now,
            log=log,
        )
        self.ready = False
        self.state = "starting"  # for people: what we are doing until we are ready
        self.driver: Driver | None = None
        self.reflectors: list[Reflector[Any]] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._passing: set[asyncio.Task[Any]] = set()  # those of them that may end

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        try:
            await self._until_stopped(self._serve())
        finally:
            await self._end_tasks()

    async def _end_tasks(self) -> None:
        """A task that was told to end in the middle of something may miss it: it is told again."""
        binds = self.driver.binder.under_way if self.driver is not None else {}
        while left := {task for task in (*self._tasks, *binds.values()) if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)

    async def _until_stopped(self, work: Any) -> None:
        """Work until it ends or fails, or until we are asked to stop."""
        serving, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving in done:
                serving.result()
            elif self.driver is not None:
                await self._say_goodbye(self.driver)
        finally:
            for task in (serving, stopping):
                task.cancel()
            await asyncio.gather(serving, stopping, return_exceptions=True)

    async def _serve(self) -> None:
        gc.set_threshold(*COLLECT)
        server = await self._server_version()
        warming = self._start(asyncio.to_thread(self._compile_kernels), passing=True)
        self.state = "waiting for the lease"
        arrival = await self.election.acquire()
        leading = self._start(self.election.keep())
        self._log(f"leading as {self.election.identity}, epoch {self.election.epoch}")
        driver = self.driver = self._put_together(server)
        self._start(self._get_ready(driver, arrival, warming), passing=True)
        await self._watch_over(leading)

    async def _get_ready(self, driver: Driver, arrival: Arrival, warming: asyncio.Task[bool]) -> None:
        with collector_off():
            await self._list(driver)
            if len(self.mirror.nodes) > FEW:  # booking thousands of pods is quicker with compiled kernels, too
                self.state = "compiling kernels"
                await asyncio.wait({warming})
            self._when_compiled(warming)
            driver.take_truth()
        if arrival is not Arrival.AFTER_GOODBYE:  # a Lease that was deleted looks like one that never was
            await self._fence(driver)
        gc.collect()
        gc.freeze()  # what is there now stays: looking through it again and again costs more than it finds
        self.ready, self.state = True, "ready"
        self._log(f"ready: {len(self.mirror.nodes)} nodes, {len(self.mirror.pods)} pods")
        driver.paused = False
        driver.happened(())

    def _when_compiled(self, warming: asyncio.Task[bool]) -> None:
        """A small cluster is served while kernels are still being compiled: the decisions are the same."""

        def switch(done: asyncio.Task[bool]) -> None:
            if not done.cancelled() and done.exception() is None and done.result():
                self.scheduler.compile()

        if warming.done():
            switch(warming)
        else:
            warming.add_done_callback(switch)

    async def _watch_over(self, leading: asyncio.Task[Any]) -> None:
        """Until a part ends that should not, those that are started on the way included."""
        while True:
            working = {task for task in self._tasks if not task.done()} | {leading}
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
            if leading in done:
                self.ready = False
                leading.result()
                raise Lost("the lease is lost")
            for task in [task for task in self._tasks if task.done()]:
                task.result()
                if task not in self._passing:
                    raise RuntimeError("a part of the scheduler ended by itself")
                self._tasks.remove(task)

    def _start(self, work: Any, passing: bool = False) -> asyncio.Task[Any]:
        """`passing`: it is no failure that it ends."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        if passing:
            self._passing.add(task)
        return task

    def _put_together(self, server: tuple[int, int]) -> Driver:
        driver = Driver(self.scheduler, self.mirror, epoch=self.election.epoch, now=self._now, log=self._log)
        driver.paused, driver.doubt = True, self.election.doubt
        vendors = next(iter(self._options.profiles.values())).vendors
        locks = HamiLocks(
            self._api,
            exists=self.mirror.has,
            clears=self.mirror.may_hold,
            may_write=self.election.is_sure,
            now=self._now,
            log=self._log,
            setting=self._options.hami_lock,
        )
        driver.teller = Teller(
            self._api,
            self.election.identity,
            written=partial(self._condition_written, driver),
            may_write=self.election.is_sure,
            busy=lambda: driver.binder.writing > 0,
            now=self._now,
            log=self._log,
        )
        driver.binder = Binder(
            self._api,
            vendors,
            nodes=self.mirror.nodes,
            version_of=self._version_of,
            settled=driver.teller.settled,
            volumes=self._bind_volumes,
            report=driver.outcome,
            now=self._now,
            epoch=self.election.epoch,
            may_write=self.election.is_sure,
            log=self._log,
            server=server,
            turn=locks,
            most=self._options.at_once,
        )
        sources = Sources(self._api, driver, self.volumes, locks, vendors, self._now, self._log)
        self.reflectors = sources.reflectors
        return driver

    async def _list(self, driver: Driver) -> None:
        """Everything there is; deciding waits until all of it is known."""
        self.state = "listing the cluster"
        for reflector in self.reflectors:
            self._start(reflector.run())
        self._start(driver.run())
        self._start(driver.teller.run())
        waiting = [asyncio.create_task(reflector.synced()) for reflector in self.reflectors]
        await asyncio.gather(*waiting)

    async def _fence(self, driver: Driver) -> None:
        """Nothing that our predecessor sent may become true after this."""
        self.state = "fencing off the scheduler before us"
        waiting = [(uid, known) for uid, known in self.mirror.pods.items() if known.stand is Stand.WAITS]
        count = await stamp(
            self._api, waiting, self.election.epoch, driver.hear_pod, self._log, may_write=self.election.is_sure
        )
        if count:
            self._log(f"nobody said goodbye before us: stamped {count} pods that wait")

    async def _say_goodbye(self, driver: Driver) -> None:
        self._log("stopping: waiting for what is under way")
        fenced, self.ready, driver.paused = self.ready, False, True
        await driver.binder.drain(GOODBYE)
        clean = fenced and not driver.binder.under_way
        await driver.teller.flush(2.0)
        await self._end_tasks()
        if clean:
            await self.election.release()

    # ---- what the binder asks -----------------------------------------------------------------------------------

    def _version_of(self, bind: Bind) -> str | None:
        known = self.mirror.pods.get(bind.pod.uid)
        if known is None or known.stand is not Stand.WAITS or known.pod != bind.pod:
            return None
        if not self.election.has_looked(known.doubt):
            raise Unavailable(f"stamped by {known.stamp}: the lease must be looked at first", sent=False)
        return known.version

    def _condition_written(self, driver: Driver, uid: str, answer: Json, condition: Condition) -> None:
        self.mirror.wrote(uid, version_of(answer), stamp_of(answer), condition)
        driver.judge_stamps()

    async def _bind_volumes(self, bind: Bind) -> str:
        truth = VolumeTruth(self.mirror, self.volumes)
        task = Task(bind.pod.uid, str(bind.decision.node), bind.volumes)
        problem = await bind_volumes(task, HeldBack(self._api, self.election.is_sure), truth)
        return problem.message if problem is not None else ""

    async def _server_version(self) -> tuple[int, int]:
        self.state = "connecting"
        said = msgspec.json.decode(await retrying(self._ask_version, tries=8), type=_Version)
        try:
            return int(said.major), int(said.minor.rstrip("+"))
        except ValueError:
            raise ApiError(f"the server's version {said.major}.{said.minor} cannot be read") from None

    async def _ask_version(self) -> Json:
        """A server that has just started forbids everything until it knows its roles: try again."""
        try:
            return await self._api.get("/version")
        except Forbidden as error:
            raise Unavailable(error.message, code=error.code) from error


class VolumeTruth:
    """What a pod's volumes wait for."""

    def __init__(self, mirror: Mirror, volumes: VolumeMirror) -> None:
        self._mirror, self._volumes = mirror, volumes
        self.claim, self.volume, self.changed = volumes.claim, volumes.volume, volumes.changed

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        node = self._mirror.nodes.get(name)
        return node.labels if node is not None else None

    def has_pod(self, uid: str) -> bool:
        return uid in self._mirror.pods


class _Version(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""
