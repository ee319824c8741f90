"""Decide all waiting groups until nothing more can be placed.

A pod that must be near another pod may come first and find no place. It is tried again after the other pod is placed.
The live scheduler does this when pods arrive (engine/wake.py). In a plan all pods arrive together, so it is done in
rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.gathering import waiting
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import NO_RELATIONS


def decide(scheduler: Scheduler, groups: Sequence[Group]) -> list[Decision]:
    """One decision per pod, in the order of the groups; for a pod that is not placed, its first decision."""
    decisions = list(scheduler.place(groups))
    pods = [(group, pod) for group in groups for pod in group.pods]
    position = {pod.uid: number for number, (_, pod) in enumerate(pods)}
    fresh = [pod for (_, pod), decision in zip(pods, decisions, strict=True) if decision.placed]
    left = [group for group in groups if any(_has_rules(pod) for pod in group.pods)]
    while fresh and left:
        left = [group for group in (waiting(scheduler, one) for one in left) if group.pods]
        tried = [group for group in left if any(_is_helped(scheduler, pod, fresh) for pod in group.pods)]
        again = list(scheduler.place(tried))
        fresh = [pod for pod, decision in zip(_pods(tried), again, strict=True) if decision.placed]
        for decision in again:
            if decision.placed:
                decisions[position[decision.uid]] = decision
    return decisions


def _pods(groups: Sequence[Group]) -> list[Pod]:
    return [pod for group in groups for pod in group.pods]


def _has_rules(pod: Pod) -> bool:
    return pod.relations != NO_RELATIONS and pod.refusal is None


def _is_helped(scheduler: Scheduler, pod: Pod, fresh: Sequence[Pod]) -> bool:
    return _has_rules(pod) and any(scheduler.related.wakes(pod, other) for other in fresh)
