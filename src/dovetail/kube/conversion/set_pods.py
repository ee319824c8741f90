"""Labels and annotations that controllers add to their pods, as far as these say to which gang a pod belongs."""

from __future__ import annotations

import msgspec

from dovetail.kube.conversion.groups import VOLCANO
from dovetail.kube.conversion.memberships import (
    JOB_NAMES,
    JOB_SET_NAME,
    JOB_SET_ROLE,
    LWS_GROUP,
    LWS_NAME,
    LWS_SIZE,
    LWS_WORKER,
    VOLCANO_TASK,
)
from dovetail.kube.files.custom_workloads import PodSet
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import JOB_SET_GROUP


def of_job(meta: objects.Meta, name: str) -> objects.Meta:
    """The metadata of a pod of a Job of Kubernetes."""
    return _with(meta, {JOB_NAMES[0]: name}, {})


def of_set(meta: objects.Meta, item: Found, one: PodSet, number: int, pod_group: str) -> objects.Meta:
    """The metadata of the pod with this number of a set of pods.

    `pod_group`: the name of the PodGroup that Volcano's controller creates; "" = none.
    """
    if pod_group:
        return _with(meta, {}, {VOLCANO: pod_group, VOLCANO_TASK: one.stem})
    if item.group == JOB_SET_GROUP:
        return _with(meta, {JOB_SET_NAME: item.name, JOB_SET_ROLE: one.stem}, {})
    if one.in_group:
        worker = "1" if one.stem else "0"
        labels = {LWS_NAME: item.name, LWS_GROUP: str(number // one.in_group), LWS_WORKER: worker}
        return _with(meta, labels, {LWS_SIZE: str(one.group_size)})
    return meta


def _with(meta: objects.Meta, labels: dict[str, str], annotations: dict[str, str]) -> objects.Meta:
    """The metadata with these; what the template states itself counts."""
    return msgspec.structs.replace(
        meta, labels={**labels, **meta.labels}, annotations={**annotations, **meta.annotations}
    )
