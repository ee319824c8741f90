"""Measured load: kept by node and card, undone with a transaction, scored again where it changed and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given

from dovetail.engine.ledger import audit
from dovetail.engine.ledger.holders import LedgerError
from dovetail.engine.ledger.signals import MOST_LOAD
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import NodeChanged, NodeGone, SignalsMeasured
from dovetail.model.pod import Profile
from dovetail.model.signals import CardSignals, NodeSignals
from dovetail.policies import node_binpack
from dovetail.policies.node_fgd import offer as fgd_offer
from dovetail.policies.rows import CARD_LOAD, CARDS, CPU_LOAD, NOT_MEASURED, Ints, NodePolicy, Rows, Wants
from dovetail.policies.table import NODE_POLICIES
from tests.builders import ask, card, cluster, group, node, pod
from tests.engine.pictures import made, picture, said
from tests.properties import with_examples
from tests.strategies import World, renamed, worlds

asked: list[tuple[str, int]] = []  # (policy, row): each time a score was computed


def coolest(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """CPU load and that of its cards; -1 where a load is not measured."""
    total = rows.signal[i, CPU_LOAD]
    for d in range(rows.fact[i, CARDS]):
        total += rows.card_signal[i, d, CARD_LOAD]
    return -float(total)


def watched_coolest(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    asked.append(("coolest", i))
    return coolest(rows, i, wants, s, args)


def watched_binpack(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    asked.append(("packed", i))
    return node_binpack.score(rows, i, wants, s, args)


def cool_offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    """fgd's cards on the coolest node."""
    fgd_offer(rows, i, wants, s, a, left, worth, fitting, fits, chosen)
    return worth


def cool_worth(rows: Rows, i: int) -> float:
    return -float(rows.signal[i, CPU_LOAD])


READERS = (
    NodePolicy("coolest", "The coolest node.", coolest, reads_signals=True),
    NodePolicy("coolest-for-all", "The coolest node.", coolest, reads_signals=True, sees_request=False),
    NodePolicy("cool-joint", "fgd's cards there.", offer=cool_offer, worth=cool_worth, reads_signals=True),
)


@pytest.fixture(autouse=True)
def readers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked.clear()
    watched = (
        NodePolicy("watched", "The coolest node.", watched_coolest, reads_signals=True),
        NodePolicy("packed", "binpack.", watched_binpack, sees_request=False),
    )
    for policy in (*READERS, *watched):
        monkeypatch.setitem(NODE_POLICIES, policy.name, policy)


def loads(scheduler: Scheduler, name: str) -> tuple[list[int], dict[str, list[int]]]:
    """CPU and memory with their deviations; compute and memory by card."""
    ledger = scheduler.ledger
    row = ledger.row_of[name]
    cards = {device.uuid: ledger.rows.card_signal[row, n, :2].tolist() for n, device in enumerate(ledger.devices(row))}
    return ledger.rows.signal[row, :4].tolist(), cards


def measure(scheduler: Scheduler, name: str, signals: NodeSignals) -> None:
    scheduler.handle(SignalsMeasured(signals.measured_at, name, signals))
    audit.validate(scheduler.ledger)


TWO = NodeSignals(1.0, 300, 20, None, None, (CardSignals("n/1", 700, 50), CardSignals("elsewhere", 1, 1)))
NOTHING = [NOT_MEASURED] * 4


def test_what_is_measured_is_in_the_rows_by_card() -> None:
    scheduler = cluster(node("n", gpus=2))
    assert loads(scheduler, "n") == (NOTHING, {"n/0": [-1, -1], "n/1": [-1, -1]})
    measure(scheduler, "n", TWO)
    assert loads(scheduler, "n") == ([300, 20, -1, -1], {"n/0": [-1, -1], "n/1": [700, 50]})
    measure(scheduler, "n", NodeSignals(0.5, 1))  # older: it came late
    assert loads(scheduler, "n")[0] == [300, 20, -1, -1]
    measure(scheduler, "n", NodeSignals(2.0, -5, MOST_LOAD + 1))  # within bounds; nothing of the card any more
    assert loads(scheduler, "n") == ([0, MOST_LOAD, -1, -1], {"n/0": [-1, -1], "n/1": [-1, -1]})
    measure(scheduler, "nobody", TWO)
    assert "nobody" not in scheduler.ledger.row_of


