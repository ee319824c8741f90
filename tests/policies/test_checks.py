"""Every policy of the two tables keeps the contract: finite, repeatable, blind to order, and never a card too many."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given

from dovetail.engine.usage import usage
from dovetail.engine.why.explain import verdicts
from dovetail.model.pod import Container, Profile
from dovetail.model.reason import Reason
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from tests.builders import ask, card, cluster, group, node, pod
from tests.engine.pictures import alone, made, picture, said
from tests.engine.test_choices import accepts, only_cards
from tests.properties import with_examples
from tests.strategies import World, worlds

EVERY = [(name, "spread") for name in NODE_POLICIES] + [("binpack", name) for name in DEVICE_POLICIES]
checks = pytest.mark.parametrize(("node_policy", "gpu_policy"), EVERY, ids=lambda name: name)
few = with_examples(30)


def profile(node_policy: str, gpu_policy: str) -> tuple[Profile, ...]:
    return (Profile(node_policy, (gpu_policy,)),)


def test_every_policy_has_its_name_and_a_sentence() -> None:
    for table in (NODE_POLICIES, DEVICE_POLICIES):
        for name, policy in table.items():
            assert policy.name == name
            assert policy.sentence.endswith(".")
            assert 20 <= len(policy.sentence) <= 110


@checks
def test_scores_are_finite_and_looking_changes_nothing(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        scheduler.place(world.groups[1:])
        before = picture(scheduler)
        for one in (world.groups[0].pods[0], pod("nothing", node_policy=node_policy, gpu_policy=gpu_policy)):
            for verdict in verdicts(scheduler, one):
                assert (verdict.score is not None) == (verdict.reason == Reason.OK)
                assert verdict.score is None or math.isfinite(verdict.score)
        assert picture(scheduler) == before

    property_holds()


@checks
def test_decisions_repeat_and_ignore_the_order_of_nodes(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        nodes = list(world.nodes)
        first = said(made(nodes).place(world.groups))
        assert said(made(nodes).place(world.groups)) == first
        world.chance.shuffle(nodes)
        assert said(made(nodes).place(world.groups)) == first
        assert said(made(nodes[::-1]).place(world.groups)) == first

    property_holds()


@checks
def test_no_card_is_taken_that_does_not_fit(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        for one in alone(world.groups):
            before = {use.node.name: {c.device.uuid: c for c in use.cards} for use in usage(scheduler)}
            (decision,) = scheduler.place([one])
            if decision.node is None or not only_cards(one.pods[0]):
                continue
            (asked,) = (a for container in one.pods[0].containers for a in container.asks)
            cards = [share.uuid for share in decision.shares]
            assert len(set(cards)) == len(cards) == asked.count
            for uuid in cards:
                chosen = before[decision.node][uuid]
                assert accepts(chosen, asked, one.pods[0])
                assert gpu_policy != "mutex" or chosen.slots_used == 0

    property_holds()


@checks
def test_whether_a_pod_fits_is_not_the_node_policys_business(node_policy: str, gpu_policy: str) -> None:
    """On the same ledger every node policy places a pod or none does."""

    @few
    @given(worlds(profiles=profile("first-fit", gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        scheduler.place(world.groups[1:])
        (one, *_) = alone(world.groups)
        other = replace(one.pods[0], profile=replace(one.pods[0].profile, node=node_policy))
        with scheduler.ledger.transaction():
            plain = scheduler.place([one])[0].placed
        with scheduler.ledger.transaction():
            assert scheduler.place([replace(one, pods=(other,))])[0].placed == plain

    property_holds()


@checks
def test_no_nodes_no_cards_no_request(node_policy: str, gpu_policy: str) -> None:
    wanted = pod("p", ask(1, 100), node_policy=node_policy, gpu_policy=gpu_policy)
    (decision,) = cluster().place([group(wanted)])
    assert (decision.node, decision.reason) == (None, Reason.NO_NODES)
    bare = cluster(node("bare"))
    (decision,) = bare.place([group(wanted)])
    assert (decision.node, decision.reason) == (None, Reason.UNREGISTERED)
    plain = pod("q", containers=[Container("c")], node_policy=node_policy, gpu_policy=gpu_policy)
    assert bare.place([group(plain)])[0].node == "bare"
    sizeless = cluster(node("n", card("a", 0, slots=1, compute_milli=0)))
    nothing = pod("r", ask(1, 0), node_policy=node_policy, gpu_policy=gpu_policy)
    assert sizeless.place([group(nothing)])[0].node == "n"
