"""Binds that come to be written after their node has changed: given back and placed again, as the cluster is now."""

from __future__ import annotations

import pytest

from dovetail.kube.live.binder import Fate
from dovetail.kube.live.refusals import MOST_OUTDATED
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import Object, card, node

pytestmark = pytest.mark.asyncio


def _cordoned(name: str = "n") -> Object:
    item = gpu_node(name)
    item.setdefault("spec", {})["unschedulable"] = True
    return item


async def test_nothing_is_looked_at_while_node_and_time_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        assert stage.driver.outcomes.objection(bind, waited=True) == ""
        monkeypatch.setattr("dovetail.kube.live.bind_outcomes.objection", lambda *_: pytest.fail("looked"))
        assert stage.driver.outcomes.objection(bind, waited=False) == ""


async def test_the_present_is_what_was_heard_even_if_it_is_not_booked_yet() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.nodes(_cordoned())  # the loop has not come to it
        assert stage.driver.outcomes.objection(bind, waited=False) == "node n: node is cordoned"


async def test_an_outdated_bind_gives_its_card_back_and_goes_elsewhere_at_once() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("n"))
        stage.pods(waiting("a"))
        await stage.settle()
        stage.nodes(_cordoned("n"), gpu_node("other"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.answer(Fate.OUTDATED, bind, message=stage.driver.outcomes.objection(bind, waited=True))
        await stage.settle()
        assert [one.decision.node for one in stage.hands.binds] == ["n", "other"]
        assert stage.holders() == {"a"}
        assert stage.driver.counts.conflicts == 1


async def test_a_placement_that_is_outdated_again_and_again_pauses() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        for _ in range(MOST_OUTDATED + 1):
            await stage.settle()
            stage.answer(Fate.OUTDATED, stage.hands.binds[-1], message="node n: a contradiction")
        await stage.settle()
        assert len(stage.hands.binds) == MOST_OUTDATED + 1
        assert stage.hands.conditions["uid-a"].reason == "BindingRefused"
        assert stage.holders() == set()


async def test_a_card_that_was_replaced_after_the_decision_is_not_bound() -> None:
    """The ledger knows the new card already and agrees with the API server; the decision is of the old card."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.nodes(node("n", card("GPU-new")))
        await stage.settle()
        assert [share.uuid for share in bind.decision.shares] == ["GPU-n-0"]
        assert stage.driver.outcomes.objection(bind, waited=False).startswith("node n: ")


async def test_a_node_that_went_and_came_back_is_looked_at_again() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.node_gone("n")
        stage.nodes(_cordoned())
        await stage.settle()
        assert stage.driver.outcomes.objection(bind, waited=False) == "node n: node is cordoned"
