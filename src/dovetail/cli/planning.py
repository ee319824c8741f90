"""Drives the engine for `plan`, `explain` and `demo`: manifests in, decisions and the use before and after out."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from dovetail import kernel_cache
from dovetail.cli.errors import ALL_PLACED, BAD_INPUT, SOMETHING_PENDING, Refused
from dovetail.cli.gangs import Gathering, gathered, incomplete, is_gang, waiting
from dovetail.cli.options import Asked
from dovetail.cli.settings import settle, with_vendors
from dovetail.engine.explain import Verdict, verdicts
from dovetail.engine.scheduler import COMPILE_FROM, Scheduler
from dovetail.engine.usage import NodeUse, usage
from dovetail.kube import cluster, documents
from dovetail.kube.cluster import ClusterInput
from dovetail.kube.problems import InputError, Problem, Problems
from dovetail.model.decision import Decision
from dovetail.model.events import Effect, NamespaceChanged, NodeChanged, PodObserved, VolumesChanged, Warn
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Profile
from dovetail.model.reason import POD_LEVEL, Reason, sentence
from dovetail.policies.table import NODE_POLICIES

NOW = 0.0  # a plan has no time: everything happens at once
MOST_COMPLAINTS = 20
COMPILE_SECONDS = 15  # per kernel, measured on two cores
CLUSTER_SCOPED = frozenset({"Node", "Namespace", "PriorityClass", "RuntimeClass"})


@dataclass(frozen=True, slots=True)
class Case:
    """What the user gave: a cluster, what is to be placed on it, and how policies are to be run."""

    given: ClusterInput
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # policy name -> its arguments
    engine: str = "auto"
    config: str = ""  # where the arguments stand, for complaints
    device_resources: tuple[str, ...] = ()  # counted by cards, not by what the node says is allocatable


@dataclass(frozen=True, slots=True)
class Lack:
    """What a pending pod lacks once all the others were placed; of a gang, what its next member does."""

    verdicts: tuple[Verdict, ...] = ()
    gathering: Gathering | None = None  # of a gang that was not placed
    quota: str = ""  # which quota would be exceeded, and by how much


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one pod."""

    pod: Pod
    group: Group  # those of its group that wait; the others count as running
    decision: Decision
    lack: Lack = field(default_factory=Lack)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.lack.verdicts


@dataclass(frozen=True, slots=True)
class Plan:
    outcomes: tuple[Outcome, ...]  # in the order of placing
    before: tuple[NodeUse, ...]
    after: tuple[NodeUse, ...]
    problems: tuple[Problem, ...]
    ignored: Mapping[str, int]  # kind -> how many

    @property
    def placed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.decision.placed]

    @property
    def pending(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.decision.placed]

    def said(self, severity: str) -> list[str]:
        return of_severity(self.problems, severity)

    @property
    def nodes(self) -> dict[str, Node]:
        return {use.node.name: use.node for use in self.after}


def of_severity(problems: Sequence[Problem], severity: str) -> list[str]:
    return [str(problem) for problem in problems if problem.severity == severity]


def read(asked: Asked, stdin: IO[bytes] | None = None) -> Case:
    """Reads all that was named on the command line; raises Refused with every complaint at once."""
    problems = Problems()
    config, settings = settle(asked, problems)
    try:
        settings = with_vendors(settings, asked.device_config or config.device_config, problems)
        found = documents.read(asked.filenames, problems, stdin or sys.stdin.buffer)
        if not found:
            problems.stop_if_fatal()
            raise Refused("there is nothing to plan:", *(str(problem) for problem in problems.found()))
        if asked.namespace:
            found = tuple(_in_namespace(document, asked.namespace) for document in found)
        given = cluster.load(found, settings, problems)
    except InputError as error:
        raise _refused(error) from error
    counted = tuple(settings.vendors.by_count)
    return Case(given, config.policy_arguments, asked.engine, asked.config or "", counted)


