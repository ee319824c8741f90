"""Ten thousand hostile annotations through mirror, driver and engine: a line in the log, and nothing else."""

from __future__ import annotations

import random

import pytest

from dovetail.engine.ledger.audit import validate
from tests.kube.live.hostile import ON_NODES, ON_PODS, values
from tests.kube.live.stage import Stage, gpu_node, waiting

pytestmark = pytest.mark.asyncio


async def test_ten_thousand_annotations_are_ignored_and_sound_pods_are_placed() -> None:
    dice = random.Random(1)
    async with Stage() as stage:
        stage.nodes(gpu_node("sound", cards=4))
        for number, value in enumerate(values(1, 10_000)):
            if number % 2:
                item = gpu_node(f"bad-{number % 20}")
                item["metadata"]["annotations"][dice.choice(ON_NODES)] = value
                item["spec"] = {"unschedulable": True}  # or it might even be right, and take the sound pods
                stage.nodes(item)
            else:
                pod = waiting(f"p{number % 50}", version=number + 1, limits={"nvidia.com/gpu": 9})
                pod["metadata"]["annotations"] = {dice.choice(ON_PODS): value}
                if dice.random() < 0.5:
                    pod["spec"]["nodeName"] = f"bad-{number % 20}"
                    pod["metadata"]["uid"] += "-bound"
                stage.pods(pod)
            if number % 100 == 0:
                await stage.settle()
        stage.pods(*(waiting(f"sound-{number}", version=20_000) for number in range(4)))
        for _ in range(40):
            await stage.settle()
        placed = [bind.pod.name for bind in stage.hands.binds if bind.decision.node == "sound"]
        assert sorted(placed) == [f"sound-{number}" for number in range(4)]
        assert stage.log
        assert max(len(line) for line in stage.log) < 2_000
        validate(stage.scheduler.ledger)
