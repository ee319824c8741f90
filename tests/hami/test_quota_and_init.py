"""V26–V28: quotas per card, and what init containers hold (scheduler_test.go, quota_test.go, initContainer_test.go)."""

from __future__ import annotations

from dovetail.engine.usage import usage
from dovetail.model.events import PodObserved
from dovetail.model.pod import Container, ContainerKind, DeviceRules, Quota, RunningPod
from tests.builders import ask, card, group, node, pod
from tests.hami.conftest import Decide
from tests.hami.scene import Given, scene, started

INIT, APP = ContainerKind.INIT, ContainerKind.APP


def quota(mib: int | None = None, cores: int | None = None, name: str = "q") -> Quota:
    memory = {} if mib is None else {"NVIDIA": mib}
    compute = {} if cores is None else {"NVIDIA": cores * 10}
    return Quota("default", name, device_memory_mib=memory, device_compute_milli=compute)


def test_v26_memory_quota_counts_over_cards(decide: Decide, model: str) -> None:
    """Two cards × 2,000 MiB are 4,000: within 4,000, not within 3,999."""
    two = node("n", card("a"), card("b"))
    assert decide(scene(two, model=model, quotas=[quota(4000)]), pod("p", ask(2, 2000)))[0].node == "n"
    (outcome,) = decide(scene(two, model=model, quotas=[quota(3999)]), pod("p", ask(2, 2000)))
    # One card is collected, then 1,999 MiB are left of the quota.
    assert outcome.refused == {"n": "1/2 AllocatedCardsInsufficientRequest, 1/2 ResourceQuotaNotFit"}


def test_v26_core_quota_and_an_explicit_0(decide: Decide, model: str) -> None:
    two = node("n", card("a"), card("b"))
    (outcome,) = decide(scene(two, model=model, quotas=[quota(cores=20)]), pod("p", ask(1, 2000, 21)))
    assert outcome.refused == {"n": "2/2 ResourceQuotaNotFit"}
    (outcome,) = decide(scene(two, model=model, quotas=[quota(0)]), pod("p", ask(1, 1, 1)))
    assert outcome.refused == {"n": "2/2 ResourceQuotaNotFit"}


def test_v26_percentages_count_as_the_card_has_them(decide: Decide, model: str) -> None:
    """50 % of 8,000 MiB."""
    one = node("n", card("a"))
    assert decide(scene(one, model=model, quotas=[quota(4000)]), pod("p", ask(1, percent=50)))[0].node == "n"
    (outcome,) = decide(scene(one, model=model, quotas=[quota(3999)]), pod("p", ask(1, percent=50)))
    assert outcome.refused == {"n": "1/1 ResourceQuotaNotFit"}


def test_v26_one_pod_after_another(decide: Decide, model: str) -> None:
    """5,000 MiB: the first two of 2,000 fit, the third does not; several quotas all hold."""
    given = scene(node("n", card("a"), card("b")), model=model, quotas=[quota(5000), quota(9000, name="r")])
    outcomes = decide(given, *(pod(f"p{n}", ask(1, 2000)) for n in range(3)))
    assert [outcome.node for outcome in outcomes] == ["n", "n", None]


def test_v26_containers_of_one_pod_add_up_and_init_gives_back(decide: Decide, model: str) -> None:
    given = scene(node("n", card("a")), model=model, quotas=[quota(5000)])
    assert decide(given, pod("p", ask(1, 3000), ask(1, 3000)))[0].node is None
    first_init = [Container("i", INIT, (ask(1, 3000),)), Container("c", APP, (ask(1, 3000),))]
    assert decide(given, pod("p", containers=first_init))[0].node == "n"


def test_numa_bind_counts_a_quota_for_each_numa_node_anew(decide: Decide, model: str) -> None:
    """Two cards of 2,000 MiB on one NUMA node, a quota of 3,000: a card given up with its NUMA node uses none of it.

    Tried first is NUMA node 1 with one card (gathered, then given up); of the two on NUMA node 0 the first fits, and
    1,000 MiB of the quota are left for the second.
    """
    three = node("n", card("a", numa=0), card("b", numa=0), card("c", numa=1))
    wants = pod("p", ask(2, 2000), rules=DeviceRules("NVIDIA", numa_bind=True))
    (outcome,) = decide(scene(three, model=model, quotas=[quota(3000)]), wants)
    counted = "1/3 AllocatedCardsInsufficientRequest, 1/3 NumaNotFit, 1/3 ResourceQuotaNotFit"
    assert outcome.refused == {"n": counted}
    assert decide(scene(three, model=model, quotas=[quota(4000)]), wants)[0].node == "n"