def start(case: Case) -> tuple[Scheduler, list[Problem]]:
    """A scheduler that knows the nodes and the running pods, and what it found odd about them."""
    try:
        cache = case.engine != "interpreted" and kernel_cache.prepare()
        scheduler = Scheduler(case.arguments, case.given.quotas, case.engine, case.device_resources, cache)
    except ValueError as error:
        raise Refused(f"{case.config}: {error}" if case.config else str(error)) from error
    effects: list[Effect] = []
    for node in case.given.nodes:
        effects += scheduler.handle(NodeChanged(NOW, node))
    for name, labels in case.given.namespaces:
        effects += scheduler.handle(NamespaceChanged(NOW, name, labels))
    effects += scheduler.handle(VolumesChanged(NOW, case.given.volumes))
    for running in case.given.running:
        effects += scheduler.handle(PodObserved(NOW, running))
    _tell(scheduler, case.given)
    return scheduler, [Problem("warning", e.subject, "", e.message) for e in effects if isinstance(e, Warn)]


def _tell(scheduler: Scheduler, given: ClusterInput) -> None:
    """Joint policies prepare for what is asked for here: everything that runs or is to be placed."""
    pending = [pod for group in given.groups for pod in group.pods]
    if any(is_joint(pod.profile) for pod in pending):
        there = [running.pod for running in given.running]
        scheduler.outlook.expect((pod, 1) for pod in (*there, *pending) if pod.refusal is None)


def kernels(case: Case) -> list[str]:
    """`binpack × spread` of every profile that will run compiled."""
    pods = [pod for group in case.given.groups for pod in group.pods]
    few = len(pods) * len(case.given.nodes) < COMPILE_FROM
    if not pods or case.engine == "interpreted" or (case.engine == "auto" and few):
        return []
    return sorted({policy_title(pod.profile) for pod in pods})


def is_joint(profile: Profile) -> bool:
    """True where the node policy chooses the GPUs, too."""
    return NODE_POLICIES[profile.node].offer is not None


def gpu_policy(profile: Profile) -> str:
    return profile.node if is_joint(profile) else ",".join(profile.device)


def policy_title(profile: Profile) -> str:
    """`binpack × spread`; a joint policy stands alone."""
    return profile.node if is_joint(profile) else f"{profile.node} × {gpu_policy(profile)}"


def activity(case: Case) -> str:
    """What takes the time, for people who wait: placing, or compiling what no run before has compiled."""
    wanted = kernels(case)
    if wanted and kernel_cache.prepare():
        wanted = [kernel for kernel in wanted if not kernel_cache.is_warm(kernel)]
    if not wanted:
        return "Placing"
    what = f"the kernel for {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} kernels"
    return f"Compiling {what}, once: about {COMPILE_SECONDS * len(wanted)} s"


def plan(case: Case) -> Plan:
    """Places everything, in the order of the groups, and says what every pending pod lacks in the end."""
    scheduler, warnings = start(case)
    before = usage(scheduler)
    groups = case.given.groups
    decisions = iter(scheduler.place(groups))
    for kernel in kernels(case):
        kernel_cache.remember(kernel)
    outcomes = []
    for group in groups:
        late = waiting(scheduler, group)
        outcomes += [Outcome(pod, late, next(decisions)) for pod in group.pods]
    known: dict[object, Lack] = {}  # replicas lack the same things: asked once
    outcomes = [_with_verdicts(scheduler, outcome, known) for outcome in outcomes]
    return Plan(
        tuple(outcomes),
        before,
        usage(scheduler),
        (*case.given.problems, *warnings),
        case.given.ignored,
    )


def exit_code(plan: Plan) -> int:
    refused = any(outcome.decision.reason == Reason.INVALID_REQUEST for outcome in plan.outcomes)
    if refused or plan.said("error"):
        return BAD_INPUT
    return SOMETHING_PENDING if plan.pending else ALL_PLACED


def headline(reason: Reason, found: Sequence[Verdict]) -> Reason:
    """The one reason to name: what most nodes say in the end, unless no node can cure it."""
    numbers = Counter(verdict.reason for verdict in found if verdict.reason != Reason.OK)
    if reason in POD_LEVEL or not numbers:
        return reason
    return min(numbers, key=lambda one: (-numbers[one], one))


