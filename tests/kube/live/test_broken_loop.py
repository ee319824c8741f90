"""An error of the engine costs the object it is about, wherever it is met: the loop goes on."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.engine.ledger.audit import contradictions
from dovetail.model.events import NodeChanged
from tests.kube.live.stage import Stage, gpu_node, waiting


@pytest.mark.asyncio
async def test_an_error_while_a_bind_catches_up_costs_only_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("p"))
        await stage.settle()
        (bind,) = stage.hands.binds
        handle = stage.scheduler.handle

        def fail(event: Any) -> Any:
            if isinstance(event, NodeChanged) and event.node.name == "bad":
                raise RuntimeError("a bug")
            return handle(event)

        monkeypatch.setattr(stage.scheduler, "handle", fail)
        stage.nodes(gpu_node("bad"), gpu_node("good"))
        assert stage.driver.outcomes.objection(bind, waited=True) == ""
        stage.pods(waiting("q"), waiting("r"))
        await stage.settle()
        placed = {one.pod.name: one.decision.node for one in stage.hands.binds}
        assert placed == {"p": "n", "q": "good"}  # r finds no card: n and good have one each, bad takes no pod
        assert stage.driver.set_aside.total == 1
        assert [text for text in stage.log if "Node bad is set aside" in text and "RuntimeError: a bug" in text]
        assert list(contradictions(stage.scheduler.ledger)) == []
