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

from dovetail.engine.recheck import is_untouched, objection
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.api.watch import Changed
from dovetail.kube.live.arrivals import Arrivals
from dovetail.kube.live.binder import Binder, Fate, Outcome
from dovetail.kube.live.binding import BOUND_BY
from dovetail.kube.live.election import either
from dovetail.kube.live.fencing import may_outrank
from dovetail.kube.live.gang_reasons import same_but_numbers
from dovetail.kube.live.gang_rooms import GangRooms
from dovetail.kube.live.kernels import Kernels
from dovetail.kube.live.known import Stand
from dovetail.kube.live.ledger_audit import LedgerAudit
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.patience import Patience
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.refusals import MOST_OUTDATED, Refusals
from dovetail.kube.live.remarks import Remarks, once_a_pod
from dovetail.kube.live.set_aside import Fault, SetAside
from dovetail.kube.live.tell import Note, ScheduledCondition, Teller
from dovetail.kube.live.turns import BOOKING_SECONDS, TURN_SECONDS, let_others_run
from dovetail.kube.live.words import cut, where_to
from dovetail.kube.log import DEBUG, ERROR, WARNING, Log
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
    PodBound,
    PodGone,
    PodObserved,
    PodsGone,
    Resize,
    Wait,
    Warn,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod

