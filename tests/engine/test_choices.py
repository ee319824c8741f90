"""Which card: binpack never takes a strictly emptier one, spread never a strictly fuller one; explain agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import CardUse, usage
from dovetail.engine.why.explain import explain, verdicts
from dovetail.model.device import type_matches
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import DeviceAsk, Group, Pod, Profile
from dovetail.model.reason import Reason
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.table import NODE_POLICIES as NODES
from tests.engine.pictures import alone, made, said, told
from tests.strategies import JOINT_POLICIES, NODE_POLICIES, SEPARATE_PROFILES, World, worlds


def accepts(card: CardUse, ask: DeviceAsk, pod: Pod) -> bool:
    """Does the ask fit on the card as it stands? HAMi's rules, written down a second time."""
    device, rules = card.device, pod.rules_for(ask.vendor)
    if device.vendor != ask.vendor or not device.healthy or device.cordoned or device.quarantined:
        return False
    if any(type_matches(device.model, t) for t in rules.nouse_types):
        return False
    if rules.use_types and not any(type_matches(device.model, t) for t in rules.use_types):
        return False
    if device.uuid in rules.nouse_uuids or (rules.use_uuids and device.uuid not in rules.use_uuids):
        return False
    memory = ask.memory_mib if ask.memory_percent is None else device.memory_mib * ask.memory_percent // 100
    compute = min(ask.compute_milli, WHOLE_CARD)
    if card.slots_used >= device.slots or card.memory_used_mib + memory > device.memory_mib:
        return False
    if card.compute_used_milli + compute > device.compute_milli:
        return False
    if compute == WHOLE_CARD == device.compute_milli and card.slots_used:
        return False
    return compute > 0 or device.compute_milli == 0 or card.compute_used_milli < device.compute_milli


def holds(card: CardUse) -> tuple[int, int, int]:
    return card.slots_used, card.compute_used_milli, card.memory_used_mib


def emptier(a: CardUse, b: CardUse, weights: tuple[int, int, int]) -> bool:
    """At most as much in slots, compute and memory, and less in one that counts; only cards of equal size compare."""
    sizes = {(c.device.slots, c.device.compute_milli, c.device.memory_mib) for c in (a, b)}
    rows = list(zip(holds(a), holds(b), weights, strict=True))
    return len(sizes) == 1 and all(x <= y for x, y, _ in rows) and any(x < y and weight for x, y, weight in rows)


def only_cards(pod: Pod) -> bool:
    """One container with one ask, and no NUMA binding: then the cards before the pod are all there is to say."""
    asks = [ask for container in pod.containers for ask in container.asks]
    return len(asks) == 1 and not pod.rules_for(asks[0].vendor).numa_bind


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_binpack_takes_no_emptier_card_and_spread_no_fuller_one(policy: str) -> None:
    profiles = tuple(Profile(node, (policy,)) for node in NODE_POLICIES if node not in JOINT_POLICIES)
    seen = {"pods": 0, "choices": 0}

    @given(worlds(nodes=4, pods=30, profiles=profiles))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        stock = {node.name for node in world.nodes if node.enforcer is Enforcer.STOCK}
        for group in alone(world.groups):
            before = {use.node.name: use.cards for use in usage(scheduler)}
            (decision,) = scheduler.place([group])
            pod = group.pods[0]
            if decision.node is None or not only_cards(pod):
                continue
            (ask,) = (ask for container in pod.containers for ask in container.asks)
            if decision.node in stock:
                ask = replace(ask, memory_percent=100)  # whole cards, whatever the default is
            cards = {card.device.uuid: card for card in before[decision.node]}
            taken = {share.uuid for share in decision.shares}
            left = [card for uuid, card in cards.items() if uuid not in taken and accepts(card, ask, pod)]
            assert len(taken) == ask.count
            assert all(accepts(cards[uuid], ask, pod) for uuid in taken)
            seen["pods"] += 1
            for uuid in taken:
                for other in left:
                    seen["choices"] += holds(other) != holds(cards[uuid])
                    if policy == "binpack":
                        assert not emptier(cards[uuid], other, pod.profile.weights)
                    else:
                        assert not emptier(other, cards[uuid], pod.profile.weights)

    property_holds()
    assert seen["choices"] > 50, seen


