"""Each queue order through the engine: which of the waiting groups gets the GPU that becomes free."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.engine.disciplines import BACKFILL, STRICT
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, Event, GroupArrived, NodeChanged, PodBound, PodGone, QueueChanged
from dovetail.model.pod import Group, Qos
from dovetail.model.rights import Queue
from dovetail.policies.orders import ORDERS
from tests.builders import ask, node, pod


def job(name: str, at: float, length: float | None = None, gpus: int = 1, **facts: Any) -> GroupArrived:
    one = pod(name, ask(gpus, cores=100), created=at, **facts)
    return GroupArrived(at, Group(one.key, (one,), length=length))


def cluster(order: str, queue: str = BACKFILL, gpus: int = 1) -> Scheduler:
    scheduler = Scheduler(rights=Rights(queue, ORDERS[order]))
    scheduler.handle(NodeChanged(0.0, node("n", gpus=gpus)))
    return scheduler


def bound(scheduler: Scheduler, *events: Event) -> list[str]:
    names = []
    for event in events:
        for effect in scheduler.handle(event):
            if isinstance(effect, Bind):
                names.append(effect.pod.name)
                scheduler.handle(PodBound(event.at, effect.pod.uid))
    return names


WAITING = {
    # all wait while `runs` has the GPU; the first of each list is next
    "priority": ([job("old", 1.0), job("high", 2.0, priority=5)], "high"),
    "qos": ([job("old", 1.0), job("sure", 2.0, qos=Qos.GUARANTEED)], "sure"),
    "shortest-first": ([job("unknown", 1.0), job("long", 2.0, 90.0), job("short", 3.0, 9.0)], "short"),
}


@pytest.mark.parametrize("queue", [BACKFILL, STRICT])
@pytest.mark.parametrize("order", WAITING)
def test_the_first_of_the_order_is_next(order: str, queue: str) -> None:
    scheduler = cluster(order, queue)
    jobs, first = WAITING[order]
    assert bound(scheduler, job("runs", 0.0), *jobs) == ["runs"]
    assert bound(scheduler, PodGone(9.0, "uid-runs")) == [first]


@pytest.mark.parametrize("queue", [BACKFILL, STRICT])
def test_least_attained_service(queue: str) -> None:
    """`back` had the GPU for 10 s and was stopped; `new` is younger and had none."""
    scheduler = cluster("least-attained-service", queue)
    assert bound(scheduler, job("back", 0.0)) == ["back"]
    scheduler.claims.service.stop(job("back", 0.0).group.pods[0])
    assert bound(scheduler, PodGone(10.0, "uid-back"), job("runs", 10.0)) == ["runs"]
    assert bound(scheduler, job("back", 0.0), job("new", 12.0)) == []
    assert bound(scheduler, PodGone(20.0, "uid-runs")) == ["new"]


@pytest.mark.parametrize("queue", [BACKFILL, STRICT])
def test_a_group_that_does_not_fit_does_not_stay_in_front(queue: str) -> None:
    """`big` needs 2 GPUs, is the oldest, and fails at 1 and again at 9. `small` (created at 2) gets the GPU at 9."""
    scheduler = cluster("coscheduling", queue)
    assert bound(scheduler, job("runs", 0.0), job("big", 1.0, gpus=2), job("small", 2.0)) == ["runs"]
    assert bound(scheduler, PodGone(9.0, "uid-runs")) == ["small"]
    assert [one.name for one in scheduler.waiting] == ["default/big"]


def test_the_queue_with_the_smallest_share_is_next() -> None:
    """3 GPUs: a holds 2, b 1. When a pod of b ends, a has 2/3 and b nothing: b is next, though its job is younger."""
    scheduler = cluster("dominant-share", gpus=3)
    for name in "ab":
        queue = Queue(name, "drf", namespaces=(name,), ceiling={"gpus": 9_000})
        scheduler.handle(QueueChanged(0.0, name, queue))
    running = [job("a0", 0.0, namespace="a"), job("a1", 0.0, namespace="a"), job("b0", 0.0, namespace="b")]
    assert bound(scheduler, *running) == ["a0", "a1", "b0"]
    waiting = [job("a2", 1.0, namespace="a"), job("b1", 2.0, namespace="b"), job("b2", 3.0, namespace="b")]
    assert bound(scheduler, *waiting) == []
    assert bound(scheduler, PodGone(9.0, "uid-b0")) == ["b1"]  # a: 2/3, b: 0
    assert bound(scheduler, PodGone(10.0, "uid-b1")) == ["b2"]
    assert bound(scheduler, PodGone(11.0, "uid-b2")) == ["a2"]
