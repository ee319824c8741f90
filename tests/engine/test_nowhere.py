"""Resources that no node has cost no memory: one column stands for all of them, until a node has one."""

from __future__ import annotations

import tracemalloc

from dovetail.engine.ledger import audit
from dovetail.engine.ledger.intern import MOST_TAKEN
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import explain
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodObserved, Wait
from dovetail.model.pod import RunningPod
from dovetail.model.reason import Reason
from tests.builders import ask, group, node, pod


def scheduler_of(*nodes: object) -> Scheduler:
    made = Scheduler(mode="interpreted")
    for one in nodes:
        made.handle(NodeChanged(0.0, one))  # type: ignore[arg-type]
    return made


def test_a_resource_of_no_node_gets_no_column() -> None:
    scheduler = scheduler_of(node("a"), node("b"))
    before = scheduler.ledger.rows.cap.shape
    many = {f"example.com/r{n}": 1 for n in range(5_000)}
    [effect] = scheduler.handle(GroupArrived(0.0, group(pod("p", extended=many))))
    assert isinstance(effect, Wait)
    assert effect.decision.reason == Reason.EXTENDED
    assert scheduler.ledger.rows.cap.shape == before
    assert "example.com/r0" in str(explain(scheduler, group(pod("p", extended=many)).pods[0]))


def test_28_000_resources_on_1_000_nodes_take_no_memory() -> None:
    """They took 664 MiB, two columns of 1,000 nodes × 28,000 × 8 bytes and more."""
    scheduler = scheduler_of(*(node(f"n{number}") for number in range(1_000)))
    tracemalloc.start()
    for number in range(4):
        many = {f"example.com/r{number}-{n}": 1 for n in range(7_000)}
        scheduler.handle(GroupArrived(0.0, group(pod(f"p{number}", extended=many))))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 16 << 20  # the names themselves are the pods' own


def test_a_pod_is_placed_once_a_node_has_what_it_waits_for() -> None:
    scheduler = scheduler_of(node("a"))
    scheduler.handle(GroupArrived(0.0, group(pod("p", extended={"example.com/dongle": 2}))))
    scheduler.handle(GroupArrived(0.0, group(pod("q", extended={"example.com/other": 1}))))
    effects = scheduler.handle(NodeChanged(1.0, node("b", extended={"example.com/dongle": 2})))
    [bind] = effects
    assert isinstance(bind, Bind)
    assert (bind.pod.name, bind.decision.node) == ("p", "b")
    audit.validate(scheduler.ledger)


def test_what_running_pods_use_is_counted_once_nodes_have_it() -> None:
    """The pods are heard of before their node's plugin: 2 + 1 of 3 dongles are in use, so a fourth finds none."""
    scheduler = scheduler_of(node("a"), node("b"))
    for name, where, amount in (("p", "a", 2), ("q", "a", 1), ("r", "b", 1)):
        held = pod(name, extended={"example.com/dongle": amount})
        scheduler.handle(PodObserved(0.0, RunningPod(held, where, ())))
    scheduler.handle(NodeChanged(1.0, node("a", extended={"example.com/dongle": 3})))
    audit.validate(scheduler.ledger)
    column = scheduler.intern.columns.known("example.com/dongle")
    rows = [scheduler.ledger.row_of[name] for name in "ab"]
    assert scheduler.ledger.rows.used[rows, column].tolist() == [3, 1]
    [effect] = scheduler.handle(GroupArrived(1.0, group(pod("s", extended={"example.com/dongle": 1}))))
    assert isinstance(effect, Wait)


def test_room_is_made_for_cards_that_a_node_can_have() -> None:
    """`nvidia.com/gpu: 2147483647` took 96 GiB."""
    scheduler = scheduler_of(node("a", gpus=8))
    huge = pod("p", ask(2**31 - 1, 1000))
    [effect] = scheduler.handle(GroupArrived(0.0, group(huge)))
    assert isinstance(effect, Wait)
    assert effect.decision.reason == Reason.TOO_FEW_CARDS
    scheduler.handle(PodObserved(0.0, RunningPod(huge, "a", None)))
    assert len(scheduler.ledger.book.entry) <= 2 * MOST_TAKEN
    audit.validate(scheduler.ledger)
