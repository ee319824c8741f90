"""`filter` with whole nodes instead of their names: what would happen, without any effect.

This is how cluster-autoscaler asks, about nodes that may not exist yet (HAMi: pkg/scheduler/scheduler.go,
simulation). A node that exists has what runs there; any other node is as empty as it is described. The pod is tried
alone: it is not known which members of its gang the caller has in mind.
"""

from __future__ import annotations

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.extender.protocol import FilterArgs, FilterResult, OfferedNode
from dovetail.kube.extender.refusals import refusals
from dovetail.kube.live.service import LiveScheduler
from dovetail.model.events import Bind, GroupArrived
from dovetail.model.node import Node
from dovetail.model.pod import Group, RunningPod
from dovetail.whatif.situation import EngineOptions, Situation, start


class Simulation:
    def __init__(self, service: LiveScheduler) -> None:
        self._service = service

    def filter(self, args: FilterArgs) -> FilterResult:
        pod = self._service.mirror.read(args.pod)
        if not pod.wants_devices:
            return FilterResult(args.offered)
        nodes = tuple(sorted((self._node(one) for one in args.nodes or ()), key=lambda node: node.name))
        scheduler, now = self._scheduler(nodes), self._service.now()
        group = Group(pod.key, (pod,))
        for effect in scheduler.handle(GroupArrived(now, group)):
            if isinstance(effect, Bind):
                return FilterResult((str(effect.decision.node),))
        return FilterResult((), *refusals(scheduler, group, pod, args.offered))

    def _node(self, offered: OfferedNode) -> Node:
        known = self._service.mirror.nodes.get(offered.source.metadata.name)
        return known if known is not None else self._service.reader.node(offered.source)[0].node

    def _scheduler(self, nodes: tuple[Node, ...]) -> Scheduler:
        options = self._service.options
        settings = EngineOptions(options.arguments, "interpreted", options.device_resources)
        there = {node.name for node in nodes}
        return start(Situation(nodes=nodes, running=tuple(self._holding(there))), settings)[0]

    def _holding(self, nodes: set[str]) -> list[RunningPod]:
        """What is held on these nodes: by pods that run, and by pods that are about to be bound."""
        running = [one.running for one in self._service.mirror.pods.values() if one.running is not None]
        driver = self._service.driver
        reserved = driver.on_the_way.values() if driver is not None else ()
        running += [RunningPod(one.pod, str(one.decision.node), one.decision.shares) for one in reserved]
        by_uid = {one.pod.uid: one for one in reversed(running) if one.node in nodes}  # a pod that runs counts once
        return sorted(by_uid.values(), key=lambda one: (one.node, one.pod.key))
