"""The loop: what is true goes into the scheduler first, then who arrived, in order; what it decides is carried out.

Everything here runs in one thread and holds no lock. Placing is done in small portions, so that binds leave while
others are still being placed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dovetail.engine.scheduler import Scheduler
from dovetail.kube import objects
from dovetail.kube.live.binder import Binder, Fate, Outcome
from dovetail.kube.live.election import either
from dovetail.kube.live.fencing import may_outrank
from dovetail.kube.live.mirror import Mirror, Stand
from dovetail.kube.live.patience import Patience
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.tell import Condition, Note, Teller
from dovetail.kube.live.words import cut, where_to
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    PodBound,
    PodGone,
    PodObserved,
    Wait,
    Warn,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod

PORTION = 32  # groups placed before binds get a chance to leave
SAFETY_NET = 60.0  # seconds between two tries of everybody: by then events should have done it
LONGEST_PAUSE = 60.0  # seconds between two tries of a pod whose placement is refused
REFRESH = 30.0  # seconds between two looks whether those who wait do so for other reasons


@dataclass(slots=True)
class Counts:
    """For metrics and benchmarks."""

    placed: int = 0
    bound: int = 0
    conflicts: int = 0
    refused: int = 0
    rescued: int = 0  # placed by the safety net: each one is a missing event


@dataclass(slots=True)
class _Refusals:
    """How often one pod's placement was refused, and what people were told of it last."""

    count: int = 0
    told: Condition | None = None

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return min(LONGEST_PAUSE, 2.0 ** min(self.count - 1, 10))


