"""Pods with GPUs that the webhook did not see: they name kube-scheduler, which knows neither GPU memory nor cards.

They were created while no webhook was configured, or while one with `failurePolicy: Ignore` was down. Also for
`dovetail doctor`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.kube.admission.webhook import DEFAULT_SCHEDULER, MIRROR_POD
from dovetail.kube.conversion.reading import TERMINAL
from dovetail.kube.conversion.settings import says_ignore
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects import core as objects

UNROUTED_ADVICE = (
    "delete the pod, or let its controller create it again, once the webhook answers; a pod that exists keeps its"
    " scheduler (docs/webhook.md)"
)


def unrouted(
    source: objects.Pod, namespace: Mapping[str, str], vendors: Vendors, scheduler_names: Collection[str]
) -> str:
    """What is wrong with the pod; "" = nothing. `namespace`: the labels of its namespace."""
    meta, spec = source.metadata, source.spec
    if spec.scheduler_name not in ("", DEFAULT_SCHEDULER) or DEFAULT_SCHEDULER in scheduler_names:
        return ""
    if source.status.phase in TERMINAL or MIRROR_POD in meta.annotations or says_ignore(meta.labels, namespace):
        return ""
    for container in (*spec.init_containers, *spec.containers):
        for row in vendors.concerned(container.resources.limits):
            if not row.plugin:
                return f"asks for cards of {row.word} and names {DEFAULT_SCHEDULER}: the webhook did not see it"
    return ""
