"""A cluster and its waiting pods as values, read from files, a watch or a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.engine.rights.service import facts_of
from dovetail.engine.scheduler import COMPILE_FROM, DEFAULT_RIGHTS, Rights, Scheduler
from dovetail.model.events import (
    BudgetChanged,
    Effect,
    GangChanged,
    NamespaceChanged,
    NodeChanged,
    PodNominated,
    PodObserved,
    QueueChanged,
    SelectorChanged,
    TopologyChanged,
    VolumesChanged,
    Warn,
)
from dovetail.model.gang import Role, TopologyRule
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Profile, Quota, RunningPod
from dovetail.model.relations import Selector
from dovetail.model.rights import Budget, Queue
from dovetail.model.volumes import VolumeFact
from dovetail.policies.titles import is_joint
from dovetail.policies.yielding import Yielding


class Selecting(NamedTuple):
    """A Service or controller that selects pods of its namespace."""

    kind: str
    namespace: str
    name: str
    selector: Selector


@dataclass(frozen=True, slots=True)
class Situation:
    """All objects. Every order is total, whatever the order in which the objects were read."""

    nodes: tuple[Node, ...] = ()  # by name
    running: tuple[RunningPod, ...] = ()  # by node, namespace, name
    strays: tuple[RunningPod, ...] = ()  # pods of unknown nodes, in the same order: they count in quotas and gangs
    nominated: tuple[tuple[Pod, str], ...] = ()  # pods of the groups, and the node to which each is nominated
    groups: tuple[Group, ...] = ()  # in the order in which they are placed
    quotas: tuple[Quota, ...] = ()  # by namespace, name
    queues: tuple[Queue, ...] = ()  # by name
    volumes: tuple[VolumeFact, ...] = ()  # by kind, namespace, name
    namespaces: tuple[tuple[str, Mapping[str, str]], ...] = ()  # (name, labels), by name
    selecting: tuple[Selecting, ...] = ()  # Services and controllers, by kind, namespace, name
    budgets: tuple[Budget, ...] = ()  # by namespace, name
    gangs: tuple[tuple[str, int, tuple[Role, ...]], ...] = ()  # (Group.name, members that it needs, its roles), by name
    gang_rules: tuple[tuple[str, TopologyRule], ...] = ()  # (Group.name, rule of all its pods together), by name
    topologies: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, node labels from the widest level on), by name


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of the engine."""

    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # policy name -> its arguments
    mode: str = "auto"
    device_resources: tuple[str, ...] = ()  # counted by cards, not by the node's allocatable amount
    cache: bool = False  # compiled kernels may be kept on disk
    yielding: Yielding | None = None  # which running pods may be stopped for others; None = none
    minimum_run: float = 0.0  # seconds that a pod runs before it may be stopped
    now: float = 0.0  # seconds since the epoch, for how long pods have run; everything happens at this moment


class StartedCluster(NamedTuple):
    """A scheduler with the nodes and the running pods, and its warnings about them."""

    scheduler: Scheduler
    warnings: tuple[Warn, ...]


def start(situation: Situation, options: EngineOptions) -> StartedCluster:
    """A scheduler with everything of the situation but the waiting pods.

    Raises ValueError if an argument of a policy is wrong.
    """
    rights, now = rights_of(situation, options), options.now
    arguments = (options.arguments, situation.quotas, options.mode, options.device_resources, options.cache)
    scheduler = Scheduler(*arguments, rights=rights)
    effects: list[Effect] = []
    for node in situation.nodes:
        effects += scheduler.handle(NodeChanged(now, node))
    for name, levels in situation.topologies:
        effects += scheduler.handle(TopologyChanged(now, name, levels))
    for name, labels in situation.namespaces:
        effects += scheduler.handle(NamespaceChanged(now, name, labels))
    for one in situation.selecting:
        effects += scheduler.handle(SelectorChanged(now, *one))
    effects += scheduler.handle(VolumesChanged(now, situation.volumes))
    for queue in situation.queues:
        effects += scheduler.handle(QueueChanged(now, queue.name, queue))
    for running in situation.running:
        effects += scheduler.handle(PodObserved(now, running))
    for stray in situation.strays:
        scheduler.handle(PodObserved(now, stray))  # warnings about it concern a node that is not known
    for name, minimum, roles in situation.gangs:
        scheduler.handle(GangChanged(now, name, minimum, roles))
    for budget in situation.budgets:
        scheduler.handle(BudgetChanged(now, budget.namespace, budget.name, budget))
    for pod, promised in situation.nominated:
        scheduler.handle(PodNominated(now, pod, promised))
    _tell(scheduler, situation)
    return StartedCluster(scheduler, tuple(_warning(effect) for effect in effects))


def rights_of(situation: Situation, options: EngineOptions) -> Rights:
    """The rights of the plan's scheduler: without preemption if no pod could be stopped, which is faster."""
    policy = options.yielding
    if policy is None or not situation.groups:
        return DEFAULT_RIGHTS
    rights = Rights(yielding=policy, minimum_run=options.minimum_run)
    if situation.queues:  # a pod of this plan may be owed the place of another one
        return rights
    lowest = min((held.pod.priority for held in situation.running), default=None)
    if lowest is None:
        return DEFAULT_RIGHTS
    preemptors = (group for group in situation.groups if all(pod.preempts for pod in group.pods))
    below = policy.below
    helps = below is None or any(lowest < below(facts_of(group)) for group in preemptors)
    return rights if helps else DEFAULT_RIGHTS


def _warning(effect: Effect) -> Warn:
    """The effect as a warning. No group has arrived yet, so a cluster's state can only give warnings."""
    assert isinstance(effect, Warn), f"{type(effect).__name__} before any pod arrived"
    return effect


def _tell(scheduler: Scheduler, situation: Situation) -> None:
    """Give joint policies their workload: everything that runs or is to be placed."""
    pending = [pod for group in situation.groups for pod in group.pods]
    if any(is_joint(pod.profile) for pod in pending):
        there = [running.pod for running in situation.running]
        scheduler.outlook.expect((pod, 1) for pod in (*there, *pending) if pod.refusal is None)


def compiled_profiles(situation: Situation, options: EngineOptions) -> list[Profile]:
    """Profiles of the pending pods that will run compiled, each once."""
    pods = [pod for group in situation.groups for pod in group.pods]
    few = len(pods) * len(situation.nodes) < COMPILE_FROM
    if not pods or options.mode == "interpreted" or (options.mode == "auto" and few):
        return []
    return list(dict.fromkeys(pod.profile for pod in pods))
