"""A cluster whose pods can be stopped: pods end when the test says so, and Bindings come true at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import (
    Bind,
    BudgetChanged,
    Effect,
    Event,
    Evict,
    GangChanged,
    GroupArrived,
    NodeChanged,
    PodBound,
    PodGone,
    PodsGone,
)
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import Selector
from dovetail.model.rights import Budget
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from tests.builders import ask, pod

RIGHTS = Rights(yielding=YIELD_BY_PRIORITY)


class Cluster:
    def __init__(self, *nodes: Node, rights: Rights = RIGHTS, mode: str = "interpreted") -> None:
        self.scheduler = Scheduler(mode=mode, rights=rights)
        self.now = 0.0
        self.bound: dict[str, tuple[str, tuple[str, ...]]] = {}  # pod -> node, cards
        self.stopped: list[str] = []  # names of pods that were told to stop, in order
        self.evictions: list[Evict] = []
        for one in nodes:
            self.scheduler.handle(NodeChanged(0.0, one))

    def happens(self, event: Event) -> None:
        self.performs(self.scheduler.handle(event), event.at)

    def performs(self, effects: Sequence[Effect], at: float | None = None) -> None:
        """Bind at once; note which pods are told to stop."""
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Bind):
                cards = tuple(share.uuid for share in effect.decision.shares)
                self.bound[effect.pod.name] = (str(effect.decision.node), cards)
                effects += self.scheduler.handle(PodBound(self.now if at is None else at, effect.pod.uid))
            elif isinstance(effect, Evict):
                self.stopped.append(effect.pod.name)
                self.evictions.append(effect)
        audit.validate(self.scheduler.ledger)

    def arrive(self, *pods: Pod, minimum: int | None = None, group: str = "") -> None:
        """Pods arrive together, one second after what was before."""
        self.now += 1
        if group:
            pods = tuple(replace(one, group=group) for one in pods)
            self.happens(GangChanged(self.now, group, len(pods) if minimum is None else minimum))
        name = group or pods[0].key
        self.happens(GroupArrived(self.now, Group(name, pods, len(pods) if minimum is None else minimum)))

    def end(self, *names: str) -> None:
        """These pods end at one moment; without names, all that were told to stop."""
        self.now += 1
        names = names or tuple(name for name in self.stopped if name in self.bound)
        for name in names:
            self.bound.pop(name, None)
        uids = tuple(f"uid-{name}" for name in names)
        self.happens(PodGone(self.now, uids[0]) if len(uids) == 1 else PodsGone(self.now, uids))

    def budget(self, allowed: int, **labels: str) -> None:
        budget = Budget("default", "-".join(labels.values()), Selector(tuple(sorted(labels.items()))), allowed)
        self.happens(BudgetChanged(self.now, budget.namespace, budget.name, budget))

    def node_of(self, name: str) -> str:
        return self.bound[name][0]


def job(name: str, priority: int = 0, gpus: int = 1, cores: int = 100, memory: int = 0, **facts: object) -> Pod:
    """A pod of whole cards, or of a part of one card."""
    return pod(name, ask(gpus, memory, cores), priority=priority, **facts)  # type: ignore[arg-type]