def test_loads_follow_their_cards_and_go_with_them() -> None:
    first, second, third = (card(f"n/{n}", index=n) for n in range(3))
    scheduler = cluster(node("n", first, second))
    measure(scheduler, "n", TWO)
    scheduler.handle(NodeChanged(2.0, node("n", second, third, labels={"zone": "a"})))
    assert loads(scheduler, "n") == ([300, 20, -1, -1], {"n/1": [700, 50], "n/2": [-1, -1]})
    scheduler.handle(NodeChanged(3.0, node("n", third)))
    scheduler.handle(NodeChanged(4.0, node("n", first, second)))  # the card is back, and was not measured since
    assert loads(scheduler, "n") == ([300, 20, -1, -1], {"n/0": [-1, -1], "n/1": [-1, -1]})
    audit.validate(scheduler.ledger)


def test_a_node_that_is_gone_has_none_nor_has_one_that_comes_back_or_takes_its_row() -> None:
    scheduler = cluster(node("n", gpus=2))
    for name in ("n", "other"):  # the row of a node that is gone with all its pods serves the next
        measure(scheduler, "n", TWO)
        scheduler.handle(NodeGone(2.0, "n"))
        audit.validate(scheduler.ledger)
        measure(scheduler, "n", msgspec.structs.replace(TWO, measured_at=3.0))  # nobody is there
        scheduler.handle(NodeChanged(4.0, node(name, gpus=2)))
        assert loads(scheduler, name)[0] == NOTHING
        audit.validate(scheduler.ledger)


def test_what_is_measured_in_a_transaction_goes_with_it() -> None:
    scheduler = cluster(node("n", gpus=2), node("m", gpus=1))
    measure(scheduler, "n", TWO)
    before = picture(scheduler)
    with scheduler.ledger.transaction():
        scheduler.ledger.measure("n", NodeSignals(2.0, 900))
        with scheduler.ledger.transaction() as inner:
            scheduler.ledger.measure("m", NodeSignals(2.0, 800))
            inner.commit()
        with scheduler.ledger.transaction():
            scheduler.ledger.measure("n", NodeSignals(3.0, 1))
        assert loads(scheduler, "n")[0][0] == 900
        assert loads(scheduler, "m")[0][0] == 800
    assert picture(scheduler) == before
    audit.validate(scheduler.ledger)
    with scheduler.ledger.transaction() as outer:
        scheduler.ledger.measure("n", NodeSignals(2.0, 900))
        outer.commit()
    with scheduler.ledger.transaction():
        pass
    assert loads(scheduler, "n")[0][0] == 900
    with scheduler.ledger.transaction():  # a node that leaves meanwhile does not get its loads back
        scheduler.ledger.measure("n", NodeSignals(3.0, 5))
        scheduler.ledger.remove_node("n")
        scheduler.ledger.set_node(node("n", gpus=2))
    assert loads(scheduler, "n")[0] == NOTHING
    audit.validate(scheduler.ledger)


def test_the_audit_finds_a_load_that_nobody_measured() -> None:
    scheduler = cluster(node("n", gpus=1))
    for array in (scheduler.ledger.rows.signal, scheduler.ledger.rows.card_signal):
        array[0] = 7
        with pytest.raises(LedgerError, match="measured loads"):
            audit.validate(scheduler.ledger)
        array[0] = NOT_MEASURED


def test_only_rows_that_say_something_new_are_scored_again_and_only_for_who_reads_them() -> None:
    scheduler = cluster(*(node(f"n{n}", gpus=2) for n in range(5)))

    def scored(policy: str, name: str) -> list[int]:
        """Rows that were scored to place one more pod."""
        asked.clear()
        scheduler.place([group(pod(name, ask(1, 100), node_policy=policy))])
        assert {who for who, _ in asked} <= {policy if policy == "packed" else "coolest"}
        return sorted(row for _, row in asked)

    assert scored("watched", "p1") == scored("packed", "p2") == [0, 1, 2, 3, 4]
    assert scored("watched", "p3") == [0]  # both pods went to n0
    assert scored("packed", "p4") == [0]
    scheduler.handle(SignalsMeasured(1.0, "n3", NodeSignals(1.0, 400)))
    scheduler.handle(SignalsMeasured(1.0, "n4", NodeSignals(1.0, 500)))
    assert scored("packed", "p5") == [0]
    assert scored("watched", "p6") == [0, 3, 4]
    scheduler.handle(SignalsMeasured(2.0, "n3", NodeSignals(2.0, 400)))  # measured again, and the same
    scheduler.handle(SignalsMeasured(2.0, "n4", NodeSignals(2.0, 501)))
    assert scored("watched", "p7") == [0, 4]


