"""Which quota or claim is why no node can take a pod: for plans, explanations and conditions of live pods."""

from __future__ import annotations

from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Pod
from dovetail.model.reason import POD_LEVEL, Reason, sentence


def only_device_quota(scheduler: Scheduler, pod: Pod) -> str:
    """What the quota allows and what is in use, of a pod that no node takes; "" = without the quota none would either.

    Another node would not help such a pod: its reason is the quota, and not what each node says of it.
    """
    if not (pod.wants_devices and scheduler.quotas.apply_to(pod)):
        return ""
    if Reason.OK not in scheduler.related.reasons(pod, under_quota=False):
        return ""
    return f"{sentence(Reason.QUOTA)}: {scheduler.quotas.device_limits(pod)}"


def exceeded(scheduler: Scheduler, pod: Pod) -> str:
    """Which quota the pod would exceed now, and by how much; "" = none."""
    return scheduler.quotas.refusal(pod) or ""


def refused_by(scheduler: Scheduler, pod: Pod, reason: Reason) -> str:
    """Which quota or claim is why no node can take the pod; "" = neither is."""
    if reason == Reason.QUOTA:
        return exceeded(scheduler, pod)
    return scheduler.related.volumes.why_refused(pod, reason)


def asks_nodes(reason: Reason) -> bool:
    """Whether the nodes are to be asked what such a pod lacks: nothing else keeps it from them."""
    return reason not in POD_LEVEL or reason == Reason.NO_NODES
