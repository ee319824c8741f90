"""A cluster and its waiting pods as values, read from files, a watch or a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.engine.scheduler import COMPILE_FROM, Scheduler
from dovetail.model.events import (
    Effect,
    NamespaceChanged,
    NodeChanged,
    PodNominated,
    PodObserved,
    SelectorChanged,
    VolumesChanged,
    Warn,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Profile, Quota, RunningPod
from dovetail.model.relations import Selector
from dovetail.model.volumes import VolumeFact
from dovetail.policies.titles import is_joint

NOW = 0.0  # a plan has no time: everything happens at once


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
    volumes: tuple[VolumeFact, ...] = ()  # by kind, namespace, name
    namespaces: tuple[tuple[str, Mapping[str, str]], ...] = ()  # (name, labels), by name
    selecting: tuple[Selecting, ...] = ()  # Services and controllers, by kind, namespace, name


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of the engine."""

    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # policy name -> its arguments
    mode: str = "auto"
    device_resources: tuple[str, ...] = ()  # counted by cards, not by the node's allocatable amount
    cache: bool = False  # compiled kernels may be kept on disk


def start(situation: Situation, options: EngineOptions) -> tuple[Scheduler, tuple[Warn, ...]]:
    """A scheduler with the nodes and the running pods, and its warnings about them.

    Raises ValueError if an argument of a policy is wrong.
    """
    scheduler = Scheduler(options.arguments, situation.quotas, options.mode, options.device_resources, options.cache)
    effects: list[Effect] = []
    for node in situation.nodes:
        effects += scheduler.handle(NodeChanged(NOW, node))
    for name, labels in situation.namespaces:
        effects += scheduler.handle(NamespaceChanged(NOW, name, labels))
    for one in situation.selecting:
        effects += scheduler.handle(SelectorChanged(NOW, *one))
    effects += scheduler.handle(VolumesChanged(NOW, situation.volumes))
    for running in situation.running:
        effects += scheduler.handle(PodObserved(NOW, running))
    for stray in situation.strays:
        scheduler.handle(PodObserved(NOW, stray))  # warnings about it concern a node that is not known
    for pod, promised in situation.nominated:
        scheduler.handle(PodNominated(NOW, pod, promised))
    _tell(scheduler, situation)
    return scheduler, tuple(_warning(effect) for effect in effects)


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
