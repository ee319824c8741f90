"""The ledger gives back what it took: release, rollback, and the sums in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger import audit
from dovetail.model.events import NodeChanged, PodGone, PodObserved
from dovetail.model.node import Enforcer
from dovetail.model.pod import Group, RunningPod
from tests.builders import ask, card, node, pod
from tests.engine.pictures import alone, made, picture, said, slots
from tests.strategies import World, worlds


@given(worlds(), st.integers(0, 8))
def test_placing_and_releasing_is_the_identity(world: World, stay: int) -> None:
    """Some pods stay, the others come and go in any order: nothing of them is left."""
    scheduler = made(world.nodes)
    pods = alone(world.groups)
    scheduler.place(pods[:stay])
    before, slots_before = picture(scheduler), slots(scheduler)["taken"]
    placed = [d.uid for d in scheduler.place(pods[stay:]) if d.placed]
    audit.validate(scheduler.ledger)
    world.chance.shuffle(placed)
    for uid in placed:
        assert scheduler.ledger.release(uid)
        audit.validate(scheduler.ledger)
    assert picture(scheduler) == before
    assert slots(scheduler)["taken"] == slots_before


@given(worlds(), st.integers(0, 8), st.booleans())
def test_a_transaction_rolled_back_leaves_no_trace(world: World, stay: int, nested: bool) -> None:
    """Placing, releasing and an inner transaction, committed or not, inside one that is not."""
    scheduler = made(world.nodes)
    ledger = scheduler.ledger
    pods = alone(world.groups)
    stayed = [d.uid for d in scheduler.place(pods[:stay]) if d.placed]
    before, slots_before, held = picture(scheduler), slots(scheduler), dict(ledger.pods)
    with ledger.transaction():
        inside = scheduler.place(world.groups if not stay else pods[stay:])
        for uid in stayed[::2]:
            ledger.release(uid)
        with ledger.transaction() as inner:
            for decision in inside[1::2]:
                ledger.release(decision.uid)
            scheduler.place([one for one in pods[:stay] if one.pods[0].uid in stayed[::2]])
            if nested:
                inner.commit()
    audit.validate(ledger)
    after = slots(scheduler)
    assert picture(scheduler) == before
    assert (after["taken"], after["chained"]) == (slots_before["taken"], slots_before["chained"])
    assert ledger.pods == held


@given(worlds(), st.integers(0, 8))
def test_a_transaction_committed_is_as_if_there_had_been_none(world: World, some: int) -> None:
    plain, inside = made(world.nodes), made(world.nodes)
    pods = alone(world.groups)
    decisions = plain.place(pods)
    with inside.ledger.transaction() as outer:
        first = inside.place(pods[:some])
        with inside.ledger.transaction() as inner:
            second = inside.place(pods[some:])
            inner.commit()
        outer.commit()
    assert said([*first, *second]) == said(decisions)
    assert picture(inside) == picture(plain)
    audit.validate(inside.ledger)
    slots(inside)


@given(worlds(pods=8))
def test_what_leaves_in_a_committed_transaction_is_gone(world: World) -> None:
    scheduler = made(world.nodes)
    placed = [d.uid for d in scheduler.place(alone(world.groups)) if d.placed]
    other = made(world.nodes)
    other.place(alone(world.groups))
    with scheduler.ledger.transaction() as transaction:
        for uid in placed[::2]:
            scheduler.ledger.release(uid)
        transaction.commit()
    for uid in placed[::2]:
        other.handle(PodGone(0.0, uid))
    assert picture(scheduler) == picture(other)
    audit.validate(scheduler.ledger)
    slots(scheduler)


@given(worlds())
def test_nothing_is_over_allocated(world: World) -> None:
    scheduler = made(world.nodes)
    scheduler.place(world.groups)
    audit.validate(scheduler.ledger)
    assert audit.over_allocated(scheduler.ledger) == []


def test_where_nobody_writes_cards_down_ours_stay_until_the_node_has_others() -> None:
    """On a stock node kubelet picks the card: the watch tells the pod's node, and never its card."""
    scheduler = made([node("n", card("old-0"), card("old-1", index=1), enforcer=Enforcer.STOCK)])
    wanted = pod("a", ask(1, percent=100, cores=100), gpu_policy="spread")
    (placed,) = scheduler.place([Group("a", (wanted,))])
    seen = PodObserved(1.0, RunningPod(wanted, "n", None))
    assert scheduler.handle(seen) == ()
    assert scheduler.ledger.held_shares(wanted.uid) == placed.shares
    scheduler.handle(NodeChanged(2.0, node("n", card("new-0"), enforcer=Enforcer.STOCK)))
    scheduler.handle(seen)
    assert [share.uuid for share in scheduler.ledger.held_shares(wanted.uid)] == ["new-0"]
    audit.validate(scheduler.ledger)
