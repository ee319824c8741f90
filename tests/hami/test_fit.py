"""V19: one card or two, one request (device_test.go TestDevices_Fit, score_test.go Test_fitInCertainDevice)."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.engine.ledger.requests import unlimited
from dovetail.engine.why.explain import verdicts
from dovetail.engine.why.tally import tally_ask
from dovetail.model.device import Device
from dovetail.model.pod import DeviceAsk, DeviceRules, Pod
from dovetail.model.reason import Reason
from tests.builders import ask, card, node, pod
from tests.hami.conftest import Decide
from tests.hami.scene import Given, Scene, Use, scene, started


def one(memory: int = 1280, **facts: Any) -> Device:
    return card("dev-0", memory, slots=100, **facts)


def test_v19_of_two_empty_cards_the_last(decide: Decide, model: str) -> None:
    given = scene(node("n", card("dev-0", 128, slots=100), card("dev-1", 128, slots=100)), model=model)
    assert decide(given, pod("p", ask(1, 64, 50)))[0].cards == ["dev-1"]


REFUSALS = [
    # (MiB of the card, (slots, MiB, cores) in use, request, what is said)
    (1024, (1, 0, 100), ask(1, 512, 50), "1/1 CardInsufficientCore"),  # 100 − 100 < 50
    (1280, (100, 0, 0), ask(1, 512, 50), "1/1 CardTimeSlicingExhausted"),  # 100 of 100 slots
    (1280, (20, 0, 0), ask(1, 512, 100), "1/1 ExclusiveDeviceAllocateConflict"),  # all cores, yet 20 others
    (1280, (20, 0, 100), ask(1, 512, 0), "1/1 CardComputeUnitsExhausted"),  # no claim, but nothing left to share
    (1280, (1, 800, 0), ask(1, 512, 0), "1/1 CardInsufficientMemory"),  # 480 < 512
    (11264, (1, 11260, 0), ask(1, 0, 10, percent=100), "1/1 CardInsufficientMemory"),  # 0 % = unset = all of it
]


@pytest.mark.parametrize(("memory", "used", "wants", "says"), REFUSALS)
def test_v19_what_one_card_says(
    decide: Decide, model: str, memory: int, used: tuple[int, int, int], wants: DeviceAsk, says: str
) -> None:
    given = scene(node("n", one(memory)), uses=[Use("n", "dev-0", *used)], model=model)
    (outcome,) = decide(given, pod("p", wants))
    assert (outcome.node, outcome.refused) == (None, {"n": says})


def test_v19_unhealthy_whatever_is_asked(decide: Decide, model: str) -> None:
    given = scene(node("n", one(healthy=False)), model=model)
    for wants in (ask(1, 512, 50), ask(1, 0, 0), ask(1, 99_999, 100)):
        assert decide(given, pod("p", wants))[0].refused == {"n": "1/1 CardNotHealth"}


@pytest.mark.parametrize(
    "rules",
    [
        DeviceRules("NVIDIA", use_uuids=("dev-7",)),
        DeviceRules("NVIDIA", nouse_uuids=("dev-0",)),
        DeviceRules("NVIDIA", use_uuids=("dev-0",), nouse_uuids=("dev-0",)),  # nouse wins
    ],
)
def test_v19_lists_of_uuids(decide: Decide, model: str, rules: DeviceRules) -> None:
    given = scene(node("n", one()), model=model)
    (outcome,) = decide(given, pod("p", ask(1, 512, 50), rules=rules))
    assert outcome.refused == {"n": "1/1 CardUuidMismatch"}
    # V19 asks for two of the one card: then the node as a whole says it first.
    (outcome,) = decide(given, pod("p", ask(2, 512, 50), rules=rules))
    assert outcome.refused == {"n": "NodeInsufficientDevice"}
    assert inside_fit(given, pod("p", ask(2, 512, 50), rules=rules)) == "1/1 CardUuidMismatch"


@pytest.mark.parametrize(
    ("used", "wants", "memory", "cores"),
    [
        ((0, 0, 0), ask(1, 512, 120), 512, 100),  # more than all cores is all cores
        ((20, 0, 10), ask(1, 0, 20, percent=10), 128, 20),  # 10 % of 1280
        ((20, 0, 10), ask(1, 0, 20, percent=1), 12, 20),  # 12.8 is cut
    ],
)
def test_v19_what_is_booked(
    decide: Decide, model: str, used: tuple[int, int, int], wants: DeviceAsk, memory: int, cores: int
) -> None:
    given = scene(node("n", one()), uses=[Use("n", "dev-0", *used)], model=model)
    assert decide(given, pod("p", wants))[0].given == (Given("c0", "dev-0", memory, cores),)


def test_v19_a_percentage_of_0_is_the_whole_card(decide: Decide, model: str) -> None:
    """HAMi reads it as unset; the model has no 0 %, so the reader of requests makes it 100 (see tests/kube)."""
    given = scene(node("n", one(11264)), model=model)
    assert decide(given, pod("p", ask(1, 0, 10, percent=100)))[0].given[0].memory == 11264


def inside_fit(given: Scene, wants: Pod) -> str:
    """What HAMi's Fit says of node n's cards, past the check of the node as a whole."""
    scheduler = started(given)
    shape = scheduler.intern.shape(wants, -1)
    scheduler.ledger.make_room(0, 9)
    state, lens = scheduler.ledger.state(), scheduler.lens(wants.profile)
    quota = unlimited(scheduler.intern.vendors)
    lens.choose_all(state.rows, state.wants, 0, shape, lens.style, quota, 0, state.scratch)
    first = int(state.wants.shape[shape, 0])
    return tally_ask(state, lens, 0, shape, first, 0, scheduler.ledger.devices(0)).hami


def test_v19_more_cards_than_there_are(decide: Decide, model: str) -> None:
    two = scene(node("n", card("dev-0", 1280), card("dev-1", 1280)), model=model)
    assert inside_fit(two, pod("p", ask(3, 512, 20))) == "2/2 AllocatedCardsInsufficientRequest"
    assert decide(two, pod("p", ask(3, 512, 20)))[0].refused == {"n": "NodeInsufficientDevice"}
    used = scene(node("n", one()), uses=[Use("n", "dev-0", 20, 0, 10)], model=model)
    assert inside_fit(used, pod("p", ask(2, 512, 20))) == "1/1 AllocatedCardsInsufficientRequest"


def test_reasons_are_counted_and_sorted_as_text(decide: Decide, model: str) -> None:
    """`<count>/<cards> <Reason>` sorted alphabetically: 1/4 before 3/4."""
    cards = [card("a", 1000), card("b", healthy=False), card("c", 1000), card("d", 1000)]
    (outcome,) = decide(scene(node("n", *cards), model=model), pod("p", ask(1, 2000, 10)))
    assert outcome.refused == {"n": "1/4 CardNotHealth, 3/4 CardInsufficientMemory"}


def test_the_type_is_a_run_of_whole_words(decide: Decide) -> None:
    """The first card of eight refused for its type, the others for memory."""
    cards = [card(f"t{n}", model="NVIDIA T4") for n in range(5)] + [
        card(f"a{n}", 100, model="NVIDIA A100") for n in range(3)
    ]
    rules = DeviceRules("NVIDIA", use_types=("a100",))
    (outcome,) = decide(Scene((node("n", *cards),)), pod("p", ask(1, 2000, 10), rules=rules))
    assert outcome.refused == {"n": "3/8 CardInsufficientMemory, 5/8 CardTypeMismatch"}


def test_exclusive_only_where_compute_is_not_overcommitted(decide: Decide, model: str) -> None:
    """devcore 200: 100 cores beside others are fine (rule 12 needs exactly 100)."""
    twice = scene(node("n", one(compute_milli=2000)), uses=[Use("n", "dev-0", 3, 0, 50)], model=model)
    assert decide(twice, pod("p", ask(1, 512, 100)))[0].cards == ["dev-0"]


def test_a_node_without_cards_is_unregistered(decide: Decide, model: str) -> None:
    (outcome,) = decide(scene(node("n"), model=model), pod("p", ask(1, 1)))
    assert outcome.refused == {"n": "node unregistered"}


def test_hamis_order_of_questions(model: str) -> None:
    """A card with everything wrong says the first of HAMi's rules that it breaks; cured, the next one."""
    wrong = {"healthy": False, "cordoned": True}
    steps = [
        (wrong, {"use_types": ("T4",), "use_uuids": ("x",)}, (10, 8000, 100), Reason.CARD_UNHEALTHY),
        ({"cordoned": True}, {"use_types": ("T4",), "use_uuids": ("x",)}, (10, 8000, 100), Reason.CARD_CORDONED),
        ({}, {"use_types": ("T4",), "use_uuids": ("x",)}, (10, 8000, 100), Reason.CARD_TYPE),
        ({}, {"use_uuids": ("x",)}, (10, 8000, 100), Reason.CARD_UUID),
        ({}, {}, (10, 8000, 100), Reason.CARD_SLOTS),
        ({}, {}, (9, 8000, 100), Reason.CARD_IN_USE),
    ]
    for facts, rules, used, reason in steps:
        given = scene(node("n", card("a", **facts)), uses=[Use("n", "a", *used)], model=model)
        wants = pod("p", ask(1, 512, 100), gpu_policy="mutex", rules=DeviceRules("NVIDIA", **rules))  # type: ignore[arg-type]
        assert verdicts(started(given), wants)[0].reason == reason
    for used, reason in [((9, 8000, 100), Reason.CARD_MEMORY), ((9, 0, 1), Reason.CARD_COMPUTE)]:
        given = scene(node("n", card("a")), uses=[Use("n", "a", *used)], model=model)
        assert verdicts(started(given), pod("p", ask(1, 512, 100)))[0].reason == reason


def test_of_several_containers_the_first_that_fails_speaks(decide: Decide, model: str) -> None:
    """The first asks for more memory than a card has, the second for more cards than the node has."""
    given = scene(node("n", card("a"), card("b")), model=model)
    (outcome,) = decide(given, pod("p", ask(1, 9000), ask(3, 1000)))
    assert outcome.refused == {"n": "2/2 CardInsufficientMemory"}
    (outcome,) = decide(given, pod("p", ask(3, 1000), ask(1, 9000)))
    assert outcome.refused == {"n": "NodeInsufficientDevice"}
    (outcome,) = decide(given, pod("p", ask(2, 1000), ask(3, 1000)))
    assert outcome.refused == {"n": "NodeInsufficientDevice"}
