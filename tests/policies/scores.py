"""What a node policy says of nodes, and which cards a device policy takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from tests.builders import cluster, place


def scores(
    policy: str, nodes: list[Node], wanted: Pod, there: list[Pod] | None = None, **arguments: Any
) -> dict[str, float | None]:
    """node -> score for the pod, with others placed before it by name of node."""
    scheduler = with_arguments(policy, nodes, arguments)
    for one in there or ():
        assert place(scheduler, one)[0][0] == one.node_rules.node_name
    return {verdict.node: verdict.score for verdict in verdicts(scheduler, wanted)}


def with_arguments(policy: str, nodes: list[Node], arguments: Mapping[str, Any]) -> Scheduler:
    return cluster(*nodes, arguments={policy: arguments} if arguments else {})


def taken(nodes: list[Node], wanted: Pod) -> list[str]:
    """The cards of the pod, in the order in which they were chosen."""
    ((_, cards),) = place(cluster(*nodes), wanted)
    return list(cards)
