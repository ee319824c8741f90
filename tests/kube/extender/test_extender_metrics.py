"""The extender's metrics, after requests through its HTTP routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from dovetail.kube.extender.counts import AnswerOutcome, Verb
from dovetail.kube.live.service import LiveScheduler
from dovetail.web.extender import ExtenderRoutes
from dovetail.web.serving import WebAnswer, WebRequest
from tests.kube.extender.asked_stage import AskedStage, waiting
from tests.kube.live.stage import gpu_node
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio


async def asked(stage: AskedStage, verb: str, body: Mapping[str, Any] | bytes) -> WebAnswer:
    routes = ExtenderRoutes(stage.extender, cast(LiveScheduler, stage.service)).by_path()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await routes[f"POST /{verb}"](WebRequest("POST", f"/{verb}", raw))


def args(item: Object, *nodes: str) -> dict[str, Any]:
    return {"Pod": item, "NodeNames": list(nodes)}


def answered(stage: AskedStage) -> dict[tuple[str, str], int]:
    """Verb and outcome -> requests, of those that there were."""
    counted = stage.extender.page()["dovetail_extender_requests_total"]
    counts = cast(Mapping[tuple[str, str], int], counted)
    return {(str(verb), str(outcome)): count for (verb, outcome), count in counts.items() if count}


async def test_requests_are_counted_by_verb_and_outcome() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"))
        stage.pods(waiting("a"), waiting("b"))
        await asked(stage, "filter", args(waiting("a"), "n"))
        await asked(stage, "filter", args(waiting("b"), "n"))  # the card is reserved
        await asked(stage, "prioritize", args(waiting("a"), "n"))
        await asked(stage, "bind", {"PodName": "x", "PodNamespace": "ml", "PodUID": "gone", "Node": "n"})
        await asked(stage, "preempt", {"Pod": waiting("b"), "NodeNameToMetaVictims": {}})
        for verb in Verb:
            assert (await asked(stage, verb, b"[]")).status in (200, 400)
        once = dict.fromkeys(((verb, "unreadable") for verb in ("filter", "prioritize", "bind", "preempt")), 1)
        assert answered(stage) == {
            **once,
            ("filter", "ok"): 1,
            ("filter", "no-node"): 1,
            ("prioritize", "ok"): 1,
            ("bind", "error"): 1,
            ("preempt", "no-node"): 1,
        }
        assert [one.cumulative[-1] for one in stage.extender.counts.seconds.values()] == [3, 2, 2, 2]


async def test_a_replica_that_does_not_lead_counts_errors() -> None:
    async with AskedStage() as stage:
        stage.service.ready = False
        await asked(stage, "filter", args(waiting("a"), "n"))
        scores = await asked(stage, "prioritize", args(waiting("a"), "n"))
        assert json.loads(scores.body) == [{"Host": "n", "Score": 0}]
        await asked(stage, "preempt", {"Pod": waiting("a"), "NodeNameToMetaVictims": {}})
        assert answered(stage) == dict.fromkeys([(verb, "error") for verb in ("filter", "prioritize", "preempt")], 1)


async def test_a_failure_is_counted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AskedStage() as stage:
        monkeypatch.setattr(stage.extender, "prioritize", lambda given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await asked(stage, "prioritize", args(waiting("a"), "n"))
        assert answered(stage) == {("prioritize", "failed"): 1}


async def test_reservations_are_counted_when_they_are_made_held_and_expired() -> None:
    async with AskedStage() as stage:
        stage.nodes(gpu_node("n"), gpu_node("m"))
        for name in ("a", "b", "a"):  # asked again about `a`, the reservation stands
            stage.filter(waiting(name), "n", "m")
        names = [f"dovetail_extender_reservations_{one}" for one in ("held", "made_total", "expired_total")]
        assert [stage.extender.page()[name] for name in names] == [2, 2, 0]
        stage.clock += 61
        stage.desk.expire()
        assert [stage.extender.page()[name] for name in names] == [0, 2, 2]


async def test_every_series_exists_before_the_first_request() -> None:
    async with AskedStage() as stage:
        page = stage.extender.page()
        assert page["dovetail_extender_requests_total"] == {(verb, end): 0 for verb in Verb for end in AnswerOutcome}
