"""A ledger that was made wrong on purpose is found, named, counted and rebuilt; what is on its way survives.

`Stage.settle` compares the ledger with itself and with the mirror after every step of every other test in this
folder: in normal operation there is never a difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.kernel.state import ENTRY_CARD, ENTRY_NEXT, FREE_POD, JOURNAL_DEPTH, POD_ENTRY, POD_ROW, RESERVED
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.live.binder import Fate
from dovetail.kube.live.ledger_audit import LedgerAudit
from dovetail.kube.log import ERROR
from dovetail.model.events import NodeChanged, PodObserved
from tests.engine.pictures import picture
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.properties import with_examples

CPU = 0  # the first column of the ledger's resources
MIB = 1  # of a card: slots, MiB, milli


def row(ledger: Ledger, name: str) -> int:
    return ledger.row_of[name]


def lose_silently(ledger: Ledger) -> None:
    """The pod is gone from the table of holders; its slot and its card stay taken."""
    del ledger.pods.slot_of["uid-a"]


def move_to_m(ledger: Ledger) -> None:
    pod = ledger.pods.pod("uid-a")
    ledger.release("uid-a")
    ledger.book_observed(pod, "m", (), assumed=False)


def book_twice(ledger: Ledger) -> None:
    held = ledger.pods["uid-a"]
    ledger.book_observed(held.pod.named("uid-twin"), "m", (), assumed=False)


def use_more_cpu(ledger: Ledger) -> None:
    ledger.rows.used[row(ledger, "n"), CPU] += 1000


def use_more_of_a_card(ledger: Ledger) -> None:
    ledger.rows.held[row(ledger, "n"), 0, MIB] += 5000


def give_another_card(ledger: Ledger) -> None:
    entry = ledger.book.pod[ledger.pods.slot_of["uid-a"], POD_ENTRY]
    ledger.book.entry[entry, ENTRY_CARD] = 1 - ledger.book.entry[entry, ENTRY_CARD]  # of cards 0 and 1


def bite_the_tail(ledger: Ledger) -> None:
    entry = ledger.book.pod[ledger.pods.slot_of["uid-a"], POD_ENTRY]
    ledger.book.entry[entry, ENTRY_NEXT] = entry


def point_nowhere(ledger: Ledger) -> None:
    ledger.book.pod[ledger.pods.slot_of["uid-a"], POD_ROW] = 999


def share_a_slot(ledger: Ledger) -> None:
    ledger.pods.slot_of["uid-b"] = ledger.pods.slot_of["uid-a"]


def free_a_taken_slot(ledger: Ledger) -> None:
    ledger.heads[FREE_POD] = ledger.pods.slot_of["uid-a"]


def leave_a_transaction_open(ledger: Ledger) -> None:
    ledger.heads[JOURNAL_DEPTH] += 1


WRONG: list[tuple[Callable[[Ledger], Any], str, set[str]]] = [
    (use_more_cpu, "resources do not add up", {"node"}),
    (use_more_of_a_card, "what is held of a card does not add up", {"node", "card"}),
    (lose_silently, "a slot is taken by no pod", set()),
    (lambda ledger: ledger.release("uid-a"), "the pod is not booked", {"node", "pod"}),
    (move_to_m, "the pod is booked on node m", {"node", "pod"}),
    (book_twice, "the pod holds a node, but neither runs there nor is being bound", {"node", "pod"}),
    (give_another_card, "the pod's share of a card is not the one it was given", {"node", "card", "pod"}),
    (bite_the_tail, "the pod's cards or request cannot be read", {"node", "pod"}),
    (point_nowhere, "the slot's row does not exist", {"pod"}),
    (share_a_slot, "two pods hold one slot", {"pod"}),
    (free_a_taken_slot, "the list of free slots is broken", set()),
    (leave_a_transaction_open, "a transaction was never ended", set()),
    (lambda ledger: ledger.remove_node("n"), "the node is not booked as it is", {"node"}),
    (lambda ledger: ledger.rows.cap.__setitem__((row(ledger, "n"), CPU), 1), "resources are not those", {"node"}),
    (lambda ledger: ledger.release("uid-b"), "the pod is not booked", {"node", "pod"}),  # its Binding is under way
]


async def two_pods_on_n(stage: Stage) -> None:
    """Nodes m and n. n has two cards: pod a runs on one, pod b is being bound to the other."""
    stage.nodes(gpu_node("n", cards=2))
    stage.pods(waiting("a"))
    await stage.settle()
    stage.answer(Fate.BOUND, stage.hands.binds[0])
    stage.pods(bound("a", stage.hands.binds[0]))
    stage.pods(waiting("b"))
    await stage.settle()
    stage.nodes(gpu_node("m"))
    await stage.settle()


async def turns(stage: Stage) -> None:
    """As `Stage.settle`, which would complain of the difference. The second wake stands for the next second's."""
    for _ in range(2):
        stage.driver.happened(())
        for _ in range(30):
            await asyncio.sleep(0)


