"""The quota, queue or claim because of which no node can take a pod: for plans, explanations and conditions."""

from __future__ import annotations

from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Pod
from dovetail.model.reason import POD_LEVEL_REASONS, Reason, sentence


def only_device_quota(scheduler: Scheduler, pod: Pod) -> str:
    """The quota's limits and their use, if a node would take the pod without the quota; else "".

    Then another node would not help: the reason is the quota, not the reasons of nodes.
    """
    if not (pod.wants_devices and scheduler.quotas.apply_to(pod)):
        return ""
    if Reason.OK not in scheduler.related.reasons(pod, under_quota=False):
        return ""
    return f"{sentence(Reason.QUOTA)}: {scheduler.quotas.device_limits(pod)}"


def exceeded(scheduler: Scheduler, pod: Pod) -> str:
    """The quota that the pod would exceed now, and by how much; "" = none."""
    return scheduler.quotas.refusal(pod) or ""


def refused_by(scheduler: Scheduler, pod: Pod, reason: Reason) -> str:
    """The quota, queue or claim because of which no node can take the pod; "" = there is none."""
    if reason == Reason.QUOTA:
        return exceeded(scheduler, pod)
    if reason in (Reason.QUEUE_CEILING, Reason.QUEUE_BORROWING):
        refused = scheduler.placer.queues.refusal(pod)
        return refused.message if refused is not None else ""
    return scheduler.related.volumes.why_refused(pod, reason)


def asks_nodes(reason: Reason) -> bool:
    """Whether the nodes' verdicts explain this reason: nothing else keeps the pod from them."""
    return reason not in POD_LEVEL_REASONS or reason == Reason.NO_NODES
