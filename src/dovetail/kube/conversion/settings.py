"""What the reader of manifests is told beforehand: defaults, the names of policies, and how resources are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.kube.conversion.seals import NO_SEALS, Seals
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.objects import core as objects
from dovetail.model.pod import CPU_PROFILE, DEFAULT_PROFILE, KUBERNETES_POLICY, OFF_DEVICES_POLICY, Profile

WEBHOOK, IGNORE = "hami.io/webhook", "ignore"  # a label of pods and of namespaces (hami.md §1.3)
# Of other schedulers' pods HAMi's webhook changes nothing (HAMi v2.10 pkg/scheduler/webhook.go Handle).
WEBHOOKS_SCHEDULERS = frozenset(("", "default-scheduler", "hami-scheduler", "dovetail"))


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile = DEFAULT_PROFILE  # of pods that ask for cards or other extended resources
    cpu_profile: Profile = CPU_PROFILE  # of those that do not
    node_policies: frozenset[str] = frozenset({"binpack", "spread"})
    device_policies: frozenset[str] = frozenset({"binpack", "spread", "mutex", "numa", "topology-aware"})
    joint_policies: frozenset[str] = frozenset()  # node policies that choose the GPUs themselves
    allowed_policies: frozenset[str] | None = None  # node and GPU policies that pods may name; None = all
    vendors: Vendors = DEFAULT_VENDORS
    webhooks_schedulers: frozenset[str] = WEBHOOKS_SCHEDULERS  # schedulerNames of pods that HAMi's webhook sees to
    unknown_group: str = "wait"  # what becomes of a pod whose PodGroup is not known: see gangs.UNKNOWN_GROUP
    schedulers: frozenset[str] = frozenset({"dovetail"})  # schedulerNames of pods that Dovetail places
    seals: Seals = NO_SEALS  # makes and checks the seals of records

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """What pods without annotations get, with devices and without."""
        return self.profile, self.cpu_profile

    def default_profile(self, wants_devices: bool, prefers_nodes: bool) -> Profile:
        """The profile of a pod without annotations. One with a preferred node affinity says itself which nodes it
        likes: it is not kept away from nodes with devices."""
        if wants_devices:
            return self.profile
        if prefers_nodes and self.cpu_profile.node == OFF_DEVICES_POLICY:
            return replace(self.cpu_profile, node=KUBERNETES_POLICY)
        return self.cpu_profile

    @property
    def without_webhook(self) -> Settings:
        """For pods that HAMi's webhook passes over."""
        return replace(self, vendors=self.vendors.without_webhook)

    def before_admission(self, spec: objects.PodSpec, *labels: Mapping[str, str]) -> Settings:
        """For a pod that is still to be made, with these labels, its own and its namespace's. The webhook passes over
        other schedulers' pods, and denies GPU pods with a privileged container."""
        containers = (*spec.init_containers, *spec.containers)
        privileged = any(one.security_context is not None and one.security_context.privileged for one in containers)
        if privileged or spec.scheduler_name not in self.webhooks_schedulers:
            return self.without_webhook
        return self.without_webhook if says_ignore(*labels) else self


def says_ignore(*labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels, its own and its namespace's, asks HAMi's webhook to pass over it."""
    return any(given.get(WEBHOOK) == IGNORE for given in labels)
