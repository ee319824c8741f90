"""Kubernetes' rules that depend on who else is where: as values. Which nodes they leave is the engine's question.

Static rules (labels, taints) are in model/rules.py. A pod that has none of these pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.model.rules import AffinityTerm, Requirement


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector; all rows must hold. Without rows it matches everything; "no selector" is None, not this."""

    labels: tuple[tuple[str, str], ...] = ()  # sorted
    expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.labels) and all(
            row.matches(labels) for row in self.expressions
        )


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods that this selects, within one value of a node label: together with them, or apart."""

    topology_key: str
    selector: Selector | None = None  # None matches no pod
    namespaces: tuple[str, ...] = ()  # the pod's own is written out where the manifest says nothing
    namespace_selector: Selector | None = None  # and every namespace whose labels match
    weight: int = 0  # of preferred terms, 1-100


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How unevenly the selected pods of the pod's own namespace may lie over the values of a node label."""

    topology_key: str
    max_skew: int
    hard: bool  # DoNotSchedule; else a preference (ScheduleAnyway)
    selector: Selector | None = None  # matchLabelKeys are merged in; None matches no pod
    min_domains: int = 1
    honour_affinity: bool = True  # nodeAffinityPolicy: Honor
    honour_taints: bool = False  # nodeTaintsPolicy: Ignore


@dataclass(frozen=True, slots=True)
class HostPort:
    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # what Kubernetes means by no address


@dataclass(frozen=True, slots=True)
class Relations:
    """What a pod demands, and prefers, of the pods beside it."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[PodTerm, ...] = ()
    preferred_anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims in the pod's namespace
    ephemeral: tuple[str, ...] = ()  # those of them that are made for this pod, and go with it


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a pod would like of a node, whoever is there."""

    nodes: tuple[tuple[int, AffinityTerm], ...] = ()  # (weight, term)
    images: tuple[str, ...] = ()  # of all containers, init containers too: one per container, normalised with a tag
    containers: int = 0  # init containers too


ALONE = Relations()
NO_PREFERENCES = Preferences()
