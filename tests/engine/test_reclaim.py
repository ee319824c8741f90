"""Queues and preemption together: who is stopped for whom, and that this comes to rest."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, Event, Evict, GroupArrived, NodeChanged, PodBound, PodGone, QueueChanged
from dovetail.model.pod import DeviceRules, Group, Pod
from dovetail.model.rights import Queue
from dovetail.policies.quota.table import QUOTA_POLICIES
from dovetail.policies.yielding import YIELDING
from tests.builders import ask, card, group, node, pod
from tests.properties import with_examples

GPU = 1000
TENANTS = ("a", "b", "c")


def scheduler_with(*queues: Queue) -> Scheduler:
    scheduler = Scheduler(mode="interpreted", rights=Rights(yielding=YIELDING["priority"]))
    for queue in queues:
        scheduler.handle(QueueChanged(0.0, queue.name, queue))
    return scheduler


class Cluster:
    """Binds at once, ends stopped pods at once, and keeps what was done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.now = scheduler, 1.0
        self.evicted: list[str] = []
        self.known: dict[str, Group] = {}

    def happens(self, event: Event) -> None:
        rest = [event]
        while rest:
            for effect in self.scheduler.handle(rest.pop(0)):
                if isinstance(effect, Bind):
                    rest.append(PodBound(self.now, effect.pod.uid))
                elif isinstance(effect, Evict):
                    self.evicted.append(effect.pod.name)
                    rest.append(PodGone(self.now, effect.pod.uid))
        audit.validate(self.scheduler.ledger)

    def arrive(self, one: Pod) -> None:
        self.known[one.uid] = group(one)
        self.happens(GroupArrived(self.now, group(one)))

    def come_back(self) -> int:
        """Stopped pods arrive again, as their controllers would create them; returns how many."""
        self.now += 1.0
        gone = [g for uid, g in self.known.items() if uid not in self.scheduler.ledger.pods]
        before = len(self.evicted)
        for one in gone:
            self.happens(GroupArrived(self.now, one))
        return len(self.evicted) - before

    def used(self, name: str, resource: str = "gpus") -> int:
        state = self.scheduler.placer.queues.status(name)
        assert state is not None
        return state.used.get(resource, 0)


def gpu_pod(namespace: str, name: str, gpus: int = 1, **facts: Any) -> Pod:
    return pod(f"{namespace}{name}", ask(gpus, cores=100), namespace=namespace, **facts)


def test_capacity_demo_two_with_evictions() -> None:
    """10 GPUs: A (4, 6) uses 6, B (6, 8) uses 3 and asks for 3. A pod of A ends: 4 and 6. No more is taken."""
    queues = [
        Queue(name, "capacity", namespaces=(name,), guarantee={"gpus": least * GPU}, ceiling={"gpus": most * GPU})
        for name, least, most in (("a", 4, 6), ("b", 6, 8))
    ]
    cluster = Cluster(scheduler_with(*queues))
    cluster.happens(NodeChanged(0.0, node("n", gpus=10)))
    for n in range(3):
        cluster.arrive(gpu_pod("a", str(n), 2))
    cluster.arrive(gpu_pod("b", "0", 3))
    assert not cluster.evicted
    cluster.arrive(gpu_pod("b", "1", 3))
    assert len(cluster.evicted) == 1
    assert (cluster.used("a"), cluster.used("b")) == (4 * GPU, 6 * GPU)
    cluster.arrive(gpu_pod("b", "2", 2))
    assert [cluster.come_back() for _ in range(5)] == [0] * 5
    assert (cluster.used("a"), cluster.used("b")) == (4 * GPU, 6 * GPU)


def test_a_model_is_taken_back_and_no_other() -> None:
    """A is owed 4 of 8 A100, B the other 4 and the 4 T4. A uses all; 4 pods of B that need A100 get exactly theirs."""
    cards = [card(f"a{n}", index=n, model="NVIDIA A100-SXM4-80GB") for n in range(8)]
    t4 = [card(f"t{n}", index=n, model="NVIDIA T4") for n in range(4)]
    cluster = Cluster(
        scheduler_with(
            Queue("a", "capacity", namespaces=("a",), guarantee={"gpus/A100": 4 * GPU, "gpus/T4": 0}),
            Queue("b", "capacity", namespaces=("b",), guarantee={"gpus/A100": 4 * GPU, "gpus/T4": 4 * GPU}),
        )
    )
    for one in (node("x", *cards), node("y", *t4)):
        cluster.happens(NodeChanged(0.0, one))
    for n in range(12):
        cluster.arrive(gpu_pod("a", str(n)))
    assert (cluster.used("a", "gpus/A100"), cluster.used("a", "gpus/T4")) == (8 * GPU, 4 * GPU)
    for n in range(5):
        cluster.arrive(gpu_pod("b", str(n), rules=DeviceRules("NVIDIA", use_types=("A100",))))
    assert len(cluster.evicted) == 4
    assert (cluster.used("a", "gpus/A100"), cluster.used("a", "gpus/T4")) == (4 * GPU, 4 * GPU)
    assert (cluster.used("b", "gpus/A100"), cluster.used("b", "gpus/T4")) == (4 * GPU, 0)
    assert [cluster.come_back() for _ in range(3)] == [0] * 3


def some_queue(chance: Random, name: str, arithmetic: str) -> Queue:
    least = chance.choice((0, 1, 2))
    ceiling = {"gpus": chance.choice((3, 5)) * GPU} if chance.random() < 0.4 else {}
    return Queue(
        name,
        arithmetic,
        namespaces=(name,),
        guarantee={"gpus": least * GPU},
        ceiling=ceiling,
        weight={"gpus": chance.choice((1, 2))},
        lends=chance.random() < 0.8,
        priority=chance.choice((0, 1)),
    )


@example("kai", 100_015)  # two plans at once: the victims of the first still hold their places
@with_examples(60)
@given(st.sampled_from(sorted(QUOTA_POLICIES)), st.integers(0, 10**6))
def test_evictions_keep_guarantees_and_come_to_rest(arithmetic: str, seed: int) -> None:
    """Random queues and pods. No queue loses what it is guaranteed to another one; after a while nothing moves."""
    chance = Random(seed)
    queues = {name: some_queue(chance, name, arithmetic) for name in TENANTS}
    cluster = Cluster(scheduler_with(*queues.values()))
    for n in range(chance.choice((1, 2))):
        cluster.happens(NodeChanged(0.0, node(f"n{n}", gpus=4)))
    for n in range(14):
        before = {name: cluster.used(name) for name in TENANTS}
        one = gpu_pod(chance.choice(TENANTS), str(n), chance.choice((1, 1, 2)), priority=chance.choice((0, 0, 5)))
        cluster.arrive(one)
        for name in TENANTS:
            if name != one.namespace:
                assert cluster.used(name) >= min(before[name], queues[name].guarantee["gpus"])
    moves = [cluster.come_back() for _ in range(14)]
    assert moves[-5:] == [0] * 5, moves
