"""A node: its resources, labels, taints and cards, and the component that enforces the choice of a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dovetail.model.device import Device

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
BASE_RESOURCES = (CPU, MEMORY, STORAGE, PODS)  # cpu in milli, memory and storage in bytes, pods in pods


class Enforcer(StrEnum):
    """The component that gives a container the card chosen for it."""

    DOVETAIL = "dovetail"
    HAMI = "hami"
    STOCK = "stock"  # the vendor's own plugin: kubelet picks the card, whole cards only
    GPUSHARE = "gpushare"  # gpushare-device-plugin
    GPU_MANAGER = "gpu-manager"  # tkestack's


class Alignment(StrEnum):
    """Which cards kubelet lets a pod have together (its topology manager)."""

    NONE = "none"  # any: also for the policies best-effort and restricted, which refuse no pod that we place
    CONTAINER = "container"  # single-numa-node: the cards of a container are on one NUMA node
    POD = "pod"  # single-numa-node: the cards of all containers are


PREFER_NO_SCHEDULE = "PreferNoSchedule"  # the effect of a taint that is only a preference


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str  # NoSchedule | PreferNoSchedule | NoExecute

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class StaticNode:
    """Everything that a static filter may read of a node.

    Its answers are kept until one of these fields changes. A filter that read another field would give outdated
    answers.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    allocatable: Mapping[str, int] = field(default_factory=dict)  # resource name -> amount in its unit
    devices: tuple[Device, ...] = ()  # in registration order: ties depend on it
    links: tuple[tuple[int, ...], ...] = ()  # pair score between devices, by position; () = unknown
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    enforcer: Enforcer = Enforcer.HAMI
    images: Mapping[str, int] = field(default_factory=dict)  # name with tag or digest -> bytes
    mig: bool = False  # the node's GPUs are split by MIG in a way that is not placed yet
    alignment: Alignment = Alignment.NONE
    unsettled: str = ""  # why the node takes no new pods with devices for now; "" = it takes them

    @property
    def static(self) -> StaticNode:
        return StaticNode(self.name, self.labels, self.taints, self.unschedulable)
