"""The extender's verbs: `filter`, `prioritize`, `bind`, `preempt` of kube-scheduler's extender protocol.

`filter` decides and reserves, `bind` binds what `filter` reserved. Requests are answered by the live scheduler that
leads; another replica answers with an error that says so. docs/extender.md describes the protocol as users see it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dovetail.kube.extender.binds import Binds, Ended
from dovetail.kube.extender.counts import ExtenderCounts
from dovetail.kube.extender.desk import KEEP_SECONDS, Desk
from dovetail.kube.extender.preempting import with_cards
from dovetail.kube.extender.priorities import priorities
from dovetail.kube.extender.protocol import (
    BindArgs,
    FilterArgs,
    FilterResult,
    NodeVictims,
    PreemptArgs,
    WrongRequest,
)
from dovetail.kube.extender.refusals import refusals, same_for_all
from dovetail.kube.extender.simulation import Simulation
from dovetail.kube.extender.stalls import Stalls
from dovetail.kube.extender.told import Told
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.known import Known
from dovetail.kube.live.metrics.text import Page
from dovetail.kube.live.service import LiveScheduler
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects import core as objects
from dovetail.model.pod import Pod

WATCH_SECONDS, REPORT_POLL_SECONDS = 2.0, 0.005  # that a filter waits for the report of its pod; between two looks
EXPIRE_EVERY = 1.0  # seconds between two looks for reservations whose time is over
BIND_ANSWER_SECONDS = 28.0  # within which a bind is answered: HAMi's chart gives each call 30 s (httpTimeout)
# Reasons of our own events -> HAMi's, which tools of HAMi's users search for (HAMi: pkg/scheduler/event.go).
HAMI_EVENTS = {
    "Scheduled": "BindingSucceed",
    "BindingRefused": "BindingFailed",
    "VolumesNotBound": "BindingFailed",
}


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    keep_seconds: float = KEEP_SECONDS
    bind_seconds: float = BIND_ANSWER_SECONDS


class NotNow(Exception):
    """The request cannot be served at this moment; the text is the answer."""


class Extender:
    def __init__(self, service: LiveScheduler, options: ExtenderOptions, log: Log) -> None:
        self._service, self._options, self._log = service, options, log
        self.counts, self.stalls = ExtenderCounts(), Stalls()
        self._simulation = Simulation(service)
        self._parts: tuple[Driver, Desk, Binds, Told] | None = None
        service.prepare = self._prepare

    def _prepare(self, driver: Driver) -> None:
        """Called by the live scheduler when its parts are put together, before it decides anything."""
        desk = Desk(driver, self._options.keep_seconds)
        driver.teller.writes_conditions = False  # kube-scheduler writes them
        driver.teller.event_names = HAMI_EVENTS
        self._parts = (driver, desk, Binds(driver, desk, self._options.bind_seconds), Told(driver))

    async def run(self) -> None:
        """End reservations in time, and notice stalls of the process, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.stalls.run())
            tasks.create_task(self._expire())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY)
            if self._parts is None or self._parts[0].paused:
                continue
            try:
                self._parts[1].expire()
            except Exception as error:  # the next look tries again
                self._parts[0].set_aside.other("The end of reservations", error)

    @property
    def desk(self) -> Desk | None:
        return self._parts[1] if self._parts is not None else None

    def _working(self) -> tuple[Driver, Desk, Binds, Told]:
        """The parts, if this process may decide now."""
        if self._parts is None or not self._service.ready or self._parts[0].paused:
            raise NotNow(f"this Dovetail does not serve now: {self._service.state}")
        return self._parts

    # ---- filter -------------------------------------------------------------------------------------------------

    async def filter(self, args: FilterArgs) -> FilterResult:
        """Choose one of the offered nodes and reserve it; or say why none of them is for the pod.

        The pod in the request is not believed: a client that sends a false one could free the cards of a running pod.
        """
        if args.names is not None:
            await self._until_reported(args.pod)
        return self.filter_now(args)

    async def _until_reported(self, pod: objects.Pod) -> None:
        """Wait for the pod's report for a while: kube-scheduler's watch may be ahead of ours."""
        driver, loop = self._service.driver, asyncio.get_running_loop()
        until = loop.time() + WATCH_SECONDS
        while driver is not None and self._is_unreported(driver, pod) and loop.time() < until:
            await asyncio.sleep(REPORT_POLL_SECONDS)

    def _is_unreported(self, driver: Driver, pod: objects.Pod) -> bool:
        served = pod.spec.scheduler_name in self._service.options.profiles
        if not (self._service.ready and served):
            return False
        is_known = pod.metadata.uid in driver.mirror.pods
        return not is_known and not _leaves_all_to_kube_scheduler(driver.mirror.read(pod))

    def filter_now(self, args: FilterArgs) -> FilterResult:
        """As `filter`, with the pods that are known now."""
        try:
            return self._filter(args)
        except (NotNow, WrongRequest) as error:
            return FilterResult(error=str(error))

    def _filter(self, args: FilterArgs) -> FilterResult:
        driver, desk, _, told = self._working()
        if args.names is None:
            return self._simulation.filter(args)
        if _leaves_all_to_kube_scheduler(driver.mirror.read(args.pod)):
            return FilterResult(args.names)  # kube-scheduler knows all that such a pod asks for
        known = self._waiting(driver, desk, args.pod)
        pod, uid = known.pod, known.pod.uid
        if uid in driver.binder.under_way:
            return self._as_it_is_bound(driver, uid, args)
        if why := self._not_yet(driver, desk, known):
            raise NotNow(why)
        is_waiting = desk.reservation(uid) is None and bool(desk.makes_room_for(pod))
        decision = desk.decide(known, frozenset(args.names)) if not is_waiting else None
        if decision is not None:
            return FilterResult((str(decision.node),))
        if stopping := desk.makes_room_for(pod):
            return FilterResult((), *same_for_all(stopping.partition(",")[0], args.names))
        found = refusals(driver.scheduler, desk.group_of(pod), pod, args.names)
        told.filtering_failed(pod, found)
        return FilterResult((), *found)

    def _waiting(self, driver: Driver, desk: Desk, source: objects.Pod) -> Known:
        """The pod as the API server has reported it."""
        profiles = self._service.options.profiles
        if source.spec.scheduler_name not in profiles:
            served = ", ".join(sorted(profiles))
            raise NotNow(f"schedulerName {source.spec.scheduler_name!r} is not served; --scheduler-name is {served}")
        if not source.metadata.uid:
            raise WrongRequest("Pod.metadata.uid is missing")
        driver.take_in()
        if why := desk.unfit(source.metadata.uid):
            raise NotNow(why)
        return driver.mirror.pods[source.metadata.uid]

    def _as_it_is_bound(self, driver: Driver, uid: str, args: FilterArgs) -> FilterResult:
        """The answer about a pod whose bind is under way: kube-scheduler gave up waiting, or was restarted."""
        node = str(driver.on_the_way[uid].decision.node) if uid in driver.on_the_way else ""
        if node in args.offered:
            return FilterResult((node,))
        raise NotNow(f"the pod is being bound to node {node}")

    def _not_yet(self, driver: Driver, desk: Desk, known: Known) -> str:
        """Why the pod is not decided yet, though nothing is wrong with it."""
        pod = known.pod
        pause = driver.patience.wait(pod.owner or pod.key, driver.now())
        if pause > 0:
            return driver.patience.why(pod.owner or pod.key)
        if driver.kernels is None:
            return ""
        return driver.kernels.admit(desk.group_of(pod), len(driver.scheduler.ledger.nodes), lambda: None)

    # ---- the other verbs ----------------------------------------------------------------------------------------

    def prioritize(self, args: FilterArgs) -> dict[str, int]:
        """A score from 0 to 10 for each offered node. Raises NotNow."""
        driver, desk, _, _ = self._working()
        held = desk.reservation(args.pod.metadata.uid)
        if held is not None:
            return {name: 10 if name == held.decision.node else 0 for name in args.offered}
        known = driver.mirror.pods.get(args.pod.metadata.uid)
        pod = known.pod if known is not None else driver.mirror.read(args.pod)
        return priorities(driver.scheduler, pod, args.offered)

    async def bind(self, args: BindArgs) -> str:
        """Bind what `filter` reserved. Returns "" if the pod is bound to the node, else why it is not."""
        try:
            if self.stalls.is_suspect(asyncio.get_running_loop().time()):
                self._log(
                    f"{args.key}: not bound: the process stood still, and the request may be old",
                    WARNING,
                    pod=args.key,
                    uid=args.uid,
                    node=args.node,
                )
                raise NotNow("Dovetail stood still, and this request may be old; try again")
            return await self._working()[2].bind(args)
        except (NotNow, Ended) as why:
            return str(why)

    async def preempt(self, args: PreemptArgs) -> dict[str, NodeVictims]:
        """The nodes on which the pod has its cards once victims have ended, and these victims.

        For a pod that lacks CPU everywhere this is kube-scheduler's first call, so its report is waited for: after an
        error kube-scheduler would not try the pod again for minutes. Raises NotNow or WrongRequest.
        """
        await self._until_reported(args.pod)
        return self.preempt_now(args)

    def preempt_now(self, args: PreemptArgs) -> dict[str, NodeVictims]:
        """As `preempt`, with the pods that are known now."""
        driver, desk, _, _ = self._working()
        known = self._waiting(driver, desk, args.pod)
        if not known.pod.wants_devices:
            return dict(args.victims)
        return with_cards(driver.scheduler, desk.group_of(known.pod), known.pod, args.victims)

    def close(self) -> None:
        """Answer what is under way: the live scheduler has ended, and writes nothing more."""
        if self._parts is not None:
            self._parts[2].close()

    def page(self) -> Page:
        """The metrics of the extender. Reservations exist while this process leads."""
        desk = self.desk
        reservations: Page = (
            {}
            if desk is None
            else {
                "dovetail_extender_reservations_held": len(desk.reserved),
                "dovetail_extender_reservations_made_total": desk.made,
                "dovetail_extender_reservations_expired_total": desk.expired,
            }
        )
        return {
            "dovetail_extender_requests_total": self.counts.answers,
            "dovetail_extender_request_seconds": {(verb,): one for verb, one in self.counts.seconds.items()},
            **reservations,
            "dovetail_extender_stalls_total": self.stalls.seen,
        }

    # ---- health -------------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self._parts is not None and self._service.ready


def _leaves_all_to_kube_scheduler(pod: Pod) -> bool:
    return not pod.wants_devices and pod.refusal is None
