"""Which queue a pod names, by the labels and annotations of the projects that users come from.

The model's names of queues: `ElasticQuota/NAMESPACE/NAME` for scheduler-plugins, `koordinator/NAME`, `volcano/NAME`,
`kai/NAME`. A queue of Dovetail's own configuration has its plain name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import QUEUE_NAME
from dovetail.model.visible import visible_lines

OWN_QUEUE = "dovetail.dev/queue"
DEFAULT_VOLCANO_QUEUE = "default"  # of a PodGroup that names none


def elastic_quota(namespace: str, name: str) -> str:
    return f"ElasticQuota/{namespace}/{name}"


def koordinator(name: str) -> str:
    return f"koordinator/{name}"


def volcano(name: str) -> str:
    return f"volcano/{name}"


def kai(name: str) -> str:
    return f"kai/{name}"


def own(name: str) -> str:
    return name


class QueueKey(NamedTuple):
    """A label or annotation in which a pod names its queue."""

    place: str  # labels or annotations
    key: str
    queue: Callable[[str], str]  # what stands there -> Queue.name


QUEUE_KEYS = (  # the first that a pod has counts
    QueueKey("labels", OWN_QUEUE, own),
    QueueKey("annotations", OWN_QUEUE, own),
    QueueKey("labels", "kai.scheduler/queue", kai),
    QueueKey("labels", "quota.scheduling.koordinator.sh/name", koordinator),
    QueueKey("annotations", "scheduling.volcano.sh/queue-name", volcano),
    QueueKey("annotations", "volcano.sh/queue-name", volcano),  # Volcano's Job controller writes it
    QueueKey("labels", "volcano.sh/queue-name", volcano),  # KubeRay writes it
)
_LABELS, _ANNOTATIONS = (
    frozenset(one.key for one in QUEUE_KEYS if one.place == place) for place in ("labels", "annotations")
)


def named_queue(meta: objects.Meta) -> str:
    """The name of the queue that a pod names; "" = it names none."""
    if _LABELS.isdisjoint(meta.labels) and _ANNOTATIONS.isdisjoint(meta.annotations):  # most pods name none
        return ""
    for place, key, queue in QUEUE_KEYS:
        said = (meta.labels if place == "labels" else meta.annotations).get(key)
        if said:
            return queue(visible_lines(said)[: QUEUE_NAME.most + 1])  # a name that was cut matches no queue
    return ""
