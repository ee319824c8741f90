"""Each arithmetic through the engine: who is admitted, who may take from whom."""

from __future__ import annotations

from typing import Any

from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import GroupArrived, NodeChanged, QueueChanged
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.rights import Queue
from dovetail.policies.yielding import Right
from tests.builders import ask, cluster, group, node, pod

GPU = 1000


def queue(name: str, arithmetic: str, gpus: int | None = None, **facts: Any) -> Queue:
    guarantee = {} if gpus is None else {"gpus": gpus * GPU}
    return Queue(name, arithmetic, namespaces=(name,), guarantee=guarantee, **facts)


def with_queues(gpus: int, *queues: Queue) -> Scheduler:
    scheduler = cluster(node("n", gpus=gpus))
    for one in queues:
        scheduler.handle(QueueChanged(0.0, one.name, one))
    return scheduler


def of(namespace: str, name: str, gpus: int = 1) -> Pod:
    return pod(f"{namespace}-{name}", ask(gpus, cores=100), namespace=namespace)


def fill(scheduler: Scheduler, namespace: str, count: int) -> list[Pod]:
    pods = [of(namespace, str(n)) for n in range(count)]
    assert all(scheduler.place([group(one)])[0].placed for one in pods)
    return pods


def deserved(scheduler: Scheduler, name: str) -> int:
    status = scheduler.placer.queues.status(name)
    assert status is not None
    return status.deserved["gpus"]


def test_koordinator_divides_by_weight_as_soon_as_both_ask() -> None:
    """8 GPUs, min 1 each, weights 1 and 3. a alone gets all 8. b asks for 1: it has its min, a the other 7."""
    scheduler = with_queues(
        8, queue("a", "koordinator", 1, weight={"gpus": 1}), queue("b", "koordinator", 1, weight={"gpus": 3})
    )
    queues = scheduler.placer.queues
    held = fill(scheduler, "a", 8)
    wants = of("b", "0")
    assert queues.right(held[0], wants) is Right.RECLAIM  # 8 > 7, and 7 >= 1 stay
    scheduler.handle(GroupArrived(1.0, group(wants)))
    assert (deserved(scheduler, "a"), deserved(scheduler, "b")) == (7 * GPU, GPU)  # b's pod waits
    scheduler.ledger.release(held[0].uid)
    assert queues.refusal(held[0]) is not None  # 7 + 1 > 7: it does not take the place back
    assert queues.refusal(wants) is None


def test_koordinator_divides_by_weight_when_both_want_all() -> None:
    """2 of min; 6 are left by 1 : 3: 1.5 and 4.5. a deserves 2.5, b 5.5: whole pods of b fit 5 times."""
    scheduler = with_queues(
        8, queue("a", "koordinator", 1, weight={"gpus": 1}), queue("b", "koordinator", 1, weight={"gpus": 3})
    )
    queues, held = scheduler.placer.queues, fill(scheduler, "a", 8)
    for n in range(8):
        scheduler.handle(GroupArrived(1.0, group(of("b", str(n)))))
    assert (deserved(scheduler, "a"), deserved(scheduler, "b")) == (2_500, 5_500)
    for n in range(5):
        assert queues.right(held[n], of("b", str(n))) is Right.RECLAIM
        scheduler.ledger.release(held[n].uid)
        assert scheduler.place([group(of("b", str(n)))])[0].placed
    assert queues.right(held[5], of("b", "5")) is Right.NONE  # 5 + 1 > 5.5


def test_kai_uses_what_is_free_and_gives_back_above_its_fair_share() -> None:
    """6 GPUs, quota 1 each, equal weights. a uses all. b wants 3: 1 + 1 + 4 / 2 each: 3 and 3."""
    scheduler = with_queues(6, queue("a", "kai", 1), queue("b", "kai", 1))
    queues, held = scheduler.placer.queues, fill(scheduler, "a", 6)
    for n in range(6):
        scheduler.handle(GroupArrived(1.0, group(of("b", str(n)))))
    assert (deserved(scheduler, "a"), deserved(scheduler, "b")) == (3 * GPU, 3 * GPU)
    for n in range(3):
        assert queues.right(held[n], of("b", str(n))) is Right.RECLAIM
        scheduler.ledger.release(held[n].uid)
        assert scheduler.place([group(of("b", str(n)))])[0].placed
    assert queues.right(held[3], of("b", "3")) is Right.NONE
    assert queues.right(of("b", "0"), held[0]) is Right.NONE  # a does not take it back: 3 + 1 > 3


