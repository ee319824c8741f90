"""All queues together: each has a parent that exists, no queue is above itself, and a namespace has one queue.

Files and the live scheduler call this with all queues that they know, so that the engine gets a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.kube.objects.bounds import QUEUE_COUNT, QUEUE_DEPTH
from dovetail.kube.objects.problems import printable
from dovetail.model.rights import Queue


class TreeProblem(NamedTuple):
    """What is wrong with a queue's place among the others."""

    queue: str  # Queue.name
    field: str
    message: str


PARENT_FIELDS = {
    "koordinator": "metadata.labels.quota.scheduling.koordinator.sh/parent",
    "volcano": "spec.parent",
    "kai": "spec.parentQueue",
}


def as_tree(given: Iterable[Queue]) -> tuple[dict[str, Queue], list[TreeProblem]]:
    """The queues by name, and what was wrong. The oldest queue of a namespace keeps it; equal ages go by name."""
    found: list[TreeProblem] = []
    ordered = sorted(given, key=lambda queue: (queue.created, queue.name))
    for queue in ordered[QUEUE_COUNT.most :]:
        found.append(TreeProblem(queue.name, "", f"{QUEUE_COUNT.exceeded(len(ordered))}; this one is left out"))
    queues = {queue.name: queue for queue in ordered[: QUEUE_COUNT.most]}
    owner: dict[str, str] = {}  # namespace -> the queue of its pods
    result = {}
    for name, queue in queues.items():
        if message := _wrong_parent(queue, queues):
            found.append(TreeProblem(name, PARENT_FIELDS.get(queue.arithmetic, "parent"), message))
            queue = replace(queue, parent="")
        for namespace in queue.namespaces:
            if (other := owner.setdefault(namespace, name)) != name:
                message = f"namespace {printable(namespace)} already has the queue {printable(other)}; delete one"
                found.append(TreeProblem(name, "metadata.namespace", message))
        kept = tuple(namespace for namespace in queue.namespaces if owner[namespace] == name)
        result[name] = queue if kept == queue.namespaces else replace(queue, namespaces=kept)
    return result, found


def _wrong_parent(queue: Queue, queues: Mapping[str, Queue]) -> str:
    """What is wrong with the line from a queue to the root; "" = nothing."""
    at, steps = queue, 0
    while at.parent:
        above = queues.get(at.parent)
        steps += 1
        if above is None:
            said = f"the parent {printable(at.parent)} of {printable(at.name)} does not exist"
            return "" if at is not queue else f"{said}; the queue counts as a child of the root"
        if above.name == queue.name:
            return "the queue is above itself; name another parent. It counts as a child of the root"
        if steps > QUEUE_DEPTH.most:
            return f"{QUEUE_DEPTH.exceeded(steps)}; the queue counts as a child of the root"
        at = above
    return ""
