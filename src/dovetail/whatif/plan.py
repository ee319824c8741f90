"""Where all waiting pods would go, and what each pending pod lacks. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import NodeUse, usage
from dovetail.engine.why.explain import verdicts
from dovetail.engine.why.gathering import Gathering, by_rules, gathered, incomplete, is_gang, waiting
from dovetail.engine.why.refused import asks_nodes, only_device_quota, refused_by
from dovetail.engine.why.verdict import Verdict, blocking, lacking
from dovetail.engine.wording import in_one_sentence
from dovetail.model.decision import Decision
from dovetail.model.events import Warn
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import POD_LEVEL_REASONS, Reason, sentence
from dovetail.policies.table import NODE_POLICIES
from dovetail.whatif.preempting import Eviction, decide_all
from dovetail.whatif.situation import EngineOptions, Situation, StartedCluster, start

DOMAIN_REASONS = (Reason.NO_DOMAIN, Reason.DOMAINS_TOO_FEW)  # what nodes lack says more


@dataclass(frozen=True, slots=True)
class Lack:
    """What a pending pod lacks after all others were placed; for a gang, what its next member lacks."""

    verdicts: tuple[Verdict, ...] = ()
    gathering: Gathering | None = None  # for a gang that was not placed
    quota: str = ""  # the quota that would be exceeded, and by how much; or the claim that no node can serve
    only_quota: bool = False  # without the quota on devices some node would take the pod
    cause: Reason = Reason.NO_NODES  # why it waits, apart from nodes; NO_NODES: ask the nodes


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """The result for one pod."""

    pod: Pod
    group: Group  # its waiting members; the others count as running
    decision: Decision
    lack: Lack = field(default_factory=Lack)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.lack.verdicts

    @property
    def reason(self) -> Reason:
        """The reason of the nearest miss, or a reason that no node can change."""
        if self.pod.refusal is not None:
            return self.pod.refusal.reason
        if self.lack.only_quota:
            return Reason.QUOTA
        if self.lack.gathering is not None and not asks_nodes(self.decision.reason):  # it waits for the next member
            return self._of_gang if asks_nodes(self.lack.cause) else self.lack.cause
        return blocking(self.own_reason, self.lack.verdicts)

    @property
    def own_reason(self) -> Reason:
        """Why the pod waits by itself: a member beyond the minimum of a gang with rules waits for no other."""
        reason, cause = self.decision.reason, self.lack.cause
        if self.group.is_plain or self.lack.gathering is not None:
            return reason
        return cause if reason == Reason.GROUP_NOT_PLACED or not asks_nodes(cause) else reason

    @property
    def _of_gang(self) -> Reason:
        """Why the gang waits: for its domain, or for room."""
        return self.decision.reason if self.decision.reason in DOMAIN_REASONS else Reason.GROUP_NOT_PLACED


@dataclass(frozen=True, slots=True)
class Plan:
    outcomes: tuple[PlannedPod, ...]  # in the order of placing
    before: tuple[NodeUse, ...]
    after: tuple[NodeUse, ...]
    warnings: tuple[Warn, ...] = ()  # what the engine found wrong with running pods
    evictions: tuple[Eviction, ...] = ()  # running pods that would be stopped, in the order of the decisions

    @property
    def placed(self) -> list[PlannedPod]:
        return [outcome for outcome in self.outcomes if outcome.decision.placed]

    @property
    def pending(self) -> list[PlannedPod]:
        return [outcome for outcome in self.outcomes if not outcome.decision.placed]

    @property
    def nodes(self) -> dict[str, Node]:
        return {use.node.name: use.node for use in self.after}


def plan(situation: Situation, options: EngineOptions, begun: StartedCluster | None = None) -> Plan:
    """Place everything, in the order of the groups, and find what every pending pod lacks at the end.

    `begun`: what `start` has returned for the situation, if the caller has called it.
    """
    scheduler, warnings = start(situation, options) if begun is None else begun
    before = usage(scheduler)
    decided = decide_all(scheduler, situation.groups, options.now)
    decisions = iter(decided.decisions)
    outcomes = []
    for group in situation.groups:
        late = waiting(scheduler, group)
        outcomes += [PlannedPod(pod, late, next(decisions)) for pod in group.pods]
    used = {outcome.decision.node for outcome in outcomes if outcome.decision.placed}
    used |= {eviction.node for eviction in decided.evictions}
    after = usage(scheduler, {use.node.name: use for use in before if use.node.name not in used})
    return Plan(tuple(_with_lacks(scheduler, outcomes)), before, after, warnings, decided.evictions)


def why_pending(outcome: PlannedPod) -> str:
    """One sentence: what is wrong with the pod, or what the nodes lack, with counts."""
    reason, pod = outcome.own_reason, outcome.pod
    if pod.refusal is not None:
        return pod.refusal.message
    if reason == Reason.GROUP_INCOMPLETE:
        return incomplete(outcome.group)
    lack = outcome.lack
    short = lack.quota or in_one_sentence(lacking(lack.verdicts))
    if lack.gathering is not None:
        if lack.gathering.left_out is not None and not lack.verdicts:
            short = short or sentence(Reason.NO_NODES)
        return f"{lack.gathering.sentence}; the next finds {short}" if short else lack.gathering.sentence
    if lack.quota:
        return lack.quota
    whole = reason in POD_LEVEL_REASONS and reason not in DOMAIN_REASONS and not asks_nodes(reason)
    return sentence(reason) if whole or not short else short


def _with_lacks(scheduler: Scheduler, outcomes: Sequence[PlannedPod]) -> list[PlannedPod]:
    known: dict[object, Lack] = {}  # replicas lack the same things: computed once
    found = []
    for outcome in outcomes:
        pod, group, decision = outcome.pod, outcome.group, outcome.decision
        if decision.placed or pod.refusal is not None:
            found.append(outcome)
            continue
        gang = is_gang(group, decision.reason)
        # Members that wait by themselves may differ; what the rules of their gang allow depends on the gang.
        key = group.name if gang else ("" if group.is_plain else group.name, _shape(scheduler, pod, decision.reason))
        if key not in known:
            with by_rules(scheduler, group, pod) if not gang else nullcontext():
                reason = decision.reason if group.is_plain else scheduler.reason(group, pod)
                known[key] = _gang_lack(scheduler, group) if gang else _lack(scheduler, pod, reason)
        found.append(replace(outcome, lack=known[key]))
    return found


def _lack(scheduler: Scheduler, pod: Pod, reason: Reason, gathering: Gathering | None = None) -> Lack:
    """What a pod lacks. `reason`: why it waits, apart from nodes."""
    which = refused_by(scheduler, pod, reason)
    quota = only_device_quota(scheduler, pod) if not which and asks_nodes(reason) else ""
    return Lack(verdicts(scheduler, pod), gathering, which or quota, bool(quota), reason)


def _gang_lack(scheduler: Scheduler, group: Group) -> Lack:
    with gathered(scheduler, group) as gathering:
        next_one = gathering.left_out
        if next_one is None:
            return Lack(gathering=gathering)
        return _lack(scheduler, next_one, scheduler.reason(group, next_one), gathering)


def _shape(scheduler: Scheduler, pod: Pod, reason: Reason) -> object:
    """A key: pods with equal keys lack the same things. Finding these takes a second for 5,000 nodes."""
    resources, quota = tuple(sorted(pod.resources.items())), tuple(sorted(pod.quota_use.items()))
    scored = (pod.scored_cpu_milli, pod.scored_memory)
    rules = (pod.containers, pod.device_rules, pod.node_rules, pod.profile, pod.relations)
    of_request = (resources, quota, scored, pod.expected_cpu_milli, pod.network_kbit, rules, reason)
    if _request_decides(scheduler, pod):
        return of_request
    return of_request, pod.namespace, pod.owner, tuple(sorted(pod.labels.items()))


def _request_decides(scheduler: Scheduler, pod: Pod) -> bool:
    """Whether the nodes' verdicts depend on the request alone: not on a quota, a queue, other pods, or the owner."""
    if scheduler.quotas.apply_to(pod) or scheduler.placer.queues.active or scheduler.related.restricts(pod):
        return False
    return not (NODE_POLICIES[scheduler.requests.in_force(pod.profile).node].counts_owner or pod.own_node)
