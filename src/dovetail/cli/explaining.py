"""Finds the pod that the user means and asks the engine about it: before it was placed, or after all others were."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.cli.errors import Refused
from dovetail.cli.gangs import gathered, incomplete, is_gang, waiting
from dovetail.cli.planning import Case, exceeded, start
from dovetail.engine.explain import Explanation, explain
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.suggest import Suggestion, suggest
from dovetail.kube.problems import Problem
from dovetail.model.decision import Decision
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.reason import Reason

POD_WORDS = frozenset({"pod", "pods", "po"})
WORKLOAD_WORDS = {  # what people type -> kind in a pod's owner
    "deployment": "Deployment",
    "deployments": "Deployment",
    "deploy": "Deployment",
    "statefulset": "StatefulSet",
    "statefulsets": "StatefulSet",
    "sts": "StatefulSet",
    "replicaset": "ReplicaSet",
    "replicasets": "ReplicaSet",
    "rs": "ReplicaSet",
    "daemonset": "DaemonSet",
    "daemonsets": "DaemonSet",
    "ds": "DaemonSet",
    "job": "Job",
    "jobs": "Job",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for: a kind ("" = a pod, else a workload) and a name."""

    kind: str
    name: str
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """`running` is set, and nothing else known, where the pod has its node already."""

    pod: Pod
    node: Node | None  # where it lands or runs
    decision: Decision | None = None
    explanation: Explanation | None = None
    suggestion: Suggestion | None = None
    running: RunningPod | None = None
    why: str = ""  # what is wrong with the pod or its group
    problems: tuple[Problem, ...] = ()


def parse_target(words: Sequence[str], namespace: str | None) -> Target:
    """`web-0`, `pod web-0`, `pod/web-0`, `deployment/web`."""
    kind, name = "", words[-1]
    if len(words) == 2:
        kind = words[0]
    elif len(words) == 1 and "/" in name:
        kind, _, name = name.partition("/")
    elif len(words) != 1:
        raise Refused(f"name one pod, such as `explain web-0` or `explain pod web-0`, not {' '.join(words)!r}")
    if not kind or kind.lower() in POD_WORDS:
        return Target("", name, namespace)
    if kind.lower() in WORKLOAD_WORDS:
        return Target(WORKLOAD_WORDS[kind.lower()], name, namespace)
    raise Refused(f"cannot explain a {kind!r}; name a pod, or a workload such as deployment/{name}")


def answer(case: Case, target: Target) -> Answer:
    """Plans everything once; a placed pod is asked about again just before it was placed."""
    scheduler, warnings = start(case)
    problems = (*case.given.problems, *warnings)
    decisions = iter(scheduler.place(case.given.groups))
    placed = [(group, pod, next(decisions)) for group in case.given.groups for pod in group.pods]
    meant = [row for row in placed if _means(target, row[1])]
    running = [held for held in case.given.running if _means(target, held.pod)]
    _check_namespace(target, [row[1] for row in meant] + [held.pod for held in running])
    nodes = {node.name: node for node in case.given.nodes}
    if not meant and running:
        return Answer(running[0].pod, nodes.get(running[0].node), running=running[0], problems=problems)
    if not meant:
        raise _unknown(case, target)
    group, pod, decision = next((row for row in meant if not row[2].placed), meant[0])
    if decision.placed:
        return _placed(case, nodes, (group, pod, decision), problems)
    return _pending(scheduler, group, pod, decision, problems)


def _pending(scheduler: Scheduler, group: Group, pod: Pod, decision: Decision, problems: tuple[Problem, ...]) -> Answer:
    """Against the ledger with everything else placed. Where no node can help, the nodes are not asked."""
    if pod.refusal is not None:
        return Answer(pod, None, decision, why=pod.refusal.message, problems=problems)
    if decision.reason == Reason.GROUP_INCOMPLETE:
        return Answer(pod, None, decision, why=incomplete(group), problems=problems)
    late = waiting(scheduler, group)
    if not is_gang(late, decision.reason):
        why = exceeded(scheduler, pod) if decision.reason == Reason.QUOTA else ""
        explanation = explain(scheduler, pod, decision)
        return Answer(pod, None, decision, explanation, suggest(scheduler, late, pod), why=why, problems=problems)
    with gathered(scheduler, late) as gathering:
        asked = gathering.left_out or pod
        explanation = explain(scheduler, asked, decision)
        why = f"{gathering.sentence}; the next finds {exceeded(scheduler, asked)}".rstrip()
    suggestion = suggest(scheduler, late, asked)
    return Answer(pod, None, decision, explanation, suggestion, why=why, problems=problems)


def _placed(
    case: Case, nodes: dict[str, Node], found: tuple[Group, Pod, Decision], problems: tuple[Problem, ...]
) -> Answer:
    """Replays up to the moment before: the groups before its own, then the members before itself."""
    group, pod, decision = found
    scheduler, _ = start(case)
    earlier = case.given.groups[: case.given.groups.index(group)]
    members = group.pods[: group.pods.index(pod)]
    scheduler.place([*earlier, *(Group(member.key, (member,)) for member in members)])
    return Answer(pod, nodes[decision.node or ""], decision, explain(scheduler, pod, decision), problems=problems)


def _means(target: Target, pod: Pod) -> bool:
    if target.namespace is not None and pod.namespace != target.namespace:
        return False
    kind, _, owner = pod.owner.partition("/")
    owner = owner.rpartition("/")[2]
    if target.kind:
        return kind == target.kind and owner == target.name
    return target.name in (pod.name, owner, pod.group.rpartition("/")[2])


def _check_namespace(target: Target, pods: Sequence[Pod]) -> None:
    namespaces = sorted({pod.namespace for pod in pods})
    if len(namespaces) > 1:
        raise Refused(f"{target.name!r} is in several namespaces: {', '.join(namespaces)}; say which with -n")


def _unknown(case: Case, target: Target) -> Refused:
    pods = [held.pod for held in case.given.running] + [pod for group in case.given.groups for pod in group.pods]
    names = {pod.name for pod in pods} | {pod.owner.rpartition("/")[2] for pod in pods if pod.owner}
    where = f" in namespace {target.namespace}" if target.namespace else ""
    hint = _hint(target, pods, names)
    return Refused(f"there is no {target.kind or 'pod'} {target.name!r}{where} in the manifests{hint}")


def _hint(target: Target, pods: Iterable[Pod], names: set[str]) -> str:
    elsewhere = sorted({pod.namespace for pod in pods if _means(dataclasses.replace(target, namespace=None), pod)})
    if elsewhere:
        return f"; it is in namespace {', '.join(elsewhere)}"
    close = difflib.get_close_matches(target.name, sorted(names), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
