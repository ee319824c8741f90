"""Amaral's utility (SC'17) with its vectors, its postponing variant, and Koordinator's partition binpack."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import Look
from dovetail.model.events import Bind, GroupArrived, PodGone
from dovetail.model.node import Node
from dovetail.model.reason import Reason
from dovetail.policies.node_utility import job_utility
from tests.builders import ask, card, cluster, group, node, place, pod, use

MODES = pytest.mark.parametrize("mode", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])


def sockets(name: str, *sizes: int) -> Node:
    """A node with NUMA nodes of so many cards."""
    numa = [socket for socket, size in enumerate(sizes) for _ in range(size)]
    return node(name, *(card(f"{name}{n}", index=n, numa=at) for n, at in enumerate(numa)))


def busy(scheduler: Scheduler, where: str, *uuids: str) -> None:
    for uuid in uuids:
        use(scheduler, where, uuid, 1, 8_000, 100)


def whole(name: str, count: int, policy: str = "utility") -> Sequence[object]:
    return [pod(name, ask(count, 0, 100, 100), node_policy=policy)]


def utility_of(scheduler: Scheduler, count: int, chosen: Sequence[int]) -> float:
    """The pod's own utility for these cards of the first node, by the policy's function on the ledger's rows."""
    import numpy as np

    look = Look(scheduler, pod("looks", ask(count, 0, 100, 100), node_policy="utility"))
    first = int(look.state.wants.shape[look.shape, 0])
    return job_utility(look.state.rows, 0, look.state.wants, first, np.array(chosen, dtype=np.int64))


def test_two_cards_of_one_socket_have_utility_1_and_across_sockets_0_253() -> None:
    scheduler = cluster(sockets("n", 2, 2))
    # Near: distance 1, the least possible. Cost 0.01: 2 × √0.01 / (√0.01 + √0.01) = 1.
    assert utility_of(scheduler, 2, (0, 1)) == pytest.approx(1.0)
    # Far: 20 − 1 = 19, of a worst case of 40. 0.2 / (√0.475 + 0.1) = 0.2 / 0.789 = 0.253.
    assert utility_of(scheduler, 2, (1, 2)) == pytest.approx(0.253, abs=0.0005)
    # Three cards on sockets of two: 1 + 20 + 20 = 41 is the least possible.
    assert utility_of(scheduler, 3, (0, 1, 2)) == pytest.approx(1.0)


@MODES
def test_utility_takes_cards_of_one_socket_and_the_fuller_node(mode: str) -> None:
    scheduler = cluster(sockets("n", 2, 2), mode=mode)
    busy(scheduler, "n", "n0")
    # Socket 1 has two free cards: utility 1 instead of 0.253.
    assert place(scheduler, *whole("p", 2)) == [("n", ("n2", "n3"))]  # type: ignore[arg-type]
    scheduler = cluster(sockets("a", 2, 2), sockets("b", 2, 2), mode=mode)
    busy(scheduler, "b", "b2", "b3")
    # Left after the pod: (0 + 1) / 2 of a, 0 of b, which costs less.
    assert place(scheduler, *whole("q", 2)) == [("b", ("b0", "b1"))]  # type: ignore[arg-type]


@MODES
def test_a_single_card_comes_from_the_socket_with_the_fewest_free(mode: str) -> None:
    scheduler = cluster(sockets("n", 2, 2), mode=mode)
    busy(scheduler, "n", "n3")
    assert place(scheduler, *whole("p", 1)) == [("n", ("n2",))]  # type: ignore[arg-type]
    use(scheduler, "n", "n1", 1, 4_000, 50)
    part = pod("q", ask(1, 1_000, 10), node_policy="utility")
    assert place(scheduler, part) == [("n", ("n1",))]  # of a socket, the card with least left


@MODES
def test_postponing_waits_at_a_utility_below_a_half(mode: str) -> None:
    """One card is free in each socket: utility places across sockets now, utility-postponing waits for a socket."""
    for policy, expected in (("utility", ("n", ("n0", "n2"))), ("utility-postponing", (None, ()))):
        scheduler = cluster(sockets("n", 2, 2), mode=mode)
        busy(scheduler, "n", "n1", "n3")
        assert place(scheduler, *whole("p", 2, policy)) == [expected]  # type: ignore[arg-type]


def test_a_postponed_pod_is_placed_when_a_socket_is_free_and_says_why_it_waits() -> None:
    scheduler = cluster(sockets("n", 2, 2))
    busy(scheduler, "n", "n1", "n3")
    waits = pod("p", ask(2, 0, 100, 100), node_policy="utility-postponing")
    assert not any(isinstance(effect, Bind) for effect in scheduler.handle(GroupArrived(1.0, group(waits))))
    (verdict,) = Look(scheduler, waits).all_nodes()
    assert (verdict.reason, verdict.fact.what) == (Reason.POSTPONED, "the policy rather waits for a better place")
    (bind,) = (e for e in scheduler.handle(PodGone(2.0, "uid-on-n1-0")) if isinstance(e, Bind))
    assert [share.uuid for share in bind.decision.shares] == ["n0", "n1"]


def eight(*busy_ones: int, mode: str) -> Scheduler:
    scheduler = cluster(node("n", *(card(f"g{n}", index=n) for n in range(8))), mode=mode)
    busy(scheduler, "n", *(f"g{n}" for n in busy_ones))
    return scheduler


@MODES
@pytest.mark.parametrize(
    ("in_use", "count", "expected"),
    [
        ((), 2, (0, 1)),  # every pair leaves 100 × one four + 3 pairs: the first
        ((0,), 2, (2, 3)),  # 2-3 leaves the four 4-7 and two pairs: 102; 4-5 or 6-7 leave no four: 2
        ((5,), 1, (4,)),  # 4 leaves the four 0-3 and three pairs: 103; 6 leaves 102; 0 leaves 2
        ((0, 4), 1, (1,)),  # 1 and 5 leave two pairs, and no four is whole: the first
        ((1,), 4, (4, 5, 6, 7)),  # the only free four
        ((1, 5), 4, (0, 4, 2, 3)),  # no free four: one by one, first the rests of broken pairs
        ((), 8, (0, 1, 2, 3, 4, 5, 6, 7)),
        ((2,), 3, (3, 0, 1)),  # three cards are no partition: the rest of 2-3, then a pair of the broken four
    ],
)
def test_partition_binpack_leaves_the_most_whole_partitions(
    mode: str, in_use: tuple[int, ...], count: int, expected: tuple[int, ...]
) -> None:
    scheduler = eight(*in_use, mode=mode)
    wanted = pod("p", ask(count, 0, 100, 100), gpu_policy="partition-binpack")
    assert place(scheduler, wanted) == [("n", tuple(f"g{n}" for n in expected))]


@MODES
def test_partition_binpack_gives_a_part_of_a_card_where_a_partition_is_broken_already(mode: str) -> None:
    scheduler = eight(mode=mode)
    use(scheduler, "n", "g5", 1, 4_000, 50)
    assert place(scheduler, pod("p", ask(1, 1_000, 10), gpu_policy="partition-binpack")) == [("n", ("g4",))]
