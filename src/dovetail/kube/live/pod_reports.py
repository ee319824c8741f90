"""What people are told of pods: conditions, events and lines of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.kube.live.gang_reasons import same_but_numbers
from dovetail.kube.live.remarks import once_a_pod
from dovetail.kube.live.tell import Note, ScheduledCondition
from dovetail.kube.live.words import cut, where_to
from dovetail.kube.log import DEBUG, WARNING
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from dovetail.model.node import Node

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver


class PodReports:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def problems(self) -> None:
        problems, self._driver.mirror.problems = self._driver.mirror.problems, []
        for problem in problems:
            if problem.severity != "note":
                self._driver.log(str(problem), WARNING, object=problem.where, field=problem.field)
        remarks, self._driver.mirror.remarks = self._driver.mirror.remarks, []
        for pod, about in remarks:
            try:
                self._driver.remarks.about(pod, about, self._driver.teller.note)
            except Exception as error:
                self._driver.set_aside.pod(pod, error, what="Remarks about pod")
        reports, self._driver.mirror.reports = self._driver.mirror.reports, []
        for pod, reason, text in reports:
            self._driver.teller.note(once_a_pod(pod, reason, text))

    def waiting(self, most: int) -> None:
        """Report why pods wait, unless the pod's condition says so already."""
        mirror = self._driver.mirror
        for pod, found in self._driver.reasons.some(most):
            preempting = self._driver.preemptions.condition(pod)  # its event was sent when that began
            condition = preempting or found
            before = mirror.pods[pod.uid].condition if mirror.known.waits(pod.uid) else condition
            if before != condition:
                self._driver.teller.waits(pod, condition)
                if preempting is None and not same_but_numbers(before, condition):
                    self._driver.teller.note(Note(pod, "FailedScheduling", condition.message, warning=True))

    def bound(self, bind: Bind) -> None:
        name = str(bind.decision.node)
        text = where_to(bind.pod, self._driver.mirror.nodes.get(name) or Node(name), bind.decision.shares)
        cards = ",".join(share.uuid for share in bind.decision.shares)
        self._driver.log(text, DEBUG, pod=bind.pod.key, uid=bind.pod.uid, node=name, cards=cards)
        self._driver.teller.note(Note(bind.pod, "Scheduled", text, action="Binding"))

    def waits_for_lock(self, bind: Bind, text: str) -> None:
        """Report in the pod's condition that its bind waits for another program's lock, with a reason of our own."""
        condition = ScheduledCondition("NodeLocked", cut(text))
        mirror, uid = self._driver.mirror, bind.pod.uid
        if mirror.known.waits(uid) and mirror.pods[uid].condition != condition:
            self._driver.teller.waits(bind.pod, condition)
            self._driver.teller.note(Note(bind.pod, "NodeLocked", text, warning=True, action="Binding"))

    def refused_by_kubelet(self, source: objects.Pod) -> None:
        pod = self._driver.mirror.read(source)
        text = f"kubelet on {source.spec.node_name}: {source.status.reason}: {source.status.message}"
        pause = self._driver.patience.refused(pod.owner or pod.key, self._driver.now(), text)
        said = f"{pod.key}: refused by {text}; the next pod of {pod.owner or pod.key} waits {pause:.0f} s"
        self._driver.log(said, WARNING, pod=pod.key, uid=pod.uid, node=source.spec.node_name, seconds=pause)
        self._driver.teller.note(Note(pod, "RefusedByKubelet", text, warning=True))
