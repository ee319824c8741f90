"""Why pods wait, as conditions. Counting what every node says costs a millisecond, which pods that ask alike share."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.tell import Condition
from dovetail.kube.live.words import condition_reason, cut, why_pending
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import POD_LEVEL, Reason, sentence

FRESH = 1.0  # seconds for which a count serves others who ask alike
_NUMBERS = re.compile(r"\d+")


class Reasons:
    def __init__(self, scheduler: Scheduler, now: Callable[[], float]) -> None:
        self._scheduler, self._now = scheduler, now
        self.untold: OrderedDict[str, tuple[Pod, Decision | Condition]] = OrderedDict()  # by uid
        self._counts: dict[object, tuple[float, dict[Reason, int]]] = {}  # request -> when, what nodes say

    def note(self, pod: Pod, decision: Decision) -> None:
        """The pod waits. Of gates the API server speaks itself."""
        if decision.reason is not Reason.SCHEDULING_GATED:
            self.untold[pod.uid] = (pod, decision)

    def held_back(self, pod: Pod, why: str, seconds: float) -> None:
        self.untold[pod.uid] = (pod, Condition("BackedOff", cut(f"{why}; tried again in {seconds:.0f} s")))

    def forget(self, uid: str) -> None:
        self.untold.pop(uid, None)

    def some(self, most: int) -> Iterator[tuple[Pod, Condition]]:
        """What is to be said, oldest first."""
        for _ in range(min(most, len(self.untold))):
            _, (pod, word) = self.untold.popitem(last=False)
            said = word if isinstance(word, Condition) else self._condition(pod, word.reason)
            if said is not None:
                yield pod, said

    def look_again(self, waiting: Iterable[Group], mirror: Mirror) -> None:
        """Pods that wait for other reasons than they say, or say nothing because it could not be written.

        That other numbers of nodes say the same is no news.
        """
        for group in list(waiting):
            for pod in group.pods:
                known = mirror.pods.get(pod.uid)
                reason = self._scheduler.reason(group, pod)
                if known is None or pod.uid in self.untold or reason is Reason.SCHEDULING_GATED:
                    continue
                now = self._condition(pod, reason)
                if now is None and group.minimum > 1:
                    now = self._condition(pod, Reason.GROUP_NOT_PLACED)
                if now is not None and _without_numbers(*now) != _without_numbers(*known.condition):
                    self.untold[pod.uid] = (pod, now)

    def _condition(self, pod: Pod, reason: Reason) -> Condition | None:
        """None: some node would take it by now, so that it is about to be tried again."""
        if pod.refusal is not None or (reason in POD_LEVEL and reason is not Reason.NO_NODES):
            return Condition(condition_reason(reason), why_pending(pod, reason, {}))
        counts = self._count(pod)
        if Reason.OK in counts:
            return None
        if self._only_the_quota_says_no(pod):
            quota = self._scheduler.quotas.device_limits(pod)
            return Condition(condition_reason(Reason.QUOTA), cut(f"{sentence(Reason.QUOTA)}: {quota}."))
        return Condition(condition_reason(reason), why_pending(pod, reason, counts))

    def _only_the_quota_says_no(self, pod: Pod) -> bool:
        if not (pod.wants_devices and self._scheduler.quotas.apply_to(pod)):
            return False
        return Reason.OK in self._scheduler.related.reasons(pod, under_quota=False)

    def _count(self, pod: Pod) -> dict[Reason, int]:
        signature = self._scheduler.requests.signature(pod)
        related = self._scheduler.related.restricts(pod)
        alone = related or self._scheduler.quotas.apply_to(pod)
        key = (signature.profile, signature.shape, signature.mask, pod.uid if alone else "")
        now = self._now()
        known = self._counts.get(key)
        if known is not None and now - known[0] < FRESH:
            return known[1]
        if len(self._counts) > 1_000:
            self._counts.clear()
        counts = self._scheduler.related.reasons(pod)
        self._counts[key] = (now, counts)
        return counts


def _without_numbers(reason: str, message: str) -> tuple[str, str]:
    return reason, _NUMBERS.sub("", message)
