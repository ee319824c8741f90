"""Queues: what their pods hold, what they may have, and from which queue they may take."""

from __future__ import annotations

from typing import Any

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.engine.why.findings import find
from dovetail.model.device import Device
from dovetail.model.events import GroupArrived, PodGone, QueueChanged
from dovetail.model.pod import DeviceRules, Pod
from dovetail.model.reason import Reason
from dovetail.model.rights import Queue
from dovetail.policies.yielding import Right
from tests.builders import ask, card, cluster, group, node, pod

GPU = 1000  # milli


def eq(name: str, least: dict[str, int], most: dict[str, int] | None = None, **facts: Any) -> Queue:
    """An ElasticQuota of the namespace of its name."""
    return Queue(name, "capacity", namespaces=(name,), guarantee=least, ceiling=most or {}, **facts)


def with_queues(scheduler: Scheduler, *queues: Queue) -> Scheduler:
    for queue in queues:
        scheduler.handle(QueueChanged(0.0, queue.name, queue))
    return scheduler


def cpu_pod(name: str, namespace: str, cpu: int, **facts: Any) -> Pod:
    return pod(name, cpu=cpu, namespace=namespace, **facts)


def gpu_pod(name: str, namespace: str, gpus: int, **facts: Any) -> Pod:
    return pod(name, ask(gpus, cores=100), namespace=namespace, **facts)


def placed(scheduler: Scheduler, *pods: Pod) -> list[bool]:
    return [scheduler.place([group(one)])[0].placed for one in pods]


def used(scheduler: Scheduler, name: str, resource: str) -> int:
    status = scheduler.placer.queues.status(name)
    assert status is not None
    return status.used.get(resource, 0)


def test_capacity_demo_one() -> None:
    """8 CPUs, two quotas of min 4, max 6. app1 asks for 4 × 2 CPUs: 6 are its max, so 3 run. app2 asks for 2 × 2.

    The first finds the 2 CPUs that are left. The second exceeds the sum of the min (4 + 4): 6 + 2 + 2 = 10 > 8. It is
    owed: 2 + 2 <= 4, and app1 has 6 > 4. One pod of app1 yields, and then 4 >= 4 stay.
    """
    scheduler = with_queues(
        cluster(node("n", cpu=8000)),
        eq("app1", {"cpu": 4000}, {"cpu": 6000}),
        eq("app2", {"cpu": 4000}, {"cpu": 6000}),
    )
    queues = scheduler.placer.queues
    first = [cpu_pod(f"a{n}", "app1", 2000) for n in range(4)]
    second = [cpu_pod(f"b{n}", "app2", 2000) for n in range(2)]
    assert placed(scheduler, *first) == [True, True, True, False]
    refused = queues.refusal(first[3])
    assert refused is not None
    assert refused.reason is Reason.QUEUE_CEILING
    assert refused.message == "queue app1: cpu requested 2, used 6, ceiling 6"
    assert placed(scheduler, *second) == [True, False]
    refused = queues.refusal(second[1])
    assert refused is not None
    assert refused.reason is Reason.QUEUE_BORROWING
    assert refused.message == "queue app2: cpu requested 2, used 2, guarantee 4; it may have 0 more now"
    assert [queues.right(one, second[1]) for one in (*first[:3], second[0])] == [*[Right.RECLAIM] * 3, Right.RANK]
    scheduler.ledger.release(first[0].uid)
    assert placed(scheduler, second[1]) == [True]
    assert (used(scheduler, "app1", "cpu"), used(scheduler, "app2", "cpu")) == (4000, 4000)
    third = cpu_pod("b2", "app2", 2000)
    assert [queues.right(one, third) for one in (*first[1:3], second[0])] == [Right.NONE, Right.NONE, Right.RANK]


def test_capacity_demo_two() -> None:
    """10 GPUs, A (4, 6), B (6, 8). A uses 6, B 3. B asks for 3 more: 3 + 3 <= 6. A pod of 2 GPUs yields: 4 and 6."""
    scheduler = with_queues(
        cluster(node("n", gpus=10)),
        eq("a", {"gpus": 4 * GPU}, {"gpus": 6 * GPU}),
        eq("b", {"gpus": 6 * GPU}, {"gpus": 8 * GPU}),
    )
    queues = scheduler.placer.queues
    of_a = [gpu_pod(f"a{n}", "a", 2) for n in range(3)]
    assert placed(scheduler, *of_a, gpu_pod("b0", "b", 3)) == [True] * 4
    more = gpu_pod("b1", "b", 3)
    assert placed(scheduler, more) == [False]
    assert queues.right(of_a[0], more) is Right.RECLAIM
    scheduler.ledger.release(of_a[0].uid)
    assert placed(scheduler, more) == [True]
    assert (used(scheduler, "a", "gpus"), used(scheduler, "b", "gpus")) == (4 * GPU, 6 * GPU)
    again = gpu_pod("b2", "b", 1)
    assert placed(scheduler, again) == [False]
    assert [queues.right(one, again) for one in of_a[1:]] == [Right.NONE, Right.NONE]  # 6 + 1 > 6


