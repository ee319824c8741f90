"""A toy queue order, least attained service first: a value that is given to the scheduler."""

from __future__ import annotations

import pytest

from dovetail.engine.disciplines import BACKFILL, STRICT
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodBound, PodGone
from dovetail.model.pod import Group
from dovetail.policies.orders import Order
from tests.builders import ask, node, pod

HELD: dict[str, int] = {}  # tenant -> its number
LEAST_SERVICE = Order("service", "Least GPU time first.", lambda group, facts: (facts.service,), reads_service=True)
BY_TENANT = Order("tenant", "A number by tenant.", lambda group, facts: (HELD[facts.tenant],), changes=True)


def job(name: str, created: float = 0.0, namespace: str = "default") -> Group:
    one = pod(name, ask(1, cores=100), created=created, namespace=namespace)
    return Group(one.key, (one,))


@pytest.mark.parametrize("queue", [BACKFILL, STRICT])
def test_the_job_that_had_least_gpu_time_is_next(queue: str) -> None:
    """x runs for 10 s and comes back; y never ran, and is younger: when the GPU is free at 30, y is next."""
    scheduler = Scheduler(rights=Rights(queue, LEAST_SERVICE))
    scheduler.handle(NodeChanged(0.0, node("n", gpus=1)))

    def bound(event: GroupArrived | PodGone) -> list[str]:
        effects = [effect for effect in scheduler.handle(event) if isinstance(effect, Bind)]
        for effect in effects:
            scheduler.handle(PodBound(event.at, effect.pod.uid))
        return [effect.pod.name for effect in effects]

    assert bound(GroupArrived(0.0, job("x"))) == ["x"]
    scheduler.claims.service.stop(job("x").pods[0])  # as a policy that stops jobs would: its account is kept
    assert bound(PodGone(10.0, "uid-x")) == []
    assert bound(GroupArrived(20.0, job("z", created=20.0))) == ["z"]
    assert bound(GroupArrived(21.0, job("x"))) == []  # 10 GPU-seconds
    assert bound(GroupArrived(22.0, job("y", created=22.0))) == []  # 0 GPU-seconds
    assert bound(PodGone(30.0, "uid-z")) == ["y"]
    assert bound(PodGone(40.0, "uid-y")) == ["x"]


def test_keys_may_change_while_jobs_wait() -> None:
    HELD.update(a=0, b=1)
    scheduler = Scheduler(rights=Rights(order=BY_TENANT))
    scheduler.handle(NodeChanged(0.0, node("n", gpus=1)))
    for name, namespace in (("runs", "c"), ("first", "a"), ("second", "b")):
        HELD.setdefault(namespace, 9)
        scheduler.handle(GroupArrived(1.0, job(name, namespace=namespace)))
    HELD.update(a=5)  # a holds more than b by now
    effects = scheduler.handle(PodGone(2.0, "uid-runs"))
    assert [effect.pod.name for effect in effects if isinstance(effect, Bind)] == ["second"]
