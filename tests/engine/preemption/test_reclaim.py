"""Borrowed GPUs come back: queues, quotas per GPU model and preemption together."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.model.events import PodGone, QueueChanged
from dovetail.model.pod import DeviceRules, Pod
from dovetail.model.rights import Queue
from dovetail.model.rules import NodeRules
from tests.builders import ask, card, node, pod
from tests.engine.preemption.world import Cluster
from tests.properties import with_examples

GPU = 1000  # milli


def with_queues(cluster: Cluster, *queues: Queue) -> Cluster:
    for queue in queues:
        cluster.happens(QueueChanged(0.0, queue.name, queue))
    return cluster


def quota(name: str, guarantee: dict[str, int], ceiling: dict[str, int] | None = None, by: str = "capacity") -> Queue:
    return Queue(name, by, namespaces=(name,), guarantee=guarantee, ceiling=ceiling or {})


def job(name: str, tenant: str, gpus: int = 1, priority: int = 0, **facts: object) -> Pod:
    return pod(name, ask(gpus, cores=100), namespace=tenant, priority=priority, **facts)  # type: ignore[arg-type]


def test_capacity_scheduling_demo_two() -> None:
    """10 GPUs, A owed 4 of at most 6, B owed 6 of at most 8. A has 6 and B 3; B asks for 3 more: A gives 2 back.

    Then A has 4 and B 6: both have what they are owed, and nothing more from B is admitted.
    """
    cluster = with_queues(
        Cluster(node("n", gpus=10)),
        quota("a", {"gpus": 4 * GPU}, {"gpus": 6 * GPU}),
        quota("b", {"gpus": 6 * GPU}, {"gpus": 8 * GPU}),
    )
    for number in range(3):
        cluster.arrive(job(f"a{number}", "a", gpus=2))
    cluster.arrive(job("b0", "b", gpus=3))
    cluster.arrive(job("b1", "b", gpus=3))
    assert cluster.stopped == ["a2"]  # 1 GPU is free, 2 come back
    cluster.end("a2")
    assert cluster.node_of("b1") == "n"
    cluster.arrive(job("b2", "b"))
    cluster.arrive(job("a3", "a", gpus=2))
    assert cluster.stopped == ["a2"]
    assert not {"b2", "a3"} & cluster.bound.keys()


def test_a_higher_priority_does_not_take_what_another_queue_is_owed() -> None:
    """Capacity scheduling's third demo: q2's urgent pod cannot evict the borrowing pod of q1: q2 is owed nothing."""
    cluster = with_queues(
        Cluster(node("n", gpus=1)),
        *(quota(f"q{n}", {"gpus": least * GPU}, {"gpus": 2 * GPU}) for n, least in ((1, 0), (2, 0), (3, 1))),
    )
    cluster.arrive(job("borrows", "q1"))
    cluster.arrive(job("urgent", "q2", priority=100))
    assert cluster.stopped == []
    cluster.arrive(job("owed", "q3"))
    assert cluster.stopped == ["borrows"]


def test_a_place_that_was_promised_does_not_exceed_a_ceiling() -> None:
    """B may have one GPU. While a pod ends for b0, another card gets free and b1 takes it: then b0 waits."""
    cluster = with_queues(
        Cluster(node("n", gpus=2)), quota("a", {"gpus": GPU}), quota("b", {"gpus": GPU}, {"gpus": GPU})
    )
    for name in ("a0", "a1"):
        cluster.arrive(job(name, "a"))
    cluster.arrive(job("b0", "b"))
    assert cluster.stopped == ["a1"]
    cluster.arrive(job("b1", "b", priority=5))
    cluster.end("a0")
    assert "b1" in cluster.bound
    cluster.end("a1")
    assert len({"b0", "b1"} & cluster.bound.keys()) == 1


def mixed_nodes() -> list[object]:
    a100 = [card(f"a100-{n}", index=n, model="NVIDIA A100") for n in range(8)]
    t4 = [card(f"t4-{n}", index=n, model="NVIDIA T4") for n in range(8)]
    return [node("big", *a100), node("small", *t4)]


def test_a_quota_per_model_is_reclaimed_from_that_model_only() -> None:
    """A is owed 4 of 8 A100 and no T4, B the rest. A borrows all eight A100 and four T4; B takes back A100 only."""
    cluster = with_queues(
        Cluster(*mixed_nodes()),  # type: ignore[arg-type]
        quota("a", {"gpus/NVIDIA A100": 4 * GPU}),
        quota("b", {"gpus/NVIDIA A100": 4 * GPU, "gpus/NVIDIA T4": 8 * GPU}),
    )
    for number in range(12):
        cluster.arrive(job(f"a{number}", "a"))
    on_a100 = {name for name, (where, _) in cluster.bound.items() if where == "big"}
    assert len(cluster.bound) == 12
    assert len(on_a100) == 8
    only = DeviceRules("NVIDIA", use_types=("A100",))
    for number in range(5):
        cluster.arrive(job(f"b{number}", "b", rules=only))
    assert len(cluster.stopped) == 4  # the fifth is not owed
    assert set(cluster.stopped) <= on_a100
    cluster.end()
    assert {f"b{n}" for n in range(4)} <= cluster.bound.keys()


@example(1008, "capacity")  # a pod used up what another had just ended for
@with_examples(200)
@given(st.integers(0, 10**9), st.sampled_from(("capacity", "koordinator", "kai", "drf", "kueue", "volcano")))
def test_queues_come_to_rest_and_no_guarantee_is_broken(seed: int, by: str) -> None:
    """Random tenants fill a cluster; stopped pods come back. No eviction takes a queue below its guarantee."""
    chance = Random(seed)
    cluster = Cluster(*(node(f"n{n}", gpus=4) for n in range(chance.randint(1, 3))))
    tenants = [f"t{n}" for n in range(chance.randint(2, 4))]
    left = sum(len(one.devices) for one in cluster.scheduler.ledger.nodes)
    for tenant in tenants:
        least = chance.randint(0, left)
        left -= least
        with_queues(cluster, quota(tenant, {"gpus": least * GPU}, by=by))
    pods = [
        job(f"{tenant}-{n}", tenant, chance.choice((1, 1, 2)), chance.randrange(3))
        for n in range(14)
        for tenant in [chance.choice(tenants)]
    ]
    for one in pods:
        arrived(cluster, one)
    for number in range(60):
        ending = [name for name in cluster.stopped if name in cluster.bound]
        if not ending:
            break
        cluster.end(*ending)
        for name in ending:
            gone = next(effect.pod for effect in cluster.evictions if effect.pod.name == name)
            arrived(cluster, replace(gone, name=f"{name}.{number}", uid=f"uid-{name}.{number}"))
    assert not [name for name in cluster.stopped if name in cluster.bound], "evictions do not end"
    rest, stopped = dict(cluster.bound), len(cluster.stopped)
    for _ in range(5):
        cluster.now += 10
        cluster.scheduler.retry_all(cluster.now)
    assert (cluster.bound, len(cluster.stopped)) == (rest, stopped)


def arrived(cluster: Cluster, one: Pod) -> None:
    """The pod arrives. Pods that are stopped for it leave their queues with at least what they are guaranteed."""
    queues, before = cluster.scheduler.claims.queues, len(cluster.evictions)
    cluster.arrive(one)
    taken: dict[str, int] = {}
    for effect in cluster.evictions[before:]:
        if effect.preemptor is not None and effect.pod.namespace != effect.preemptor.namespace:
            asked = effect.pod.containers[0].asks[0].count
            taken[effect.pod.namespace] = taken.get(effect.pod.namespace, 0) + asked * GPU
    ending = [effect.pod for effect in cluster.evictions[:before] if effect.pod.name in cluster.bound]
    for tenant, amount in taken.items():
        status = queues.status(tenant)
        assert status is not None
        promised = [promise.pod for promise in cluster.scheduler.nominated.promised.values()]
        later = milli(promised, tenant) - milli(ending, tenant)  # places of its own pods that others of it leave
        assert status.used.get("gpus", 0) + later - amount >= status.guarantee.get("gpus", 0)


def milli(pods: list[Pod], tenant: str) -> int:
    return sum(pod.containers[0].asks[0].count for pod in pods if pod.namespace == tenant) * GPU


@with_examples(25)
@given(st.integers(0, 10**9))
def test_koordinators_runtime_quotas_are_reached_in_any_order(seed: int) -> None:
    """100 CPUs, pods of 5. Weight, request, min: 40, 5, 10; 60, 20, 15; 50, 40, 20; 80, 70, 15 -> 5, 20, 35.4, 39.6.

    In the end no queue with waiting pods is owed a whole pod more.
    As in the live scheduler: retries are deferred, and an equal search is made once a second. What a queue deserves
    grows with what its pods ask for, so a search that failed must be repeated although no node changes.
    """
    chance = Random(seed)
    cluster = Cluster(node("n", cpu=100_000))
    scheduler = cluster.scheduler
    scheduler.retries.deferred = scheduler.claims.helpless.limited = True
    quotas = {"q1": (40, 1, 10), "q2": (60, 4, 15), "q3": (50, 8, 20), "q4": (80, 14, 15)}
    for name, (weight, _, least) in quotas.items():
        guarantee, weights, ceiling = ({"cpu": amount * 1000} for amount in (least, weight, 100))
        queue = Queue(name, "koordinator", "", (name,), guarantee, ceiling, weights)
        with_queues(cluster, queue)
    pods = [
        pod(f"{name}-{n}", cpu=5_000, namespace=name) for name, (_, count, _) in quotas.items() for n in range(count)
    ]
    chance.shuffle(pods)
    for one in pods:
        cluster.arrive(one)
        cluster.now -= chance.choice((0.0, 0.9, 1.0))  # many arrive within a second
        if chance.random() < 0.3:
            work(cluster)
    for _ in range(20):
        work(cluster)
        if ending := [name for name in dict.fromkeys(cluster.stopped) if name in cluster.bound]:
            cluster.end(*ending)
        cluster.now += 1
    held = [name.partition("-")[0] for name in cluster.bound]
    for name in {group.pods[0].namespace for group in scheduler.waiting}:
        status = scheduler.claims.queues.status(name)
        assert status is not None
        assert status.deserved["cpu"] - held.count(name) * 5_000 < 5_000


def work(cluster: Cluster) -> None:
    """What the live loop does between two events: retries, and searches that were put off."""
    cluster.performs(cluster.scheduler.search_again(cluster.now))
    while cluster.scheduler.has_retries:
        cluster.performs(cluster.scheduler.retry_some(cluster.now, 2))


@pytest.mark.parametrize("limited", [False, True])
def test_a_queue_is_owed_more_when_another_asks_for_less(limited: bool) -> None:
    """12 GPUs, three queues of equal weight. a holds 12, b waits for 6 cards that no node has, c asks for 6.

    Shares of 12: 4, 4 and 4, so c's pod may not take 6. When b's pod is deleted they are 6 and 6, and c's pod may.
    """
    cluster = Cluster(node("n", gpus=12))
    with_queues(cluster, *(quota(name, {}, {"gpus": 12 * GPU}, "koordinator") for name in "abc"))
    scheduler = cluster.scheduler
    scheduler.retries.deferred = scheduler.claims.helpless.limited = limited
    for number in range(12):
        cluster.arrive(job(f"a{number}", "a"))
    cluster.arrive(job("elsewhere", "b", gpus=6, node_rules=NodeRules(selector=(("zone", "none"),))))
    cluster.arrive(job("c", "c", gpus=6))
    work(cluster)
    assert cluster.stopped == []
    cluster.now += 2
    cluster.happens(PodGone(cluster.now, "uid-elsewhere"))
    work(cluster)
    assert len(cluster.stopped) == 6
    cluster.end()
    work(cluster)
    assert cluster.node_of("c") == "n"


def test_a_search_that_was_put_off_is_made_although_no_event_comes() -> None:
    """As above, but b's pod is deleted half a second after the search for c's pod failed; nothing happens after it.

    An equal search is made once a second. That second must end on a quiet cluster, too.
    """
    cluster = Cluster(node("n", gpus=12))
    with_queues(cluster, *(quota(name, {}, {"gpus": 12 * GPU}, "koordinator") for name in "abc"))
    scheduler = cluster.scheduler
    scheduler.retries.deferred = scheduler.claims.helpless.limited = True
    for number in range(12):
        cluster.arrive(job(f"a{number}", "a"))
    cluster.arrive(job("elsewhere", "b", gpus=6, node_rules=NodeRules(selector=(("zone", "none"),))))
    cluster.arrive(job("c", "c", gpus=6))
    cluster.now += 0.5
    cluster.happens(PodGone(cluster.now, "uid-elsewhere"))
    for _ in range(5):
        work(cluster)
        cluster.now += 1
    assert len(cluster.stopped) == 6