async def a_minute_later(stage: Stage, seconds: float = 61.0) -> None:
    stage.clock += seconds
    await turns(stage)
    await stage.settle()


@pytest.mark.asyncio
@pytest.mark.parametrize(("corrupt", "what", "names"), WRONG, ids=[f"{n}-{one[1]}" for n, one in enumerate(WRONG)])
async def test_a_wrong_ledger_is_named_counted_and_rebuilt(
    corrupt: Callable[[Ledger], Any], what: str, names: set[str]
) -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        before = picture(stage.scheduler)
        corrupt(stage.scheduler.ledger)
        await a_minute_later(stage)
        assert picture(stage.scheduler) == before
        audit = stage.driver.audit
        assert (audit.differences > 0, audit.rebuilds) == (True, 1)
        said = [(text, fields) for level, text, fields in stage.log.records if level == ERROR and what in text]
        assert said
        assert any(names <= fields.keys() for _, fields in said)
        assert audit.differences == stage.log.records[-1][2]["count"]
        # What follows is decided on the truth: n's two cards are taken, so c gets m's card, and d waits.
        stage.pods(waiting("c"), waiting("d"))
        await stage.settle()
        assert [(bind.pod.name, bind.decision.node) for bind in stage.hands.binds[2:]] == [("c", "m")]
        assert stage.holders() == {"a", "b", "c"}


@pytest.mark.asyncio
async def test_a_reservation_survives_the_rebuild_until_its_outcome_is_known() -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        use_more_cpu(stage.scheduler.ledger)
        await a_minute_later(stage)
        assert stage.scheduler.ledger.is_reserved("uid-b")
        bind = stage.hands.binds[1]
        stage.answer(Fate.BOUND, bind)
        stage.pods(bound("b", bind))
        await stage.settle()
        assert not stage.scheduler.ledger.is_reserved("uid-b")
        stage.pods(waiting("c"))
        await stage.settle()
        stage.answer(Fate.REFUSED, stage.hands.binds[2])  # c gives its place up
        await stage.settle()
        assert stage.holders() == {"a", "b"}


@pytest.mark.asyncio
async def test_pods_that_fit_only_after_the_rebuild_are_placed() -> None:
    """The card seems to be taken, so that b waits; nobody else would wake it."""
    async with Stage() as stage:
        stage.nodes(gpu_node("n"))
        await stage.settle()
        ledger = stage.scheduler.ledger
        ledger.rows.used[row(ledger, "n")] = ledger.rows.cap[row(ledger, "n")]
        stage.pods(waiting("b"))
        await turns(stage)
        assert stage.hands.binds == []
        await a_minute_later(stage)
        assert [bind.pod.name for bind in stage.hands.binds] == ["b"]


@pytest.mark.asyncio
async def test_a_fault_is_followed_by_an_audit_at_once() -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        use_more_cpu(stage.scheduler.ledger)
        stage.driver.set_aside.other("Retries", KeyError("poison"))
        stage.driver.happened(())
        await stage.settle()
        assert stage.driver.audit.rebuilds == 1


@pytest.mark.asyncio
async def test_nothing_is_compared_before_its_time_nor_while_deciding_is_paused() -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        rounds = stage.driver.audit.rounds
        await a_minute_later(stage, 30.0)
        assert stage.driver.audit.rounds == rounds
        stage.driver.paused = True
        await a_minute_later(stage)
        assert stage.driver.audit.rounds == rounds
        stage.driver.paused = False
        await a_minute_later(stage, 0.0)
        assert stage.driver.audit.rounds == rounds + 1


@pytest.mark.asyncio
async def test_bindings_go_first_but_not_for_long() -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        rounds = stage.driver.audit.rounds
        stage.hands.writing = 1
        stage.driver.audit.demand()
        await a_minute_later(stage, 9.0)
        assert stage.driver.audit.rounds == rounds
        await a_minute_later(stage, 2.0)
        assert stage.driver.audit.rounds == rounds + 1
        stage.driver.audit.demand()
        await a_minute_later(stage, 1.0)
        assert stage.driver.audit.rounds == rounds + 1
        stage.hands.writing = 0
        await a_minute_later(stage, 0.0)
        assert stage.driver.audit.rounds == rounds + 2


@pytest.mark.asyncio
async def test_zero_seconds_means_only_after_faults() -> None:
    async with Stage() as stage:
        stage.driver.audit = LedgerAudit(stage.driver, 0.0)
        await a_minute_later(stage, 1e6)
        assert stage.driver.audit.rounds == 0
        stage.driver.audit.demand()
        await a_minute_later(stage, 0.0)
        assert stage.driver.audit.rounds == 1


@pytest.mark.asyncio
async def test_a_difference_that_a_rebuild_does_not_remove_is_said_once() -> None:
    async with Stage() as stage:
        await two_pods_on_n(stage)
        ledger = stage.scheduler.ledger
        stage.scheduler.rebuild = lambda *_: None  # type: ignore[method-assign]
        use_more_cpu(ledger)
        stage.clock += 61.0
        await turns(stage)
        assert stage.driver.audit.rebuilds == 1
        assert any("still wrong" in text for text in stage.log)
        stage.clock += 61.0
        await turns(stage)
        assert stage.driver.audit.rebuilds == 1
        ledger.rows.used[row(ledger, "n"), CPU] -= 1000