def test_topology_aware_chooses_among_all_cards_under_a_quota(decide: Decide, model: str) -> None:
    """A quota of 4,000 MiB for two of four cards at 2,000 each: b and a are best connected, and only these two count.

    HAMi counts every card that it gathers, d and c first, and then sees no more than these two.
    """
    links = ((0, 600, 10, 10), (600, 0, 10, 10), (10, 10, 0, 20), (10, 10, 20, 0))
    four = node("n", *(card(uuid, index=n) for n, uuid in enumerate("abcd")), links=links)
    wants = pod("p", ask(2, 2000), gpu_policy="topology-aware")
    assert decide(scene(four, model=model, quotas=[quota(4000)]), wants)[0].cards == ["b", "a"]
    (outcome,) = decide(scene(four, model=model, quotas=[quota(3999)]), wants)
    assert outcome.refused == {"n": "1/4 AllocatedCardsInsufficientRequest, 3/4 ResourceQuotaNotFit"}


def test_another_namespace_is_not_concerned(decide: Decide, model: str) -> None:
    given = scene(node("n", card("a")), model=model, quotas=[quota(0)])
    assert decide(given, pod("p", ask(1, 3000), namespace="elsewhere"))[0].node == "n"


def test_v27_init_holds_the_larger_part_until_it_ends(model: str) -> None:
    """Init 20,000 MiB and 10 cores, app 10,000 and 5, on one card: booked 20,000/10 and one slot."""
    given = scene(node("n", card("GPU0", 24_000)), model=model, quotas=[quota(25_000)])
    scheduler = started(given)
    containers = [Container("init", INIT, (ask(1, 20_000, 10),)), Container("app", APP, (ask(1, 10_000, 5),))]
    wants = pod("p", containers=containers)
    (decision,) = scheduler.place([group(wants)])

    def booked() -> tuple[int, int, int]:
        (gpu,) = usage(scheduler)[0].cards
        return gpu.slots_used, gpu.memory_used_mib, gpu.compute_used_milli

    def quota_left() -> list[int]:
        left: list[int] = scheduler.quotas.allowance(pod("q", ask(1)), scheduler.intern.vendors)[0].tolist()
        return left

    assert booked() == (1, 20_000, 100)
    assert quota_left()[0] == 25_000 - 20_000
    # The init container ended with 0: what only it held is free, in the ledger and in the quota.
    after = tuple(share for share in decision.shares if share.container == 1)
    scheduler.handle(PodObserved(1.0, RunningPod(wants, "n", after)))
    assert booked() == (1, 10_000, 50)
    assert quota_left()[0] == 25_000 - 10_000


def test_v27_two_app_containers_on_one_card_take_two_slots(model: str) -> None:
    scheduler = started(scene(node("n", card("GPU0")), model=model))
    scheduler.place([group(pod("p", ask(1, 1000, 5), ask(1, 2000, 10)))])
    (gpu,) = usage(scheduler)[0].cards
    assert (gpu.slots_used, gpu.memory_used_mib, gpu.compute_used_milli) == (2, 3000, 150)


def test_v28_init_and_app_on_different_cards_hold_both(decide: Decide, model: str) -> None:
    """Spread: the init container on the last card; the app starts from the empty node again, so on the same one."""
    given = scene(node("n", card("a"), card("b")), model=model)
    containers = [Container("init", INIT, (ask(2, 1000, 10),)), Container("app", APP, (ask(1, 3000, 5),))]
    (outcome,) = decide(given, pod("p", containers=containers))
    assert outcome.given == (Given("init", "b", 1000, 10), Given("init", "a", 1000, 10), Given("app", "b", 3000, 5))
    scheduler = started(given)
    scheduler.place([group(pod("p", containers=containers))])
    held = {c.device.uuid: (c.slots_used, c.memory_used_mib, c.compute_used_milli) for c in usage(scheduler)[0].cards}
    assert held == {"a": (1, 1000, 100), "b": (1, 3000, 100)}  # per card and kind the larger of the two
