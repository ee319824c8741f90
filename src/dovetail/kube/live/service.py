"""The live scheduler from its parts: find the API server, acquire the Lease, list all objects, fence, schedule."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dovetail.engine.kernel.collector import collector_off
from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Unavailable
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.tasks import end_tasks
from dovetail.kube.api.typed import version_of
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.settling import SETTLE_SECONDS
from dovetail.kube.live.binder import Binder
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.election import TERMS, Arrival, Election, OtherNames, Terms
from dovetail.kube.live.fencing import stamp, stamp_of
from dovetail.kube.live.gang_releases import RELEASE_AFTER
from dovetail.kube.live.hami_lock import OLD, HamiLocks
from dovetail.kube.live.journaled import JournalOptions, recorded_or_not
from dovetail.kube.live.kernels import FEW_NODES, Kernels, Make
from dovetail.kube.live.known import Stand
from dovetail.kube.live.lease import Marks
from dovetail.kube.live.ledger_audit import AUDIT_SECONDS, LedgerAudit
from dovetail.kube.live.metrics.text import Page
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.peers import Overlap, Peers
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.rights import PREEMPTION, PreemptionOptions, add_queues, live_rights
from dovetail.kube.live.server_version import server_version
from dovetail.kube.live.signal_sources import NO_SIGNALS, SignalOptions, sources_of
from dovetail.kube.live.signals import ROUND_SECONDS, Signals, signal_readers
from dovetail.kube.live.sources import Sources
from dovetail.kube.live.tell import ScheduledCondition, Teller
from dovetail.kube.live.tracing import Tracing
from dovetail.kube.live.volume_mirror import VolumeMirror
from dovetail.kube.live.volume_truth import VolumeTruth
from dovetail.kube.live.volumes import HeldBack, Task, bind_volumes
from dovetail.kube.live.warm import pairs_of
from dovetail.kube.log import WARNING, Log
from dovetail.model.events import Bind

# For gc.set_threshold: at Python's default of 700, garbage collection takes most of the time of a burst.
COLLECT = (20_000, 10, 10)
LONGEST_WAIT = 120.0  # seconds for which a large cluster waits for the kernels of the configuration
GOODBYE = 10.0  # seconds for writes under way when the process is asked to end


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. Every field has a default, except those that say which scheduler this is."""

    identity: str
    profiles: Mapping[str, Settings]  # scheduler name -> how its pods are read
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # policy name -> its arguments
    namespace: str = "kube-system"  # namespace of the Lease
    lease: str = "dovetail-scheduler"
    peer_namespaces: tuple[str, ...] = ()  # namespaces, beside `namespace`, whose Leases of other Dovetails are trusted
    terms: Terms = TERMS
    hami_lock: str = "auto"
    hami_lock_seconds: float = OLD  # after which a lock that is not cleared is taken over
    at_once: int = 64  # Bindings under way at the same time
    settle_seconds: float = SETTLE_SECONDS  # until GPUs that only a count reports are trusted
    audit_seconds: float = AUDIT_SECONDS  # between two audits of the ledger; 0 = only after faults
    device_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    nodes: tuple[tuple[str, str], ...] = ()  # labels of the nodes on which we place; () = all nodes
    any_names: bool = False  # wait for the lease even if its holder serves other scheduler names
    preemption: PreemptionOptions = PREEMPTION
    release_after: float | None = RELEASE_AFTER  # seconds that a gang may stay below its minimum; None = no limit
    signals: SignalOptions = NO_SIGNALS
    journal: JournalOptions | None = None  # where the flight recorder writes; None = nowhere


class Lost(Exception):
    """We must not write any more: the lease is lost."""


