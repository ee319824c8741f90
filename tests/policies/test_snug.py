"""snug against its definition (docs/snug.md), written down a second time: plain integers, tried on every card.

Its tables are taken as they are; tests/policies/test_values.py holds them. Values are in millionths of a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Share
from dovetail.model.events import PodObserved
from dovetail.model.pod import DeviceAsk, DeviceRules, Pod, RunningPod
from dovetail.policies import node_snug
from dovetail.policies.typical import TypicalPod
from dovetail.policies.values import card_values, cpu_factors, prices
from tests.builders import ask, card, cluster, node, place, pod
from tests.policies.fleet import MODELS, Machine, Request, assert_best, built, pod_of
from tests.properties import with_examples

many = with_examples(150)


# ---- the definition


class Definition:
    """snug for one fleet and one workload, one number after the other."""

    def __init__(self, fleet: list[Machine], workload: list[Request]) -> None:
        self.workload, self.total = workload, sum(one.times for one in workload)
        capacity = [1000 * sum(len(m.left) for m in fleet if m.model == model) for model in range(len(MODELS))]
        there = frozenset(model for model, milli in enumerate(capacity) if milli)
        typical = [
            TypicalPod(one.times, one.cpu, one.cards, tuple((model, one.part) for model in sorted(one.models & there)))
            for one in workload
        ]
        self.values: list[list[int]] = card_values(typical, len(MODELS)).tolist()  # [model][left]
        self.factors: list[list[int]] = cpu_factors(typical, len(MODELS)).tolist()  # [model][100 milli CPU per GPU]
        self.prices: list[int] = prices(typical, capacity).tolist()  # [model]

    def with_cpu(self, machine: Machine) -> int:
        value = sum(self.values[machine.model][left] for left in machine.left)
        if value <= 0:
            return 0
        return (value * self.factors[machine.model][min(512, machine.cpu * 10_000 // value)]) >> 16

    def kept(self, machine: Machine) -> int:
        """For idle cards: 0.06 GPU each, by the part of the pods that could take them for themselves."""
        could = sum(
            one.times
            for one in self.workload
            if one.part == 1000 and one.cards <= machine.idle and one.cpu <= machine.cpu and machine.model in one.models
        )
        return round(Fraction(60_000 * machine.idle * could, self.total))

    def worth(self, machine: Machine) -> int:
        return self.with_cpu(machine) + self.kept(machine)

    def score(self, machine: Machine, request: Request, cards: tuple[int, ...]) -> int:
        total = self.worth(machine.with_less(request, cards)) - self.worth(machine)
        total += (1000 - self.prices[machine.model]) * request.cards * request.part
        if request.cards and machine.idle == len(machine.left):
            total -= 2500 * len(machine.left)
        return floor(Fraction(total, 12_000))

    def best(self, machine: Machine, request: Request) -> tuple[int, tuple[int, ...]] | None:
        """The score and the cards: of equal ones the card with least left, then the first."""
        tried = [(self.score(machine, request, cards), cards) for cards in machine.choices(request)]
        return min(tried, key=lambda one: (-one[0], [machine.left[n] for n in one[1]], one[1]), default=None)


class Case(NamedTuple):
    fleet: list[Machine]
    workload: list[Request]
    request: Request


def some_request(chance: Random) -> Request:
    """Mostly a part of a card, else whole cards, parts of several or none."""
    part = chance.choice((190, 250, 500, 500, 810, chance.randint(1, 999)))
    cards, milli = chance.choice(((1, part),) * 4 + ((1, 1000), (2, 1000), (4, 1000), (2, part), (0, 0)))
    models = chance.choice((frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset({0, 1})))
    cpu = chance.choice((0, 500, 1000, 1500, 4000, 16_000))
    return Request(cpu, cards, milli, models if cards else frozenset(), chance.randint(1, 9))


def some_machine(chance: Random) -> Machine:
    left = [chance.choice((0, 190, 500, 810, 1000, 1000, 1000, chance.randint(0, 1000))) for _ in range(6)]
    cpu = chance.choice((499, 1000, 4000, 20_000, 64_000, 64_000))
    return Machine(cpu, chance.randrange(2), tuple(left[: chance.randint(1, 6)]))


def some_case(seed: int) -> Case:
    chance = Random(seed)
    workload = [some_request(chance) for _ in range(chance.randint(1, 6))]
    workload = [replace(one, cards=1) if 0 < one.part < 1000 else one for one in workload]
    return Case([some_machine(chance) for _ in range(chance.randint(1, 4))], workload, some_request(chance))


cases = st.builds(some_case, st.integers(0, 2**32 - 1))


@many
@given(cases)
def test_the_worth_of_a_node_is_the_definition(case: Case) -> None:
    fleet, workload, _ = case
    scheduler, definition = built(fleet, workload, "snug"), Definition(fleet, workload)
    scheduler.outlook.prepare(values=True)
    for n, machine in enumerate(fleet):
        row = scheduler.ledger.row_of[f"{n}"]
        assert node_snug.worth(scheduler.ledger.rows, row) == definition.worth(machine)


@many
@given(cases)
def test_score_and_card_are_those_of_trying_everything(case: Case) -> None:
    """Of equally good nodes the first by name."""
    fleet, workload, request = case
    scheduler, wanted, definition = (
        built(fleet, workload, "snug"),
        pod_of("wanted", request, "snug"),
        Definition(fleet, workload),
    )
    tried = {f"{n}": definition.best(machine, request) for n, machine in enumerate(fleet)}
    best = {name: one for name, one in tried.items() if one is not None}
    assert_best(scheduler, wanted, best)


# ---- in the user's nouns


def snug_pod(milli: int, cpu: int = 0, model: str = "") -> Pod:
    """So much of one card, of any model or of this one."""
    rules = DeviceRules("NVIDIA", use_types=(model,)) if model else None
    return pod(
        f"{milli}-{cpu}-{model}", DeviceAsk("NVIDIA", 1, 0, None, milli), node_policy="snug", cpu=cpu, rules=rules
    )


def told(scheduler: Scheduler, *typical: Pod) -> Scheduler:
    scheduler.outlook.expect((one, 1) for one in typical)
    return scheduler


def worn(scheduler: Scheduler, uuid: str, milli: int) -> None:
    """Somebody has so much of this card."""
    running = RunningPod(pod(f"on-{uuid.replace('/', '-')}", ask(1)), uuid.split("/")[0], (Share(0, uuid, 0, milli),))
    scheduler.handle(PodObserved(0.0, running))


def said(scheduler: Scheduler, wanted: Pod) -> dict[str, float | None]:
    return {verdict.node: verdict.score for verdict in verdicts(scheduler, wanted)}


MIX = (snug_pod(190), snug_pod(810))


def test_a_190_goes_beside_an_810() -> None:
    """190s and 810s are typical. Alone on a card or beside an 810, a 190 costs the same, 189,268: the rest, of 810 or
    of 0, is worth a card less a 190. But opening `idle` costs 2,500, and 190,000 − 189,268 − 2,500 is below 0.

    Where 810 are left it would spoil the place of an 810: 810 milli are worth 810,732 and 620, three 190s, 567,803.
    """
    scheduler = told(cluster(*(node(name, gpus=1) for name in ("idle", "room-for-190", "room-for-810"))), *MIX)
    worn(scheduler, "room-for-190/0", 810)
    worn(scheduler, "room-for-810/0", 190)
    assert said(scheduler, snug_pod(190)) == {"idle": -1.0, "room-for-190": 0.0, "room-for-810": -5.0}
    assert place(scheduler, snug_pod(190)) == [("room-for-190", ("room-for-190/0",))]


def test_of_equally_good_cards_the_tightest_and_of_those_the_first() -> None:
    """1,000, 190, 500, 190: on each a 190 costs one 190 (500 have room for two, 310 for one)."""
    scheduler = told(cluster(node("n", gpus=4)), *MIX)
    for uuid, milli in (("n/1", 810), ("n/2", 500), ("n/3", 810)):
        worn(scheduler, uuid, milli)
    pods = [replace(snug_pod(190), name=f"p{n}", uid=f"p{n}") for n in range(4)]
    assert place(scheduler, *pods) == [("n", (uuid,)) for uuid in ("n/1", "n/3", "n/2", "n/2")]


def test_whoever_takes_any_model_keeps_off_the_one_that_others_need() -> None:
    """Half of the demand takes an A100 only, half of the cards are A100s: a pressure of 1, so 20 % on top.

    a100: both kinds of pod could take the idle card: 60,000. −1,060,000 + 800,000 − 2,500 for opening: −22 steps.
    t4: half of them could: 30,000. −1,030,000 + 1,000,000 − 2,500: −3 steps.
    """
    a100, t4 = (node(name, card(name, model=f"NVIDIA {name.upper()}")) for name in ("a100", "t4"))
    scheduler = told(cluster(a100, t4), snug_pod(1000, model="A100"), snug_pod(1000))
    assert said(scheduler, snug_pod(1000)) == {"a100": -22.0, "t4": -3.0}
    assert place(scheduler, snug_pod(1000)) == [("t4", ("t4",))]
    assert place(scheduler, snug_pod(1000, model="A100")) == [("a100", ("a100",))]


def test_an_idle_node_is_not_opened_where_another_is_as_good() -> None:
    """Halves are typical: half a card costs 500,000 of 1,000,000 on any idle card. Opening two cards costs 5,000."""
    scheduler = told(cluster(node("a", gpus=2), node("b", gpus=2)), snug_pod(500))
    worn(scheduler, "b/0", 1000)
    assert said(scheduler, snug_pod(500)) == {"a": -1.0, "b": 0.0}
    assert place(scheduler, snug_pod(500)) == [("b", ("b/1",))]


def test_an_idle_node_is_opened_rather_than_a_place_spoiled() -> None:
    """810s are typical. a: beside a 190 the place of an 810 would be gone, 190,000 − 1,000,000.

    b: an idle card with 190 less still takes one, 190,000 − 0 − 2,500.
    """
    scheduler = told(cluster(node("a", gpus=1), node("b", gpus=1)), snug_pod(810))
    worn(scheduler, "a/0", 190)
    assert said(scheduler, snug_pod(190)) == {"a": -68.0, "b": 15.0}
    assert place(scheduler, snug_pod(190)) == [("b", ("b/0",))]


def test_idle_cards_are_kept_for_pods_that_want_several() -> None:
    """Half of the pods want two whole cards, half want one.

    a, two idle cards: 2 × 60,000 for all pods, and 60,000 × 1/2 with one left: −90,000, and 5,000 for opening: −8.
    b, one idle card: 30,000 and 0: −3.
    """
    scheduler = cluster(node("a", gpus=2), node("b", gpus=2))
    worn(scheduler, "b/1", 1000)
    told(scheduler, pod("two", DeviceAsk("NVIDIA", 2, 0, None, 1000)), snug_pod(1000))
    assert said(scheduler, snug_pod(1000)) == {"a": -8.0, "b": -3.0}
    assert place(scheduler, snug_pod(1000)) == [("b", ("b/0",))]


def test_whoever_needs_much_cpu_goes_where_it_is_plentiful() -> None:
    """Typical: half a card and 4 cores, 8 per GPU. Now half a card comes with 8 cores.

    a, 8 cores for the card: none is left for the other half, so a quarter of its 500,000 is lost. 500,000 − 1,000,000
    + 375,000 − 2,500 for opening: −11 steps. b, 16 cores: 8 are left, more than enough: −2,500, so −1.
    """
    nodes = node("a", gpus=1, cpu=8000), node("b", gpus=1, cpu=16_000)
    scheduler = told(cluster(*nodes), snug_pod(500, 4000))
    assert said(scheduler, snug_pod(500, 8000)) == {"a": -11.0, "b": -1.0}
    assert place(scheduler, snug_pod(500, 8000)) == [("b", ("b/0",))]


def test_whoever_needs_no_cpu_goes_where_it_is_short() -> None:
    """Typical as above. b has 4 cores for its card, half of what it needs, so 12.5 % are lost: 875,000.

    With half of the card gone 4 cores are enough for the rest: 500,000 − 875,000 + 500,000 − 2,500: 10 steps. a: −1.
    """
    nodes = node("a", gpus=1, cpu=16_000), node("b", gpus=1, cpu=4000)
    scheduler = told(cluster(*nodes), snug_pod(500, 4000))
    assert said(scheduler, snug_pod(500)) == {"a": -1.0, "b": 10.0}
    assert place(scheduler, snug_pod(500)) == [("b", ("b/0",))]


def test_a_pod_without_cards_goes_where_its_cpu_is_not_missed() -> None:
    """Typical as above; now 4 cores without a card. a: 8 − 4 cores for one card, 1,000,000 become 875,000: −11.

    b: 16 − 4 are enough. c has no card to lose. Opening costs only who takes cards.
    """
    nodes = node("a", gpus=1, cpu=8000), node("b", gpus=1, cpu=16_000), node("c", cpu=8000)
    scheduler = told(cluster(*nodes), snug_pod(500, 4000))
    wanted = pod("p", node_policy="snug", cpu=4000)
    assert said(scheduler, wanted) == {"a": -11.0, "b": 0.0, "c": 0.0}
    assert place(scheduler, wanted) == [("b", ())]


def test_a_pod_that_takes_all_that_is_left_of_an_odd_card() -> None:
    """2 of 3 MiB are left: 666 milli rounded down, asked for 667 rounded up. Nothing is looked up below 0."""
    scheduler = told(cluster(node("n", card("g", memory=3))), pod("one", ask(1, 1)), pod("two", ask(1, 2)))
    pods = [pod("p", ask(1, 1), node_policy="snug"), pod("q", ask(1, 2), node_policy="snug")]
    assert place(scheduler, *pods) == [("n", ("g",)), ("n", ("g",))]


def test_more_cpu_than_there_is_overflows_nothing() -> None:
    """A million million cores are plenty, and worth as much as 64."""
    scheduler = told(cluster(node("a", gpus=8), node("b", gpus=8, cpu=10**15)), snug_pod(500, 4000))
    scheduler.outlook.prepare(values=True)
    rows, row_of = scheduler.ledger.rows, scheduler.ledger.row_of
    assert [node_snug.worth(rows, row_of[name]) for name in "ab"] == [8_000_000, 8_000_000]