def test_kai_remembers_past_use() -> None:
    """a used all for one half-life: its average is 0.5, b's 0. Then both want 8: P is 0.5 + 0 and 0.5 + 0.5: 1 : 2."""
    scheduler = with_queues(9, queue("a", "kai", weight={"gpus": 1}), queue("b", "kai", weight={"gpus": 1}))
    scheduler.placer.queues.half_life = 600.0
    scheduler.handle(NodeChanged(1.0, node("m")))  # the clock starts
    fill(scheduler, "a", 9)
    scheduler.handle(NodeChanged(601.0, node("m", cpu=1)))
    for n in range(9):
        scheduler.handle(GroupArrived(601.0, group(of("b", str(n)))))
    assert (deserved(scheduler, "a"), deserved(scheduler, "b")) == (3 * GPU, 6 * GPU)


def test_drf_takes_back_from_the_larger_dominant_share() -> None:
    """4 GPUs, a has all. b wants 3: both deserve 2."""
    scheduler = with_queues(4, *(queue(name, "drf", ceiling={"gpus": 9 * GPU}) for name in "ab"))
    queues, held = scheduler.placer.queues, fill(scheduler, "a", 4)
    for n in range(3):
        scheduler.handle(GroupArrived(1.0, group(of("b", str(n)))))
    assert (deserved(scheduler, "a"), deserved(scheduler, "b")) == (2 * GPU, 2 * GPU)
    assert queues.right(held[0], of("b", "0")) is Right.RECLAIM
    assert queues.right(held[0], of("b", "9", gpus=3)) is Right.NONE


def test_kueue_borrowers_share_what_is_lent() -> None:
    """8 GPUs: c has nominal 8 and lends all; a and b have 0. a borrows 8: share 1000. b takes until both have 4."""
    scheduler = with_queues(8, queue("a", "kueue", 0), queue("b", "kueue", 0), queue("c", "kueue", 8))
    queues, held = scheduler.placer.queues, fill(scheduler, "a", 8)
    for n in range(4):
        assert queues.right(held[n], of("b", str(n))) is Right.RECLAIM
        scheduler.ledger.release(held[n].uid)
        assert scheduler.place([group(of("b", str(n)))])[0].placed
    assert queues.right(held[4], of("b", "4")) is Right.NONE  # 625 > 375 and 625 > 500
    assert queues.right(of("b", "0"), held[0]) is Right.NONE  # no ping-pong
    assert queues.right(held[4], of("c", "0")) is Right.RECLAIM  # the owner


def test_volcano_keeps_what_is_reserved() -> None:
    """8 GPUs: b deserves 4, of which 2 are reserved. a uses 6 of the others at most; b takes back up to its 4."""
    scheduler = with_queues(8, queue("a", "volcano", 4), queue("b", "volcano", 4, reserved={"gpus": 2 * GPU}))
    queues, held = scheduler.placer.queues, fill(scheduler, "a", 6)
    refused = queues.refusal(of("a", "6"))
    assert refused is not None
    assert refused.reason is Reason.QUEUE_BORROWING
    fill(scheduler, "b", 2)
    assert queues.right(held[0], of("b", "2")) is Right.RECLAIM
    assert queues.right(held[0], of("b", "9", gpus=3)) is Right.NONE  # 2 + 3 > 4


def test_queues_of_two_projects_keep_their_arithmetics() -> None:
    """ElasticQuotas and Volcano's queues on 8 GPUs: the bound of one family is not that of the other."""
    scheduler = with_queues(8, queue("a", "capacity", 2), queue("b", "capacity", 1), queue("v", "volcano", 4))
    fill(scheduler, "a", 3)  # all that a and b are guaranteed
    assert scheduler.placer.queues.refusal(of("a", "3")) is not None
    held = fill(scheduler, "v", 5)  # v uses what is free
    assert scheduler.placer.queues.refusal(of("v", "5")) is None
    assert scheduler.placer.queues.right(held[0], of("v", "5")) is Right.RANK
    assert deserved(scheduler, "v") == 4 * GPU