# ---- any history, any corruption --------------------------------------------------------------------------------


def corrupt_somewhere(ledger: Ledger, chance: Random) -> str:
    """Change one number of what is held; returns which."""
    rows, size = ledger.rows, len(ledger.nodes)
    arrays: dict[str, Any] = {
        **{name: getattr(rows, name)[:size] for name in ("used", "scored", "held", "hosts", "cap")},
        "size": rows.card[:size, :, :3],
        "pod": ledger.book.pod[:, [POD_ROW]],
        "entry": ledger.book.entry[:, ENTRY_CARD:],
    }
    name = chance.choice(sorted(arrays))
    array = getattr(rows, name) if name in rows._fields else ledger.book.pod if name == "pod" else ledger.book.entry
    array = rows.card if name == "size" else array
    if not arrays[name].size:
        return "nothing"
    at = tuple(chance.randrange(length) for length in arrays[name].shape)
    if name == "entry":
        at = (at[0], at[1] + ENTRY_CARD)
    array[at] += chance.choice((1, -1, 1000))
    return f"{name}{at}"


async def some_history(stage: Stage, chance: Random) -> None:
    """Nodes, pods that come, are bound, refused, seen and deleted; some Bindings stay under way."""
    stage.nodes(*(gpu_node(f"n{n}", cards=chance.randint(1, 3)) for n in range(chance.randint(1, 3))))
    number = 0
    for _ in range(chance.randint(3, 12)):
        under_way, seen = list(stage.hands.under_way.values()), chance.random()
        if under_way and seen < 0.4:
            bind = chance.choice(under_way)
            stage.answer(Fate.BOUND, bind)
            if chance.random() < 0.7:
                stage.pods(bound(bind.pod.name, bind))
        elif under_way and seen < 0.5:
            stage.answer(Fate.GONE, chance.choice(under_way))
        elif seen < 0.6 and stage.hands.binds:
            stage.pod_gone(waiting(chance.choice(stage.hands.binds).pod.name))
        elif seen < 0.65:
            stage.node_gone("n0")
        else:
            stage.pods(waiting(f"p{number}"))
            number += 1
        await stage.settle()


def from_scratch(stage: Stage) -> Scheduler:
    """A scheduler that has only ever heard what is true now, and was told what is reserved."""
    fresh, mirror = Scheduler(mode="interpreted"), stage.mirror
    for node in mirror.nodes.values():
        fresh.handle(NodeChanged(0.0, node))
    for uid, bind in stage.driver.on_the_way.items():
        if not mirror.known.holds(uid):
            where = str(bind.decision.node)
            fresh.ledger.book_observed(bind.pod, where, bind.decision.shares, assumed=False, status=RESERVED)
    for known in mirror.pods.values():
        if known.running is not None:
            fresh.handle(PodObserved(0.0, known.running))
    return fresh


def without_empty_rows(scheduler: Scheduler) -> dict[str, Any]:
    """Of a node that is gone only what its pods hold counts: its size may be forgotten, or its row."""
    found = picture(scheduler)
    for name, (active, used, scored, held, *_) in list(found["nodes"].items()):
        if not active:
            cards = {uuid: amounts for uuid, amounts in held.items() if any(amounts)}
            found["nodes"][name] = (False, used, scored, cards)
            if not used:
                del found["nodes"][name]
    return found


@with_examples(60)
@given(seed=st.integers(0, 2**32))
def test_after_any_history_and_corruption_the_rebuilt_ledger_is_one_from_scratch(seed: int) -> None:
    async def story() -> None:
        chance = Random(seed)
        async with Stage() as stage:
            await some_history(stage, chance)
            before = picture(stage.scheduler)
            where = [corrupt_somewhere(stage.scheduler.ledger, chance) for _ in range(chance.randint(1, 3))]
            found = stage.driver.audit.look_at_all()
            assert found or picture(stage.scheduler) == before, where
            stage.driver.audit.rebuild()
            assert without_empty_rows(stage.scheduler) == without_empty_rows(from_scratch(stage)), where
            assert stage.driver.audit.look_at_all() == []
            await stage.settle()

    asyncio.run(story())


def test_a_number_that_is_changed_is_found_wherever_it_stands() -> None:
    """Each element of what is held on two nodes, one after the other."""

    async def story() -> None:
        async with Stage() as stage:
            await two_pods_on_n(stage)
            rows, audit = stage.scheduler.ledger.rows, stage.driver.audit
            for array in (rows.used, rows.scored, rows.held, rows.hosts, rows.sums[:, 3:6]):
                for at in np.ndindex(2, *array.shape[1:]):
                    array[at] += 1
                    assert audit.look_at_all(), at
                    array[at] -= 1
            assert audit.look_at_all() == []

    asyncio.run(story())