@given(worlds())
def test_explain_says_what_was_decided(world: World) -> None:
    """A pod is placed where and only where some node fits, and on the best-scored one, the smallest name on ties.

    Where the workload is learned, a pod may change the outlook by coming; so it is told.
    """
    scheduler = told(world)
    for group in alone(world.groups):
        pod = group.pods[0]
        explanation = explain(scheduler, pod)
        fitting = [v for v in explanation.verdicts if v.reason == Reason.OK]
        (decision,) = scheduler.place([group])
        assert decision.placed == bool(fitting)
        if fitting:
            sign = -1.0 if NODES[pod.profile.node].lowest_wins else 1.0
            best = min(fitting, key=lambda v: (-sign * (v.score or 0.0), v.node))
            assert decision.node == best.node == explanation.verdicts[0].node
            assert explanation.nearest is None
        else:
            assert sum(number for _, number in explanation.counted) == len(world.nodes)
            if decision.reason < Reason.CARD_UNHEALTHY:  # of several cards each side may name another
                assert decision.reason in {v.reason for v in explanation.verdicts}
            assert all(v.hami for v in explanation.verdicts)


@given(worlds())
def test_looking_changes_nothing(world: World) -> None:
    """The same decisions, whether somebody asked for an explanation before each or nobody did."""
    asked, unasked = made(world.nodes), made(world.nodes)
    for group in alone(world.groups):
        verdicts(asked, group.pods[0])
        assert said(asked.place([group])) == said(unasked.place([group]))


@given(worlds(profiles=SEPARATE_PROFILES))
def test_a_node_that_cannot_be_seen_is_never_chosen(world: World) -> None:
    """Taking away the nodes that lost does not change who wins. Joint policies look at all kinds of card there are."""
    full = made(world.nodes)
    for group in alone(world.groups):
        (decision,) = full.place([group])
        if decision.node is not None:
            node: Node = next(node for node in world.nodes if node.name == decision.node)
            only: Scheduler = made([node])
            for uid, held in sorted(full.ledger.pods.items()):
                if uid != decision.uid and full.ledger.node_of(uid) == node.name:
                    only.ledger.book_observed(held.pod, node.name, full.ledger.shares(held.slot), False)
            assert said(only.place([group])) == said([decision])


def groups_of(world: World) -> list[Group]:
    return [group for group in world.groups if len(group.pods) > 1]


@given(worlds())
def test_groups_are_placed_with_their_minimum_or_not_at_all(world: World) -> None:
    scheduler = told(world)
    for group in world.groups:
        before = len(scheduler.ledger.pods)
        decisions = scheduler.place([group])
        placed = sum(decision.placed for decision in decisions)
        assert placed == 0 or placed >= group.minimum
        assert len(scheduler.ledger.pods) == before + placed
        if len(group.pods) < group.minimum:
            assert {d.reason for d in decisions} == {Reason.GROUP_INCOMPLETE}
        elif placed == 0:  # as many as fit one by one are fewer than the minimum
            with scheduler.ledger.transaction():
                assert sum(d.placed for d in scheduler.place(alone([group]))) < group.minimum
        else:
            alike = told(world)
            alike.place(world.groups[: world.groups.index(group)])
            assert said(alike.place(alone([group]))) == said(decisions)


@given(worlds(pods=12))
def test_members_that_run_count_towards_the_minimum(world: World) -> None:
    for group in groups_of(world):
        scheduler = made(world.nodes)
        needed = len(group.pods) + 1
        started = replace(group, minimum=needed, running=needed - 1)
        one_by_one = made(world.nodes).place(alone([group]))
        enough = any(d.placed for d in one_by_one)
        assert any(d.placed for d in scheduler.place([started])) == enough
