"""What a cluster's nodes, pods, gangs and quotas are at one moment, as values: for lists and for the terminal view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.engine.rights.queue_status import QueueState
from dovetail.engine.rights.quota import QuotaUse
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import NodeUse, usage
from dovetail.model.gang import ANYWHERE, Role, TopologyRule
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.rights import Queue
from dovetail.whatif.plan import plan, why_pending
from dovetail.whatif.situation import EngineOptions, Situation, StartedCluster


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node, and its place in the queue."""

    position: int  # of its group, from 1 on
    pod: Pod
    group: Group
    queue: str  # Queue.name; "" = none


@dataclass(frozen=True, slots=True)
class GangMembers:
    """A gang with members that hold a node, members that wait, or both."""

    name: str  # Group.name
    bound: int
    total: int  # members that exist
    minimum: int
    roles: tuple[Role, ...]  # with the number of their members that hold a node
    topology: TopologyRule
    nodes: tuple[str, ...]  # of its members, each once, by name


@dataclass(frozen=True, slots=True)
class QueueAmounts:
    """A queue, and what its pods hold."""

    queue: Queue
    state: QueueState
    ceiling: Mapping[str, int]  # the lowest on the way to the root


@dataclass(frozen=True, slots=True)
class Overview:
    nodes: tuple[NodeUse, ...]  # by name
    running: tuple[RunningPod, ...]  # by node, namespace, name
    waiting: tuple[WaitingPod, ...]  # in the order in which they are served
    gangs: tuple[GangMembers, ...]  # by name
    quotas: tuple[QuotaUse, ...]  # by namespace, name, resource
    queues: tuple[QueueAmounts, ...]  # by name


def overview(situation: Situation, scheduler: Scheduler) -> Overview:
    """The state of everything that runs; nothing is placed. `scheduler`: one that was started with the situation."""
    queues = scheduler.claims.queues
    waiting = [
        WaitingPod(position, pod, group, queues.queue_of(pod))
        for position, group in enumerate(situation.groups, 1)
        for pod in group.pods
    ]
    states = ((queue, queues.status(queue.name)) for queue in situation.queues)
    return Overview(
        nodes=usage(scheduler),
        running=tuple(sorted((*situation.running, *situation.strays), key=_by_node)),
        waiting=tuple(waiting),
        gangs=_gangs(situation),
        quotas=tuple(scheduler.quotas.uses()),
        queues=tuple(
            QueueAmounts(queue, state, queues.ceiling_of(queue.name)) for queue, state in states if state is not None
        ),
    )


def reasons(situation: Situation, options: EngineOptions, begun: StartedCluster) -> dict[str, str]:
    """By uid: why each pod would still wait after all waiting pods were decided once, or where it would go.

    The pods are placed by the scheduler of `begun`, which shows another cluster afterwards.
    """
    return {
        one.pod.uid: f"fits on {one.decision.node}" if one.decision.placed else why_pending(one)
        for one in plan(situation, options, begun).outcomes
    }


def _by_node(held: RunningPod) -> tuple[str, str, str]:
    return held.node, held.pod.namespace, held.pod.name


def _gangs(situation: Situation) -> tuple[GangMembers, ...]:
    waiting = {group.name: group for group in situation.groups if group.pods[0].group}
    stated = {name: (minimum, roles) for name, minimum, roles in situation.gangs}
    rules = dict(situation.gang_rules)
    held: dict[str, list[RunningPod]] = {}
    for one in (*situation.running, *situation.strays):
        if one.pod.group and not one.pod.leaving:
            held.setdefault(one.pod.group, []).append(one)
    return tuple(
        _gang(name, waiting.get(name), held.get(name, []), stated.get(name, (0, ())), rules.get(name))
        for name in sorted({*waiting, *held})
    )


def _gang(
    name: str,
    group: Group | None,
    held: list[RunningPod],
    stated: tuple[int, tuple[Role, ...]],
    rule: TopologyRule | None,
) -> GangMembers:
    minimum, roles = (group.minimum, group.roles) if group is not None else stated
    bound = Counter(one.pod.role for one in held)
    return GangMembers(
        name=name,
        bound=len(held),
        total=len(held) + (len(group.pods) if group is not None else 0),
        minimum=minimum,
        roles=tuple(Role(role.name, role.minimum, role.topology, bound[role.name]) for role in roles),
        topology=group.topology if group is not None else rule or ANYWHERE,
        nodes=tuple(sorted({one.node for one in held})),
    )