def test_capacity_demo_three() -> None:
    """q1, q2: min 0, max 2; q3: min 1, max 2. q1 borrows the 1 of q3. A high priority of q2 does not take it."""
    names = ("q1", "q2", "q3")
    scheduler = with_queues(
        cluster(node("n", gpus=4)),
        *(eq(name, {"gpus": GPU * (name == "q3")}, {"gpus": 2 * GPU}) for name in names),
    )
    queues = scheduler.placer.queues
    borrower, high, owner = gpu_pod("x", "q1", 1), gpu_pod("y", "q2", 1, priority=100), gpu_pod("z", "q3", 1)
    assert placed(scheduler, borrower, high) == [True, False]  # 1 + 1 > 0 + 0 + 1
    assert queues.right(borrower, high) is Right.NONE
    assert queues.right(borrower, owner) is Right.RECLAIM
    assert [*queues.borrowing()] == [("q1", "q3", "gpus", GPU)]
    status = queues.status("q3")
    assert status is not None
    assert (status.used["gpus"], status.guarantee["gpus"], status.deserved["gpus"]) == (0, GPU, GPU)
    assert (status.lent, status.borrowed) == ({"gpus": GPU}, {})


def test_a_resource_that_is_not_named_is_not_limited() -> None:
    """Upstream reads the absent cpu in `max` as 0 and refuses every pod that asks for CPU."""
    scheduler = with_queues(
        cluster(node("n", gpus=2)),
        eq("a", {"gpus": GPU}, {"gpus": 2 * GPU}),
        eq("b", {"gpus": GPU, "cpu": 1000}),
    )
    assert placed(scheduler, pod("a0", ask(1, cores=100), cpu=500, namespace="a")) == [True]
    assert placed(scheduler, pod("b0", ask(1, cores=100), cpu=500, namespace="b")) == [True]


def test_no_queue_falls_below_its_guarantee_for_another() -> None:
    """A is guaranteed 2 of 4 GPUs and runs one pod of 3. B is owed 2. Without the pod, A would have 0 < 2."""
    scheduler = with_queues(cluster(node("n", gpus=4)), eq("a", {"gpus": 2 * GPU}), eq("b", {"gpus": 2 * GPU}))
    large, owner = gpu_pod("a0", "a", 3), gpu_pod("b0", "b", 2)
    assert placed(scheduler, large, owner) == [True, False]
    assert scheduler.placer.queues.right(large, owner) is Right.NONE


def test_pods_without_a_queue_only_rank_among_themselves() -> None:
    scheduler = with_queues(cluster(node("n", gpus=2)), eq("a", {"gpus": 2 * GPU}))
    free, other, owner = gpu_pod("x", "none", 1), gpu_pod("y", "none", 1), gpu_pod("a0", "a", 2)
    assert placed(scheduler, free, other, owner) == [True, True, False]
    rights = scheduler.placer.queues.right
    assert (rights(free, other), rights(free, owner)) == (Right.RANK, Right.NONE)


def mixed() -> Scheduler:
    """4 A100 on one node, 4 T4 on the other."""
    a100 = (card(f"a/{n}", index=n, model="NVIDIA A100-SXM4-80GB", memory=80_000) for n in range(4))
    t4 = (card(f"t/{n}", index=n, model="NVIDIA T4", memory=16_000) for n in range(4))
    return cluster(node("a", *a100), node("t", *t4))


def only(model: str) -> DeviceRules:
    return DeviceRules("NVIDIA", use_types=(model,))


def test_a_limit_for_a_model_sends_pods_to_other_models() -> None:
    """Ceiling of 2 A100. The pods rank the A100 node first (binpack ties go by name): 2 go there, the rest to T4."""
    scheduler = with_queues(mixed(), eq("a", {}, {"gpus/A100": 2 * GPU}))
    pods = [gpu_pod(f"p{n}", "a", 1) for n in range(8)]
    where = [scheduler.place([group(one)])[0].node for one in pods]
    assert where[:6] in (["a", "a", "t", "t", "t", "t"], ["t", "t", "t", "t", "a", "a"])
    assert where[6:] == [None, None]
    assert used(scheduler, "a", "gpus/A100") == 2 * GPU
    needs = gpu_pod("q", "a", 1, rules=only("A100"))
    refused = scheduler.placer.queues.refusal(needs)
    assert refused is not None
    assert refused.message == "queue a: gpus/A100 requested 1, used 2, ceiling 2"
    assert scheduler.ledger.pods.pod(pods[0].uid) == pods[0]  # the ledger knows the pod without our rules