def why_pending(outcome: Outcome) -> str:
    """One sentence: what is wrong with the pod, or what the nodes lack, counted."""
    reason, pod = outcome.decision.reason, outcome.pod
    if pod.refusal is not None:
        return pod.refusal.message
    if reason == Reason.GROUP_INCOMPLETE:
        return incomplete(outcome.group)
    lack = outcome.lack
    short = lack.quota or _counted(lack.verdicts)
    if lack.gathering is not None:
        return f"{lack.gathering.sentence}; the next finds {short}" if short else lack.gathering.sentence
    if lack.quota:
        return lack.quota
    return sentence(reason) if reason in POD_LEVEL or not short else short


def _counted(verdicts: tuple[Verdict, ...]) -> str:
    """`3 nodes: GPU memory short by 1,024 MiB; 1: taint …`, most frequent first."""
    refusing = [verdict for verdict in verdicts if verdict.reason != Reason.OK]
    sentences: dict[Reason, set[str]] = {}
    for verdict in refusing:
        sentences.setdefault(verdict.reason, set()).add(verdict.sentence)
    numbers = Counter(verdict.reason for verdict in refusing)
    parts: list[str] = []
    for reason, number in sorted(numbers.items(), key=lambda item: (-item[1], item[0])):
        said = min(sentences[reason]) if len(sentences[reason]) == 1 else sentence(reason)
        unit = "" if parts else " node" if number == 1 else " nodes"
        parts.append(f"{number:,}{unit}: {said}")
    return "; ".join(parts)


def _with_verdicts(scheduler: Scheduler, outcome: Outcome, known: dict[object, Lack]) -> Outcome:
    pod, group, decision = outcome.pod, outcome.group, outcome.decision
    if decision.placed or pod.refusal is not None:
        return outcome
    gang = is_gang(group, decision.reason)
    key = group.name if gang else _shape(pod, decision.reason)
    if key not in known:
        known[key] = _gang_lack(scheduler, group) if gang else _lack(scheduler, pod, decision.reason)
    return dataclasses.replace(outcome, lack=known[key])


def _lack(scheduler: Scheduler, pod: Pod, reason: Reason) -> Lack:
    return Lack(verdicts(scheduler, pod), quota=exceeded(scheduler, pod) if reason == Reason.QUOTA else "")


def _gang_lack(scheduler: Scheduler, group: Group) -> Lack:
    with gathered(scheduler, group) as gathering:
        next_one = gathering.left_out
        if next_one is None:
            return Lack(gathering=gathering)
        return Lack(verdicts(scheduler, next_one), gathering, exceeded(scheduler, next_one))


def exceeded(scheduler: Scheduler, pod: Pod) -> str:
    """Which quota the pod would exceed now, and by how much; "" = none."""
    return scheduler.quotas.refusal(pod) or ""


def _shape(pod: Pod, reason: Reason) -> object:
    """Pods of the same shape lack the same."""
    resources, quota = tuple(sorted(pod.resources.items())), tuple(sorted(pod.quota_use.items()))
    scored = (pod.scored_cpu_milli, pod.scored_memory)
    rules = (pod.containers, pod.device_rules, pod.node_rules, pod.profile)
    others = (pod.relations, tuple(sorted(pod.labels.items())))
    return pod.namespace, pod.owner, resources, quota, scored, rules, others, reason


def _in_namespace(document: documents.Document, namespace: str) -> documents.Document:
    metadata = document.body.get("metadata")
    if document.kind in CLUSTER_SCOPED or not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return dataclasses.replace(document, body={**document.body, "metadata": {**metadata, "namespace": namespace}})


def _refused(error: InputError) -> Refused:
    lines = [str(problem) for problem in error.problems if problem.severity == "error"]
    if len(lines) > MOST_COMPLAINTS:
        lines = [*lines[:MOST_COMPLAINTS], f"and {len(lines) - MOST_COMPLAINTS:,} more like these"]
    return Refused(*lines or [str(error)])
