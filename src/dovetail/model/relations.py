"""Kubernetes' rules that depend on other pods, as values. The engine decides which nodes they allow.

Static rules (labels, taints) are in model/rules.py. A pod without these rules costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.model.rules import AffinityTerm, Requirement


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector; all rows must match. Without rows it matches everything; "no selector" is None, not this."""

    labels: tuple[tuple[str, str], ...] = ()  # sorted
    expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.labels:  # a loop: `all` takes twice as long, and each pod is held against many selectors
            if labels.get(key) != value:
                return False
        return not self.expressions or all(row.matches(labels) for row in self.expressions)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A term about selected pods in one value of a node label: near them (affinity), or not (anti-affinity)."""

    topology_key: str
    selector: Selector | None = None  # None matches no pod
    namespaces: tuple[str, ...] = ()  # includes the pod's own namespace if the manifest names none
    namespace_selector: Selector | None = None  # and every namespace whose labels match
    weight: int = 0  # of preferred terms, 1-100


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How unevenly selected pods of the pod's namespace may be spread over the values of a node label."""

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
    ip: str = "0.0.0.0"  # Kubernetes' default address


@dataclass(frozen=True, slots=True)
class Relations:
    """What a pod requires or prefers of other pods near it, and its ports and claims."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[PodTerm, ...] = ()
    preferred_anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims in the pod's namespace
    ephemeral: tuple[str, ...] = ()  # those of them that are created for this pod and deleted with it


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a pod prefers of a node, whatever pods are there."""

    nodes: tuple[tuple[int, AffinityTerm], ...] = ()  # (weight, term)
    images: tuple[str, ...] = ()  # of all containers, init containers too: one per container, normalised with a tag
    containers: int = 0  # init containers too


NO_RELATIONS = Relations()
NO_PREFERENCES = Preferences()
