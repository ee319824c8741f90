"""Objects that describe gangs: the fields that we read, with their projects' names.

scheduler-plugins v0.35, Koordinator v1.8, Volcano v1.15 and KAI v0.16 (PodGroup), Kubernetes 1.35 (Workload) and from
1.36 on (PodGroup), JobSet v0.12. The fields of all PodGroups are in one type: their names do not collide.
"""

from __future__ import annotations

from typing import Any

from dovetail.kube.objects.base import Meta, Quantities, Struct

KUBERNETES = "scheduling.k8s.io"  # the API group of Kubernetes' own PodGroups and Workloads
JOB_SET_GROUP = "jobset.x-k8s.io"


class Gang(Struct, frozen=True):
    min_count: int = 1


class SchedulingPolicy(Struct, frozen=True):
    gang: Gang | None = None


class TopologyKey(Struct, frozen=True):
    key: str = ""


class SchedulingConstraints(Struct, frozen=True):
    topology: list[TopologyKey] = []


class NetworkTopology(Struct, frozen=True):
    """Volcano's."""

    mode: str = ""  # hard or soft
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class TopologyConstraint(Struct, frozen=True):
    """KAI's: levels are node labels."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(Struct, frozen=True):
    """KAI's."""

    name: str = ""
    min_member: int | None = None
    parent: str = ""
    topology_constraint: TopologyConstraint = TopologyConstraint()


class PodGroupSpec(Struct, frozen=True):
    min_member: int | None = None
    min_resources: Quantities = {}
    schedule_timeout_seconds: int | None = None
    queue: str = ""  # Volcano's and KAI's
    min_task_member: dict[str, int] = {}  # Volcano's
    network_topology: NetworkTopology | None = None  # Volcano's
    sub_groups: list[SubGroup] = []  # KAI's
    topology_constraint: TopologyConstraint = TopologyConstraint()  # KAI's
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()  # Kubernetes'
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()  # Kubernetes'


class PodGroup(Struct, frozen=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: Any = None  # as it is: each kind has its own fields


class PodGroupTemplate(Struct, frozen=True):
    name: str = ""
    policy: SchedulingPolicy = SchedulingPolicy()


class KubernetesWorkloadSpec(Struct, frozen=True):
    pod_groups: list[PodGroupTemplate] = []


class KubernetesWorkload(Struct, frozen=True):
    """The Workload of scheduling.k8s.io/v1alpha1. Later versions describe gangs by PodGroups."""

    metadata: Meta
    spec: KubernetesWorkloadSpec = KubernetesWorkloadSpec()


class JobSpec(Struct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None


class JobTemplate(Struct, frozen=True):
    spec: JobSpec = JobSpec()


class ReplicatedJob(Struct, frozen=True):
    name: str = ""
    replicas: int | None = None
    template: JobTemplate = JobTemplate()
    depends_on: list[Any] = []


class StartupPolicy(Struct, frozen=True):
    startup_policy_order: str = ""


class JobSetSpec(Struct, frozen=True):
    replicated_jobs: list[ReplicatedJob] = []
    startup_policy: StartupPolicy | None = None


class JobSet(Struct, frozen=True):
    metadata: Meta
    spec: JobSetSpec = JobSetSpec()


GangObject = PodGroup | KubernetesWorkload | JobSet