def test_a_model_is_owed_and_reclaimed_alone() -> None:
    """A is owed 2 of 4 A100 and nothing of the T4s, B the rest. A borrows all; B takes back 2 A100, and only those."""
    scheduler = with_queues(
        mixed(),
        eq("a", {"gpus/A100": 2 * GPU, "gpus/T4": 0}),
        eq("b", {"gpus/A100": 2 * GPU, "gpus/T4": 4 * GPU}),
    )
    queues = scheduler.placer.queues
    on_a100 = [gpu_pod(f"x{n}", "a", 1, rules=only("A100")) for n in range(4)]
    on_t4 = [gpu_pod(f"y{n}", "a", 1, rules=only("T4")) for n in range(4)]
    assert placed(scheduler, *on_a100, *on_t4) == [True] * 8
    wants = [gpu_pod(f"b{n}", "b", 1, rules=only("A100")) for n in range(3)]
    assert placed(scheduler, wants[0]) == [False]
    assert {queues.right(one, wants[0]) for one in on_a100} == {Right.RECLAIM}
    assert {queues.right(one, wants[0]) for one in on_t4} == {Right.NONE}  # a T4 does not help it
    for victim, one in zip(on_a100, wants[:2], strict=False):
        assert queues.right(victim, one) is Right.RECLAIM
        scheduler.ledger.release(victim.uid)
        assert placed(scheduler, one) == [True]
    assert {queues.right(one, wants[2]) for one in on_a100[2:]} == {Right.NONE}  # A keeps its 2; B has its 2
    anywhere = gpu_pod("b9", "b", 1)
    assert {queues.right(one, anywhere) for one in on_t4} == {Right.RECLAIM}


def test_parts_of_cards_count_as_parts() -> None:
    """4,000 of 8,000 MiB and 30 % of compute: the larger part, half a card. On the 16,000 MiB card it is a third."""
    small = Device("s", 0, "NVIDIA", "NVIDIA T4", 8_000)
    scheduler = with_queues(
        cluster(node("n", small)),
        eq("a", {}, {"gpus": 2 * GPU, "gpu-memory": 10_000, "gpu-compute": 2_000, "gpus/T4": GPU}),
    )
    assert placed(scheduler, pod("p", ask(1, memory=4_000, cores=30), namespace="a")) == [True]
    status = scheduler.placer.queues.status("a")
    assert status is not None
    assert status.used == {"gpus": 500, "gpu-memory": 4_000, "gpu-compute": 300, "gpus/T4": 500}


def test_a_gang_is_admitted_with_all_its_places_or_not() -> None:
    """Ceiling of 3 GPUs: a gang of 4 gets none, a gang of 3 gets all."""
    scheduler = with_queues(cluster(node("n", gpus=4)), eq("a", {}, {"gpus": 3 * GPU}))
    four = group(*(gpu_pod(f"f{n}", "a", 1) for n in range(4)))
    assert [decision.placed for decision in scheduler.place([four])] == [False] * 4
    assert used(scheduler, "a", "gpus") == 0
    three = group(*(gpu_pod(f"t{n}", "a", 1) for n in range(3)))
    assert [decision.placed for decision in scheduler.place([three])] == [True] * 3


def test_a_pod_that_waits_for_its_queue_is_tried_when_the_queue_has_room() -> None:
    scheduler = with_queues(cluster(node("n", gpus=4), node("m", gpus=4)), eq("a", {}, {"gpus": GPU}))
    for name in ("p", "q"):
        scheduler.handle(GroupArrived(1.0, group(gpu_pod(name, "a", 1))))
    assert [one.name for one in scheduler.waiting] == ["a/q"]
    scheduler.handle(PodGone(2.0, "uid-p"))
    assert not len(scheduler.waiting)
    scheduler.handle(GroupArrived(3.0, group(gpu_pod("r", "a", 1))))
    scheduler.handle(QueueChanged(4.0, "a", None))
    assert not len(scheduler.waiting)


def test_a_tree_bounds_its_branches() -> None:
    """The department has 4 GPUs, its two teams no ceilings: together they get 4 of 6."""
    scheduler = with_queues(
        cluster(node("n", gpus=6)),
        Queue("dept", "capacity", ceiling={"gpus": 4 * GPU}),
        eq("x", {"gpus": GPU}, parent="dept"),
        eq("y", {"gpus": 3 * GPU}, parent="dept"),
    )
    assert placed(scheduler, *(gpu_pod(f"x{n}", "x", 1) for n in range(5))) == [True] * 4 + [False]
    assert (used(scheduler, "dept", "gpus"), used(scheduler, "x", "gpus")) == (4 * GPU, 4 * GPU)
    queues = scheduler.placer.queues
    status = queues.status("dept")
    assert status is not None
    assert status.guarantee == {"gpus": 4 * GPU}  # the sum of its teams'
    assert queues.right(gpu_pod("x0", "x", 1), gpu_pod("y0", "y", 1)) is Right.RECLAIM
    assert [*queues.borrowing()] == [("x", "y", "gpus", 3 * GPU)]


def test_explanations_name_the_limit_of_a_model() -> None:
    """The only T4s are in use, and the queue has its one A100: the node with A100s refuses for the queue."""
    scheduler = with_queues(mixed(), eq("a", {}, {"gpus/A100": GPU}))
    assert placed(scheduler, *(gpu_pod(f"p{n}", "a", 1) for n in range(5))) == [True] * 5
    waits = gpu_pod("q", "a", 1)
    assert placed(scheduler, waits) == [False]
    said = {one.node: str(one.fact) for one in verdicts(scheduler, waits)}
    assert said["a"] == "queue a: gpus/A100 requested 1, used 1, ceiling 1"
    assert not find(scheduler, waits).fits
