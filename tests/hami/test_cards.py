"""V10–V15, V21: which cards, several cards, several containers (score_test.go Test_calcScore, device_test.go)."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.assigned import encode
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, DeviceRules
from tests.builders import ask, card, group, node, pod
from tests.hami.conftest import Decide
from tests.hami.scene import Given, Use, scene, started

INIT, APP, SIDECAR = ContainerKind.INIT, ContainerKind.APP, ContainerKind.SIDECAR


def container(name: str, kind: ContainerKind, *asks: DeviceAsk) -> Container:
    return Container(name, kind, asks)


def test_v10_of_equal_cards_the_last_registered_comes_first(decide: Decide, model: str) -> None:
    given = scene(node("n", card("uuid1"), card("uuid2")), model=model)
    for policy in ("spread", "binpack"):
        assert decide(given, pod("p", ask(1, 1000, 30), gpu_policy=policy))[0].cards == ["uuid2"]
        assert decide(given, pod("p", ask(2, 1000, 30), gpu_policy=policy))[0].cards == ["uuid2", "uuid1"]


def test_v12_two_containers_share_the_only_card(decide: Decide, model: str) -> None:
    given = scene(node("n1", card("uuid1")), node("n2", card("uuid2")), model=model)
    (outcome,) = decide(given, pod("p", ask(1, 1000, 30), ask(1, 1000, 40)))
    assert outcome.given == (Given("c0", "uuid1", 1000, 30), Given("c1", "uuid1", 1000, 40))


@pytest.mark.parametrize(
    ("kinds", "string"),
    [
        ([(APP, 0), (APP, 1), (APP, 0)], ";uuid1,NVIDIA,1000,30:;;"),
        ([(APP, 1), (APP, 0)], "uuid1,NVIDIA,1000,30:;;"),
        ([(INIT, 0), (INIT, 1), (APP, 1)], ";uuid1,NVIDIA,1000,30:;uuid1,NVIDIA,1000,30:;"),
        ([(INIT, 1), (APP, 0), (APP, 1)], "uuid1,NVIDIA,1000,30:;;uuid1,NVIDIA,1000,30:;"),
    ],
)
def test_v13_positions_are_strict_whatever_the_cards_are_called(
    model: str, kinds: list[tuple[ContainerKind, int]], string: str
) -> None:
    """A container without cards is an empty segment, init containers come first (issue #2899)."""
    scheduler = started(scene(node("n", card("uuid1")), model=model))
    containers = [
        container(f"c{n}", kind, *((ask(1, 1000, 30),) if wants else ())) for n, (kind, wants) in enumerate(kinds)
    ]
    (decision,) = scheduler.place([group(pod("p", containers=containers))])
    assert encode(decision.shares, len(containers), "NVIDIA") == string


@pytest.mark.parametrize(
    ("uses", "init", "says"),
    [
        # 7,500 of 8,000 MiB used: 500 left, the init container asks 4,000.
        ([(1, 7500, 0), (1, 7500, 0)], ask(1, 4000), "2/2 CardInsufficientMemory"),
        # 80 of 100 cores used: 20 left, the init container asks 30; the app's 10 alone would fit.
        ([(1, 0, 80), (1, 0, 80)], ask(1, 100, 30), "2/2 CardInsufficientCore"),
    ],
)
def test_v15_an_init_container_that_fits_nowhere(
    decide: Decide, model: str, uses: list[tuple[int, int, int]], init: DeviceAsk, says: str
) -> None:
    given = scene(
        node("n", card("a"), card("b")),
        uses=[Use("n", uuid, *used) for uuid, used in zip("ab", uses, strict=True)],
        model=model,
    )
    containers = [container("init", INIT, init), container("app", APP, ask(1, 100, 10))]
    (outcome,) = decide(given, pod("p", containers=containers))
    assert (outcome.node, outcome.refused) == (None, {"n": says})
    assert decide(given, pod("p", containers=containers[1:]))[0].node == "n"


def test_v15_a_card_smaller_than_the_request(decide: Decide, model: str) -> None:
    (outcome,) = decide(scene(node("n", card("a", 50)), model=model), pod("p", ask(1, 1000)))
    assert outcome.refused == {"n": "1/1 CardInsufficientMemory"}


def test_init_containers_run_alone_and_the_others_add_up(decide: Decide, model: str) -> None:
    """6000 and 7000 one after the other fit on 8000; beside a sidecar of 2000 the second does not."""
    given = scene(node("n", card("a")), model=model)
    alone = [
        container("i1", INIT, ask(1, 6000)),
        container("i2", INIT, ask(1, 7000)),
        container("c", APP, ask(1, 8000)),
    ]
    assert decide(given, pod("p", containers=alone))[0].cards == ["a", "a", "a"]
    beside = [
        container("s", SIDECAR, ask(1, 2000)),
        container("i", INIT, ask(1, 7000)),
        container("c", APP, ask(1, 5000)),
    ]
    assert decide(given, pod("p", containers=beside))[0].refused == {"n": "1/1 CardInsufficientMemory"}
    before = [
        container("i", INIT, ask(1, 7000)),
        container("s", SIDECAR, ask(1, 2000)),
        container("c", APP, ask(1, 5000)),
    ]
    assert decide(given, pod("p", containers=before))[0].cards == ["a", "a", "a"]


def test_v21_a_cordoned_card_takes_nobody_new_and_keeps_whom_it_has(decide: Decide, model: str) -> None:
    given = scene(
        node("n", card("dev-0"), card("dev-1", cordoned=True)), uses=[Use("n", "dev-1", 1, 1000, 10)], model=model
    )
    assert decide(given, pod("p", ask(1, 512, 10)))[0].cards == ["dev-0"]
    scheduler = started(given)
    assert scheduler.ledger.rows.held[0, 1].tolist() == [1, 1000, 100]


def test_v21_both_cordoned(decide: Decide, model: str) -> None:
    both = node("n", card("dev-0", cordoned=True), card("dev-1", cordoned=True))
    (outcome,) = decide(scene(both, model=model), pod("p", ask(1, 512, 10)))
    assert outcome.refused == {"n": "2/2 CardCordoned"}


def test_v21_mutex_takes_idle_cards_only(decide: Decide, model: str) -> None:
    given = scene(node("n", card("used"), card("idle")), uses=[Use("n", "used", 1, 1000, 10)], model=model)
    assert decide(given, pod("p", ask(1, 512, 10), gpu_policy="mutex"))[0].cards == ["idle"]
    (outcome,) = decide(given, pod("p", ask(2, 512, 10), gpu_policy="mutex"))
    assert outcome.refused == {"n": "1/2 AllocatedCardsInsufficientRequest, 1/2 ExclusiveDeviceAllocateConflict"}


def test_numa_bind_takes_all_cards_from_one_numa_node(decide: Decide, model: str) -> None:
    """NUMA 1 has one card, NUMA 0 two: spread tries NUMA 1 first, which is not enough."""
    cards = [card("a", numa=0), card("b", numa=0, index=1), card("c", numa=1, index=2)]
    bound = DeviceRules("NVIDIA", numa_bind=True)
    given = scene(node("n", *cards), model=model)
    assert sorted(decide(given, pod("p", ask(2, 1000), rules=bound))[0].cards) == ["a", "b"]
    assert decide(given, pod("p", ask(1, 1000), rules=bound))[0].cards == ["c"]
    assert decide(given, pod("p", ask(1, 1000), rules=bound, gpu_policy="binpack"))[0].cards == ["b"]
    (outcome,) = decide(given, pod("p", ask(3, 1000), rules=bound))
    # Walked: c (NUMA 1) is dropped for a and b (NUMA 0), which are two of three.
    assert outcome.refused == {"n": "1/3 NumaNotFit, 2/3 AllocatedCardsInsufficientRequest"}


def test_topology_aware_takes_the_best_connected_set_and_the_least_missed_card(decide: Decide, model: str) -> None:
    """a–b and c–d are linked by NVLink (100), everything else crosses CPUs (10); b–c 60."""
    links = ((0, 100, 10, 10), (100, 0, 60, 10), (10, 60, 0, 50), (10, 10, 50, 0))
    four = node("n", *(card(uuid, index=n) for n, uuid in enumerate("abcd")), links=links)
    given = scene(four, model=model)
    # Pairs: ab 100 beats bc 60, cd 50; the order is that of trying: last registered first.
    assert decide(given, pod("p", ask(2, 1000), gpu_policy="topology-aware"))[0].cards == ["b", "a"]
    # Triples: abc 170, abd 120, acd 70, bcd 120.
    assert decide(given, pod("p", ask(3, 1000), gpu_policy="topology-aware"))[0].cards == ["c", "b", "a"]
    # Sums to the others: a 120, b 170, c 120, d 70: d is missed least.
    assert decide(given, pod("p", ask(1, 1000), gpu_policy="topology-aware"))[0].cards == ["d"]
