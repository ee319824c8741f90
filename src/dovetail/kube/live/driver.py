"""The loop of the live scheduler: book observed facts, then place new groups in order, then carry out the decisions.

Everything here runs in one thread and holds no lock. Groups are placed in small portions, so that Bindings of the first
pods are sent while later pods are still being placed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.templates import BOUND_BY
from dovetail.kube.journal.recorder import Recorder
from dovetail.kube.live.arrivals import Arrivals
from dovetail.kube.live.asked import PlacementHolder
from dovetail.kube.live.bind_outcomes import BindOutcomes
from dovetail.kube.live.binder import Binder
from dovetail.kube.live.concerned import concerned
from dovetail.kube.live.election import either
from dovetail.kube.live.fencing import may_outrank
from dovetail.kube.live.gang_releases import GangReleases
from dovetail.kube.live.gang_rooms import GangRooms
from dovetail.kube.live.held_groups import HeldGroups
from dovetail.kube.live.kernels import Kernels
from dovetail.kube.live.ledger_audit import LedgerAudit
from dovetail.kube.live.metrics.latencies import Latencies
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.patience import Patience
from dovetail.kube.live.pod_reports import PodReports
from dovetail.kube.live.preemptions import Preemptions
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.remarks import Remarks
from dovetail.kube.live.safety_net import SafetyNet
from dovetail.kube.live.set_aside import Fault, SetAside
from dovetail.kube.live.tell import Teller
from dovetail.kube.live.turns import BOOKING_SECONDS, TURN_SECONDS, let_others_run
from dovetail.kube.log import ERROR, WARNING, Log
from dovetail.kube.objects import core as objects
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    Evict,
    GroupArrived,
    Move,
    NodeChanged,
    NodeGone,
    PodGone,
    PodNominated,
    PodObserved,
    Resize,
    Wait,
    Warn,
)
from dovetail.model.pod import Group, Pod

PORTION = 32  # groups placed in one turn, before Bindings get a chance to be sent
RETRIED = 64  # waiting pods tried again in one turn
RETRIED_AT_ONCE = 2  # of these, pods tried between two checks of the clock
SAFETY_NET = 60.0  # seconds between two tries of all waiting pods; events should have caused every retry before that
REFRESH = 30.0  # seconds between two checks whether the reported reasons of waiting pods are still right
CHECK_AFTER_CHANGE = 3.0  # seconds from a node's change to the next such check
LONGEST_BUSY = 1.0  # seconds of turns without a pause after which such checks are due, too


@dataclass(slots=True)
class DriverCounts:
    """Counters for metrics and benchmarks."""

    placed: int = 0
    bound: int = 0
    conflicts: int = 0
    refused: int = 0
    rescued: int = 0  # pods placed by the safety net: each one shows that an event was missing


class Driver:
    recorder: Recorder | None = None  # the journal's, set by the caller that puts the parts together
    asked: PlacementHolder | None = None  # holds placements until another scheduler asks; None = pods queue up here

    def __init__(
        self,
        scheduler: Scheduler,
        mirror: Mirror,
        *,
        epoch: str,
        now: Callable[[], float],
        log: Log,
    ) -> None:
        self.scheduler, self.mirror, self._epoch, self._now, self._log = scheduler, mirror, epoch, now, log
        self.now, self.log = now, log
        self.binder: Binder  # set by the caller that puts the parts together
        self.teller: Teller
        self.kernels: Kernels | None = None  # set by the same caller; None = use the kernels as they are
        scheduler.retries.deferred = scheduler.claims.helpless.limited = True
        self.outcomes, self.reports = BindOutcomes(self), PodReports(self)
        self.held_groups, self.safety_net = HeldGroups(self), SafetyNet(self)
        self.set_aside = SetAside(self, self.outcomes.again)
        self.reasons = Reasons(scheduler, now, partial(self.set_aside.pod, what="Why a pod waits:"))
        self.remarks = Remarks()
        self.patience = Patience()
        self.rooms = GangRooms(scheduler, mirror)
        mirror.is_being_bound = lambda uid: uid in self.binder.under_way
        mirror.is_being_nominated = lambda uid: self.teller.is_nominating(uid)
        self.preemptions = Preemptions(scheduler, mirror, lambda: self.teller, self.happened, self._offer_later, now)
        self.releases = GangReleases(self)
        self.counts, self.latencies = DriverCounts(), Latencies()
        # By uid: placed pods, until they are seen on their node or their placement is given up.
        self.on_the_way: dict[str, Bind] = {}
        self.audit = LedgerAudit(self)
        self._inbox: list[Event] = []
        self.arrivals = Arrivals(scheduler.waiting.order_of)
        self._wake = asyncio.Event()
        self._look_at = 0.0  # when to check again why pods wait
        # Called when another scheduler may lead: number of the lease check that will tell.
        self.doubt: Callable[[], int] = lambda: 0
        self.paused = False  # True = decide nothing for now
        self.bound_by = ""  # our value of the bound-by annotation, on pods that hold cards
        # Called with the bound-by value of another Dovetail, and the pod.
        self.noticed: Callable[[str, str], None] = lambda mark, pod: None

    # ---- what comes in ------------------------------------------------------------------------------------------

    def happened(self, events: Iterable[Event]) -> None:
        self._inbox += events
        if self.mirror.faults:
            faults, self.mirror.faults = self.mirror.faults, []
            self.set_aside.unread(faults)
        self._wake.set()

    def hear_pods(self, batch: Sequence[Any]) -> None:
        for event in batch:
            if isinstance(event, Changed):
                self._look_at_mark(event.object)
        self.happened(self.mirror.hear_pods(batch))
        failures, self.mirror.failures = self.mirror.failures, []
        for source in failures:
            try:
                self.reports.refused_by_kubelet(source)
            except Exception as error:
                self.set_aside.unread([Fault("Pod", f"{source.metadata.namespace}/{source.metadata.name}", error)])
        self.judge_stamps()
        self.reports.problems()

    def _look_at_mark(self, source: objects.Pod) -> None:
        mark = source.metadata.annotations.get(BOUND_BY, "") if source.spec.node_name else ""
        if mark and mark != self.bound_by:
            self.noticed(mark, f"{source.metadata.namespace}/{source.metadata.name}")

    def hear_pod(self, source: objects.Pod) -> None:
        """Take in one pod as the answer to one of our writes shows it."""
        self.happened(self.mirror.hear_pod(source))
        self.judge_stamps()

    def judge_stamps(self) -> None:
        """Have the lease checked for waiting pods whose epoch may be newer than ours; they are not bound before that.

        Any client that may patch pods can write an epoch, so it proves nothing.
        """
        for known in (self.mirror.pods[uid] for uid in self.mirror.known.take_stamped() if uid in self.mirror.pods):
            if may_outrank(known.stamp, self._epoch):
                self._log(
                    f"{known.key}: stamped by {known.stamp}; looking at the lease", pod=known.key, uid=known.pod.uid
                )
                known.doubt = self.doubt()

    def take_truth(self) -> None:
        """Book observed facts before the first decision.

        Nodes go first: otherwise a row that pods hold is written twice.
        """
        self._inbox.sort(key=lambda event: not isinstance(event, NodeChanged))
        self.take_in()

    # ---- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the loop until it is cancelled."""
        self._look_at, net = self._now() + REFRESH, self._now() + SAFETY_NET
        while True:
            await either(self._wake, 1.0)
            self._wake.clear()
            if self.recorder is not None:
                self.recorder.step()
            self._inbox += self.mirror.settled_by_now()
            self.scheduler.search_again(self._now())
            await self._take_turns(self._now() + LONGEST_BUSY)
            if self._now() > self._look_at:
                self._look_at = self._now() + REFRESH
                self.reasons.look_again(self.scheduler.waiting)
            self.reasons.look_at_some(self.mirror)
            self._release_gangs()
            if self._now() > net and not self.paused:
                net = self._now() + SAFETY_NET
                self.safety_net.look()
            while self.audit.is_due and not self.paused and not self._has_work():
                self.audit.step()
                await asyncio.sleep(0)

    @property
    def evictions(self) -> list[asyncio.Task[None]]:
        """Evictions under way, for others and of gangs below their minimum."""
        released = self.releases.evictor.under_way if self.releases.evictor is not None else set()
        return [*self.preemptions.evictor.under_way, *released]

    def _release_gangs(self) -> None:
        if not self.paused:
            try:
                self.releases.look()
            except Exception as error:
                self.set_aside.other("Gangs below their minimum", error)

    async def _take_turns(self, until: float) -> None:
        """Take turns while there is work, but no longer than to the time `until`."""
        while self._has_work() and not self.paused:
            began = self._now()
            if began > until:
                self._wake.set()
                return
            self.take_in(began + BOOKING_SECONDS)
            if not self._inbox:  # decide only when all known facts are booked
                self.carry_out(self.retry_some(RETRIED))
                self._place_some()
                if self.audit.is_overdue:
                    self.audit.step()
            self.preemptions.take_back()
            if not self._inbox and not self.arrivals:
                self.reasons.look_at_a_gang(self.mirror)
                self.reports.waiting(PORTION)
            await let_others_run(began, self._now)

    def _has_work(self) -> bool:
        return bool(self._inbox or self.arrivals or self.scheduler.has_retries or self.reasons.pending)

    def take_in(self, until: float | None = None) -> None:
        """Book facts, and queue groups that are to be placed.

        Events left at the time `until` wait for the next turn.
        """
        inbox, self._inbox = self._inbox, []
        for event in inbox:  # a gang with news is decided after all of its events are booked, not in between
            if isinstance(event, GroupArrived):
                try:
                    self.scheduler.withdraw(event.group)
                except Exception as error:
                    self.set_aside.group(event.group, error)
        for number, event in enumerate(inbox):
            if until is not None and number and self._now() > until:
                self._inbox = inbox[number:] + self._inbox
                return
            try:
                self._take(event)
            except Exception as error:
                self.carry_out(self.set_aside.event(event, error))

    def _take(self, event: Event) -> None:
        if isinstance(event, GroupArrived):
            if self.asked is None:
                self._line_up(event.group)
            return
        for uid in concerned(event):
            self.on_the_way.pop(uid, None)
            self.rooms.forget((uid,))
            self._leave_line(uid)
            if not self.mirror.known.waits(uid):
                if uid not in self.binder.under_way:  # else its outcome is to be recorded
                    self.latencies.gone(uid)
                self._hush(uid)
                self.remarks.forget(uid)
                self.outcomes.refusals.pop(uid, None)
            self.preemptions.placed(uid) if isinstance(event, PodObserved) else self.preemptions.gone(uid)
        if isinstance(event, PodNominated):
            self.preemptions.was_nominated(event.pod, event.node)
        if isinstance(event, (NodeChanged, NodeGone)):
            self._look_at = min(self._look_at, self._now() + CHECK_AFTER_CHANGE)  # pods may wait for another reason now
        self.carry_out(self.set_aside.handle(event))
        if isinstance(event, NodeGone):
            self._inbox += self.preemptions.node_lost(event.name)

    def _line_up(self, group: Group) -> None:
        """Queue the group. Its pods leave other queued or waiting groups, so that each pod is placed once."""
        self.latencies.arrived(group.pods)
        group = self.scheduler.members.current(group)  # a gang that is partly placed goes first
        for pod in group.pods:
            if self.arrivals.name_of(pod.uid) not in ("", group.name):
                self._leave_line(pod.uid)
                self._hush(pod.uid)
            if self.scheduler.waiting.name_of(pod.uid) not in ("", group.name):
                self.carry_out(self.set_aside.handle(PodGone(self._now(), pod.uid)))
        self.arrivals.add(group)

    def _hush(self, uid: str) -> None:
        """Drop the recorded reason: the pod is no longer pending."""
        self.reasons.forget(uid)
        self.teller.forget(uid)

    def _leave_line(self, uid: str) -> None:
        rest = self.arrivals.leave(uid)
        if rest is not None:
            self._line_up(rest)

    def retry_some(self, pods: int) -> list[Effect]:
        """Retry waiting pods that a change may have helped: at most `pods`, within the time of one turn."""
        effects: list[Effect] = []
        until = self._now() + TURN_SECONDS
        while pods > 0 and self.scheduler.has_retries and self._now() <= until:
            pods -= RETRIED_AT_ONCE
            try:
                effects += self.scheduler.retry_some(self._now(), RETRIED_AT_ONCE)
            except Exception as error:
                self.set_aside.other("Retries", error)
        return effects

    def _place_some(self) -> None:
        until = self._now() + TURN_SECONDS
        for number in range(PORTION):
            group = self.arrivals.pop() if not number or self._now() <= until else None
            if group is None:
                return
            try:
                self._place(group)
            except Exception as error:
                self.set_aside.group(group, error)

    def _place(self, group: Group) -> None:
        waits = max(self.patience.wait(pod.owner or pod.key, self._now()) for pod in group.pods)
        if waits > 0:
            self.held_groups.back_off(group, waits)
            return
        if self.held_groups.waits_for_kernel(group):
            return
        rest = self._not_placed(group)
        if rest is not None:
            for pod in rest.pods:  # the engine takes back the place that it kept for the pod
                self.on_the_way.pop(pod.uid, None)
            began = self.latencies.clock()
            effects = self.set_aside.handle(GroupArrived(self._now(), rest))
            self.latencies.decided(began, effects)
            self.carry_out(effects)

    def _not_placed(self, group: Group) -> Group | None:
        """The group without pods that hold or keep a place, or pause after a refusal; None = no pod is left."""
        held, kept = self.scheduler.ledger.pods, self.rooms.kept
        awake = [pod for pod in group.pods if not self.mirror.known.rests(pod.uid) and not self.rooms.stays(pod)]
        pods = tuple(pod for pod in awake if pod.uid not in held or pod.uid in kept)
        self.rooms.forget(pod.uid for pod in pods)
        if len(pods) == len(group.pods):
            return group
        return replace(group, pods=pods) if pods else None

    # ---- what goes out ------------------------------------------------------------------------------------------

    def carry_out(self, effects: Sequence[Effect]) -> None:
        self.preemptions.begin(effects)
        for effect in effects:
            try:
                self._perform(effect)
            except Exception as error:
                if isinstance(effect, (Bind, Wait)):
                    self.set_aside.group(Group(effect.pod.key, (effect.pod,)), error)
                else:
                    self._log(f"{type(effect).__name__} was not performed: {error}", ERROR)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Bind(pod):
                self.counts.placed += 1
                self.latencies.placed(pod.uid)
                self.reasons.forget(pod.uid)
                self.on_the_way[pod.uid] = effect
                self.submit(effect) if self.asked is None else self.asked.hold(effect)
            case Wait(pod, decision, nominated):
                if self.asked is None and not self.preemptions.says(pod, nominated):
                    self.reasons.note(pod, decision)
            case Warn(subject, message):
                self._log(f"{subject}: {message}", WARNING, object=subject)
            case Evict():
                pass  # `begin` has started it
            case Move() | Resize():  # no policy of the live scheduler produces these effects
                raise NotImplementedError(f"the live scheduler cannot perform {type(effect).__name__}")
            case _:
                assert_never(effect)

    def submit(self, bind: Bind) -> None:
        self.binder.submit(bind, partial(self.mirror.known.claimed, bind.pod.uid))

    def _offer_later(self, pod: Pod, seconds: float) -> None:
        """Offer a waiting pod again after this time: its eviction may be granted then."""
        asyncio.get_running_loop().call_later(seconds, self._offer_now, pod.uid)

    def _offer_now(self, uid: str) -> None:
        if self.mirror.known.waits(uid) and self.scheduler.waiting.name_of(uid):
            group = self.mirror.gangs.group(self.mirror.pods[uid].pod)
            self.happened((GroupArrived(self._now(), group),))