class LiveScheduler:
    """The live scheduler. `await run()` ends when `stop` is called, and raises Lost when another scheduler leads."""

    tracing: Tracing | None = None  # set before `run`; None = no traces
    more_metrics: tuple[Callable[[], Page], ...] = ()  # of what is served beside the scheduler
    signals: Signals | None = None  # measured load, once the cluster is listed
    driver_class: type[Driver] = Driver

    def __init__(
        self,
        api: Api,
        options: Options,
        *,
        now: Callable[[], float],
        log: Log,
        make_kernels: Make | None = None,  # None = interpret them
    ) -> None:
        self._api, self._options, self._now, self._log = api, options, now, log
        rights = live_rights(options.preemption, options.profiles)
        settings = next(iter(options.profiles.values()))
        self.scheduler, self.recorder = recorded_or_not(options, rights, settings.queue_half_life, now, log)
        self.kernels = Kernels(self.scheduler, make_kernels, log=log)
        self.kernels.configure(pairs_of(options.profiles.values()))
        add_queues(self.scheduler, settings, now())
        self.reader, self._seals = PodReader(options.profiles, options.nodes), settings.seals
        self.mirror = Mirror(self.reader, now, Gangs(settings.unknown_group), options.settle_seconds)
        self.volumes = VolumeMirror()
        self.election = Election(
            api,
            options.identity,
            name=options.lease,
            namespace=options.namespace,
            terms=options.terms,
            marks=Marks(tuple(options.profiles), options.nodes, self._seals.fingerprints),
            any_names=options.any_names,
            now=now,
            log=log,
        )
        self.election.says = self._say
        self.peers = Peers(
            api,
            lambda: self.election.lease,
            terms=options.terms,
            namespaces=options.peer_namespaces,
            now=now,
            log=log,
        )
        self.ready, self.state = False, "starting"  # for people: what is being done until we are ready
        self.driver: Driver | None = None
        self.prepare: Callable[[Driver], None] = lambda driver: None  # called once, before the driver decides anything
        self.reflectors: list[Reflector[Any]] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._passing: set[asyncio.Task[Any]] = set()  # the tasks among them that may end

    def stop(self) -> None:
        self._stop.set()

    @property
    def options(self) -> Options:
        return self._options

    @property
    def api(self) -> Api:
        return self._api

    def now(self) -> float:
        return self._now()

    @property
    def seals_records(self) -> bool:
        return bool(self._seals)

    def _no_answer(self, error: ApiError) -> None:
        self._log(f"the API server cannot be asked: {error}; it is tried again", WARNING)

    def _say(self, text: str) -> None:
        self.state = text

    async def run(self) -> None:
        try:
            await self._until_stopped(self._serve())
        finally:
            await self._end_tasks()
            if self.recorder is not None:
                self.recorder.close()

    async def _end_tasks(self) -> None:
        driver = self.driver
        binds, evictions = (driver.binder.under_way, driver.evictions) if driver is not None else ({}, ())
        await end_tasks(lambda: (*self._tasks, *binds.values(), *evictions))

    async def _until_stopped(self, work: Any) -> None:
        """Run `work` until it ends or fails, or until `stop` is called."""
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
        self.state = "connecting"
        server = await server_version(self._api, self._no_answer)
        self._start(self.kernels.run())
        self.state = "waiting for the lease"
        try:
            arrival = await self.election.acquire()
        except OtherNames as error:
            raise Lost(str(error)) from error
        if self._seals:
            self._seals.since = self.election.lease.marks().sealed_since
        leading = self._start(self.election.keep())
        self._log(f"leading as {self.election.identity}, epoch {self.election.epoch}", epoch=self.election.epoch)
        sealed = "sealed" if self._seals else "not sealed: no --seal-key-file"
        self._log(f"records of the cards that pods are given are {sealed}")
        driver = self.driver = self._put_together(server)
        driver.latencies.tracing = self.tracing
        self._start(self._get_ready(driver, arrival), passing=True)
        await self._watch_over(leading)

    async def _get_ready(self, driver: Driver, arrival: Arrival) -> None:
        self.state = "looking for other Dovetails"
        await self.peers.until_alone(self._say)
        self._start(self._watch_peers())
        with collector_off():
            await self._list(driver)
            if len(self.mirror.nodes) > FEW_NODES:  # booking thousands of pods is faster with compiled kernels, too
                self.state = "compiling kernels"
                await self.kernels.settled(LONGEST_WAIT)
            driver.take_truth()
            await self._measure(driver)
        if arrival is not Arrival.AFTER_GOODBYE:  # a Lease that was deleted looks like one that never existed
            await self._fence(driver)
        gc.collect()
        gc.freeze()  # objects that exist now stay: scanning them for garbage again costs more than it finds
        self.ready, self.state = True, "ready"
        nodes, pods = len(self.mirror.nodes), len(self.mirror.pods)
        self._log(f"ready: {nodes} nodes, {pods} pods", nodes=nodes, pods=pods)
        driver.paused = False
        driver.audit.demand()
        driver.happened(())

    async def _measure(self, driver: Driver) -> None:
        """Ask for the measured load once before the first placement, and then in rounds."""
        given = self._options.signals
        sources = sources_of(given, self._api, ROUND_SECONDS)
        readers = signal_readers(one for each in self._options.profiles.values() for one in each.profiles)
        about = (sources, given, self.mirror.nodes, driver.happened)
        self.signals = signals = Signals(*about, now=self._now, log=self._log, readers=readers)
        if sources:
            self.state = "asking for the measured load"
            await signals.round()
        elif readers:
            self._log(f"{', '.join(readers)}: no load is measured; see signals in the configuration", WARNING)
        self._start(signals.run())

    async def _watch_peers(self) -> None:
        try:
            await self.peers.watch()
        except Overlap as error:
            raise Lost(str(error)) from error

    async def _watch_over(self, leading: asyncio.Task[Any]) -> None:
        """Wait until a part ends that must not end; parts that are started later are watched, too."""
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
        """Start a task. `passing`: it may end without that being a failure."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        if passing:
            self._passing.add(task)
        return task

    def _put_together(self, server: tuple[int, int]) -> Driver:
        driver = self.driver_class(self.scheduler, self.mirror, epoch=self.election.epoch, now=self._now, log=self._log)
        driver.paused, driver.doubt, driver.kernels = True, self.election.doubt, self.kernels
        driver.audit, driver.recorder = LedgerAudit(driver, self._options.audit_seconds), self.recorder
        driver.bound_by, driver.noticed = self.election.lease.key, self.peers.notice
        vendors = next(iter(self._options.profiles.values())).vendors
        locks = HamiLocks(
            self._api,
            exists=self.mirror.known.has,
            clears=self.mirror.known.may_hold,
            may_write=self.election.is_sure,
            waits=driver.reports.waits_for_lock,
            now=self._now,
            log=self._log,
            setting=self._options.hami_lock,
            old=self._options.hami_lock_seconds,
        )
        driver.teller = Teller(
            self._api,
            self.election.identity,
            written=partial(self._condition_written, driver),
            may_write=self.election.is_sure,
            busy=lambda: driver.binder.writing > 0 or driver.preemptions.evictor.gate.inside > 0,
            now=self._now,
            log=self._log,
        )
        driver.binder = Binder(
            self._api,
            vendors,
            nodes=self.mirror.nodes,
            version_of=self._version_of,
            objection=driver.outcomes.objection,
            settled=driver.teller.settled,
            volumes=self._bind_volumes,
            report=driver.outcomes.take,
            now=self._now,
            epoch=self.election.epoch,
            bound_by=driver.bound_by,
            seals=self._seals,
            may_write=self.election.is_sure,
            log=self._log,
            server=server,
            turn=locks,
            most=self._options.at_once,
        )
        self._allow_evictions(driver)
        self.prepare(driver)
        spreads = any(one.default_spread for each in self._options.profiles.values() for one in each.profiles)
        about = (self._now, self._log, spreads, self._options.preemption.enabled, tuple(self._options.profiles))
        self.sources = Sources(self._api, driver, self.volumes, locks, vendors, *about)
        return driver

    def _allow_evictions(self, driver: Driver) -> None:
        driver.preemptions.write_by(self._api, self.election.is_sure, self._log)
        driver.releases.write_by(self._api, self.election.is_sure, self._log)
        driver.releases.allow(self._options.release_after, self._options.profiles)

    async def _list(self, driver: Driver) -> None:
        """List all objects; deciding waits until all of them are known."""
        self.state, self.reflectors, first = "listing the cluster", self.sources.reflectors, self.sources.first
        for reflector in first:
            self._start(reflector.run())
        await asyncio.gather(*(reflector.synced() for reflector in first))
        for reflector in self.reflectors:
            if reflector not in first:
                self._start(reflector.run())
        self._start(driver.run())
        self._start_writers(driver)
        await asyncio.gather(*(reflector.synced() for reflector in self.reflectors))
        absent = [reflector.path for reflector in self.reflectors if not reflector.health().served]
        if absent:
            text = f"not served or not readable, and watched as soon as they are: {', '.join(absent)}"
            self._log(text, paths=",".join(absent))

    def _start_writers(self, driver: Driver) -> None:
        self._start(driver.teller.run())
        self._start(self.sources.queue_status(self._api, self.election.is_sure).run())
        self._start(self.sources.pod_group_status(self._api, self.election.is_sure).run())

    async def _fence(self, driver: Driver) -> None:
        """Fence: after this, no Binding that the previous leader sent can succeed."""
        self.state = "fencing off the scheduler before us"
        waiting = [(uid, known) for uid, known in self.mirror.pods.items() if known.stand is Stand.WAITS]
        count = await stamp(
            self._api, waiting, self.election.epoch, driver.hear_pod, self._log, may_write=self.election.is_sure
        )
        if count:
            self._log(f"the previous scheduler did not release its Lease: stamped {count} waiting pods", count=count)

    async def _say_goodbye(self, driver: Driver) -> None:
        self._log("stopping: waiting for what is under way")
        fenced, self.ready, driver.paused = self.ready, False, True
        await driver.preemptions.drain()
        await driver.releases.drain()
        await driver.binder.drain(GOODBYE)
        clean = fenced and not driver.binder.under_way
        await driver.teller.flush(2.0)
        await self._end_tasks()
        await self.election.release(clean)

    # ---- what the binder asks -----------------------------------------------------------------------------------

    def _version_of(self, bind: Bind) -> str | None:
        known = self.mirror.pods.get(bind.pod.uid)
        if known is None or known.stand is not Stand.WAITS or known.pod != bind.pod:
            return None
        if self.driver is not None and not self.driver.rooms.is_whole(bind.pod):
            return None
        if not self.election.has_looked(known.doubt):
            raise Unavailable(f"stamped by {known.stamp}: the lease must be looked at first", sent=False)
        return known.version

    def _condition_written(
        self, driver: Driver, uid: str, answer: Json, condition: ScheduledCondition | None, node: str | None
    ) -> None:
        self.mirror.known.wrote(uid, version_of(answer), stamp_of(answer), condition, node)
        driver.judge_stamps()

    async def _bind_volumes(self, bind: Bind) -> str:
        truth = VolumeTruth(self.mirror, self.volumes)
        task = Task(bind.pod.uid, str(bind.decision.node), bind.volumes)
        problem = await bind_volumes(task, HeldBack(self._api, self.election.is_sure), truth)
        return problem.message if problem is not None else ""
