"""Placements that are refused again and again: the pod says why, people are told once, and nobody hurries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.live.binder import Fate
from dovetail.kube.live.refusals import LONGEST_REFUSAL_PAUSE
from dovetail.kube.live.tell import ScheduledCondition
from dovetail.model.events import Bind
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
DENIED = "admission webhook denied the request"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the driver wanted to wait; nothing happens by itself."""
    asked: list[float] = []

    def later(_: object, seconds: float, *call: Any) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "call_later", later)
    return asked


async def _refuse(stage: Stage, message: str = DENIED, fate: Fate = Fate.REFUSED) -> Bind:
    bind = stage.hands.binds[-1]
    stage.answer(fate, bind, message=message)
    await stage.settle()
    return bind


async def _again(stage: Stage, bind: Bind) -> None:
    """What happens when the pause is over."""
    stage.driver.outcomes.again(bind.pod)
    await stage.settle()


def _saying(item: Object, condition: ScheduledCondition, version: int) -> Object:
    said = {"type": "PodScheduled", "status": "False", **condition._asdict()}
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}, "status": {"conditions": [said]}}


def _kinds(stage: Stage) -> list[tuple[str, str]]:
    return [(note.reason, note.text) for note in stage.hands.notes]


@pytest.mark.parametrize(
    ("fate", "word"), [(Fate.REFUSED, "BindingRefused"), (Fate.VOLUMES, "VolumesNotBound")], ids=str
)
async def test_the_pod_says_why_and_the_event_comes_when_that_changes(
    fate: Fate, word: str, pauses: list[float]
) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        for message in (DENIED, DENIED, DENIED, "other"):
            await _again(stage, await _refuse(stage, message, fate))
        assert len(stage.hands.binds) == 5
        assert _kinds(stage) == [(word, DENIED), (word, "other")]
        assert stage.hands.conditions == {"uid-a": ScheduledCondition(word, "other")}


async def test_what_it_said_before_is_overwritten(pauses: list[float]) -> None:
    async with Stage() as stage:
        before = ScheduledCondition("Unschedulable", "0/0 nodes are available: the cluster has no nodes.")
        stage.pods(_saying(waiting("a"), before, 1))
        stage.nodes(gpu_node())
        await stage.settle()
        await _refuse(stage)
        assert stage.hands.conditions == {"uid-a": ScheduledCondition("BindingRefused", DENIED)}


async def test_that_it_says_why_does_not_bring_it_back_before_its_time(pauses: list[float]) -> None:
    """Our own write comes back by the watch like any other change."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        bind = await _refuse(stage)
        said = stage.hands.conditions.pop("uid-a")
        stage.pods(_saying(waiting("a"), said, 2))
        await stage.settle()
        assert len(stage.hands.binds) == 1
        await _again(stage, bind)
        await _refuse(stage)
        assert stage.hands.conditions == {}  # it says so already
        assert len(stage.hands.binds) == 2


async def test_a_pod_that_was_changed_is_tried_at_once(pauses: list[float]) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        await _refuse(stage)
        stage.pods(waiting("a", version=2, labels={"allowed": "yes"}))
        await stage.settle()
        assert len(stage.hands.binds) == 2


def _is_bound(stage: Stage, bind: Bind) -> None:
    stage.pods(bound("a", bind))


def _is_gone(stage: Stage, bind: Bind) -> None:
    stage.pod_gone(waiting("a"))


@pytest.mark.parametrize("ends", [_is_bound, _is_gone])
async def test_nothing_is_said_of_a_pod_that_is_bound_or_gone(
    ends: Callable[[Stage, Bind], None], pauses: list[float]
) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        ends(stage, await _refuse(stage))
        await stage.settle()
        assert stage.hands.conditions == {}
        assert stage.driver.outcomes.refusals == {}


async def test_pauses_grow_to_a_minute_and_stay_there(pauses: list[float]) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        for _ in range(1_100):  # powers of two end at 1,024
            stage.answer(Fate.REFUSED, stage.hands.binds[0], message=DENIED)
        asked = [pause for pause in pauses if pause >= 1.0]
        assert asked[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_REFUSAL_PAUSE]
        assert asked[-1] == LONGEST_REFUSAL_PAUSE
