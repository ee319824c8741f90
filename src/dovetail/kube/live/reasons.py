"""Conditions that say why pods wait, in the words of `explain`.

Asking all nodes takes milliseconds; pods with equal requests share the answer. The amount of work in one turn is
bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from dovetail.engine.ledger.remembered import Remembered
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.findings import INTERPRETED_COST, MOST_LOOKS, Findings, find
from dovetail.engine.why.gathering import by_rules, is_tried, waits_singly
from dovetail.engine.why.refused import asks_nodes, only_device_quota, refused_by
from dovetail.kube.live.gang_reasons import GangReasons, gist, own_refusal
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.tell import ScheduledCondition
from dovetail.kube.live.turns import Turns
from dovetail.kube.live.words import UNSCHEDULABLE, condition_reason, cut, why_pending, why_refused
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason

FRESH_SECONDS = 1.0  # seconds for which the answers of the nodes serve other pods with an equal request
STILL_FRESH_SECONDS = 30.0  # the same while many pods have no condition yet
TURN = 1_000  # of `Findings.cost` in one turn of the loop: about 10 ms
TURN_PAUSE = 1.0  # seconds between two turns in which pods are checked again
MAX_KEPT_FINDINGS = 1_000  # findings
MAX_FINDING_BYTES = 16 << 20  # of these, and of the requests that they are about
MANY_UNTOLD = 100  # pods without a condition: above this, fewer nodes are asked in detail
FEW_LOOKS = 8
PLACE_COST = 4  # of placing one pod by a compiled kernel: 40 µs on 5,000 nodes


class Reasons:
    def __init__(
        self, scheduler: Scheduler, now: Callable[[], float], failed: Callable[[Pod, Exception], None] | None = None
    ) -> None:
        """`failed` is called for pods whose reason could not be computed; they continue to wait."""
        self._scheduler, self._now, self._failed = scheduler, now, failed
        self.untold: Turns[tuple[Pod, Decision | ScheduledCondition]] = Turns()  # by uid
        # request -> time, answers of the nodes
        self._found: Remembered[object, tuple[float, Findings]] = Remembered(MAX_KEPT_FINDINGS, MAX_FINDING_BYTES)
        self._again: deque[Group] = deque()  # waiting groups that are to be checked again
        self._left = TURN  # cost left in this turn
        self._next_turn = 0.0  # when pods may be checked again
        self._gangs = GangReasons(scheduler, now)
        self.gangs_said: dict[str, ScheduledCondition] = {}  # by Group.name: why a waiting gang is not placed
        # members of one gang, still to be checked
        self._members: deque[tuple[Group, Pod, ScheduledCondition | None]] = deque()

    def note(self, pod: Pod, decision: Decision) -> None:
        """Queue a condition for a pod that waits. The API server itself reports scheduling gates."""
        if pod.group and self._scheduler.waiting.name_of(pod.uid) == pod.group:
            self._gangs.note(pod.group)
        elif decision.reason is not Reason.SCHEDULING_GATED:
            self.untold.put(pod.namespace, pod.uid, (pod, decision))

    @property
    def pending(self) -> bool:
        """Whether a condition can be reported now."""
        return bool(self.untold or self._members) or self._gangs.is_due()

    def look_at_a_gang(self, mirror: Mirror) -> None:
        """Report for one gang whose members have changed, or that is due again.

        A member is reported if its condition differs. The turn bounds the number of members; the others follow in the
        next turns.
        """
        if not self._members:
            group = self._gangs.next(mirror)
            if group is None:
                return
            self._left -= self._trial_cost(group) if is_tried(group) else 0
            try:
                shared = self._gangs.condition(group, mirror, self._in_a_trial)
            except Exception as error:
                shared = self._unknown(group.pods[0], error)
            self._note_gang(group.name, shared)
            self._members.extend((group, pod, shared) for pod in group.pods)
        while self._members and self._left > 0:
            self._left -= 1
            group, pod, shared = self._members.popleft()
            try:
                self._look_at_member(group, pod, shared, mirror)
            except Exception as error:
                self._unknown(pod, error)

    def _note_gang(self, name: str, said: ScheduledCondition | None) -> None:
        if said is not None:
            self.gangs_said[name] = said
        else:
            self.gangs_said.pop(name, None)

    def _look_at_member(self, group: Group, pod: Pod, shared: ScheduledCondition | None, mirror: Mirror) -> None:
        """Report for one member.

        `shared`: the condition of all members; since it was found, this pod may have left the gang.
        """
        known = mirror.pods.get(pod.uid)
        if known is None or self._scheduler.waiting.name_of(pod.uid) != group.name:
            return
        if pod.refusal is not None and pod.refusal.reason is Reason.SCHEDULING_GATED:
            return
        now = own_refusal(pod) or shared
        if now is None and waits_singly(group):
            with by_rules(self._scheduler, group, pod):
                now = self._condition(pod, self._scheduler.reason(group, pod))
        if now is not None and gist(*now) != gist(*known.condition):
            self.untold.put(pod.namespace, pod.uid, (pod, now))

    def _trial_cost(self, group: Group) -> int:
        """The cost of placing all members, in the unit of `Findings.cost`."""
        compiled = all(map(self._scheduler.is_compiled, {pod.profile for pod in group.pods}))
        return len(group.pods) * PLACE_COST * (1 if compiled else INTERPRETED_COST)

    def held_back(self, pod: Pod, why: str, seconds: float) -> None:
        said = ScheduledCondition("BackedOff", cut(f"{why}; tried again in {seconds:.0f} s"))
        self.untold.put(pod.namespace, pod.uid, (pod, said))

    def not_compiled(self, pod: Pod, why: str) -> None:
        said = ScheduledCondition("PoliciesNotCompiled", cut(f"The pod is not looked at yet: {why}."))
        self.untold.put(pod.namespace, pod.uid, (pod, said))

    def forget(self, uid: str) -> None:
        self.untold.discard(uid)

    def some(self, most: int) -> Iterator[tuple[Pod, ScheduledCondition]]:
        """Conditions to write, namespaces in turn, oldest first.

        At least one; as many as the cost left over by this turn's gang allows.
        """
        for n in range(most):
            uid = self.untold.first() if not n or self._left > 0 else None
            if uid is None:
                break
            pod, word = self.untold.pop(uid)
            try:
                said = word if isinstance(word, ScheduledCondition) else self._condition(pod, word.reason)
            except Exception as error:
                said = self._unknown(pod, error)
            if said is not None:
                yield pod, said
        self._left = TURN  # for the next turn

    def look_again(self, waiting: Iterable[Group]) -> None:
        """Queue waiting pods for a new check; `look_at_some` works through the queue."""
        self._gangs.note_all()
        self.gangs_said = {name: said for name, said in self.gangs_said.items() if name in self._scheduler.waiting}
        if not self._again:
            self._again.extend(group for group in waiting if group.pods[0].group != group.name)

    def look_at_some(self, mirror: Mirror) -> None:
        """Check queued pods, as many as one turn allows; report changed reasons, and conditions never written.

        A change in node counts alone is not written.
        """
        if not self._again or self._now() < self._next_turn:
            return
        self._left, self._next_turn = TURN, self._now() + TURN_PAUSE
        while self._again and self._left > 0:
            group = self._again.popleft()
            for pod in group.pods:
                self._left -= 1
                if self._scheduler.waiting.name_of(pod.uid) == group.name:
                    try:
                        self._compare(group, pod, mirror)
                    except Exception as error:
                        self._unknown(pod, error)

    def _unknown(self, pod: Pod, error: Exception) -> ScheduledCondition:
        """The condition of a pod whose reason could not be computed."""
        if self._failed is None:
            raise error
        self._failed(pod, error)
        return ScheduledCondition(
            UNSCHEDULABLE, "No node takes the pod. Why could not be worked out; see the scheduler's log."
        )

    def _compare(self, group: Group, pod: Pod, mirror: Mirror) -> None:
        known = mirror.pods.get(pod.uid)
        reason = self._scheduler.reason(group, pod)
        if known is None or pod.uid in self.untold or reason is Reason.SCHEDULING_GATED:
            return
        now = self._condition(pod, reason)
        if now is not None and gist(*now) != gist(*known.condition):
            self.untold.put(pod.namespace, pod.uid, (pod, now))

    def _condition(self, pod: Pod, reason: Reason) -> ScheduledCondition | None:
        """The pod's condition; None = some node would take it by now, so that it is about to be tried again."""
        if pod.refusal is not None or not asks_nodes(reason):
            return ScheduledCondition(
                condition_reason(reason), why_refused(pod, reason, refused_by(self._scheduler, pod, reason))
            )
        return self._by_nodes(pod, self._find(pod))

    def _in_a_trial(self, pod: Pod, reason: Reason) -> ScheduledCondition | None:
        """As `_condition`; the answers of the nodes are not kept for other pods."""
        if not asks_nodes(reason):
            return ScheduledCondition(
                condition_reason(reason), why_refused(pod, reason, refused_by(self._scheduler, pod, reason))
            )
        found = find(self._scheduler, pod, FEW_LOOKS)
        self._left -= found.cost
        return self._by_nodes(pod, found)

    def _refused(self, pod: Pod, reason: Reason) -> ScheduledCondition:
        which = refused_by(self._scheduler, pod, reason)
        return ScheduledCondition(condition_reason(reason), why_refused(pod, reason, which))

    def _by_nodes(self, pod: Pod, found: Findings) -> ScheduledCondition | None:
        if found.fits:
            return None
        if quota := only_device_quota(self._scheduler, pod):
            return ScheduledCondition(condition_reason(Reason.QUOTA), cut(f"{quota}."))
        return ScheduledCondition(condition_reason(Reason.NO_NODES), why_pending(found))

    def _find(self, pod: Pod) -> Findings:
        key, now = self._alike(pod), self._now()
        known = self._found.get(key)
        many = len(self.untold) >= MANY_UNTOLD
        if known is not None and now - known[0] < (STILL_FRESH_SECONDS if many else FRESH_SECONDS):
            return known[1]
        found = find(self._scheduler, pod, FEW_LOOKS if many else MOST_LOOKS)
        self._left -= found.cost
        self._drop_outdated(now)
        self._found.remember(key, (now, found), (key, found))
        return found

    def _drop_outdated(self, now: float) -> None:
        """Drop the answers that serve no pod any more. The oldest ones come first."""
        while self._found and now - self._found[oldest := next(iter(self._found))][0] >= STILL_FRESH_SECONDS:
            self._found.forget(oldest)

    def _alike(self, pod: Pod) -> object:
        """A key that is equal for pods to which all nodes give the same answers."""
        scheduler = self._scheduler
        signature = scheduler.requests.signature(pod)
        numbered = scheduler.intern.sweeps  # shapes and masks get other numbers in the next sweep
        key: tuple[object, ...] = (signature.profile, signature.shape, signature.mask, numbered, pod.own_node)
        if scheduler.related.restricts(pod):
            own = pod.uid if scheduler.nominated.promised or pod.relations.ephemeral else ""
            key = (*key, pod.namespace, tuple(sorted(pod.labels.items())), pod.relations, own)
        return (*key, pod.namespace) if scheduler.quotas.apply_to(pod) else key
