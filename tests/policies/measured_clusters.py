"""Clusters with measured load, in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.events import Bind, GroupArrived, SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.signals import NodeSignals
from tests.builders import cluster, group


def measured(
    nodes: Sequence[tuple[Node, NodeSignals | None]], mode: str = "interpreted", **arguments: Any
) -> Scheduler:
    """A cluster whose nodes have these measurements; `arguments` are by policy, with _ for -."""
    given = {name.replace("_", "-"): values for name, values in arguments.items()}
    scheduler = cluster(*(one for one, _ in nodes), mode=mode, arguments=given)
    for one, signals in nodes:
        if signals is not None:
            tell(scheduler, one.name, signals)
    return scheduler


def tell(scheduler: Scheduler, name: str, signals: NodeSignals) -> None:
    assert scheduler.handle(SignalsMeasured(signals.measured_at, name, signals)) == ()


def said(scheduler: Scheduler, wanted: Pod) -> dict[str, float | None]:
    """node -> score for the pod."""
    return {verdict.node: verdict.score for verdict in verdicts(scheduler, wanted)}


def arrives(scheduler: Scheduler, wanted: Pod, at: float = 0.0) -> str | None:
    """The pod arrives and is placed; its node."""
    (effect,) = scheduler.handle(GroupArrived(at, group(wanted)))
    assert isinstance(effect, Bind)
    return effect.decision.node
