"""What an object says of its gang: PodGroups of all projects, Workloads of Kubernetes 1.35, JobSets.

Annotations of ours about topology may stand on each of them. What cannot be read is an error that names the field; the
rest of the object counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from dovetail.kube.conversion.groups import GroupName, together
from dovetail.kube.conversion.memberships import WrongTerms, partners_of
from dovetail.kube.conversion.topology_rules import TopologyError, is_node_label, rule_of
from dovetail.kube.objects.bounds import GANG_MEMBERS, GANG_NAME, GANG_ROLES
from dovetail.kube.objects.gangs import (
    KUBERNETES,
    GangObject,
    JobSet,
    KubernetesWorkload,
    PodGroup,
    PodGroupSpec,
    SchedulingPolicy,
)
from dovetail.kube.objects.gangs import TopologyConstraint as KaiConstraint
from dovetail.kube.objects.problems import printable
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, VOLCANO_GROUP
from dovetail.model.gang import ANYWHERE, GangTerms, Role, TopologyRule

HARD_MODE, SOFT_MODE = "hard", "soft"  # modes of Volcano's networkTopology
# Labels of ours on nodes that are in a HyperNode, by the tier's number and by its name (hyper_nodes.py).
TIER_LABEL, TIER_NAME_LABEL = "volcano.sh/hypernode-tier-", "volcano.sh/hypernode-tier-name-"
LOWEST_TIER = 1
STARTS_IN_ORDER = "InOrder"  # a JobSet's startupPolicy
# Pods or seconds. A larger number counts as this one: Python neither prints an integer of any length nor makes a float.
MOST_COUNTED = 2**53
Wrong = Callable[[str, str], None]  # takes a field and what is wrong with it


class Described(NamedTuple):
    """One gang of an object."""

    name: GroupName
    terms: GangTerms
    field: str  # with its minimum


def described(api_group: str, namespace: str, name: str, source: GangObject, wrong: Wrong) -> Iterator[Described]:
    """The gangs that an object describes: one, or each group of a Workload."""
    own = GroupName(api_group, namespace, name)
    if isinstance(source, KubernetesWorkload):
        rule = _own_rule(source, wrong)
        for number, group in enumerate(islice(source.spec.pod_groups, GANG_ROLES.most)):
            field = f"spec.podGroups[{number}].policy.gang.minCount"
            minimum = _minimum(_gang(group.policy), field, wrong)
            yield Described(own._replace(name=f"{name}/{group.name}"), GangTerms(minimum, (), rule), field)
    elif isinstance(source, JobSet):
        yield Described(own, _job_set(source, wrong), "spec.replicatedJobs")
    elif api_group == KUBERNETES:
        field = "spec.schedulingPolicy.gang.minCount"
        yield Described(own, _kubernetes(source, field, wrong), field)
    else:
        field = "spec.minMember"
        yield Described(own, _pod_group(own, source, field, wrong), field)


def started_together(name: GroupName, source: PodGroup) -> str:
    """The key of the gangs that start together with this one (Koordinator's annotation); "" = it starts by itself."""
    if name.api_group != KOORDINATOR:
        return ""
    try:
        partners = partners_of(name, source.metadata.annotations)
    except WrongTerms:
        return ""
    return together(partners).key if partners else ""


def _minimum(said: int | None, field: str, wrong: Wrong) -> int:
    if said is not None and said < 0:
        wrong(field, f"{said} is no number of pods; 1 is used")
    return min(max(said or 1, 1), MOST_COUNTED)


def _gang(policy: SchedulingPolicy) -> int:
    """Kubernetes' own groups have a policy: `gang` with a minimum, or `basic` without one."""
    return policy.gang.min_count if policy.gang is not None else 1


def _own_rule(source: GangObject, wrong: Wrong) -> TopologyRule:
    try:
        return rule_of(source.metadata.annotations)
    except TopologyError as error:
        wrong(f"metadata.annotations.{error.key}", str(error))
        return ANYWHERE


def _label(text: str, field: str, wrong: Wrong) -> str:
    if text and not is_node_label(text):
        wrong(field, f"{printable(text, 60)!r} is no node label; it is left out")
        return ""
    return text


def _kubernetes(source: PodGroup, field: str, wrong: Wrong) -> GangTerms:
    keys = source.spec.scheduling_constraints.topology
    required = _label(keys[0].key, "spec.schedulingConstraints.topology[0].key", wrong) if keys else ""
    rule = _own_rule(source, wrong)
    if rule == ANYWHERE and required:
        rule = TopologyRule(required)
    return GangTerms(_minimum(_gang(source.spec.scheduling_policy), field, wrong), (), rule)


def _pod_group(name: GroupName, source: PodGroup, field: str, wrong: Wrong) -> GangTerms:
    """The terms of a PodGroup that is a custom resource. Fields that its project does not have are not read."""
    spec = source.spec
    minimum, rule, roles = _minimum(spec.min_member, field, wrong), _own_rule(source, wrong), list[Role]()
    theirs = ANYWHERE
    if name.api_group == VOLCANO_GROUP:
        theirs, roles = _network_topology(source), _tasks(source, wrong)
    elif name.api_group == KAI_GROUP:
        theirs = _kai_rule(spec.topology_constraint, "spec.topologyConstraint", wrong)
        roles = _sub_groups(source, wrong)
    elif name.api_group == KOORDINATOR:
        try:
            partners_of(name, source.metadata.annotations)
        except WrongTerms as error:
            wrong(f"metadata.annotations.{error.key}", f"{error}; the gang starts by itself")
    minimum = max(minimum, sum(role.minimum for role in roles))
    return GangTerms(minimum, tuple(roles), theirs if rule == ANYWHERE else rule, time_limit(spec))


def time_limit(spec: PodGroupSpec) -> float | None:
    """Seconds that bound members wait for the others; None = it does not say."""
    seconds = spec.schedule_timeout_seconds
    return float(min(seconds, MOST_COUNTED)) if seconds is not None and seconds > 0 else None


def _network_topology(source: PodGroup) -> TopologyRule:
    """Volcano: `hard` is one HyperNode of this tier or a lower one, `soft` the lowest tier that is possible."""
    given = source.spec.network_topology
    if given is None or given.mode not in (HARD_MODE, SOFT_MODE):
        return ANYWHERE
    level = ""
    if given.highest_tier_allowed is not None:
        level = f"{TIER_LABEL}{given.highest_tier_allowed}"
    elif given.highest_tier_name:
        level = f"{TIER_NAME_LABEL}{given.highest_tier_name}"
    if given.mode == HARD_MODE:
        return TopologyRule(level) if is_node_label(level) else ANYWHERE
    return TopologyRule(preferred=level if is_node_label(level) else f"{TIER_LABEL}{LOWEST_TIER}")


def _tasks(source: PodGroup, wrong: Wrong) -> list[Role]:
    """Volcano: tasks with their own minimums, unless these are more than the group's (gang plugin, CheckTaskValid)."""
    roles: list[Role] = []
    if sum(source.spec.min_task_member.values()) > max(source.spec.min_member or 0, 0):
        return roles
    for name, said in sorted(islice(source.spec.min_task_member.items(), GANG_ROLES.most + 1)):
        if 0 <= said <= GANG_MEMBERS.most and len(name) <= GANG_NAME.most:
            roles.append(Role(name, said))
        else:
            wrong(f"spec.minTaskMember.{printable(name)}", f"{said} is no number of pods; the task is left out")
    return roles


def _kai_rule(given: KaiConstraint, field: str, wrong: Wrong) -> TopologyRule:
    required = _label(given.required_topology_level, f"{field}.requiredTopologyLevel", wrong)
    preferred = _label(given.preferred_topology_level, f"{field}.preferredTopologyLevel", wrong)
    return TopologyRule(required, preferred) if required or preferred else ANYWHERE


def _sub_groups(source: PodGroup, wrong: Wrong) -> list[Role]:
    """The sub-groups that have pods: those that are no parent. One without a rule has that of its nearest parent."""
    given = {}
    for number, one in enumerate(islice(source.spec.sub_groups, GANG_ROLES.most + 1)):
        given[one.name] = (one, f"spec.subGroups[{number}]")
    rules = {
        name: _kai_rule(one.topology_constraint, f"{field}.topologyConstraint", wrong)
        for name, (one, field) in given.items()
    }
    parents = {one.parent for one, _ in given.values()}
    roles = []
    for name, (one, field) in given.items():
        if name in parents:
            continue
        rule, at = ANYWHERE, name
        for _ in range(len(given)):
            if at not in given or rule != ANYWHERE:
                break
            rule, at = rules[at], given[at][0].parent
        roles.append(Role(name, _minimum(one.min_member, f"{field}.minMember", wrong), rule))
    return roles


def _job_set(source: JobSet, wrong: Wrong) -> GangTerms:
    """All pods of the Jobs that exist from the start: those that wait for other Jobs are not needed to start."""
    jobs = source.spec.replicated_jobs
    policy = source.spec.startup_policy
    if policy is not None and policy.startup_policy_order == STARTS_IN_ORDER:
        jobs = jobs[:1]
    roles = []
    for number, job in enumerate(islice(jobs, GANG_ROLES.most + 1)):
        if job.depends_on:
            continue
        replicas, pods = 1 if job.replicas is None else job.replicas, job.template.spec.parallelism
        pods = 1 if pods is None else pods
        if job.template.spec.completions is not None:
            pods = min(pods, job.template.spec.completions)
        if min(replicas, pods) < 0:
            wrong(f"spec.replicatedJobs[{number}]", "has a negative number of pods; it is left out")
        else:
            roles.append(Role(job.name, min(replicas * pods, MOST_COUNTED)))
    minimum = max(1, sum(role.minimum for role in roles))
    return GangTerms(minimum, tuple(roles), _own_rule(source, wrong))