class Driver:
    def __init__(
        self,
        scheduler: Scheduler,
        mirror: Mirror,
        *,
        epoch: str,
        now: Callable[[], float],
        log: Callable[..., None],
    ) -> None:
        self.scheduler, self.mirror, self._epoch, self._now, self._log = scheduler, mirror, epoch, now, log
        self.binder: Binder  # set by whoever puts the parts together
        self.teller: Teller
        self.reasons = Reasons(scheduler, now)
        self.patience = Patience()
        self.counts = Counts()
        self._inbox: list[Event] = []
        self._arrivals: dict[str, Group] = {}  # by name
        self._line_of: dict[str, str] = {}  # pod uid -> name
        self._order: list[tuple[Any, str]] = []  # a heap of (order, name); a name may have left
        self._refusals: dict[str, _Refusals] = {}  # by pod uid
        self._held_back: set[str] = set()  # uids of pods whose owner has to be patient
        self._guessed: dict[str, dict[str, PodObserved]] = {}  # node -> by uid, pods whose cards nobody wrote down
        self._wake = asyncio.Event()
        self.doubt: Callable[[], int] = lambda: 0  # somebody else seems to lead: the look at the lease that will tell
        self.paused = False  # decide nothing for now

    # ---- what comes in ------------------------------------------------------------------------------------------

    def happened(self, events: Iterable[Event]) -> None:
        self._inbox += events
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
        elif outcome.fate is Fate.CHANGED and outcome.pod is not None:
            self._changed(outcome, outcome.pod)
        else:
            self.counts.refused += 1
            self._give_up(pod)
            self._try_later(pod, outcome)

    def hear_pods(self, batch: Iterable[Any]) -> None:
        self.happened(self.mirror.hear_pods(batch))
        failures, self.mirror.failures = self.mirror.failures, []
        for source in failures:
            self._refused_by_kubelet(source)
        self.judge_stamps()
        self.say_problems()

    def hear_pod(self, source: objects.Pod) -> None:
        """One pod as it is now, from the answer to a write of ours."""
        self.happened(self.mirror.hear_pod(source))
        self.judge_stamps()

    def judge_stamps(self) -> None:
        """Anybody can write a stamp, so that it proves nothing: its pod waits until the lease was looked at."""
        stamped, self.mirror.stamped = self.mirror.stamped, []
        for known in (self.mirror.pods[uid] for uid in stamped if uid in self.mirror.pods):
            if may_outrank(known.stamp, self._epoch):
                self._log(f"{known.key}: stamped by {known.stamp}; looking at the lease")
                known.doubt = self.doubt()

    def take_truth(self) -> None:
        """Book what is true, though nothing is decided yet. Nodes first: a row that pods hold is written twice."""
        self._inbox.sort(key=lambda event: not isinstance(event, NodeChanged))
        self._take_in()

    def say_problems(self) -> None:
        problems, self.mirror.problems = self.mirror.problems, []
        for problem in problems:
            if problem.severity != "note":
                self._log(str(problem))

    # ---- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        refresh, net = self._now() + REFRESH, self._now() + SAFETY_NET
        while True:
            await either(self._wake, 1.0)
            self._wake.clear()
            while (self._inbox or self._arrivals or self.reasons.untold) and not self.paused:
                self._take_in()
                self._place_some()
                if not self._inbox and not self._arrivals:
                    self._tell_some()
                await asyncio.sleep(0)
            if self._now() > refresh:
                refresh = self._now() + REFRESH
                self.reasons.look_again(self.scheduler.waiting, self.mirror)
            if self._now() > net and not self.paused:
                net = self._now() + SAFETY_NET
                self._safety_net()

    def _take_in(self) -> None:
        """Truth is booked at once; who wants a place gets in line."""
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            if isinstance(event, GroupArrived):
                self._line_up(event.group)
                continue
            uid = event.uid if isinstance(event, PodGone) else ""
            if isinstance(event, PodObserved):
                uid = event.running.pod.uid
            if uid:
                self._leave_line(uid)
                self._note_guess(uid, event)
                if not self.mirror.waits(uid):
                    self._hush(uid)
                    self._refusals.pop(uid, None)
            self._carry_out(self.scheduler.handle(event))
            if isinstance(event, NodeChanged):
                self._guess_again(event.node)

    def _note_guess(self, uid: str, event: Event) -> None:
        """Who holds cards without a record: charged to some, which may be known only later."""
        if uid in self.scheduler.ledger.pods:
            self._guessed.get(self.scheduler.ledger.node_of(uid), {}).pop(uid, None)
        if isinstance(event, PodObserved) and event.running.shares is None and event.running.pod.wants_devices:
            self._guessed.setdefault(event.running.node, {})[uid] = event

    def _guess_again(self, node: Node) -> None:
        """A pod is heard of before its node, or the node has other cards now."""
        cards = {device.uuid for device in node.devices}
        for uid, event in self._guessed.get(node.name, {}).items():
            held = {share.uuid for share in self.scheduler.ledger.held_shares(uid)}
            if cards and not (held and held <= cards):
                self._carry_out(self.scheduler.handle(event))

    def _line_up(self, group: Group) -> None:
        """Whoever stands in another line, or waits with others, leaves those: it is asked for once."""
        for pod in group.pods:
            if self._line_of.get(pod.uid, group.name) != group.name:
                self._leave_line(pod.uid)
                self._hush(pod.uid)
            if self.scheduler.waiting.name_of(pod.uid) not in ("", group.name):
                self._carry_out(self.scheduler.handle(PodGone(self._now(), pod.uid)))
        self._arrivals[group.name] = group
        self._line_of.update((pod.uid, group.name) for pod in group.pods)
        heapq.heappush(self._order, (group.order, group.name))

    def _hush(self, uid: str) -> None:
        """Why it waited until now is nobody's concern any more."""
        self.reasons.forget(uid)
        self.teller.forget(uid)

    def _leave_line(self, uid: str) -> None:
        name = self._line_of.pop(uid, "")
        group = self._arrivals.get(name)
        if group is None:
            return
        rest = tuple(pod for pod in group.pods if pod.uid != uid)
        del self._arrivals[name]
        if rest:
            self._line_up(replace(group, pods=rest))

    def _place_some(self) -> None:
        for _ in range(PORTION):
            if not self._order:
                return
            order, name = heapq.heappop(self._order)
            group = self._arrivals.get(name)
            if group is None or group.order != order:
                continue
            del self._arrivals[name]
            for pod in group.pods:
                self._line_of.pop(pod.uid, None)
            waits = max(self.patience.wait(pod.owner or pod.key, self._now()) for pod in group.pods)
            if waits > 0:
                self._back_off(group, waits)
                continue
            rest = self._not_placed(group)
            if rest is not None:
                self._carry_out(self.scheduler.handle(GroupArrived(self._now(), rest)))

    def _not_placed(self, group: Group) -> Group | None:
        """Without those that hold a place already: their Bindings are under way."""
        held = self.scheduler.ledger.pods
        pods = tuple(pod for pod in group.pods if pod.uid not in held)
        if len(pods) == len(group.pods):
            return group
        return replace(group, pods=pods, running=group.running + len(group.pods) - len(pods)) if pods else None

    def _safety_net(self) -> None:
        lost = [
            known.pod for uid, known in self.mirror.pods.items() if known.stand is Stand.WAITS and self._is_lost(uid)
        ]
        if lost:
            self._log(f"{len(lost)} pods waited and nobody knew; the first: {lost[0].key}")
            self.counts.rescued += len(lost)
            self.happened(GroupArrived(self._now(), self.mirror.gangs.group(pod)) for pod in lost)
        effects = self.scheduler.retry_all(self._now())
        rescued = [effect for effect in effects if isinstance(effect, Bind)]
        if rescued:
            self.counts.rescued += len(rescued)
            self._log(f"{len(rescued)} pods fit although no event said so; the first: {rescued[0].pod.key}")
        self._carry_out(effects)

    def _is_lost(self, uid: str) -> bool:
        """Nobody will ask for it: no line, no place, no write, no second try."""
        placed = uid in self.scheduler.ledger.pods or uid in self.binder.under_way
        waits = self.scheduler.waiting.name_of(uid) or uid in self._line_of
        return not (placed or waits or uid in self._refusals or uid in self._held_back)

    # ---- what goes out ------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Bind):
                self.counts.placed += 1
                self.reasons.forget(effect.pod.uid)
                self.binder.submit(effect, partial(self.mirror.claimed, effect.pod.uid))
            elif isinstance(effect, Wait):
                self.reasons.note(effect.pod, effect.decision)
            elif isinstance(effect, Warn):
                self._log(f"{effect.subject}: {effect.message}")

    def _tell_some(self) -> None:
        """Say why pods wait: those that do not say so themselves already."""
        for pod, condition in self.reasons.some(PORTION):
            if self.mirror.waits(pod.uid) and self.mirror.pods[pod.uid].condition != condition:
                self.teller.waits(pod, condition)
                self.teller.note(Note(pod, "FailedScheduling", condition.message, warning=True))

    def _tell_bound(self, bind: Bind) -> None:
        name = str(bind.decision.node)
        text = where_to(bind.pod, self.mirror.nodes.get(name) or Node(name), bind.decision.shares)
        self.teller.note(Note(bind.pod, "Scheduled", text, action="Binding"))

    # ---- when it did not work -----------------------------------------------------------------------------------

    def _give_up(self, pod: Pod) -> None:
        """What was reserved is free, and whatever is heard of the pod next is news.

        Not so where the watch has said that it has a node: what it holds is the truth and no reservation of ours.
        """
        if not self.mirror.holds(pod.uid):
            self.mirror.forget(pod.uid)
            self.happened((PodGone(self._now(), pod.uid),))

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

    def _try_later(self, pod: Pod, outcome: Outcome) -> None:
        refusals = self._refusals.setdefault(pod.uid, _Refusals())
        refusals.count += 1
        where, pause = outcome.bind.decision.node, refusals.pause
        self._log(f"{pod.key}: not bound to {where}, next try in {pause:.0f} s: {outcome.message}")
        self.mirror.rest(pod.uid)
        self._tell_refused(pod, outcome, refusals)
        asyncio.get_running_loop().call_later(pause, self._again, pod)

    def _tell_refused(self, pod: Pod, outcome: Outcome, refusals: _Refusals) -> None:
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
            self._held_back.add(pod.uid)
        asyncio.get_running_loop().call_later(seconds, self._line_up_again, group)

    def _line_up_again(self, group: Group) -> None:
        """As they are by now, with whom they belong to by now."""
        self._held_back.difference_update(pod.uid for pod in group.pods)
        known = [self.mirror.pods.get(pod.uid) for pod in group.pods]
        groups = [self.mirror.gangs.group(one.pod) for one in known if one is not None and one.stand is Stand.WAITS]
        self.happened(GroupArrived(self._now(), each) for each in {each.name: each for each in groups}.values())

    def _refused_by_kubelet(self, source: objects.Pod) -> None:
        pod = self.mirror.read(source)
        text = f"kubelet on {source.spec.node_name}: {source.status.reason}: {source.status.message}"
        pause = self.patience.refused(pod.owner or pod.key, self._now(), text)
        self._log(f"{pod.key}: refused by {text}; the next pod of {pod.owner or pod.key} waits {pause:.0f} s")
        self.teller.note(Note(pod, "RefusedByKubelet", text, warning=True))
