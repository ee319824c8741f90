"""The scheduler: events in, effects out. `place` decides many groups in one call, `handle` is the same with one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Any

from dovetail.engine.faults import Faults
from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.decisions import joined
from dovetail.engine.observe import Observed, assume
from dovetail.engine.placer import COMPILE_FROM, HOLD_SECONDS, Placer
from dovetail.engine.queue import ALWAYS, IN_ORDER, WaitingRoom, can_be_placed, left_over
from dovetail.engine.retries import Retries, too_many
from dovetail.engine.rights.members import Members
from dovetail.engine.wake import News, Wake
from dovetail.model.decision import Decision, Share
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodBound,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
    QuotaChanged,
    SelectorChanged,
    SignalsMeasured,
    TimePassed,
    VolumesChanged,
    Wait,
    Warn,
)
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Group, Pod, Quota, RunningPod
from dovetail.model.reason import Reason

__all__ = ["COMPILE_FROM", "HOLD_SECONDS", "Scheduler"]


class Scheduler(Placer):
    """One cluster, one ledger. The simulator, the live scheduler and what-if all drive this class.

    `strict`: nobody is placed while somebody waits who comes before it. Otherwise whoever fits is placed (backfill).
    """

    def __init__(
        self,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        quotas: Sequence[Quota] = (),
        mode: str = "auto",
        device_resources: Collection[str] = ("nvidia.com/gpu",),
        cache: bool = False,
        strict: bool = False,
    ) -> None:
        super().__init__(arguments, quotas, mode, device_resources, cache)
        self.strict = strict
        self.waiting = WaitingRoom()
        self.members = Members(self.ledger)
        self.ledger.witnesses.append(self.members)
        self.wake = Wake(self.waiting, self.ledger, self.requests, self.kernel)
        self._observed = Observed(self)
        self.faults = Faults(self)
        self.retries = Retries(self)
        self._news = News()
        self.ledger.witnesses.append(self._news)
        self.ledger.learners.append(self._learn_resources)

    # ---- events -------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """The one door: everything that happens comes in here, everything to be done goes out."""
        self._maybe_sweep()
        effects = self._happened(event)
        while (
            self._news.pods and not self.retries.deferred
        ):  # whoever came or went may be whom others wait for, or avoid
            effects = (*effects, *self._spread_news(event.at, self._news.take()))
        return effects

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
                return self._offer(at, self.wake.related()) if gone else ()
            case SignalsMeasured(_, name, signals):
                self.ledger.measure(name, signals)
                return ()  # a preference: no pod waits for it
            case NamespaceChanged(at, name, labels):
                self.related.set_namespace(name, labels)
                return self._offer(at, self.wake.related())
            case QuotaChanged(at, namespace, name, quota):
                self.quotas.set(quota) if quota is not None else self.quotas.drop(namespace, name)
                return self._offer(at, [key for key in self.waiting.requests() if key is ALWAYS])
            case SelectorChanged(_, kind, namespace, name, selector):
                self.related.preferred.default_spread.set_selector(kind, namespace, name, selector)
                return ()  # a preference: no pod waits for it
            case VolumesChanged(at, facts, gone):
                helps = self.related.volumes.change(facts, gone)
                return self._offer(at, self.wake.related(lambda pod: self.related.volumes.helped(pod, helps)))
            case TimePassed(at):
                return self._expire(at)

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
            return self._offer(at, self.wake.related())
        return (*warnings, *self.retry(at, (row,), related=True))

    def _spread_news(self, at: float, changed: Sequence[Pod]) -> tuple[Effect, ...]:
        if self.retries.deferred and too_many(self.waiting.requests(), changed):
            return self._offer(at, self.wake.related())
        return self._offer(at, self.wake.related(lambda waiting: self._wakes(waiting, changed)))

    @property
    def has_retries(self) -> bool:
        """Whether `retry_some` has something to do."""
        return bool(self.retries) or bool(self._news.pods)

    def retry_some(self, at: float, pods: int) -> list[Effect]:
        """Where retries are deferred: try about so many waiting pods that something may have helped since."""
        if self._news.pods:
            self._spread_news(at, self._news.take())
        return self.retries.run(at, pods)

    def _wakes(self, waiting: Pod, changed: Sequence[Pod]) -> bool:
        """Whether the pod should try again; where that cannot be told, it does, and is taken out if it fails again."""
        try:
            return any(self.related.wakes(waiting, pod) for pod in changed)
        except Exception:
            if self.faults.tell is None:
                raise
            return True

    def _gone(self, at: float, uid: str) -> tuple[Effect, ...]:
        rest = self.waiting.drop_pod(uid)
        if rest is not None:
            return tuple(self._offer_rest(at, rest))
        row = self._row_of(uid)
        self.nominated.forget(uid)
        self._release((uid,), (row,))
        return self.retry(at, (row,)) if (row != NONE or self.strict) and len(self.waiting) else ()

    def _all_gone(self, at: float, uids: Sequence[str]) -> tuple[Effect, ...]:
        waited = [uid for uid in uids if self.waiting.name_of(uid)]
        effects = [effect for uid in waited for effect in self._gone(at, uid)]
        rows = [row for uid in uids if (row := self._row_of(uid)) != NONE]
        for uid in uids:
            self.nominated.forget(uid)
        self._release(uids, rows)
        return (*effects, *self.retry(at, tuple(dict.fromkeys(rows)))) if rows and len(self.waiting) else tuple(effects)

    def _release(self, uids: Sequence[str], rows: Sequence[int]) -> None:
        """The pods are gone from these rows, whose guessed pods may find room now."""
        self.ledger.release_all(uids)
        for uid in uids:
            self._observed.forget(uid)
        for row in dict.fromkeys(rows):
            self._observed.settle(row)

    def _nominate(self, at: float, pod: Pod, node: str) -> tuple[Effect, ...]:
        row = self.nominated.row_of(pod.uid)
        if node:
            self.nominated.promise(pod, node, assume(self, pod, node)[0])
        else:
            self.nominated.forget(pod.uid)
        group = self.waiting.group_of(pod.uid)
        if group is not None:
            self._wait(group)  # in another line now
        return self.retry(at, (row,)) if row != NONE and row != self.nominated.row_of(pod.uid) else ()

    def _row_of(self, uid: str) -> int:
        """The row that the pod is on, or that is kept for it: somebody may wait for either."""
        row = self.ledger.row_holding(uid)
        return row if row != NONE else self.nominated.row_of(uid)

    def _observe(self, at: float, running: RunningPod) -> tuple[Effect, ...]:
        """It waits no more, whoever placed it; and what it held until now and holds no longer may help others."""
        uid = running.pod.uid
        if self._is_as_known(running):
            if self.ledger.pods.pod(uid).labels != running.pod.labels:
                self.ledger.relabel(running.pod)
            self._observed.note(running)
            return self._bound(at, uid)
        rest = self.waiting.drop_pod(uid, runs=1)
        row, before = self._row_of(uid), self._held(uid)
        self.nominated.forget(uid)
        warnings = tuple(Warn(running.pod.key, text) for text in self._observed.book(running))
        if row != NONE:
            self._observed.settle(row)
        if rest is not None:
            return (*warnings, *self._offer_rest(at, rest))
        same = row == self.ledger.row_holding(uid) and before == self._held(uid)
        helps = self.strict or (row != NONE and not same)
        return (*warnings, *self.retry(at, (row,))) if helps else warnings

    def _held(self, uid: str) -> tuple[object, ...]:
        """All that the pod has: a pod may be resized where it is."""
        resources = self.ledger.pods.pod(uid).resources if uid in self.ledger.pods else {}
        return (self.ledger.held_shares(uid), resources)

    def _bound(self, at: float, uid: str) -> tuple[Effect, ...]:
        """Nothing is kept for it any more: a node that was, and is not its own, may help others."""
        kept = self.nominated.row_of(uid)
        self.ledger.confirm(uid)
        self.nominated.forget(uid)
        return self.retry(at, (kept,)) if kept not in (NONE, self.ledger.row_holding(uid)) else ()

    def _is_as_known(self, running: RunningPod) -> bool:
        """Our own placement, come true, or told again: perhaps under other labels, as binding copies those of the
        node's zone to the pod."""
        ledger, pod = self.ledger, running.pod
        if self.strict or pod.uid not in ledger.pods:
            return False
        known = ledger.pods[pod.uid]
        return (
            (not known.assumed or running.shares is None)
            and ledger.node_of(pod.uid) == running.node
            and self._holds(pod.uid, running.shares)
            and known.pod.is_but_for_labels(pod)
        )

    def _holds(self, uid: str, shares: tuple[Share, ...] | None) -> bool:
        """None, where nobody writes down who has which card: any that the node still has."""
        held = self.ledger.held_shares(uid)
        if shares is not None:
            return held == shares
        there = {device.uuid for device in self.ledger.nodes[self.ledger.row_holding(uid)].devices}
        return all(share.uuid in there for share in held)

    def retry(self, at: float, rows: Sequence[int], related: bool = False) -> tuple[Effect, ...]:
        """Offer those who could use it what these rows have now, in their order; who still waits says nothing new.

        A gang or a pod under a quota may be helped by any row. The others waited because no other row could take them,
        so that they need not try when these rows no longer can. `related`: nor can those tell whose rules are about
        other pods.
        """
        if self.strict:
            return tuple(self._advance(at))
        if self.retries.deferred:
            self.retries.note_rows(rows)
            self.retries.note(self.wake.related() if related else ())
            return ()
        keys = self.wake.helped(rows)
        if related:
            keys = list(dict.fromkeys((*keys, *self.wake.related())))
            return self._offer(at, keys)
        return self._offer(at, keys, rows)

    def reason(self, group: Group, pod: Pod) -> Reason:
        """Why a pod of a group that waits does so, as far as no node is to blame; NO_NODES: ask the nodes. The group is
        as `members.current` returns it: counting its members here, for each of them, would take quadratic time."""
        if pod.refusal is not None:
            return pod.refusal.reason
        if group.members < group.minimum:
            return Reason.GROUP_INCOMPLETE
        if self.quotas.refusal(pod) is not None:
            return Reason.QUOTA
        return self.related.refusal(pod) or Reason.NO_NODES

    def withdraw(self, group: Group) -> None:
        """A gang that waits and is about to arrive with other members, or a pod that is about to arrive in another
        group than it waits in: neither is decided before that."""
        if group.pods[0].group == group.name:
            self.waiting.remove(group.name)
        for pod in group.pods:
            if self.waiting.name_of(pod.uid) not in ("", group.name):
                self.waiting.drop_pod(pod.uid)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end what is placed or released meanwhile. Waiting pods are not retried because of it."""
        with self.ledger.transaction():
            yield
        self._news.take()

    def retry_all(self, at: float) -> tuple[Effect, ...]:
        """Offer everybody everything: for those who do not trust their events."""
        return self._offer(at, self.waiting.requests())

    def _offer(self, at: float, keys: Sequence[Hashable], rows: Sequence[int] = ()) -> tuple[Effect, ...]:
        """Try those in these lines, in order; in each until somebody finds no place, as the next asks for the same;
        unless it turns out that this one asks for more by now, because of pods that came since it got in line."""
        if not keys:
            return ()
        if self.strict:
            return tuple(self._advance(at))
        if self.retries.deferred:
            self.retries.note(keys)
            return ()
        fitting = set(keys)
        lines = [self.waiting.line(key) for key in keys]
        turns = [(line[0], n, 0) for n, line in enumerate(lines)]
        heapify(turns)
        effects: list[Effect] = []
        while turns:
            place, n, position = heappop(turns)
            if keys[n] is not ALWAYS and keys[n] not in fitting:
                continue
            placed = self.try_waiting(at, place.group)
            effects += placed
            if placed and rows:
                fitting = set(self.wake.fitting(rows))
            alike = keys[n] is not ALWAYS and self.waiting.key_of(place.group.name) == keys[n]
            if (placed or not alike) and position + 1 < len(lines[n]):
                heappush(turns, (lines[n][position + 1], n, position + 1))
        return tuple(effects)

    def _advance(self, at: float) -> list[Effect]:
        """Strict: offer from the front of the line on, until somebody finds no place."""
        effects: list[Effect] = []
        front = self.waiting.front()
        while front is not None:
            effects += self.try_waiting(at, front.group)
            tried, front = front.group, self.waiting.front()
            if front is not None and front.group.name == tried.name:
                break
        return effects

    def _offer_rest(self, at: float, group: Group) -> list[Effect]:
        """What is left of a group that waits, which may have become easier to place."""
        return self._advance(at) if self.strict else self.try_waiting(at, group)

    def try_waiting(self, at: float, group: Group) -> list[Effect]:
        """Somebody who waits; the outlook has seen it."""
        try:
            group = self.members.current(group)
            effects = self._settle(group, self._place_all((group,), at))
        except Exception as error:
            if not self.faults.group(group, error):
                raise
            return []
        return [effect for effect in effects if isinstance(effect, Bind)]

    def _arrive(self, at: float, group: Group) -> list[Effect]:
        again = self.strict and group.name in self.waiting  # it may have stood in the way of others
        rows = self._take_back(group)
        effects: list[Effect] = []
        try:
            group = self.members.current(group)
            effects = self._settle(group, self.place((group,), at) if self.strict else self._place_group(group, at))
        except Exception as error:
            if not self.faults.group(group, error):
                raise
        if rows:
            effects += self.retry(at, rows)
        return [*effects, *self._advance(at)] if again else effects

    def _take_back(self, group: Group) -> list[int]:
        """Release what pods of the group hold that are to be placed anew; returns the rows, for others afterwards.

        A member whose bind was refused keeps its room until it is tried again, so that no other pod takes it.
        """
        held = [pod.uid for pod in group.pods if pod.uid in self.ledger.pods]
        rows = [self.ledger.row_holding(uid) for uid in held]
        self.ledger.release_all(held)
        return list(dict.fromkeys(rows))

    def _settle(self, group: Group, decisions: Sequence[Decision]) -> list[Effect]:
        """Who found no place waits."""
        rest = left_over(group, decisions)
        if rest is not None:
            self._wait(rest)
        else:
            self.waiting.remove(group.name)
        return list(map(self._effect, group.pods, decisions))

    def _effect(self, pod: Pod, decision: Decision) -> Effect:
        if decision.node is None:
            return Wait(pod, decision)
        return Bind(pod, decision, self.related.volumes.take(pod, decision.node) if pod.relations.claims else ())

    def _wait(self, group: Group) -> None:
        key: Hashable = ALWAYS
        if self.strict:
            key = IN_ORDER if can_be_placed(group) else ALWAYS
        elif len(group.pods) == 1 and not self._needs_care(group):
            key = self._request(group.pods[0])
        elif len(group.pods) == 1 and can_be_placed(group) and not self.quotas.apply_to(group.pods[0]):
            pod = group.pods[0]  # special for its preferences alone, it waits like any other
            key = self._request(pod)
            if self.related.restricts(pod):
                key = (*key, pod.namespace, tuple(sorted(pod.labels.items())), pod.relations)
                self._listen()
            if self.nominated.row_of(pod.uid) != NONE:
                key = (*key, pod.uid)  # others yield to it where it goes
        self.waiting.add(group, key)

    def _learn_resources(self, names: Collection[str]) -> None:
        """A node has resources that no node had: groups that wait for them stand in other lines now."""
        self.wake.forget()
        for group in [
            group for group in self.waiting if any(not pod.resources.keys().isdisjoint(names) for pod in group.pods)
        ]:
            self._wait(group)

    def _waits_for(self) -> Sequence[Hashable]:
        self.wake.forget()
        return self.waiting.requests()

    def _listen(self) -> None:
        if not self._news.wanted:
            self._news.wanted = True
            self.ledger.attend(self._news, True)

    def _request(self, pod: Pod) -> tuple[Hashable, ...]:
        signature = self.requests.signature(pod)
        return (signature.profile, signature.shape, signature.mask)

    def _expire(self, at: float) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        rows = []
        for uid in self.ledger.pods.expired(at):
            effects.append(Warn(self.ledger.pods.pod(uid).key, "its reservation was never confirmed and is dropped"))
            rows.append(self.ledger.row_holding(uid))
            self._release((uid,), rows[-1:])
        return (*effects, *self.retry(at, rows)) if effects else ()

    def place(self, groups: Sequence[Group], at: float = 0.0) -> Sequence[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        return self._place_in_order(groups, at) if self.strict else super().place(groups, at)

    def _place_in_order(self, groups: Sequence[Group], at: float) -> Sequence[Decision]:
        """Strict: as if each arrived by itself. Those without hope are told their own reason and hold nobody up."""
        parts: list[Sequence[Decision]] = []
        late: list[Any] = []  # orders of those who would wait by now
        for group in groups:
            if self._learns_from((group,)):
                self._learn((group,), 0)
            front = self.waiting.front(besides=group.name)
            before = min(late[:1] + ([front.order] if front else []), default=group.order)
            if before < group.order and can_be_placed(group):
                parts.append([self._refused(pod, Reason.QUEUE_ORDER) for pod in group.pods])
            else:
                parts.append(self._place_all((group,), at))
            rest = left_over(group, parts[-1])
            if rest is not None and can_be_placed(rest):
                heappush(late, rest.order)
        return joined(parts)
