"""Kubernetes' objects, typed: only the fields that we use; every field is optional that the API allows to be absent.

Null means absent, as in Kubernetes. A wrong type is an error that names the file, the object and the field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.objects.base import Meta as Meta
from dovetail.kube.objects.base import OwnerReference as OwnerReference
from dovetail.kube.objects.base import Quantities as Quantities
from dovetail.kube.objects.base import Quantity as Quantity
from dovetail.kube.objects.base import Struct as Struct
from dovetail.kube.objects.base import Texts as Texts
from dovetail.kube.objects.gangs import PodGroup as PodGroup
from dovetail.kube.objects.gangs import PodGroupSpec as PodGroupSpec


class Resources(Struct, frozen=True):
    limits: Quantities = {}
    requests: Quantities = {}
    claims: list[Any] = []


class Port(Struct, frozen=True):
    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")


class SecurityContext(Struct, frozen=True):
    privileged: bool = False


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""
    ports: list[Port] = []
    security_context: SecurityContext | None = None


class Toleration(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Struct, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Struct, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class LabelSelector(Struct, frozen=True):
    match_labels: Texts = {}
    match_expressions: list[Requirement] = []


class PodAffinityTerm(Struct, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Struct, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, frozen=True):
    required: list[PodAffinityTerm] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True):
    topology_key: str = ""
    max_skew: int = 0
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class ClaimSource(Struct, frozen=True):
    claim_name: str = ""


class ImageSource(Struct, frozen=True):
    reference: str = ""


class Volume(Struct, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Any = None  # a claim is created for the pod; its size is read from the claim
    image: ImageSource | None = None


class SchedulingGroup(Struct, frozen=True):
    pod_group_name: str = ""


class WorkloadReference(Struct, frozen=True):
    """Of Kubernetes 1.35: a group of pods in a Workload."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Struct, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: Texts = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    overhead: Quantities = {}
    resources: Resources | None = None
    resource_claims: list[Any] = []
    scheduling_gates: list[Any] = []
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    volumes: list[Volume] = []
    host_network: bool = False


class Terminated(Struct, frozen=True):
    exit_code: int = 0
    finished_at: str = ""


class ContainerState(Struct, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    resources: Resources | None = None  # what kubelet has given it
    allocated_resources: Quantities = {}  # what kubelet has promised it


class Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class PodStatus(Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: str = ""
    qos_class: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: Resources | None = None  # of the pod as a whole
    allocated_resources: Quantities = {}


class Pod(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec
    status: PodStatus = PodStatus()


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Struct, frozen=True):
    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(Struct, frozen=True):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[Condition] = []
    images: list[ContainerImage] = []


class Node(Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodTemplate(Struct, frozen=True):
    spec: PodSpec
    metadata: Meta = Meta()


class Ordinals(Struct, frozen=True):
    start: int = 0


class WorkloadSpec(Struct, frozen=True):
    """The common fields of Deployment, ReplicaSet, StatefulSet, DaemonSet and Job."""

    template: PodTemplate | None = None
    selector: LabelSelector | None = None
    replicas: int | None = None
    paused: bool = False
    ordinals: Ordinals = Ordinals()
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False


class WorkloadStatus(Struct, frozen=True):
    succeeded: int = 0
    conditions: list[Condition] = []


class Workload(Struct, frozen=True):
    metadata: Meta
    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


class ReplicationControllerSpec(WorkloadSpec, frozen=True):
    selector: Texts = {}  # type: ignore[assignment]  # a map of labels


class ReplicationController(Workload, frozen=True):
    spec: ReplicationControllerSpec


class ServiceSpec(Struct, frozen=True):
    selector: Texts = {}


class Service(Struct, frozen=True):
    metadata: Meta
    spec: ServiceSpec = ServiceSpec()


class PriorityClass(Struct, frozen=True):
    metadata: Meta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class ResourceQuotaSpec(Struct, frozen=True):
    hard: Quantities = {}
    scopes: list[str] = []
    scope_selector: Any = None


class ResourceQuota(Struct, frozen=True):
    metadata: Meta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class LimitRangeItem(Struct, frozen=True):
    type: str = ""
    default: Quantities = {}
    default_request: Quantities = {}
    max: Quantities = {}
    min: Quantities = {}


class LimitRangeSpec(Struct, frozen=True):
    limits: list[LimitRangeItem] = []


class LimitRange(Struct, frozen=True):
    metadata: Meta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(Struct, frozen=True):
    pod_fixed: Quantities = {}


class RuntimeScheduling(Struct, frozen=True):
    node_selector: Texts = {}
    tolerations: list[Toleration] = []


class RuntimeClass(Struct, frozen=True):
    metadata: Meta
    overhead: Overhead = Overhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class Namespace(Struct, frozen=True):
    metadata: Meta


class Named(Struct, frozen=True):
    """An object of which only the metadata is typed."""

    metadata: Meta


def without_nulls(value: Any) -> Any:
    """The value without nulls: null means absent, as in Kubernetes."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value
