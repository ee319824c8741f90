"""What becomes of a placement after it was decided: the last check before its write, and its result.

After any result but `BOUND`, the pod's reservation is released or corrected. A pod that still waits is placed again, at
once or after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.engine.recheck import is_untouched, objection
from dovetail.kube.live.binder import Fate, Outcome
from dovetail.kube.live.refusals import MOST_OUTDATED, Refusals
from dovetail.kube.live.tell import Note, ScheduledCondition
from dovetail.kube.live.words import cut
from dovetail.kube.log import DEBUG, WARNING
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind, GroupArrived, PodBound, PodsGone
from dovetail.model.pod import Pod

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver


class BindOutcomes:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.refusals: dict[str, Refusals] = {}  # by pod uid
        self.withdrawn: dict[str, str] = {}  # pod uid -> why its placement must not be written any more
        self.finished: Callable[[Outcome], None] = lambda outcome: None  # told every outcome, after it was handled

    def take(self, outcome: Outcome) -> None:
        """Handle the result of a placement; called by the binder."""
        self._take(outcome)
        self.finished(outcome)

    def _take(self, outcome: Outcome) -> None:
        bind, pod, at = outcome.bind, outcome.bind.pod, self._driver.now()
        if outcome.fate is Fate.BOUND:
            self._driver.counts.bound += 1
            self._driver.latencies.bound(pod.uid)
            self.refusals.pop(pod.uid, None)
            self._driver.happened((PodBound(at, pod.uid),))
            self._driver.reports.bound(bind)
        elif outcome.fate is Fate.GONE:
            self.refusals.pop(pod.uid, None)
            self.give_up(pod)
        elif outcome.fate is Fate.OUTDATED:
            self._place_again(outcome)
        elif outcome.fate is Fate.CHANGED and outcome.pod is not None:
            self._changed(outcome, outcome.pod)
        else:
            self._driver.counts.refused += 1
            self.give_up(pod)
            self._try_later(pod, outcome)
        if not self._driver.mirror.known.waits(pod.uid):
            self._driver.latencies.gone(pod.uid)

    def objection(self, bind: Bind, waited: bool) -> str:
        """Why the placement would not be made now; "" = it would. The binder calls it just before it writes.

        The check is skipped where the node is still the object that was decided on and nothing unforeseen came to it.
        The ledger may have a later version of the node by now, with other cards. Where the bind waited, all facts that
        are known are booked first, and pods with rules about other pods are checked in any case.
        """
        if bind.pod.uid in self.withdrawn:
            return self.withdrawn[bind.pod.uid]
        name, ledger = str(bind.decision.node), self._driver.scheduler.ledger
        if waited and not self._driver.paused:
            self._driver.take_in()
        row, known = ledger.row_of.get(name), self._driver.mirror.nodes.get(name)
        if known is None:
            return f"node {name} is gone"
        if row is not None and known is ledger.nodes[row]:
            if waited and is_untouched(self._driver.scheduler.placer, bind.pod, bind.decision):
                return ""
            if not waited and not ledger.places.changed_since(row, bind.decision.generation):
                return ""
        if not self._driver.paused:
            self._driver.take_in()
        return objection(self._driver.scheduler, bind.pod, bind.decision)

    def give_up(self, pod: Pod) -> None:
        """Free the pod's reservation, unless the rest of its gang needs it; the pod's next report counts as new.

        Exception: the watch has shown that the pod has a node. Then it holds its cards in fact, not as a reservation.
        """
        if not self._driver.mirror.known.holds(pod.uid):
            self._driver.mirror.known.forget(pod.uid)
            gone = self._driver.rooms.refused(pod) if self._driver.mirror.known.waits(pod.uid) else [pod.uid]
            self._driver.happened((PodsGone(self._driver.now(), tuple(gone)),) if gone else ())

    def _changed(self, outcome: Outcome, source: objects.Pod) -> None:
        """Handle a pod that changed, or that has a node already: perhaps by our own write, if its answer was lost."""
        bind = outcome.bind
        if source.spec.node_name:  # its actual cards replace our reservation
            if outcome.came_true:
                self._driver.counts.bound += 1
                self._driver.latencies.bound(bind.pod.uid)
                self.refusals.pop(bind.pod.uid, None)
                self._driver.reports.bound(bind)
        else:
            self._driver.counts.conflicts += 1
            self.give_up(bind.pod)
        self._driver.hear_pod(source)
        self.again(bind.pod)  # the watch may have shown more than this answer already, and will not repeat it

    def _place_again(self, outcome: Outcome) -> None:
        """Place the pod again at once; after several attempts in a row, pause as after a refusal."""
        pod = outcome.bind.pod
        self._driver.counts.conflicts += 1
        refusals = self.refusals.setdefault(pod.uid, Refusals())
        self.give_up(pod)
        if refusals.outdated >= MOST_OUTDATED:
            self._try_later(pod, outcome)
            return
        refusals.outdated += 1
        self._driver.log(f"{pod.key}: not bound, placed again: {outcome.message}", DEBUG, pod=pod.key, uid=pod.uid)
        self.again(pod)

    def _try_later(self, pod: Pod, outcome: Outcome) -> None:
        refusals = self.refusals.setdefault(pod.uid, Refusals())
        refusals.count += 1
        where, pause = outcome.bind.decision.node, refusals.pause
        text = f"{pod.key}: not bound to {where}, next try in {pause:.0f} s: {outcome.message}"
        self._driver.log(text, WARNING, pod=pod.key, uid=pod.uid, node=str(where), seconds=pause)
        self._driver.mirror.known.rest(pod.uid)
        self._tell_refused(pod, outcome, refusals)
        asyncio.get_running_loop().call_later(pause, self.again, pod)

    def _tell_refused(self, pod: Pod, outcome: Outcome, refusals: Refusals) -> None:
        """Report the refusal in the pod's condition, with a reason of our own: another node would not help.

        The Event is sent once for each distinct refusal, not for each retry.
        """
        if not self._driver.mirror.known.waits(pod.uid):
            return
        kind = "VolumesNotBound" if outcome.fate is Fate.VOLUMES else "BindingRefused"
        condition = ScheduledCondition(kind, cut(outcome.message))
        if self._driver.mirror.pods[pod.uid].condition != condition:
            self._driver.teller.waits(pod, condition)
        if refusals.told != condition:
            refusals.told = condition
            self._driver.teller.note(Note(pod, kind, outcome.message, warning=True, action="Binding"))

    def again(self, pod: Pod) -> None:
        """Offer the pod again if it still waits and was not reported since."""
        if pod.uid not in self._driver.mirror.pods:
            self.refusals.pop(pod.uid, None)
        group = self._driver.mirror.recall(pod)
        if group is not None:
            self._driver.happened((GroupArrived(self._driver.now(), group),))
