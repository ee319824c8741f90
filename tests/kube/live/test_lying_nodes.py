"""A node that registers other nodes' cards takes nothing from them: not while the scheduler runs, not at its start."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.watch import Replaced
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import Stage, waiting
from tests.kube.live.test_records_after_restart import KEY
from tests.kube.live.test_what_is_held import Cluster, on, whole, with_count
from tests.kube.manifests import Object, card, node

pytestmark = pytest.mark.asyncio


def joined(name: str, when: str, *uuids: str) -> Object:
    """A node with these cards that joined the cluster then."""
    item = with_count(node(name, *(card(uuid) for uuid in uuids)), 10)
    item["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{when}Z"
    return item


def listed(stage: Cluster, *items: Object) -> None:
    """As at the start of a scheduler."""
    event: Any = Replaced([msgspec.convert(item, objects.Node) for item in items], [])
    stage.driver.happened(stage.mirror.hear_nodes([event]))


HONEST, OTHER = joined("m", "10", "GPU-m"), joined("n", "11", "GPU-n")
LIAR = joined("a", "30", "GPU-m", "GPU-n", "GPU-a")  # its name comes first, and it joined last


@pytest.mark.parametrize("order", list(permutations((HONEST, OTHER, LIAR))))
async def test_at_the_start_the_older_node_keeps_its_card(order: tuple[Object, ...]) -> None:
    async with Cluster() as stage:
        listed(stage, *order)
        unsettled = {name: one.unsettled for name, one in stage.mirror.nodes.items() if one.unsettled}
        assert unsettled == {"a": "card GPU-m is also registered by node m"}
        stage.want("p", "q", "r")
        await stage.settle()
        assert sorted(stage.running.values()) == ["m", "n"]


async def test_nodes_that_joined_in_the_same_second_are_ordered_by_name() -> None:
    async with Cluster() as stage:
        listed(stage, joined("b", "10", "GPU-x"), joined("a", "10", "GPU-x"))
        assert {name: bool(one.unsettled) for name, one in stage.mirror.nodes.items()} == {"a": False, "b": True}


@pytest.mark.parametrize("scheduler", ["dovetail", "default-scheduler"])
async def test_a_pod_on_the_lying_node_does_not_help_it(scheduler: str) -> None:
    """The pod was put there by its owner, with a record that the owner wrote: it has no seal."""
    accomplice = on("accomplice", "a", whole("GPU-m"))
    accomplice["spec"]["schedulerName"] = scheduler
    async with Stage(settings=Settings(seals=KEY)) as stage:
        stage.nodes(HONEST)
        stage.nodes(LIAR)
        stage.pods(accomplice)
        stage.pods(waiting("p"))
        await stage.settle()
        assert {name: one.unsettled for name, one in stage.mirror.nodes.items()} == {
            "m": "",
            "a": "card GPU-m is also registered by node m",
        }
        assert [(bind.pod.name, bind.decision.node) for bind in stage.hands.binds] == [("p", "m")]
        stage.pod_gone(accomplice)
        stage.node_gone("m")
        await stage.settle()
        assert stage.mirror.nodes["a"].unsettled == ""
