"""The scheduler: events in, effects out. `place` decides many groups in one call, `handle` takes one event."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dovetail.engine.claims import DEFAULT_RIGHTS, Claims, Rights
from dovetail.engine.disciplines import DISCIPLINES
from dovetail.engine.faults import Faults
from dovetail.engine.kernel.state import NONE
from dovetail.engine.observe import Observed, assume
from dovetail.engine.placer import COMPILE_FROM, Placer
from dovetail.engine.queue import ALWAYS, WaitingRoom, left_over
from dovetail.engine.retries import Retries, too_many
from dovetail.engine.rights.occupants import Times
from dovetail.engine.wake import News, Wake
from dovetail.model.decision import Decision
from dovetail.model.events import (
    Bind,
    BudgetChanged,
    Effect,
    Event,
    Evict,
    EvictionRefused,
    GangChanged,
    GroupArrived,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodBound,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
    QueueChanged,
    QuotaChanged,
    RoundBegins,
    SelectorChanged,
    SignalsMeasured,
    TopologyChanged,
    VolumesChanged,
    Wait,
    Warn,
)
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Group, Pod, Profile, Quota, RunningPod
from dovetail.model.reason import Reason

__all__ = ["COMPILE_FROM", "DEFAULT_RIGHTS", "Rights", "Scheduler"]


class Scheduler:
    """One cluster, one ledger. The simulator, the live scheduler and what-if all drive this class."""

    def __init__(
        self,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        quotas: Sequence[Quota] = (),
        mode: str = "auto",
        device_resources: Collection[str] = ("nvidia.com/gpu",),
        cache: bool = False,
        rights: Rights = DEFAULT_RIGHTS,
    ) -> None:
        self.placer = placer = Placer(arguments, quotas, mode, device_resources, cache, self._waits_for)
        self.ledger, self.intern, self.quotas = placer.ledger, placer.intern, placer.quotas
        self.requests, self.related, self.nominated = placer.requests, placer.related, placer.nominated
        self.outlook, self.kernel, self.lens = placer.outlook, placer.kernel, placer.lens
        self.members, self.gangs = placer.members, placer.gangs
        self.claims = Claims(rights, self, self.members)
        self.waiting = placer.waiting = placer.queues.waiting = WaitingRoom(self.claims.order_of, placer.queues)
        self.claims.service.share_of = placer.queues.dominant_share
        placer.queues.ending = self.claims.service.stopping
        self.wake = Wake(self.waiting, self.ledger, self.requests, self.kernel)
        self.faults = Faults(self.ledger, self.waiting)
        self._observed = Observed(placer, self.faults)
        self.retries = Retries(self.waiting, self.wake, self.try_waiting)
        self.nominated.cards_for = lambda pod, node: assume(placer, pod, node)[0]
        self._news = News()
        self.ledger.witnesses += (self.members, self._news)
        self.ledger.learners.append(self._learn_resources)
        self._discipline = DISCIPLINES[rights.queue](self)

    # ---- events -------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """Handle one event and return what must be done. This is the only input of the scheduler."""
        self.placer.maybe_sweep()
        if not self.claims.plain:
            self._note_time(event.at)
        if self.placer.queues.half_life and self.placer.queues.active:
            self.placer.queues.note_time(event.at)
        effects = self._happened(event)
        # A pod's arrival or departure can make other waiting pods feasible.
        while self._news.pods and not self.retries.deferred:
            effects = (*effects, *self._spread_news(event.at, self._news.take()))
        if not self.claims.plain and len(self.waiting):
            effects = (*effects, *self._keep_places(event.at))
            if not self.retries.deferred:
                effects = (*effects, *self._reclaim(event.at))
        return effects

    def _reclaim(self, at: float) -> list[Effect]:
        """Search again for groups whose queue is owed more than before, until no more pods are stopped."""
        effects: list[Effect] = []
        while names := self.claims.owed(at):
            found = self.offer(at, [self.waiting.key_of(name) for name in names])
            effects += found
            if not any(isinstance(effect, Evict) for effect in found):
                break
        return effects

    def _keep_places(self, at: float) -> list[Effect]:
        effects = self.claims.keep_places(at, self.waiting)
        group = self.waiting.find(self.claims.kept_for) if effects else None
        if group is not None:
            self._wait(group)  # its line may be another one now
        return effects

    def _note_time(self, at: float) -> None:
        self.claims.service.now = at
        if self.claims.sorts_again:
            self.waiting.sort_again()

    def _happened(self, event: Event) -> tuple[Effect, ...]:
        match event:
            case GroupArrived(at, group):
                return tuple(self._arrive(at, group))
            case PodObserved(at, running):
                return self._observe(at, running)
            case PodBound(at, uid):
                return self._bound(at, uid)
            case PodGone(at, uid):
                return self._gone(at, uid)
            case PodsGone(at, uids):
                return self._all_gone(at, uids)
            case PodNominated(at, pod, node):
                return self._nominate(at, pod, node)
            case NodeChanged(at, node):
                return self._node_is(at, node)
            case NodeGone(at, name):
                gone = self.ledger.remove_node(name)
                return self.offer(at, self.wake.related()) if gone else ()
            case SignalsMeasured(_, name, signals):
                self.ledger.measure(name, signals)
                return ()  # a preference: no pod waits for it
            case NamespaceChanged(at, name, labels):
                self.related.set_namespace(name, labels)
                return self.offer(at, self.wake.related())
            case QuotaChanged(at, namespace, name, quota):
                self.quotas.set(quota) if quota is not None else self.quotas.drop(namespace, name)
                return self.offer(at, [key for key in self.waiting.requests() if key is ALWAYS])
            case SelectorChanged(_, kind, namespace, name, selector):
                self.related.preferred.default_spread.set_selector(kind, namespace, name, selector)
                return ()  # a preference: no pod waits for it
            case VolumesChanged(at, facts, gone):
                helps = self.related.volumes.change(facts, gone)
                return self.offer(at, self.wake.related(lambda pod: self.related.volumes.helped(pod, helps)))
            case RoundBegins(at):
                return self._begin_round(at)
            case BudgetChanged() | QueueChanged() | GangChanged() | EvictionRefused() | TopologyChanged():
                return self.claims.happened(event)

    def _node_is(self, at: float, node: Node) -> tuple[Effect, ...]:
        written, row = self.ledger.places.written, self.ledger.row_of.get(node.name)
        before = self.ledger.nodes[row] if row is not None else None
        try:
            self.ledger.set_node(node)
            if self.ledger.places.written == written:
                return ()
            row = self.ledger.row_of[node.name]
            kubelet_picked = before is not None and before.enforcer is Enforcer.STOCK
            warnings = self._observed.node_changed(row, kubelet_picked)
        except Exception as error:
            if not self.faults.node(node, before, error):
                raise
            return self.offer(at, self.wake.related())
        return (*warnings, *self.retry(at, (row,), related=True))

    def _spread_news(self, at: float, changed: Sequence[Pod]) -> tuple[Effect, ...]:
        if self.retries.deferred and too_many(self.waiting.requests(), changed):
            return self.offer(at, self.wake.related())
        return self.offer(at, self.wake.related(lambda waiting: self._wakes(waiting, changed)))

    @property
    def has_retries(self) -> bool:
        """Whether `retry_some` has something to do."""
        return bool(self.retries) or bool(self._news.pods)

    def retry_some(self, at: float, pods: int) -> list[Effect]:
        """Where retries are deferred: try about `pods` waiting pods that a change may have helped."""
        if self._news.pods:
            self._spread_news(at, self._news.take())
        return self.retries.run(at, pods)

    def search_again(self, at: float) -> tuple[Effect, ...]:
        """Try groups for which no eviction was searched, as an equal search had just failed; a driver's timer.

        And groups whose queue is owed more than at the last search.
        """
        postponed = [name for name in self.claims.helpless.take_postponed() if name in self.waiting]
        names = [*postponed, *self.claims.owed(at)]
        return self.offer(at, list(dict.fromkeys(self.waiting.key_of(name) for name in names)))

    def _wakes(self, waiting: Pod, changed: Sequence[Pod]) -> bool:
        """Whether the pod should be tried again. If the check fails, try it: it is taken out if the try fails too."""
        try:
            return any(self.related.wakes(waiting, pod) for pod in changed)
        except Exception:
            if self.faults.tell is None:
                raise
            return True

    def _gone(self, at: float, uid: str) -> tuple[Effect, ...]:
        row = self._row_of(uid)
        self.nominated.forget(uid)
        self.claims.withdrawn(self.waiting.name_of(uid))
        rest = self.waiting.drop_pod(uid)
        if rest is not None:
            return tuple(self._discipline.rest(at, rest))
        self._release((uid,), (row,))
        return tuple(self._discipline.left(at, row)) if len(self.waiting) else ()

    def _all_gone(self, at: float, uids: Sequence[str]) -> tuple[Effect, ...]:
        rows = [row for uid in uids if (row := self._row_of(uid)) != NONE]
        smaller = {name for uid in uids if (name := self.waiting.name_of(uid))}
        for uid in uids:
            self.nominated.forget(uid)
            self.claims.withdrawn(self.waiting.name_of(uid))
            self.waiting.drop_pod(uid)
        self._release(uids, rows)
        effects: list[Effect] = []
        for name in sorted(smaller):  # all pods that are gone are dropped already: none is placed
            rest = self.waiting.find(name)
            effects += self._discipline.rest(at, rest) if rest is not None else self._discipline.left(at, NONE)
        return (*effects, *self.retry(at, tuple(dict.fromkeys(rows)))) if rows and len(self.waiting) else tuple(effects)

    def _release(self, uids: Sequence[str], rows: Sequence[int]) -> None:
        """Release pods that are gone from these rows. Guessed pods on the rows may fit now."""
        counted = () if self.claims.plain else uids
        ended = [self.ledger.pods.pod(uid) for uid in counted if uid in self.ledger.pods]
        self.ledger.release_all(uids)
        self.claims.gone(ended)
        for uid in uids:
            self._observed.forget(uid)
        for row in dict.fromkeys(rows):
            self._observed.settle(row)

    def _nominate(self, at: float, pod: Pod, node: str) -> tuple[Effect, ...]:
        row = self.nominated.row_of(pod.uid)
        if node:
            self.nominated.promise(pod, node)
        else:
            self.nominated.forget(pod.uid)
        group = self.waiting.group_of(pod.uid)
        if group is not None:
            self._wait(group)  # its line may be another one now
        return self.retry(at, (row,)) if row != NONE and row != self.nominated.row_of(pod.uid) else ()

    def _row_of(self, uid: str) -> int:
        """The row that the pod holds, or that is kept for it. Other pods may wait for either."""
        row = self.ledger.row_holding(uid)
        return row if row != NONE else self.nominated.row_of(uid)

    def _observe(self, at: float, running: RunningPod) -> tuple[Effect, ...]:
        """Book a pod that runs.

        It no longer waits, and what it held before and does not hold now may help other pods.
        """
        uid = running.pod.uid
        if self._observed.is_as_known(running):
            if self.ledger.pods.pod(uid).labels != running.pod.labels:
                self.ledger.relabel(running.pod)
            self._observed.note(running)
            return self._bound(at, uid, Times(running.placed, running.started))
        rest = self.waiting.drop_pod(uid, runs=1)
        row, before = self._row_of(uid), self._held(uid)
        self.nominated.forget(uid)
        warnings = tuple(Warn(running.pod.key, text) for text in self._observed.book(running))
        self.claims.placed(uid, Times(running.placed, running.started))
        if row != NONE:
            self._observed.settle(row)
        if rest is not None:
            return (*warnings, *self._discipline.rest(at, rest))
        same = row == self.ledger.row_holding(uid) and before == self._held(uid)
        return (*warnings, *self._discipline.left(at, NONE if same else row))

    def _held(self, uid: str) -> tuple[object, ...]:
        """What the pod holds, with its resources: a running pod may be resized."""
        resources = self.ledger.pods.pod(uid).resources if uid in self.ledger.pods else {}
        return (self.ledger.held_shares(uid), resources)

    def _bound(self, at: float, uid: str, times: Times | None = None) -> tuple[Effect, ...]:
        """Confirm the reservation, and drop the nomination.

        The nominated node may help other pods if it is not the pod's node.
        """
        kept = self.nominated.row_of(uid)
        self.ledger.confirm(uid)
        if not self.claims.plain:
            self.claims.placed(uid, Times(at, at) if times is None else times)
        self.nominated.forget(uid)
        return self.retry(at, (kept,)) if kept not in (NONE, self.ledger.row_holding(uid)) else ()

    def retry(self, at: float, rows: Sequence[int], related: bool = False) -> tuple[Effect, ...]:
        """Try waiting groups on what these rows have now. A group that still waits has no effect."""
        return tuple(self._discipline.freed(at, rows, related))

    def offer(self, at: float, keys: Sequence[Hashable]) -> tuple[Effect, ...]:
        """Try the groups in these lines of the waiting room, in order."""
        return tuple(self._discipline.offer(at, keys)) if keys else ()

    def reason(self, group: Group, pod: Pod) -> Reason:
        """Why a pod of a waiting group waits, apart from nodes; NO_NODES: ask the nodes.

        The group is as `members.current` returns it. Counting its members here, for each of them, would take quadratic
        time.
        """
        if pod.refusal is not None:
            return pod.refusal.reason
        if self.gangs.is_incomplete(group):
            return Reason.GROUP_INCOMPLETE
        if self.quotas.refusal(pod) is not None:
            return Reason.QUOTA
        if self.placer.queues.active and (refused := self.placer.queues.refusal(pod)) is not None:
            return refused.reason
        return self.related.refusal(pod) or Reason.NO_NODES

    def withdraw(self, group: Group) -> None:
        """Take pods out of the waiting room that are about to arrive again, so that they are not decided before that.

        Either a gang will arrive with other members, or a pod will arrive in another group.
        """
        if group.pods[0].group == group.name:
            self.waiting.remove(group.name)
        for pod in group.pods:
            if self.waiting.name_of(pod.uid) not in ("", group.name):
                self.waiting.drop_pod(pod.uid)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end what is placed or released inside. Waiting pods are not retried because of it."""
        with self.ledger.transaction():
            yield
        self._news.take()

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """Forget at the end the names, numbers and counts that trials inside have added.

        Decisions do not depend on them.
        """
        try:
            with self.ledger.without_trace():
                yield
        finally:
            self.requests.forget()
            self.wake.forget()

    def rebuild(self, nodes: Sequence[Node], running: Sequence[RunningPod], reserved: Sequence[RunningPod]) -> None:
        """Build the ledger again from these nodes, the running pods, and the pods that are being bound.

        For a ledger that was found to be wrong. Waiting groups stay in the waiting room; the caller tries them again.
        """
        there = {node.name: node for node in nodes}
        self.ledger.empty({one.pod.uid for one in reserved})
        for name in [name for name in self.ledger.row_of if name not in there]:
            self.ledger.remove_node(name)
        for node in nodes:
            self.ledger.set_node(node)
        self._observed.book_all(running, reserved)
        self.wake.forget()
        self._news.take()

    def retry_all(self, at: float) -> tuple[Effect, ...]:
        """Try every waiting group: a safety net for drivers."""
        return self.offer(at, self.waiting.requests())

    def try_waiting(self, at: float, group: Group) -> list[Effect]:
        """Try a waiting group, which the outlook has counted already. Returns the effects without `Wait`."""
        try:
            group = self.members.current(group)
            if not self.claims.may_run(group):
                return []
            decisions = self.claims.planned(group) or self.placer.place_all((group,))
            effects = self._settle(group, decisions)
        except Exception as error:
            if not self.faults.group(group, error):
                raise
            return []
        preempts = any(isinstance(effect, Evict) for effect in effects)
        return [effect for effect in effects if not isinstance(effect, Wait) or (preempts and effect.nominated)]

    def _arrive(self, at: float, group: Group) -> list[Effect]:
        again = group.name in self.waiting
        rows = self._take_back(group)
        effects: list[Effect] = []
        try:
            group = self.members.current(group)
            may_run = self.claims.plain or self.claims.may_run(group)
            effects = self._settle(group, self._discipline.arrive(group) if may_run else self._hold_back(group))
        except Exception as error:
            if not self.faults.group(group, error):
                raise
        if rows:
            effects += self.retry(at, rows)
        return [*effects, *self._discipline.arrived_again(at)] if again else effects

    def _hold_back(self, group: Group) -> Sequence[Decision]:
        return [self.placer.refused(pod, Reason.QUEUE_ORDER) for pod in group.pods]

    def _take_back(self, group: Group) -> list[int]:
        """Release what the group's pods hold: they are placed again. Returns the rows, for other pods afterwards.

        A member whose bind was refused keeps its room until it is tried again, so that no other pod takes it.
        """
        held = [pod.uid for pod in group.pods if pod.uid in self.ledger.pods]
        rows = [self.ledger.row_holding(uid) for uid in held]
        self.ledger.release_all(held)
        return list(dict.fromkeys(rows))

    def _settle(self, group: Group, decisions: Sequence[Decision]) -> list[Effect]:
        """Turn decisions into effects. Pods without a place wait, and other pods may have to yield to them."""
        rest = left_over(group, decisions)
        if rest is None:
            self.waiting.remove(group.name)
            if not self.claims.plain:
                self.claims.withdrawn(group.name)
                self.claims.service.succeed(group.name)
            return list(map(self._effect, group.pods, decisions))
        evictions = [] if self.claims.plain else self.claims.make_room(rest)
        effects = [*map(self._effect, group.pods, decisions), *evictions]
        self.claims.service.fail(group.name)
        self._wait(rest)
        return effects

    def _begin_round(self, at: float) -> tuple[Effect, ...]:
        stops = self.claims.begin_round(self.waiting)
        if stops is None:
            return ()
        self.waiting.sort_again()
        return (*stops, *self.offer(at, self.waiting.requests()))

    def _effect(self, pod: Pod, decision: Decision) -> Effect:
        if decision.node is None:
            return Wait(pod, decision, self.claims.nominated_to(pod))
        return Bind(pod, decision, self.related.volumes.take(pod, decision.node) if pod.relations.claims else ())

    def _wait(self, group: Group) -> None:
        self.waiting.add(group, self._discipline.line_of(group))

    def _learn_resources(self, names: Collection[str]) -> None:
        """Move groups to other lines if they wait for resources that a node now has for the first time."""
        self.wake.forget()
        for group in [
            group for group in self.waiting if any(not pod.resources.keys().isdisjoint(names) for pod in group.pods)
        ]:
            self._wait(group)

    def _waits_for(self) -> Sequence[Hashable]:
        self.wake.forget()
        return self.waiting.requests()

    def listen(self) -> None:
        """From now on, pods that arrive or leave wake groups with rules about other pods."""
        if not self._news.wanted:
            self._news.wanted = True
            self.ledger.attend(self._news, True)

    def place(self, groups: Sequence[Group]) -> Sequence[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        return self._discipline.place(groups)

    def is_compiled(self, profile: Profile) -> bool:
        return self.placer.is_compiled(profile)

    def use_compiled(self, profile: Profile) -> None:
        """See Placer.use_compiled."""
        self.placer.use_compiled(profile)
