"""Preemptions under way: which pods are being stopped, which pods wait for their places, and what both are told.

The engine decides. Its nominations are written to status.nominatedNodeName, and taken back when it no longer makes
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from dovetail.engine.rights.preemption import SPARED_SECONDS
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.api.client import Api
from dovetail.kube.live.evictor import Evictor
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.tell import Note, ScheduledCondition, Teller
from dovetail.kube.live.words import cut
from dovetail.kube.log import Log
from dovetail.model.events import Effect, Evict, EvictionRefused, Wait
from dovetail.model.pod import Pod

PREEMPTING = "Preempting"  # reason of the condition and of the event of a pod that waits for others to end
PREEMPTED = "Preempted"  # reason of the event of a pod that is stopped, as kube-scheduler's
MOST_NAMED_VICTIMS = 10  # pods that a message names


@dataclass(slots=True)
class _Plan:
    """The pods that are stopped for one group."""

    victims: dict[str, Evict] = field(default_factory=dict)  # by uid
    waiting: dict[str, str] = field(default_factory=dict)  # uid of a pod of the group -> the node that it is to get


class Preemptions:
    def __init__(
        self,
        scheduler: Scheduler,
        mirror: Mirror,
        teller: Callable[[], Teller],
        happened: Callable[[Iterable[EvictionRefused]], None],
        again: Callable[[Pod, float], None],  # offer the pod to the engine again after these seconds
        now: Callable[[], float],
    ) -> None:
        self._scheduler, self._mirror, self._teller = scheduler, mirror, teller
        self._happened, self._again, self._now = happened, again, now
        self.evictor: Evictor  # made by `write_by`
        self._plans: dict[str, _Plan] = {}  # by Group.name
        self._plan_of: dict[str, str] = {}  # uid of a waiting pod -> name of its group
        self._victim_of: dict[str, str] = {}  # uid of a pod that is being stopped -> name of that group
        self._nominated: dict[str, Pod] = {}  # waiting pods with a nominated node, by uid

    def write_by(self, api: Api, may_write: Callable[[], bool], log: Log) -> None:
        """Send evictions through this client, while `may_write` says that we lead."""
        self.evictor = Evictor(
            api,
            runs=self.runs,
            exists=lambda uid: uid in self._mirror.pods,
            wanted=self.wanted,
            nominated=self.nominated,
            evicted=self.evicted,
            refused=self.refused,
            may_write=may_write,
            now=self._now,
            log=log,
            is_broken=self.is_broken,
        )

    # ---- what the engine decides --------------------------------------------------------------------------------

    def begin(self, effects: Iterable[Effect]) -> None:
        """Take in the evictions and nominations among the effects of one event, and start the evictions."""
        evictions: dict[str, list[Evict]] = {}
        nominations: list[Wait] = []
        for effect in effects:
            if isinstance(effect, Evict):
                evictions.setdefault(effect.by, []).append(effect)
            elif isinstance(effect, Wait) and effect.nominated:
                nominations.append(effect)
        if not evictions and not nominations:
            return
        for by, some in evictions.items():
            self._plans.setdefault(by, _Plan()).victims.update((one.pod.uid, one) for one in some)
            self._victim_of.update((one.pod.uid, by) for one in some)
        nodes = {wait.pod.uid: (wait.pod, wait.nominated) for wait in nominations}
        for pod, node in {**self._promised(evictions), **nodes}.values():
            self._nominate(pod, node)
        for some in evictions.values():
            self.evictor.submit(some)

    def _promised(self, names: Iterable[str]) -> dict[str, tuple[Pod, str]]:
        """Pods of these groups and the nodes that the engine keeps for them, by uid. A retry reports no `Wait`."""
        groups = [group for name in names if (group := self._scheduler.waiting.find(name)) is not None]
        promised = self._scheduler.nominated.promised
        return {pod.uid: (pod, promised[pod.uid].node) for group in groups for pod in group.pods if pod.uid in promised}

    def _nominate(self, pod: Pod, node: str) -> None:
        name = next((name for name in (pod.group, pod.key) if name in self._plans), "")
        is_news = self._plan_of.get(pod.uid) != name or pod.uid not in self._plans[name].waiting if name else False
        if name:
            self._plan_of[pod.uid] = name
            self._plans[name].waiting[pod.uid] = node
        known = self._mirror.pods.get(pod.uid)
        if known is None or known.node != node:
            self._teller().nominate(pod, node)
        self._nominated[pod.uid] = pod
        condition = self.condition(pod)
        if condition is not None and known is not None and known.condition != condition:
            self._teller().waits(pod, condition)
        if condition is not None and is_news:
            self._teller().note(Note(pod, PREEMPTING, condition.message, action=PREEMPTING))

    def was_nominated(self, pod: Pod, node: str) -> None:
        """Note a nomination that the API server reports: by an earlier leader, or by another program."""
        if node:
            self._nominated[pod.uid] = pod
        else:
            self._nominated.pop(pod.uid, None)

    def take_back(self) -> None:
        """Clear nominations in the API server that the engine no longer makes."""
        promised = self._scheduler.nominated.promised
        for uid in [uid for uid in self._nominated if uid not in promised]:
            pod = self._nominated.pop(uid)
            if not self._mirror.known.waits(uid) or uid in self._scheduler.ledger.pods:
                continue  # it has a place: the Binding ends the nomination
            if self._mirror.pods[uid].node or self._teller().is_nominating(uid):
                self._teller().nominate(pod, "")

    # ---- what becomes of pods -----------------------------------------------------------------------------------

    def placed(self, uid: str) -> None:
        """Forget that the pod waits: it has a place."""
        name = self._plan_of.pop(uid, None)
        if name is not None and name in self._plans:
            self._plans[name].waiting.pop(uid, None)
        self._nominated.pop(uid, None)

    def gone(self, uid: str) -> None:
        """Forget a pod that has ended, or that waits no more."""
        self.placed(uid)
        self._spare(uid)

    def _spare(self, uid: str) -> None:
        """Forget that the pod is being stopped."""
        name = self._victim_of.pop(uid, None)
        plan = self._plans.get(name) if name is not None else None
        if name is None or plan is None:
            return
        plan.victims.pop(uid, None)
        if not plan.victims:
            for waiting in plan.waiting:
                self._plan_of.pop(waiting, None)
            del self._plans[name]

    def node_lost(self, node: str) -> list[EvictionRefused]:
        """Events for the victims of plans that need this node: their groups must look for another place."""
        lost = [plan for plan in self._plans.values() if node in plan.waiting.values()]
        uids = [uid for plan in lost for uid in plan.victims]
        for uid in uids:
            self._spare(uid)
        return [EvictionRefused(self._now(), uid, f"node {node} is gone") for uid in uids]

    def condition(self, pod: Pod) -> ScheduledCondition | None:
        """The condition of a pod that waits for others to end; None = it does not."""
        plan = self._plans.get(self._plan_of.get(pod.uid, ""))
        if plan is None or not plan.victims:
            return None
        victims = list(plan.victims.values())
        nodes = dict.fromkeys(one.node for one in victims)
        named = ", ".join(one.pod.key for one in victims[:MOST_NAMED_VICTIMS])
        more = f" and {len(victims) - MOST_NAMED_VICTIMS} more" if len(victims) > MOST_NAMED_VICTIMS else ""
        where = f"node {next(iter(nodes))}" if len(nodes) == 1 else f"{len(nodes)} nodes"
        pods = "1 pod" if len(victims) == 1 else f"{len(victims)} pods"
        return ScheduledCondition(
            PREEMPTING, cut(f"Preempting {pods} on {where}, waiting for the end of {named}{more}.")
        )

    def makes_room_for(self, uid: str) -> bool:
        """Whether pods are being stopped for this pod."""
        plan = self._plans.get(self._plan_of.get(uid, ""))
        return plan is not None and bool(plan.victims)

    def says(self, pod: Pod, nominated: str) -> bool:
        """Whether the pod's condition says which pods it waits for. An earlier leader may have written it."""
        known = self._mirror.pods.get(pod.uid)
        said_before = bool(nominated) and known is not None and known.condition[0] == PREEMPTING
        return said_before or self.condition(pod) is not None

    # ---- what the evictor asks and reports ----------------------------------------------------------------------

    def runs(self, uid: str) -> bool:
        """Whether the pod has a node and is not ending. The answer to its Binding may be ahead of the watch."""
        known, ledger = self._mirror.pods.get(uid), self._scheduler.ledger
        if known is None or known.pod.leaving:
            return False
        return self._mirror.known.holds(uid) or (uid in ledger.pods and not ledger.is_reserved(uid))

    def wanted(self, effect: Evict) -> bool:
        """Whether a pod still waits for the place; evictions by a round are wanted in any case."""
        return not effect.by or any(self._mirror.known.waits(uid) for uid in self._waiting(effect))

    def is_broken(self, gang: str, stopped: Collection[str]) -> bool:
        """Whether the gang, or one of its roles, has too few members without these."""
        terms, places = self._mirror.gangs.terms(gang), self._scheduler.members.places(gang).items()
        if terms.minimum <= 1:
            return False
        left = Counter(place.role for uid, place in places if uid not in stopped)
        return left.total() < terms.minimum or any(left[role.name] < role.minimum for role in terms.roles)

    def _waiting(self, effect: Evict) -> Iterator[str]:
        """UIDs of the pods for which this pod is stopped."""
        if effect.preemptor is not None:
            yield effect.preemptor.uid
        group = self._scheduler.waiting.find(effect.by)
        yield from (pod.uid for pod in group.pods) if group is not None else ()

    async def nominated(self, effect: Evict) -> None:
        """Wait until the nominations of the effect's group are written."""
        await self._teller().nominated(list(self._waiting(effect)))

    def evicted(self, effect: Evict) -> None:
        by = effect.preemptor
        whom = by.key if by is not None else effect.by or "a new round"
        text = f"Preempted by {whom} on node {effect.node}: {effect.reason}"
        if effect.breaks_budget:
            text += "; this breaks a disruption budget, as there was no other way"
        self._teller().note(Note(effect.pod, PREEMPTED, text, action=PREEMPTING, related=by))

    def refused(self, effect: Evict, why: str) -> None:
        self._spare(effect.pod.uid)
        self._happened((EvictionRefused(self._now(), effect.pod.uid, why),))
        if effect.preemptor is not None:
            self._again(effect.preemptor, SPARED_SECONDS + 1.0)

    async def drain(self) -> None:
        """Cancel evictions that were not sent: the next leader decides again."""
        await self.evictor.drain()