def some_signals(chance: Random, names: list[str], at: float) -> tuple[str, NodeSignals]:
    def load() -> int | None:
        return chance.choice((None, 0, 100, 500, 900))

    name = chance.choice(names)
    cards = tuple(CardSignals(f"{name}/{n}", load(), load()) for n in range(4) if chance.random() < 0.7)
    return name, NodeSignals(at, load(), load(), load(), load(), cards)


def check_kept_scores(world: World, modes: tuple[str, str], rounds: int) -> None:
    """The first keeps its scores, the second scores everything afresh; nodes are measured, change, leave and return."""
    keeping, forgetting = (made(world.nodes, mode) for mode in modes)
    chance, names, at = world.chance, [one.name for one in world.nodes], 0.0
    for n in range(rounds):
        for one in world.groups:
            at += 1.0
            again = replace(one, pods=tuple(renamed(p, f"{p.name}-{n}") for p in one.pods))
            for name, signals in [some_signals(chance, names, at) for _ in range(chance.randrange(3))] if names else ():
                for scheduler in (keeping, forgetting):
                    scheduler.handle(SignalsMeasured(at, name, signals))
            if names and chance.random() < 0.2:
                leaving = chance.choice(world.nodes)
                for scheduler in (keeping, forgetting):
                    scheduler.handle(NodeGone(at, leaving.name))
                    scheduler.handle(NodeChanged(at, leaving))
            forgetting.ledger.vectors.forget()
            assert said(keeping.place([again])) == said(forgetting.place([again]))
    assert picture(keeping) == picture(forgetting)
    audit.validate(keeping.ledger)


@pytest.mark.parametrize("policy", [policy.name for policy in READERS])
def test_kept_scores_are_fresh_scores_while_nodes_are_measured(policy: str) -> None:
    @with_examples(60)
    @given(worlds(nodes=6, pods=8, profiles=(Profile(policy), Profile(policy), Profile("binpack"))))
    def property_holds(world: World) -> None:
        check_kept_scores(world, ("interpreted", "interpreted"), rounds=4)

    property_holds()


def test_room_for_more_requests_forgets_no_measurement() -> None:
    scheduler = cluster(*(node(f"n{n}", gpus=2) for n in range(3)))
    first = scheduler.place([group(pod("first", ask(1, 10), node_policy="coolest"))])
    scheduler.handle(SignalsMeasured(1.0, "n0", NodeSignals(1.0, 900)))
    scheduler.handle(SignalsMeasured(1.0, "n1", NodeSignals(1.0, 100)))
    others = [pod(f"p{n}", cpu=1 + n, node_policy="coolest") for n in range(70)]  # room is made at 64
    scheduler.place([group(one) for one in others])
    again = scheduler.place([group(pod("again", ask(1, 10), node_policy="coolest"))])
    assert [first[0].node, again[0].node] == ["n0", "n2"]  # n2: not measured is -1, less than 100


@pytest.mark.slow
@pytest.mark.parametrize("policy", [policy.name for policy in READERS if policy.name != "coolest-for-all"])
def test_compiled_is_interpreted_while_nodes_are_measured(policy: str) -> None:
    @with_examples(60)
    @given(worlds(nodes=6, pods=12, profiles=(Profile(policy),)))
    def property_holds(world: World) -> None:
        check_kept_scores(world, ("compiled", "interpreted"), rounds=3)

    property_holds()


def test_idle_nodes_of_the_same_hardware_are_not_alike_to_a_joint_policy_that_reads_loads() -> None:
    scheduler = cluster(*(node(f"n{n}", gpus=2) for n in range(3)))
    for name, cpu in (("n0", 800), ("n1", 100), ("n2", 700)):
        scheduler.handle(SignalsMeasured(1.0, name, NodeSignals(1.0, cpu)))
    assert scheduler.place([group(pod("p", ask(1, 100), node_policy="cool-joint"))])[0].node == "n1"