PORTION = 32  # groups placed in one turn, before Bindings get a chance to be sent
RETRIED = 64  # waiting pods tried again in one turn
RETRIED_AT_ONCE = 2  # of these, pods tried between two checks of the clock
NET_RETRIED = 512  # waiting pods that the safety net tries itself; the loop tries the rest
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
        scheduler.retries.deferred = True
        self.set_aside = SetAside(self, self._again)
        self.reasons = Reasons(scheduler, now, partial(self.set_aside.pod, what="Why a pod waits:"))
        self.remarks = Remarks()
        self.patience = Patience()
        self.rooms = GangRooms(scheduler, mirror)
        mirror.is_being_bound = lambda uid: uid in self.binder.under_way
        self.counts = DriverCounts()
        # By uid: placed pods, until they are seen on their node or their placement is given up.
        self.on_the_way: dict[str, Bind] = {}
        self.audit = LedgerAudit(self)
        self._inbox: list[Event] = []
        self._arrivals = Arrivals(scheduler.waiting.order_of)
        self._refusals: dict[str, Refusals] = {}  # by pod uid
        # Group name -> uids of pods that `_line_up_again` will offer again.
        self._held_back: dict[str, dict[str, None]] = {}
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

    def outcome(self, outcome: Outcome) -> None:
        """Handle the result of a placement; called by the binder."""
        bind, pod, at = outcome.bind, outcome.bind.pod, self._now()
        if outcome.fate is Fate.BOUND:
            self.counts.bound += 1
            self._refusals.pop(pod.uid, None)
            self.happened((PodBound(at, pod.uid),))
            self._tell_bound(bind)
        elif outcome.fate is Fate.GONE:
            self._refusals.pop(pod.uid, None)
            self._give_up(pod)
        elif outcome.fate is Fate.OUTDATED:
            self._place_again(outcome)
        elif outcome.fate is Fate.CHANGED and outcome.pod is not None:
            self._changed(outcome, outcome.pod)
        else:
            self.counts.refused += 1
            self._give_up(pod)
            self._try_later(pod, outcome)

    def hear_pods(self, batch: Sequence[Any]) -> None:
        for event in batch:
            if isinstance(event, Changed):
                self._look_at_mark(event.object)
        self.happened(self.mirror.hear_pods(batch))
        failures, self.mirror.failures = self.mirror.failures, []
        for source in failures:
            try:
                self._refused_by_kubelet(source)
            except Exception as error:
                self.set_aside.unread([Fault("Pod", f"{source.metadata.namespace}/{source.metadata.name}", error)])
        self.judge_stamps()
        self.say_problems()

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
        stamped, self.mirror.stamped = self.mirror.stamped, []
        for known in (self.mirror.pods[uid] for uid in stamped if uid in self.mirror.pods):
            if may_outrank(known.stamp, self._epoch):
                self._log(f"{known.key}: stamped by {known.stamp}; looking at the lease", pod=known.key)
                known.doubt = self.doubt()

    def take_truth(self) -> None:
        """Book observed facts before the first decision.

        Nodes go first: otherwise a row that pods hold is written twice.
        """
        self._inbox.sort(key=lambda event: not isinstance(event, NodeChanged))
        self._take_in()

    def say_problems(self) -> None:
        problems, self.mirror.problems = self.mirror.problems, []
        for problem in problems:
            if problem.severity != "note":
                self._log(str(problem), WARNING, object=problem.where, field=problem.field)
        remarks, self.mirror.remarks = self.mirror.remarks, []
        for pod, about in remarks:
            try:
                self.remarks.about(pod, about, self.teller.note)
            except Exception as error:
                self.set_aside.pod(pod, error, what="Remarks about pod")
        reports, self.mirror.reports = self.mirror.reports, []
        for pod, reason, text in reports:
            self.teller.note(once_a_pod(pod, reason, text))

    # ---- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the loop until it is cancelled."""
        self._look_at, net = self._now() + REFRESH, self._now() + SAFETY_NET
        while True:
            await either(self._wake, 1.0)
            self._wake.clear()
            self._inbox += self.mirror.settled_by_now()
            await self._take_turns(self._now() + LONGEST_BUSY)
            if self._now() > self._look_at:
                self._look_at = self._now() + REFRESH
                self.reasons.look_again(self.scheduler.waiting)
            self.reasons.look_at_some(self.mirror)
            if self._now() > net and not self.paused:
                net = self._now() + SAFETY_NET
                self._safety_net()
            while self.audit.is_due and not self.paused and not self._has_work():
                self.audit.step()
                await asyncio.sleep(0)

    async def _take_turns(self, until: float) -> None:
        """Take turns while there is work, but no longer than to the time `until`."""
        while self._has_work() and not self.paused:
            began = self._now()
            if began > until:
                self._wake.set()
                return
            self._take_in(began + BOOKING_SECONDS)
            if not self._inbox:  # decide only when all known facts are booked
                self._carry_out(self._retry_some(RETRIED))
                self._place_some()
                if self.audit.is_overdue:
                    self.audit.step()
            if not self._inbox and not self._arrivals:
                self.reasons.look_at_a_gang(self.mirror)
                self._tell_some()
            await let_others_run(began, self._now)

    def _has_work(self) -> bool:
        return bool(self._inbox or self._arrivals or self.scheduler.has_retries or self.reasons.pending)

    def _take_in(self, until: float | None = None) -> None:
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
                self._carry_out(self.set_aside.event(event, error))

    def _take(self, event: Event) -> None:
        if isinstance(event, GroupArrived):
            self._line_up(event.group)
            return
        for uid in _concerned(event):
            self.on_the_way.pop(uid, None)
            self.rooms.forget((uid,))
            self._leave_line(uid)
            if not self.mirror.waits(uid):
                self._hush(uid)
                self.remarks.forget(uid)
                self._refusals.pop(uid, None)
        if isinstance(event, (NodeChanged, NodeGone)):
            self._look_at = min(self._look_at, self._now() + CHECK_AFTER_CHANGE)  # pods may wait for another reason now
        self._carry_out(self.set_aside.handle(event))

    def _line_up(self, group: Group) -> None:
        """Queue the group. Its pods leave other queued or waiting groups, so that each pod is placed once."""
        group = self.scheduler.members.current(group)  # a gang that is partly placed goes first
        for pod in group.pods:
            if self._arrivals.name_of(pod.uid) not in ("", group.name):
                self._leave_line(pod.uid)
                self._hush(pod.uid)
            if self.scheduler.waiting.name_of(pod.uid) not in ("", group.name):
                self._carry_out(self.set_aside.handle(PodGone(self._now(), pod.uid)))
        self._arrivals.add(group)

    def _hush(self, uid: str) -> None:
        """Drop the recorded reason: the pod is no longer pending."""
        self.reasons.forget(uid)
        self.teller.forget(uid)

    def _leave_line(self, uid: str) -> None:
        rest = self._arrivals.leave(uid)
        if rest is not None:
            self._line_up(rest)

    def _retry_some(self, pods: int) -> list[Effect]:
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
            group = self._arrivals.pop() if not number or self._now() <= until else None
            if group is None:
                return
            try:
                self._place(group)
            except Exception as error:
                self.set_aside.group(group, error)

    def _place(self, group: Group) -> None:
        waits = max(self.patience.wait(pod.owner or pod.key, self._now()) for pod in group.pods)
        if waits > 0:
            self._back_off(group, waits)
            return
        if self._waits_for_kernel(group):
            return
        rest = self._not_placed(group)
        if rest is not None:
            for pod in rest.pods:  # the engine takes back the place that it kept for the pod
                self.on_the_way.pop(pod.uid, None)
            self._carry_out(self.set_aside.handle(GroupArrived(self._now(), rest)))

    def _not_placed(self, group: Group) -> Group | None:
        """The group without pods that hold or keep a place, or pause after a refusal; None = no pod is left."""
        held, kept = self.scheduler.ledger.pods, self.rooms.kept
        awake = [pod for pod in group.pods if not self.mirror.rests(pod.uid) and not self.rooms.stays(pod)]
        pods = tuple(pod for pod in awake if pod.uid not in held or pod.uid in kept)
        self.rooms.forget(pod.uid for pod in pods)
        if len(pods) == len(group.pods):
            return group
        return replace(group, pods=pods) if pods else None

    def _safety_net(self) -> None:
        held_back = {uid for uids in self._held_back.values() for uid in uids}
        waiting = [(uid, known.pod) for uid, known in self.mirror.pods.items() if known.stand is Stand.WAITS]
        lost = [pod for uid, pod in waiting if uid not in held_back and self._is_lost(uid)]
        if lost:
            self._log(f"{len(lost)} waiting pods were in no queue; the first: {lost[0].key}", WARNING, count=len(lost))
            self.counts.rescued += len(lost)
            self.happened(GroupArrived(self._now(), self.mirror.gangs.group(pod)) for pod in lost)
        if self.scheduler.has_retries:  # waiting pods are being tried already
            return
        self.scheduler.retry_all(self._now())
        effects = self._retry_some(NET_RETRIED)
        rescued = [effect for effect in effects if isinstance(effect, Bind)]
        if rescued:
            self.counts.rescued += len(rescued)
            text = f"{len(rescued)} pods fit although no event said so; the first: {rescued[0].pod.key}"
            self._log(text, WARNING, count=len(rescued))
        self._carry_out(effects)

    def _is_lost(self, uid: str) -> bool:
        """Whether nothing will offer the pod again: it is in no queue, has no place, no write and no retry timer."""
        placed = uid in self.scheduler.ledger.pods or uid in self.binder.under_way
        waits = self.scheduler.waiting.name_of(uid) or self._arrivals.name_of(uid)
        return not (placed or waits or self.mirror.rests(uid))

    # ---- what goes out ------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect]) -> None:
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
                self.reasons.forget(pod.uid)
                self.on_the_way[pod.uid] = effect
                self.binder.submit(effect, partial(self.mirror.claimed, pod.uid))
            case Wait(pod, decision):
                self.reasons.note(pod, decision)
            case Warn(subject, message):
                self._log(f"{subject}: {message}", WARNING, object=subject)
            case Evict() | Move() | Resize():  # no policy of the live scheduler produces these effects
                raise NotImplementedError(f"the live scheduler cannot perform {type(effect).__name__}")
            case _:
                assert_never(effect)

    def _tell_some(self) -> None:
        """Report why pods wait, unless the pod's condition says so already."""
        for pod, condition in self.reasons.some(PORTION):
            before = self.mirror.pods[pod.uid].condition if self.mirror.waits(pod.uid) else condition
            if before != condition:
                self.teller.waits(pod, condition)
                if not same_but_numbers(before, condition):
                    self.teller.note(Note(pod, "FailedScheduling", condition.message, warning=True))

    def _tell_bound(self, bind: Bind) -> None:
        name = str(bind.decision.node)
        text = where_to(bind.pod, self.mirror.nodes.get(name) or Node(name), bind.decision.shares)
        cards = ",".join(share.uuid for share in bind.decision.shares)
        self._log(text, DEBUG, pod=bind.pod.key, node=name, cards=cards)
        self.teller.note(Note(bind.pod, "Scheduled", text, action="Binding"))

    def waits_for_lock(self, bind: Bind, text: str) -> None:
        """Report in the pod's condition that its bind waits for another program's lock, with a reason of our own."""
        condition = ScheduledCondition("NodeLocked", cut(text))
        if self.mirror.waits(bind.pod.uid) and self.mirror.pods[bind.pod.uid].condition != condition:
            self.teller.waits(bind.pod, condition)
            self.teller.note(Note(bind.pod, "NodeLocked", text, warning=True, action="Binding"))

    # ---- when it did not work -----------------------------------------------------------------------------------

    def _give_up(self, pod: Pod) -> None:
        """Free the pod's reservation, unless the rest of its gang needs it; the pod's next report counts as new.

        Exception: the watch has shown that the pod has a node. Then it holds its cards in fact, not as a reservation.
        """
        if not self.mirror.holds(pod.uid):
            self.mirror.forget(pod.uid)
            gone = self.rooms.refused(pod) if self.mirror.waits(pod.uid) else [pod.uid]
            self.happened((PodsGone(self._now(), tuple(gone)),) if gone else ())

    def _changed(self, outcome: Outcome, source: objects.Pod) -> None:
        """Handle a pod that changed, or that has a node already: perhaps by our own write, if its answer was lost."""
        bind = outcome.bind
        if source.spec.node_name:  # its actual cards replace our reservation
            if outcome.came_true:
                self.counts.bound += 1
                self._refusals.pop(bind.pod.uid, None)
                self._tell_bound(bind)
        else:
            self.counts.conflicts += 1
            self._give_up(bind.pod)
        self.hear_pod(source)
        self._again(bind.pod)  # the watch may have shown more than this answer already, and will not repeat it

    def objection(self, bind: Bind, waited: bool) -> str:
        """Why the placement would not be made now; "" = it would. The binder calls it just before it writes.

        The check is skipped where the node is still the object that was decided on and nothing unforeseen came to it.
        The ledger may have a later version of the node by now, with other cards. Where the bind waited, all facts that
        are known are booked first, and pods with rules about other pods are checked in any case.
        """
        name, ledger = str(bind.decision.node), self.scheduler.ledger
        if waited and not self.paused:
            self._take_in()
        row, known = ledger.row_of.get(name), self.mirror.nodes.get(name)
        if known is None:
            return f"node {name} is gone"
        if row is not None and known is ledger.nodes[row]:
            if waited and is_untouched(self.scheduler.placer, bind.pod, bind.decision):
                return ""
            if not waited and not ledger.places.changed_since(row, bind.decision.generation):
                return ""
        if not self.paused:
            self._take_in()
        return objection(self.scheduler, bind.pod, bind.decision)

    def _place_again(self, outcome: Outcome) -> None:
        """Place the pod again at once; after several attempts in a row, pause as after a refusal."""
        pod = outcome.bind.pod
        self.counts.conflicts += 1
        refusals = self._refusals.setdefault(pod.uid, Refusals())
        self._give_up(pod)
        if refusals.outdated >= MOST_OUTDATED:
            self._try_later(pod, outcome)
            return
        refusals.outdated += 1
        self._log(f"{pod.key}: not bound, placed again: {outcome.message}", DEBUG, pod=pod.key)
        self._again(pod)

    def _try_later(self, pod: Pod, outcome: Outcome) -> None:
        refusals = self._refusals.setdefault(pod.uid, Refusals())
        refusals.count += 1
        where, pause = outcome.bind.decision.node, refusals.pause
        text = f"{pod.key}: not bound to {where}, next try in {pause:.0f} s: {outcome.message}"
        self._log(text, WARNING, pod=pod.key, node=str(where), seconds=pause)
        self.mirror.rest(pod.uid)
        self._tell_refused(pod, outcome, refusals)
        asyncio.get_running_loop().call_later(pause, self._again, pod)

    def _tell_refused(self, pod: Pod, outcome: Outcome, refusals: Refusals) -> None:
        """Report the refusal in the pod's condition, with a reason of our own: another node would not help.

        The Event is sent once for each distinct refusal, not for each retry.
        """
        if not self.mirror.waits(pod.uid):
            return
        kind = "VolumesNotBound" if outcome.fate is Fate.VOLUMES else "BindingRefused"
        condition = ScheduledCondition(kind, cut(outcome.message))
        if self.mirror.pods[pod.uid].condition != condition:
            self.teller.waits(pod, condition)
        if refusals.told != condition:
            refusals.told = condition
            self.teller.note(Note(pod, kind, outcome.message, warning=True, action="Binding"))

    def _again(self, pod: Pod) -> None:
        """Offer the pod again if it still waits and was not reported since."""
        if pod.uid not in self.mirror.pods:
            self._refusals.pop(pod.uid, None)
        group = self.mirror.recall(pod)
        if group is not None:
            self.happened((GroupArrived(self._now(), group),))

    def _back_off(self, group: Group, seconds: float) -> None:
        for pod in group.pods:
            self.reasons.held_back(pod, self.patience.why(pod.owner or pod.key), seconds)
        asyncio.get_running_loop().call_later(seconds, self._line_up_again, self._hold_back(group))

    def _waits_for_kernel(self, group: Group) -> bool:
        """Whether the group must wait for compiled kernels: on a large cluster, interpreting would delay all others."""
        if self.kernels is None:
            return False
        again = partial(self._line_up_again, group.name)
        why = self.kernels.admit(group, len(self.scheduler.ledger.nodes), again)
        if why:
            self._hold_back(group)
            for pod in group.pods:
                self.reasons.not_compiled(pod, why)
        return bool(why)

    def _hold_back(self, group: Group) -> str:
        """Hold the group's pods back under its name.

        A later group of that name replaces the group, but not its pods.
        """
        self._held_back.setdefault(group.name, {}).update(dict.fromkeys(pod.uid for pod in group.pods))
        return group.name

    def _line_up_again(self, name: str) -> None:
        """Offer the pods held back under this name again, with their present objects and present groups."""
        known = [self.mirror.pods.get(uid) for uid in self._held_back.pop(name, ())]
        groups = [self.mirror.gangs.group(one.pod) for one in known if one is not None and one.stand is Stand.WAITS]
        self.happened(GroupArrived(self._now(), each) for each in {each.name: each for each in groups}.values())

    def _refused_by_kubelet(self, source: objects.Pod) -> None:
        pod = self.mirror.read(source)
        text = f"kubelet on {source.spec.node_name}: {source.status.reason}: {source.status.message}"
        pause = self.patience.refused(pod.owner or pod.key, self._now(), text)
        said = f"{pod.key}: refused by {text}; the next pod of {pod.owner or pod.key} waits {pause:.0f} s"
        self._log(said, WARNING, pod=pod.key, node=source.spec.node_name, seconds=pause)
        self.teller.note(Note(pod, "RefusedByKubelet", text, warning=True))


def _concerned(event: Event) -> Sequence[str]:
    """UIDs of the pods that now have a place, or are gone."""
    match event:
        case PodObserved(_, running):
            return (running.pod.uid,)
        case PodGone(_, uid):
            return (uid,)
        case PodsGone(_, uids):
            return uids
    return ()
