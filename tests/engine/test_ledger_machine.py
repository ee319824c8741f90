"""Anything may happen in any order: nodes come, change and go, pods arrive, are observed, confirmed and leave.

After every step the books balance. In the orderly world, where running pods were valid when they were seen and cards
never shrink, nothing is ever over-allocated. In the wild one nodes lose cards and pods hold what nobody registered;
there, whatever *we* place still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail.engine.ledger import audit
from dovetail.engine.observe import assume
from dovetail.model.decision import Share
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    NodeGone,
    PodBound,
    PodGone,
    PodObserved,
    SignalsMeasured,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.signals import CardSignals, NodeSignals
from tests.engine.pictures import made, picture, slots
from tests.properties import with_examples
from tests.strategies import JOINT_POLICIES, TAINT, renamed, seeds, some_groups, some_node

NAMES = tuple(f"n{n}" for n in range(5))


class OrderlyWorld(RuleBasedStateMachine):
    """Everything that was there before us was valid."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = made(())
        self.ledger = self.scheduler.ledger
        self.nodes: dict[str, Node] = {}
        self.now = 0.0
        self.count = 0

    def handle(self, make: Callable[[float], Event]) -> None:
        self.now += 1.0
        self.check(self.scheduler.handle(make(self.now)))
        self.nobody_waits_in_vain()

    def nobody_waits_in_vain(self) -> None:
        """Whoever waits could not be placed now either: every change woke those it helps.

        But for those of a joint policy who need several cards to go together: with each pod that comes it may see
        another way to choose them, and nobody is woken for that.
        """
        for group in list(self.scheduler.waiting):
            asks = [ask for pod in group.pods for container in pod.containers for ask in container.asks]
            if len(asks) > 1 and any(pod.profile.node in JOINT_POLICIES for pod in group.pods):
                continue
            with self.ledger.transaction():
                assert not any(decision.placed for decision in self.scheduler.place([group])), group.name

    def check(self, effects: Iterable[Effect]) -> None:
        """What we just placed fits: its cards and what it asks of its node."""
        columns, rows = list(self.scheduler.intern.columns), self.ledger.rows
        for effect in effects:
            if isinstance(effect, Bind) and effect.pod.uid in self.ledger.pods:
                row = self.ledger.row_of[str(effect.decision.node)]
                devices = {device.uuid: n for n, device in enumerate(self.ledger.devices(row))}
                assert self.ledger.is_active(row)
                for share in effect.decision.shares:
                    n = devices[share.uuid]
                    assert np.all(rows.held[row, n] <= rows.card[row, n, :3]), share
                for name in (*effect.pod.resources, "pods"):
                    assert rows.used[row, columns.index(name)] <= rows.cap[row, columns.index(name)], name

    def fresh(self, seed: int, pods: int = 3) -> list[Group]:
        """Groups of pods that nobody has seen."""
        self.count += 1
        return [
            replace(
                group,
                name=f"{group.name}-{self.count}",
                pods=tuple(renamed(pod, f"{pod.name}-{self.count}") for pod in group.pods),
            )
            for group in some_groups(seed, pods)
        ]

    def held(self, seed: int) -> str:
        return Random(seed).choice(sorted(self.ledger.pods))

    # ---- nodes

    @initialize(seed=seeds)
    def first_nodes(self, seed: int) -> None:
        for name in NAMES[:3]:
            self.node_comes(seed, name)

    @rule(seed=seeds, name=st.sampled_from(NAMES))
    def node_comes(self, seed: int, name: str) -> None:
        if name not in self.nodes:
            self.nodes[name] = some_node(Random(f"{seed}-{name}"), name)
        self.handle(lambda at: NodeChanged(at, self.nodes[name]))

    @precondition(lambda self: self.nodes)
    @rule(seed=seeds)
    def node_changes(self, seed: int) -> None:
        """Labels, taints, cordons, health: all but what it has."""
        chance = Random(seed)
        name = chance.choice(sorted(self.nodes))
        node = self.nodes[name]
        devices = tuple(
            msgspec.structs.replace(device, healthy=chance.random() < 0.8, cordoned=chance.random() < 0.2)
            for device in node.devices
        )
        self.nodes[name] = replace(
            node,
            devices=devices,
            unschedulable=chance.random() < 0.2,
            taints=(TAINT,) if chance.random() < 0.2 else (),
            labels={**node.labels, "zone": chance.choice("ab")},
        )
        self.handle(lambda at: NodeChanged(at, self.nodes[name]))

    @precondition(lambda self: self.nodes)
    @rule(seed=seeds)
    def node_goes(self, seed: int) -> None:
        """It may come back, as it was, with its pods still there."""
        name = Random(seed).choice(sorted(self.nodes))
        self.handle(lambda at: NodeGone(at, name))

    def some_signals(self, seed: int) -> tuple[str, NodeSignals]:
        """Of any node, there or not, and of cards that it may have."""
        chance = Random(seed)
        name = chance.choice(NAMES)

        def load() -> int | None:
            return chance.choice((None, 0, 250, 1000))

        cards = tuple(CardSignals(f"{name}/{n}", load(), load()) for n in range(chance.randrange(4)))
        return name, NodeSignals(self.now + chance.choice((-5.0, 0.0)), load(), load(), load(), load(), cards)

    @rule(seed=seeds)
    def node_is_measured(self, seed: int) -> None:
        name, signals = self.some_signals(seed)
        self.handle(lambda at: SignalsMeasured(at, name, signals))

    # ---- pods

    @rule(seed=seeds, pods=st.integers(1, 6))
    def pods_arrive(self, seed: int, pods: int) -> None:
        for group in self.fresh(seed, pods):
            self.handle(partial(GroupArrived, group=group))

    @rule(seed=seeds, written=st.booleans())
    def pod_is_observed(self, seed: int, written: bool) -> None:
        """Somebody else placed a pod where it fits, and wrote its cards down or not."""
        (group, *_) = self.fresh(seed, 1)
        pod = group.pods[0]
        with self.ledger.transaction():
            (decision,) = self.scheduler.place([group])
        if decision.node is None:
            return
        shares: tuple[Share, ...] | None = decision.shares
        if not written and assume(self.scheduler.placer, pod, decision.node)[1]:
            shares = None
        self.handle(lambda at: PodObserved(at, RunningPod(pod, str(decision.node), shares)))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def pod_is_seen_again(self, seed: int) -> None:
        """Our own placement comes back as an observation.

        If its cards were assumed, those that are assumed of other pods on the node may become others: a guess goes by
        what is recorded.
        """
        uid = self.held(seed)
        held = self.ledger.pods[uid]
        seen, was_assumed = RunningPod(held.pod, self.ledger.node_of(uid), self.ledger.shares(held.slot)), held.assumed
        before = picture(self.scheduler)["nodes"]
        self.handle(lambda at: PodObserved(at, seen))
        assert self.ledger.shares(self.ledger.pods[uid].slot) == seen.shares
        if not was_assumed:
            assert picture(self.scheduler)["nodes"] == before

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def pod_gives_something_back(self, seed: int) -> None:
        """Its init containers ended: it is seen again with fewer cards."""
        uid = self.held(seed)
        held = self.ledger.pods[uid]
        fewer = self.ledger.shares(held.slot)[1:]
        self.handle(lambda at: PodObserved(at, RunningPod(held.pod, self.ledger.node_of(uid), fewer)))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def pod_is_confirmed(self, seed: int) -> None:
        uid = self.held(seed)
        self.handle(lambda at: PodBound(at, uid))
        assert not self.ledger.is_reserved(uid)

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def pod_leaves(self, seed: int) -> None:
        uid = self.held(seed)
        self.handle(lambda at: PodGone(at, uid))

    @rule(seed=seeds, commit=st.booleans())
    def transaction(self, seed: int, commit: bool) -> None:
        chance = Random(seed)
        before, slots_before = picture(self.scheduler), slots(self.scheduler)["taken"]
        with self.ledger.transaction() as transaction:
            for _ in range(chance.randrange(4)):
                if chance.random() < 0.3:
                    self.ledger.measure(*self.some_signals(chance.randrange(2**32)))
                elif self.ledger.pods and chance.random() < 0.4:
                    self.ledger.release(self.held(chance.randrange(2**32)))
                else:
                    self.scheduler.place(self.fresh(chance.randrange(2**32)))
            if commit:
                transaction.commit()
        if commit:
            self.check(self.scheduler.retry(self.now, range(len(self.ledger.nodes))))
        else:
            assert picture(self.scheduler) == before
            assert slots(self.scheduler)["taken"] == slots_before

    # ---- always

    @invariant()
    def the_books_balance(self) -> None:
        audit.validate(self.ledger)
        slots(self.scheduler)

    @invariant()
    def nothing_is_over_allocated(self) -> None:
        assert audit.over_allocated(self.ledger) == []


