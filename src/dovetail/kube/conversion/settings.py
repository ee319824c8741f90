"""The settings for reading manifests: defaults, the names of policies, and the names of resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dovetail.kube.conversion.seals import NO_SEALS, Seals
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.conversion.webhook_rules import privileged_containers
from dovetail.kube.objects import core as objects
from dovetail.model.pod import CPU_PROFILE, DEFAULT_PROFILE, KUBERNETES_POLICY, OFF_DEVICES_POLICY, Profile
from dovetail.model.rights import Queue

# A label of pods and of namespaces (HAMi: charts/hami/templates/scheduler/webhook.yaml).
WEBHOOK, IGNORE = "hami.io/webhook", "ignore"
# HAMi's webhook does not change pods of other schedulers (HAMi v2.10 pkg/scheduler/webhook.go Handle).
WEBHOOKS_SCHEDULERS = frozenset(("", "default-scheduler", "hami-scheduler", "dovetail"))


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile = DEFAULT_PROFILE  # of pods that request cards or other extended resources
    cpu_profile: Profile = CPU_PROFILE  # of other pods
    node_policies: frozenset[str] = frozenset({"binpack", "spread"})
    device_policies: frozenset[str] = frozenset({"binpack", "spread", "mutex", "numa", "topology-aware"})
    joint_policies: frozenset[str] = frozenset()  # node policies that also choose the GPUs
    fallbacks: Mapping[str, str] = field(default_factory=dict)  # policy that needs measured load -> the one without it
    allowed_policies: frozenset[str] | None = None  # node and GPU policies that pods may name; None = all
    vendors: Vendors = DEFAULT_VENDORS
    webhooks_schedulers: frozenset[str] = WEBHOOKS_SCHEDULERS  # schedulerNames of pods that HAMi's webhook handles
    unknown_group: str = "wait"  # what happens to a pod whose PodGroup is not known: see gangs.UNKNOWN_GROUP
    schedulers: frozenset[str] = frozenset({"dovetail"})  # schedulerNames of pods that Dovetail places
    seals: Seals = NO_SEALS  # makes and checks the seals of records
    queue_half_life: float = 0.0  # seconds after which the past use of a queue counts half; 0 = it does not count
    queues: tuple[Queue, ...] = ()  # of the configuration file, beside those that objects describe
    topology: tuple[str, ...] = ()  # likewise: node labels from the widest level to the narrowest

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of pods without annotations, with devices and without."""
        return self.profile, self.cpu_profile

    def default_profile(self, wants_devices: bool, prefers_nodes: bool) -> Profile:
        """The profile of a pod without annotations.

        A pod with a preferred node affinity states itself which nodes it prefers: it is not kept away from nodes with
        devices.
        """
        if wants_devices:
            return self.profile
        if prefers_nodes and self.cpu_profile.node == OFF_DEVICES_POLICY:
            return replace(self.cpu_profile, node=KUBERNETES_POLICY)
        return self.cpu_profile

    @property
    def without_webhook(self) -> Settings:
        """The settings for pods that HAMi's webhook ignores."""
        return replace(self, vendors=self.vendors.without_webhook)

    def before_admission(self, spec: objects.PodSpec, *labels: Mapping[str, str]) -> Settings:
        """The settings for a pod that is still to be created; `labels` are its own and its namespace's.

        The webhook ignores other schedulers' pods, and denies GPU pods with a privileged container.
        """
        if any(privileged_containers(spec)) or spec.scheduler_name not in self.webhooks_schedulers:
            return self.without_webhook
        return self.without_webhook if says_ignore(*labels) else self


def says_ignore(*labels: Mapping[str, str]) -> bool:
    """Whether these labels, a pod's own and its namespace's, tell HAMi's webhook to ignore the pod."""
    return any(given.get(WEBHOOK) == IGNORE for given in labels)
