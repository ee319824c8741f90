"""The rights that the live scheduler needs, as a table, and which of them a user lacks by Roles and bindings.

The table is deploy/rbac.yaml; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.installed import PolicyRule, RoleBindingObject
from dovetail.kube.doctor.survey import Missing, Survey

MOST_SINGLE = 12  # missing rights: more than these are one finding, as a role is missing
ROLE_KINDS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class NeededRight(NamedTuple):
    """Verbs on resources of API groups, and what does not work without them."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    namespaced: bool = False  # in the namespace of the Lease only
    names: tuple[str, ...] = ()  # of objects; () = all

    def each(self) -> Iterator[tuple[str, str]]:
        return ((group, resource) for group in self.groups for resource in self.resources)


GLW, LW = ("get", "list", "watch"), ("list", "watch")
GANGS = (
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.run.ai",
    "scheduling.k8s.io",
)
STORAGE_KINDS = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
CORE = ("nodes", "pods", "namespaces", "resourcequotas", "persistentvolumeclaims", "persistentvolumes")
LEASE_GROUP = "coordination.k8s.io"
LEASE_NAME = "dovetail-scheduler"

NEEDED_RIGHTS = (
    NeededRight(("",), CORE, GLW, "the scheduler does not start"),
    NeededRight(("",), ("services", "replicationcontrollers"), LW, "pods of a Service are not spread"),
    NeededRight(("apps",), ("replicasets", "statefulsets"), LW, "pods of a controller are not spread"),
    NeededRight(("storage.k8s.io",), STORAGE_KINDS, LW, "pods with volumes wait"),
    NeededRight(GANGS, ("podgroups",), LW, "pods of gangs wait"),
    NeededRight(("scheduling.k8s.io",), ("workloads",), LW, "pods of Workloads wait"),
    NeededRight(("jobset.x-k8s.io",), ("jobsets",), LW, "gangs of JobSets wait"),
    NeededRight(("kueue.x-k8s.io", "kai.scheduler"), ("topologies",), LW, "gangs with topology rules wait"),
    NeededRight(("topology.volcano.sh",), ("hypernodes",), LW, "gangs with topology rules wait"),
    NeededRight(("policy",), ("poddisruptionbudgets",), LW, "preemption breaks disruption budgets"),
    NeededRight(("scheduling.k8s.io",), ("priorityclasses",), LW, "tolerations of preemption do not count"),
    NeededRight(("",), ("pods/eviction",), ("create",), "no pod is stopped for another one"),
    NeededRight(("",), ("pods",), ("delete",), "no pod is stopped against a disruption budget"),
    NeededRight(
        ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"), ("elasticquotas",), LW, "ElasticQuotas limit no pods"
    ),
    NeededRight(("scheduling.volcano.sh", "scheduling.run.ai"), ("queues",), LW, "Queues limit no pods"),
    NeededRight(("",), ("pods/binding",), ("create",), "no pod is bound"),
    NeededRight(("",), ("pods/status",), ("patch",), "pods do not say why they wait"),
    NeededRight(("events.k8s.io",), ("events",), ("create",), "there are no events"),
    NeededRight((LEASE_GROUP,), ("leases",), ("list",), "a second Dovetail is not noticed"),
    NeededRight(("",), ("persistentvolumeclaims", "persistentvolumes"), ("patch",), "pods with unbound volumes wait"),
    NeededRight((LEASE_GROUP,), ("leases",), ("create", "list"), "no replica becomes leader", True),
    NeededRight((LEASE_GROUP,), ("leases",), ("get", "update"), "no replica stays leader", True, (LEASE_NAME,)),
)
LOCK_RIGHT = NeededRight(
    ("",), ("nodes",), ("patch",), "no pod is bound on nodes with HAMi's device plugin (HAMi's lock)"
)


def lacking(
    survey_kinds: Mapping[str, tuple[Any, ...]], account: tuple[str, str], wanted: Sequence[NeededRight]
) -> list[Missing]:
    """The rights that the ServiceAccount lacks by these Roles and bindings; [] where none of them is about it."""
    wide = _rules(survey_kinds, account, "ClusterRoleBinding", "")
    local = _rules(survey_kinds, account, "RoleBinding", account[0])
    if not wide and not local:
        return []
    found = []
    for right in wanted:
        rules = [*wide, *local] if right.namespaced else wide
        for group, resource in right.each():
            verbs = tuple(
                verb for verb in right.verbs if not any(_allows(r, group, resource, verb, right) for r in rules)
            )
            if verbs:
                found.append(Missing(group, resource, verbs, right.why, account[0] if right.namespaced else ""))
    return found


def _rules(
    kinds: Mapping[str, tuple[Any, ...]], account: tuple[str, str], binding: str, namespace: str
) -> list[PolicyRule]:
    roles = {(role.metadata.namespace, role.metadata.name): role for role in kinds.get("Role", ())}
    cluster_roles = {role.metadata.name: role for role in kinds.get("ClusterRole", ())}
    found: list[PolicyRule] = []
    for one in kinds.get(binding, ()):
        if (namespace and one.metadata.namespace != namespace) or not _names(one, account):
            continue
        wide = one.role_ref.kind == "ClusterRole"
        role = cluster_roles.get(one.role_ref.name) if wide else roles.get((one.metadata.namespace, one.role_ref.name))
        found += role.rules if role is not None else []
    return found


def _names(binding: RoleBindingObject, account: tuple[str, str]) -> bool:
    namespace, name = account
    groups = ("system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return any(
        (one.kind == "ServiceAccount" and (one.namespace, one.name) == account)
        or (one.kind == "User" and one.name == f"system:serviceaccount:{namespace}:{name}")
        or (one.kind == "Group" and one.name in groups)
        for one in binding.subjects
    )


def _allows(rule: PolicyRule, group: str, resource: str, verb: str, right: NeededRight) -> bool:
    if rule.resource_names and not set(right.names) <= set(rule.resource_names):
        return False
    if rule.resource_names and not right.names:
        return False
    fits = (("*" in have or value in have) for have, value in ((rule.api_groups, group), (rule.verbs, verb)))
    names = (resource, "*", f"*/{resource.partition('/')[2]}") if "/" in resource else (resource, "*")
    return all(fits) and any(name in rule.resources for name in names)


def _rights(survey: Survey) -> Iterator[Finding]:
    who = "/".join(survey.account)
    if len(survey.missing) > MOST_SINGLE:
        text = f"lacks {len(survey.missing)} rights, among them {_words(survey.missing[0])}"
        yield Finding("rights-missing", f"ServiceAccount {who}", "", text, "kubectl apply -f deploy/rbac.yaml")
        return
    for one in survey.missing:
        lock = one.resource == "nodes" and "patch" in one.verbs
        manifest = "-k deploy/optional/hami-lock" if lock else "-f deploy/rbac.yaml"
        text = f"lacks {_words(one)}: {one.why}"
        yield Finding("rights-missing", f"ServiceAccount {who}", "", text, f"kubectl apply {manifest}")


def _words(one: Missing) -> str:
    scope = f" in namespace {one.namespace}" if one.namespace else ""
    return f"{', '.join(one.verbs)} on {one.resource} of API group {one.group or '“” (core)'}{scope}"


RIGHT_CHECKS = (Check("rights-missing", "error", "The scheduler's user lacks a right.", _rights),)
