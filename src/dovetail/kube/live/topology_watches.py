"""Watches of Topologies and HyperNodes. Kinds that are not served, or that we may not read, have no objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.watch import Event
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.topology_mirror import TopologyKind, TopologyMirror
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects.domain_objects import (
    HYPER_NODE_GROUP,
    KAI_TOPOLOGY_GROUP,
    KUEUE_GROUP,
    TOPOLOGY_KINDS,
    TopologyObject,
)

WATCHED_TOPOLOGIES = (
    TopologyKind(KUEUE_GROUP, "v1beta1", "Topology", "topologies"),
    TopologyKind(KUEUE_GROUP, "v1beta2", "Topology", "topologies"),
    TopologyKind(KAI_TOPOLOGY_GROUP, "v1alpha1", "Topology", "topologies"),
    TopologyKind(HYPER_NODE_GROUP, "v1alpha1", "HyperNode", "hypernodes"),
)


class TopologyWatches:
    """One reflector for each kind. `watch` is a Reflector that lacks its path, kind, consumer and options."""

    def __init__(
        self,
        driver: Driver,
        mirror: TopologyMirror,
        watch: Callable[..., Reflector[Any]],
        complain: Callable[..., None],
        log: Log,
    ) -> None:
        self._driver, self._mirror, self._complain, self._log = driver, mirror, complain, log
        self.reflectors = [
            watch(
                kind.path,
                TOPOLOGY_KINDS[kind.api_group, kind.kind],
                partial(self._hear, kind),
                without=f"{kind.plural} of {kind.api_group} are not known",
            )
            for kind in WATCHED_TOPOLOGIES
        ]

    def nodes_changed(self) -> None:
        """Tell the engine of levels of the configuration that nodes have now, or have no more."""
        self._driver.happened(self._mirror.changes())

    def _hear(self, kind: TopologyKind, batch: list[Event[TopologyObject]]) -> None:
        self._complain(kind.kind, batch)
        self._driver.happened(self._mirror.hear(kind, batch))
        faults, self._mirror.faults = self._mirror.faults, []
        self._driver.set_aside.unread(faults)
        lines, self._mirror.problems = self._mirror.problems, []
        for line in lines:
            self._log(line, WARNING)