class WildWorld(OrderlyWorld):
    """Nodes lose cards and shrink; pods run on what nobody registered, or on nodes nobody knows."""

    @rule(seed=seeds, name=st.sampled_from(NAMES))
    def node_is_another_machine(self, seed: int, name: str) -> None:
        self.nodes[name] = some_node(Random(seed), name)
        self.handle(lambda at: NodeChanged(at, self.nodes[name]))

    @precondition(lambda self: self.nodes)
    @rule(seed=seeds)
    def cards_are_registered_in_another_order(self, seed: int) -> None:
        name = Random(seed).choice(sorted(self.nodes))
        node = self.nodes[name]
        self.nodes[name] = replace(node, devices=node.devices[::-1], links=())
        self.handle(lambda at: NodeChanged(at, self.nodes[name]))

    @rule(seed=seeds)
    def something_odd_is_observed(self, seed: int) -> None:
        chance = Random(seed)
        pod: Pod = self.fresh(seed, 1)[0].pods[0]
        shares = tuple(
            Share(
                chance.randrange(3),
                f"{chance.choice(NAMES)}/{chance.randrange(5)}",
                chance.choice((0, 1000, 50_000)),
                chance.choice((0, 500, 1000)),
            )
            for _ in range(chance.randrange(4))
        )
        where = chance.choice((*NAMES, "nobody-knows"))
        self.handle(lambda at: PodObserved(at, RunningPod(pod, where, shares if chance.random() < 0.7 else None)))

    @precondition(lambda self: len(self.scheduler.waiting) > 0)
    @rule(seed=seeds, name=st.sampled_from(NAMES))
    def somebody_else_places_a_pod_that_waits(self, seed: int, name: str) -> None:
        pods = sorted((pod for group in self.scheduler.waiting for pod in group.pods), key=lambda pod: pod.uid)
        chosen = Random(seed).choice(pods)
        self.handle(lambda at: PodObserved(at, RunningPod(chosen, name, ())))
        assert all(chosen.uid != pod.uid for group in self.scheduler.waiting for pod in group.pods)

    @invariant()
    def nothing_is_over_allocated(self) -> None:
        """By us: checked where it happens (`check`)."""


TestOrderlyWorld = OrderlyWorld.TestCase
TestWildWorld = WildWorld.TestCase
TestOrderlyWorld.settings = TestWildWorld.settings = with_examples(60, steps=25)
