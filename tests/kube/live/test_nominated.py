"""`status.nominatedNodeName`, as the API server tells of it: the node is kept, for our own pods as for others'."""

from __future__ import annotations

import pytest

from tests.kube.live.stage import Stage, waiting
from tests.kube.manifests import Object, container, node

pytestmark = pytest.mark.asyncio


def _pod(name: str, priority: int = 0, nominated: str = "", scheduler: str = "dovetail", gated: bool = False) -> Object:
    made = waiting(name)
    made["spec"] |= {"schedulerName": scheduler, "priority": priority, "containers": [container(requests={"cpu": "1"})]}
    if gated:
        made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    if nominated:
        made["status"] = {"nominatedNodeName": nominated}
    return made


def _placed(stage: Stage) -> dict[str, str | None]:
    return {bind.pod.name: bind.decision.node for bind in stage.hands.binds}


@pytest.mark.parametrize("scheduler", ["dovetail", "default-scheduler"])
async def test_a_node_is_kept_until_nobody_is_nominated_to_it(scheduler: str) -> None:
    async with Stage() as stage:
        stage.nodes(node("n1", allocatable={"cpu": "1", "pods": "10"}))
        stage.pods(_pod("preemptor", 5, "n1", scheduler, gated=True), _pod("lower"))
        await stage.settle()
        assert _placed(stage) == {}
        stage.pods(_pod("preemptor", 5, "", scheduler, gated=True))
        await stage.settle()
        assert _placed(stage) == {"lower": "n1"}


async def test_a_pod_of_ours_that_hears_of_its_node_later_keeps_it_from_then_on() -> None:
    async with Stage() as stage:
        stage.nodes(node("n1", allocatable={"cpu": "1", "pods": "10"}))
        stage.pods(_pod("preemptor", 5, gated=True))
        await stage.settle()
        stage.pods(_pod("preemptor", 5, "n1", gated=True), _pod("lower"))
        await stage.settle()
        assert _placed(stage) == {}
        stage.pods(_pod("higher", 6))
        await stage.settle()
        assert _placed(stage) == {"higher": "n1"}


async def test_a_pod_of_ours_goes_to_the_node_it_is_nominated_to() -> None:
    async with Stage() as stage:
        stage.nodes(*(node(name, allocatable={"cpu": "4", "pods": "10"}) for name in ("n1", "n2", "n3")))
        stage.pods(_pod("mine", 5, "n2"))
        await stage.settle()
        assert _placed(stage) == {"mine": "n2"}
