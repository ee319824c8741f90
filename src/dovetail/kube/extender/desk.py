"""The driver's decisions on request: reservations between `filter` and `bind`, and their end.

A pod is decided when kube-scheduler filters it: one node, with its cards reserved in the ledger. kube-scheduler never
says that it gave a pod up, so a reservation ends at a time, unless the pod is filtered or bound before. The driver's
`on_the_way` is the list of reservations; this module adds how long they stand.

Everything here runs in the driver's loop, without a pause: facts are booked, then the pod is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from dovetail.kube.live.driver import Driver
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.mirror import Mirror
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, GroupArrived, PodsGone
from dovetail.model.pod import Group, Pod

KEEP_SECONDS = 60.0  # that a reservation stands without being asked for


class Desk:
    def __init__(self, driver: Driver, keep_seconds: float = KEEP_SECONDS) -> None:
        self._driver, self._keep = driver, keep_seconds
        self._until: dict[str, float] = {}  # uid -> the end of its reservation
        self.made = 0  # reservations
        self.expired = 0  # reservations that no /bind asked for
        driver.asked = self

    @property
    def _mirror(self) -> Mirror:
        return self._driver.mirror

    @property
    def reserved(self) -> list[str]:
        """UIDs of pods with a reservation that is not being bound."""
        return [uid for uid in self._driver.on_the_way if self._is_free_to_end(uid)]

    def _is_free_to_end(self, uid: str) -> bool:
        """Whether the pod has a reservation only: it is neither being bound, nor bound and not yet reported."""
        ledger, under_way = self._driver.scheduler.ledger, self._driver.binder.under_way
        return uid in self._driver.on_the_way and uid not in under_way and ledger.is_reserved(uid)

    def bound_to(self, uid: str) -> str:
        """The node that the pod is bound to, whether the watch has shown it already or not; "" = none."""
        known, held, pods = self._mirror.pods.get(uid), self.reservation(uid), self._driver.scheduler.ledger.pods
        if known is not None and known.running is not None:
            return known.running.node
        is_bound = held is not None and uid in pods and not self._driver.scheduler.ledger.is_reserved(uid)
        return str(held.decision.node) if held is not None and is_bound else ""

    def keep(self, uid: str) -> None:
        """Let the reservation stand without an end: the pod is bound."""
        self._until.pop(uid, None)

    # ---- reservations -------------------------------------------------------------------------------------------

    def hold(self, bind: Bind) -> None:
        """Keep a placement of the engine: for the pod that was asked about, a member of its gang, or a preemptor."""
        self._until[bind.pod.uid] = self._driver.now() + self._keep
        self.made += 1

    def reservation(self, uid: str) -> Bind | None:
        """The pod's placement, being bound or not; None = it has none."""
        return self._driver.on_the_way.get(uid)

    def renew(self, pod: Pod) -> None:
        """Let the reservations of the pod and its gang stand for the whole time again."""
        until = self._driver.now() + self._keep
        for uid in self._mirror.gangs.members(pod.group) if pod.group else (pod.uid,):
            if uid in self._until:
                self._until[uid] = until

    def release(self, uids: Iterable[str]) -> None:
        """End these reservations; the cards are free at once. Pods that are being bound keep theirs."""
        gone = tuple(uid for uid in uids if self._is_free_to_end(uid))
        for uid in gone:
            self._until.pop(uid, None)
        if gone:
            self._driver.happened((PodsGone(self._driver.now(), gone),))
            self._driver.take_in()

    def expire(self) -> None:
        """End the reservations whose time is over. The members of a gang have one time."""
        self._driver.take_in()
        now, on_the_way = self._driver.now(), self._driver.on_the_way
        self._until = {uid: until for uid, until in self._until.items() if uid in on_the_way}
        late = [uid for uid, until in self._until.items() if until <= now and self._is_free_to_end(uid)]
        self.expired += len(late)
        for uid in late:
            self._driver.rooms.forget((uid,))
        self.release(late)

    # ---- deciding -----------------------------------------------------------------------------------------------

    def decide(self, known: Known, offered: Collection[str]) -> Decision | None:
        """The pod's reservation on one of these nodes, the one that it has or a new one; None = there is none."""
        pod = known.pod
        held = self.reservation(pod.uid)
        if held is not None and held.decision.node in offered and held.pod == pod and self._stands(held):
            self.renew(pod)
            return held.decision
        self._mirror.recall(pod)
        self.release((pod.uid,))
        found = self._try(pod, offered)
        if found is None and (others := self._unbound_members(pod)):
            self.release(others)  # the members that have a reservation may leave room for all elsewhere
            found = self._try(pod, offered)
        if found is not None:
            self.renew(pod)
        return found

    def group_of(self, pod: Pod) -> Group:
        """The pods that are decided with this one: members of its gang that hold nothing."""
        group, held = self._mirror.gangs.group(pod), self._driver.scheduler.ledger.pods
        there = tuple(one for one in group.pods if one.uid == pod.uid or one.uid not in held)
        return replace(group, pods=there)

    def _stands(self, held: Bind) -> bool:
        return not self._driver.outcomes.objection(held, True)

    def _unbound_members(self, pod: Pod) -> list[str]:
        members = self._mirror.gangs.members(pod.group) if pod.group else ()
        return [uid for uid in self.reserved if uid in members and uid != pod.uid]

    def _try(self, pod: Pod, offered: Collection[str]) -> Decision | None:
        """Place the pod's group; first on the best nodes, as that is fast, and usually they are offered."""
        group = self.group_of(pod)
        found = self._place(group, pod.uid)
        if found is not None and found.node not in offered:
            found = self._place(group, pod.uid, offered)
            if found is None:
                self.release(one.uid for one in group.pods)
        if found is None:
            self._stop_waiting(group, pod)
        return found

    def _place(self, group: Group, uid: str, only: Collection[str] | None = None) -> Decision | None:
        """Place the group again. `only`: on these nodes."""
        driver, ledger = self._driver, self._driver.scheduler.ledger
        for pod in group.pods:  # the engine takes back what they have
            driver.on_the_way.pop(pod.uid, None)
        rows = None
        if only is not None:
            rows = np.zeros(len(ledger.nodes), dtype=np.bool_)
            rows[[ledger.row_of[name] for name in only if name in ledger.row_of]] = True
        with driver.scheduler.related.confined(rows) if rows is not None else nullcontext():
            effects = driver.set_aside.handle(GroupArrived(driver.now(), group))
        driver.carry_out(effects)
        held = driver.on_the_way.get(uid)
        return held.decision if held is not None else None

    def _stop_waiting(self, group: Group, pod: Pod) -> None:
        """Take the group out of the engine's queue, unless pods are being stopped for it: kube-scheduler has it."""
        if not any(self._driver.preemptions.makes_room_for(one.uid) for one in group.pods):
            name = self._driver.scheduler.waiting.name_of(pod.uid)
            if name:
                self._driver.scheduler.waiting.remove(name)

    def makes_room_for(self, pod: Pod) -> str:
        """Which pods are being stopped for the pod; "" = none."""
        condition = self._driver.preemptions.condition(pod)
        return condition.message if condition is not None else ""

    def unfit(self, uid: str) -> str:
        """Why the pod cannot be decided, or bound; "" = it waits for a place."""
        known = self._mirror.pods.get(uid)
        if known is None:
            return "the pod is gone, or not reported by the API server yet"
        if node := self.bound_to(uid):
            return f"the pod is bound to node {node} already"
        if known.stand is Stand.LEFT:
            return "its namespace is being deleted"
        return "" if known.stand is Stand.WAITS else "its schedulerName is not served"
