"""The scheduler: events in, effects out. `place` decides many groups in one call, `handle` takes one event."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dovetail.engine.attempts import Attempts
from dovetail.engine.claims import DEFAULT_RIGHTS, Claims, Rights
from dovetail.engine.disciplines import DISCIPLINES
from dovetail.engine.faults import Faults
from dovetail.engine.kernel.state import NONE
from dovetail.engine.observe import Observed, assume
from dovetail.engine.placed_pods import PlacedPods
from dovetail.engine.placer import COMPILE_FROM, Placer
from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.engine.retries import Retries, too_many
from dovetail.engine.wake import News, Wake
from dovetail.model.decision import Decision
from dovetail.model.events import (
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
        self.observed = Observed(placer, self.faults)
        self._discipline = DISCIPLINES[rights.queue](self)
        self._attempts = Attempts(placer, self.waiting, self.claims, self.faults, self._discipline)
        self._placed = PlacedPods(placer, self.waiting, self.claims, self.observed, self._discipline)
        self.retries = Retries(self.waiting, self.wake, self.try_waiting)
        self.nominated.cards_for = lambda pod, node: assume(placer, pod, node)[0]
        self.news = News()
        self.ledger.witnesses += (self.members, self.news)
        self.ledger.learners.append(self._learn_resources)

    # ---- events -------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """Handle one event and return what must be done. This is the only input of the scheduler."""
        self.placer.maybe_sweep()
        if not self.claims.plain:
            self.note_time(event.at)
        if self.placer.queues.half_life and self.placer.queues.active:
            self.placer.queues.note_time(event.at)
        effects = self._happened(event)
        # A pod's arrival or departure can make other waiting pods feasible.
        while self.news.pods and not self.retries.deferred:
            effects = (*effects, *self._spread_news(event.at, self.news.take()))
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
            self.wait(group)  # its line may be another one now
        return effects

    def note_time(self, at: float) -> None:
        self.claims.service.now = at
        if self.claims.sorts_again:
            self.waiting.sort_again()

    def _happened(self, event: Event) -> tuple[Effect, ...]:
        match event:
            case GroupArrived(at, group):
                return tuple(self._attempts.arrive(at, group))
            case PodObserved(at, running):
                return self._placed.observe(at, running)
            case PodBound(at, uid):
                return self._placed.bound(at, uid)
            case PodGone(at, uid):
                return self._placed.gone(at, uid)
            case PodsGone(at, uids):
                return self._placed.all_gone(at, uids)
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
                return self._quota_is(at, namespace, name, quota)
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
            warnings = self.observed.node_changed(row, kubelet_picked)
        except Exception as error:
            if not self.faults.node(node, before, error):
                raise
            return self.offer(at, self.wake.related())
        return (*warnings, *self.retry(at, (row,), related=True))

    def _quota_is(self, at: float, namespace: str, name: str, quota: Quota | None) -> tuple[Effect, ...]:
        """Store or drop a quota. With a namespace's first quota, its groups move to the line that any change may help.

        Before, only room on a node could help them. Now it may be a pod that leaves another node.
        """
        is_first = namespace not in self.quotas
        self.quotas.set(quota) if quota is not None else self.quotas.drop(namespace, name)
        if is_first and quota is not None:
            for group in [one for one in self.waiting if any(pod.namespace == namespace for pod in one.pods)]:
                self.wait(group)
        return self.offer(at, [key for key in self.waiting.requests() if key is ALWAYS])

    def _spread_news(self, at: float, changed: Sequence[Pod]) -> tuple[Effect, ...]:
        if self.retries.deferred and too_many(self.waiting.requests(), changed):
            return self.offer(at, self.wake.related())
        return self.offer(at, self.wake.related(lambda waiting: self._wakes(waiting, changed)))

    @property
    def has_retries(self) -> bool:
        """Whether `retry_some` has something to do."""
        return bool(self.retries) or bool(self.news.pods)

    def retry_some(self, at: float, pods: int) -> list[Effect]:
        """Where retries are deferred: try about `pods` waiting pods that a change may have helped."""
        self.claims.service.now = max(at, self.claims.service.now)  # no event may have come for long
        if self.news.pods:
            self._spread_news(at, self.news.take())
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

    def _nominate(self, at: float, pod: Pod, node: str) -> tuple[Effect, ...]:
        row = self.nominated.row_of(pod.uid)
        if node:
            self.nominated.promise(pod, node)
        else:
            self.nominated.forget(pod.uid)
        group = self.waiting.group_of(pod.uid)
        if group is not None:
            self.wait(group)  # its line may be another one now
        return self.retry(at, (row,)) if row != NONE and row != self.nominated.row_of(pod.uid) else ()

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
        self.news.take()

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
        self.observed.book_all(running, reserved)
        self.wake.forget()
        self.news.take()

    def retry_all(self, at: float) -> tuple[Effect, ...]:
        """Try every waiting group: a safety net for drivers."""
        return self.offer(at, self.waiting.requests())

    def try_waiting(self, at: float, group: Group) -> list[Effect]:
        """See Attempts.try_waiting."""
        return self._attempts.try_waiting(at, group)

    def _begin_round(self, at: float) -> tuple[Effect, ...]:
        stops = self.claims.begin_round(self.waiting)
        if stops is None:
            return ()
        self.waiting.sort_again()
        return (*stops, *self.offer(at, self.waiting.requests()))

    def wait(self, group: Group) -> None:
        """See Attempts.wait."""
        self._attempts.wait(group)

    def _learn_resources(self, names: Collection[str]) -> None:
        """Move groups to other lines if they wait for resources that a node now has for the first time."""
        self.wake.forget()
        for group in [
            group for group in self.waiting if any(not pod.resources.keys().isdisjoint(names) for pod in group.pods)
        ]:
            self.wait(group)

    def _waits_for(self) -> Sequence[Hashable]:
        self.wake.forget()
        return self.waiting.requests()

    def listen(self) -> None:
        """From now on, pods that arrive or leave wake groups with rules about other pods."""
        if not self.news.wanted:
            self.news.wanted = True
            self.ledger.attend(self.news, True)

    def place(self, groups: Sequence[Group]) -> Sequence[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        return self._discipline.place(groups)

    def is_compiled(self, profile: Profile) -> bool:
        return self.placer.is_compiled(profile)

    def use_compiled(self, profile: Profile) -> None:
        """See Placer.use_compiled."""
        self.placer.use_compiled(profile)
