"""The loop: what is true goes into the scheduler first, then who arrived, in order; what it decides is carried out.

Everything here runs in one thread and holds no lock. Placing is done in small portions, so that binds leave while
others are still being placed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from dovetail.engine.recheck import objection
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
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.patience import Patience
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.refusals import MOST_OUTDATED, Refusals
from dovetail.kube.live.remarks import Remarks, once_a_pod
from dovetail.kube.live.set_aside import Fault, SetAside
from dovetail.kube.live.tell import Condition, Note, Teller
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

PORTION = 32  # groups placed in a turn, before binds get a chance to leave
RETRIED = 64  # waiting pods tried again in a turn
RETRIED_AT_ONCE = 8  # of these between two looks at the clock
TURN_SECONDS = 0.05  # after so long, what is left of a turn's work waits for the next turn
NET_RETRIED = 512  # waiting pods that the safety net tries before it lets the loop do the rest
SAFETY_NET = 60.0  # seconds between two tries of everybody: by then events should have done it
REFRESH = 30.0  # seconds between two looks whether pods wait for other reasons than they say
SOON = 3.0  # seconds after a node's change until the next such look


@dataclass(slots=True)
class Counts:
    """For metrics and benchmarks."""

    placed: int = 0
    bound: int = 0
    conflicts: int = 0
    refused: int = 0
    rescued: int = 0  # placed by the safety net: each one is a missing event


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
        self.binder: Binder  # set by whoever puts the parts together
        self.teller: Teller
        self.kernels: Kernels | None = None  # likewise; None = decide as it is
        scheduler.retries.deferred = True
        self.set_aside = SetAside(self, self._again)
        self.reasons = Reasons(scheduler, now, partial(self.set_aside.pod, what="Why a pod waits:"))
        self.remarks = Remarks()
        self.patience = Patience()
        self.rooms = GangRooms(scheduler, mirror)
        mirror.is_being_bound = lambda uid: uid in self.binder.under_way
        self.counts = Counts()
        self._inbox: list[Event] = []
        self._arrivals = Arrivals(scheduler.waiting.order_of)
        self._refusals: dict[str, Refusals] = {}  # by pod uid
        self._held_back: dict[str, dict[str, None]] = {}  # group name -> uids that `_line_up_again` will ask for
        self._wake = asyncio.Event()
        self._look_at = 0.0  # when to look again why pods wait
        self.doubt: Callable[[], int] = lambda: 0  # somebody else seems to lead: the look at the lease that will tell
        self.paused = False  # decide nothing for now
        self.bound_by = ""  # our mark on pods that hold cards
        self.noticed: Callable[[str, str], None] = lambda mark, pod: None  # another Dovetail's mark, and the pod

    # ---- what comes in ------------------------------------------------------------------------------------------

    def happened(self, events: Iterable[Event]) -> None:
        self._inbox += events
        if self.mirror.faults:
            faults, self.mirror.faults = self.mirror.faults, []
            self.set_aside.unread(faults)
        self._wake.set()

    def outcome(self, outcome: Outcome) -> None:
        """What became of a placement; called by the binder."""
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
        """One pod as it is now, from the answer to a write of ours."""
        self.happened(self.mirror.hear_pod(source))
        self.judge_stamps()

    def judge_stamps(self) -> None:
        """Anybody can write a stamp, so that it proves nothing: its pod waits until the lease was looked at."""
        stamped, self.mirror.stamped = self.mirror.stamped, []
        for known in (self.mirror.pods[uid] for uid in stamped if uid in self.mirror.pods):
            if may_outrank(known.stamp, self._epoch):
                self._log(f"{known.key}: stamped by {known.stamp}; looking at the lease", pod=known.key)
                known.doubt = self.doubt()

    def take_truth(self) -> None:
        """Book what is true, though nothing is decided yet. Nodes first: a row that pods hold is written twice."""
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
        """Until cancelled."""
        self._look_at, net = self._now() + REFRESH, self._now() + SAFETY_NET
        while True:
            await either(self._wake, 1.0)
            self._wake.clear()
            self._inbox += self.mirror.settled_by_now()
            while self._has_work() and not self.paused:
                self._take_in(self._now() + TURN_SECONDS)
                if not self._inbox:  # decided is when everything that is known is booked
                    self._carry_out(self._retry_some(RETRIED))
                    self._place_some()
                if not self._inbox and not self._arrivals:
                    self.reasons.look_at_a_gang(self.mirror)
                    self._tell_some()
                await asyncio.sleep(0)
            if self._now() > self._look_at:
                self._look_at = self._now() + REFRESH
                self.reasons.look_again(self.scheduler.waiting)
            self.reasons.look_at_some(self.mirror)
            if self._now() > net and not self.paused:
                net = self._now() + SAFETY_NET
                self._safety_net()

    def _has_work(self) -> bool:
        return bool(self._inbox or self._arrivals or self.scheduler.has_retries or self.reasons.pending)

    def _take_in(self, until: float | None = None) -> None:
        """Truth is booked at once; who wants a place gets in line. `until`: when the rest is left for the next turn."""
        inbox, self._inbox = self._inbox, []
        for event in inbox:  # a gang with news is decided when all of them are booked, and not in between
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
            self.rooms.forget((uid,))
            self._leave_line(uid)
            if not self.mirror.waits(uid):
                self._hush(uid)
                self.remarks.forget(uid)
                self._refusals.pop(uid, None)
        if isinstance(event, (NodeChanged, NodeGone)):
            self._look_at = min(self._look_at, self._now() + SOON)  # why pods wait may be another reason now
        self._carry_out(self.set_aside.handle(event))

    def _line_up(self, group: Group) -> None:
        """Whoever stands in another line, or waits with others, leaves those: it is asked for once."""
        group = self.scheduler.members.current(group)  # a gang that was started goes first
        for pod in group.pods:
            if self._arrivals.name_of(pod.uid) not in ("", group.name):
                self._leave_line(pod.uid)
                self._hush(pod.uid)
            if self.scheduler.waiting.name_of(pod.uid) not in ("", group.name):
                self._carry_out(self.set_aside.handle(PodGone(self._now(), pod.uid)))
        self._arrivals.add(group)

    def _hush(self, uid: str) -> None:
        """Why it waited until now is nobody's concern any more."""
        self.reasons.forget(uid)
        self.teller.forget(uid)

    def _leave_line(self, uid: str) -> None:
        rest = self._arrivals.leave(uid)
        if rest is not None:
            self._line_up(rest)

    def _retry_some(self, pods: int) -> list[Effect]:
        """Waiting pods that something may have helped: so many, or as many as the time of a turn allows."""
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
            self._carry_out(self.set_aside.handle(GroupArrived(self._now(), rest)))

    def _not_placed(self, group: Group) -> Group | None:
        """Without those that hold a place (their Bindings are under way, or it is kept), or rest after a refusal."""
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
        if self.scheduler.has_retries:  # waiting pods are being tried anyway
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
        """No line, no place, no write, and no timer after a refusal: the pod will not be asked for."""
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
                self.binder.submit(effect, partial(self.mirror.claimed, pod.uid))
            case Wait(pod, decision):
                self.reasons.note(pod, decision)
            case Warn(subject, message):
                self._log(f"{subject}: {message}", WARNING, object=subject)
            case Evict() | Move() | Resize():  # no policy that the live scheduler offers asks for these
                raise NotImplementedError(f"the live scheduler cannot perform {type(effect).__name__}")
            case _:
                assert_never(effect)

    def _tell_some(self) -> None:
        """Say why pods wait: those that do not say so themselves already."""
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
        """A bind waits long for a lock that another program holds: its pod says so, by a word of our own."""
        condition = Condition("NodeLocked", cut(text))
        if self.mirror.waits(bind.pod.uid) and self.mirror.pods[bind.pod.uid].condition != condition:
            self.teller.waits(bind.pod, condition)
            self.teller.note(Note(bind.pod, "NodeLocked", text, warning=True, action="Binding"))

    # ---- when it did not work -----------------------------------------------------------------------------------

    def _give_up(self, pod: Pod) -> None:
        """What was reserved is free, unless the rest of a gang needs it, and whatever is heard of the pod next is news.

        Not so where the watch has said that it has a node: what it holds is the truth and no reservation of ours.
        """
        if not self.mirror.holds(pod.uid):
            self.mirror.forget(pod.uid)
            gone = self.rooms.refused(pod) if self.mirror.waits(pod.uid) else [pod.uid]
            self.happened((PodsGone(self._now(), tuple(gone)),) if gone else ())

    def _changed(self, outcome: Outcome, source: objects.Pod) -> None:
        """The pod is another than we thought, or has a node already: by our own write, if its answer was lost."""
        bind = outcome.bind
        if source.spec.node_name:  # what it holds takes the place of what we reserved for it
            if outcome.came_true:
                self.counts.bound += 1
                self._refusals.pop(bind.pod.uid, None)
                self._tell_bound(bind)
        else:
            self.counts.conflicts += 1
            self._give_up(bind.pod)
        self.hear_pod(source)
        self._again(bind.pod)  # the watch may have said more than the answer already, and will not say it again

    def objection(self, bind: Bind, waited: bool) -> str:
        """Why the placement would not be made now; "" = it would. Asked by the binder just before it writes.

        Nothing is looked at where no time has passed and the node is the one that was decided on: the ledger's node
        may be a later one by now, with other cards.
        """
        name, ledger = str(bind.decision.node), self.scheduler.ledger
        row, known = ledger.row_of.get(name), self.mirror.nodes.get(name)
        if known is None:
            return f"node {name} is gone"
        if row is not None and known is ledger.nodes[row] and not waited:
            later = ledger.places.changed_since(row, bind.decision.generation)
            if not later:
                return ""
        if not self.paused:
            self._take_in()
        return objection(self.scheduler, bind.pod, bind.decision)

    def _place_again(self, outcome: Outcome) -> None:
        """At once, as the cluster is now; after several times in a row with pauses, as after a refusal."""
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
        """By a word of our own: another node would not help. The event is sent once, however often it is tried."""
        if not self.mirror.waits(pod.uid):
            return
        kind = "VolumesNotBound" if outcome.fate is Fate.VOLUMES else "BindingRefused"
        condition = Condition(kind, cut(outcome.message))
        if self.mirror.pods[pod.uid].condition != condition:
            self.teller.waits(pod, condition)
        if refusals.told != condition:
            refusals.told = condition
            self.teller.note(Note(pod, kind, outcome.message, warning=True, action="Binding"))

    def _again(self, pod: Pod) -> None:
        """If it still waits and nobody has spoken of it since, ask for it."""
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
        """On a large cluster a decision with policies that are not compiled would keep all others waiting."""
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
        """By name, as the kernels do it: a later group of that name takes the place of this one, not of its pods."""
        self._held_back.setdefault(group.name, {}).update(dict.fromkeys(pod.uid for pod in group.pods))
        return group.name

    def _line_up_again(self, name: str) -> None:
        """The pods that were held back under this name, as they are by now, with the group they belong to by now."""
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
    """UIDs of pods that have a place now, or are gone."""
    match event:
        case PodObserved(_, running):
            return (running.pod.uid,)
        case PodGone(_, uid):
            return (uid,)
        case PodsGone(_, uids):
            return uids
    return ()
