"""Finds the pod that the user names, and explains it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.cli.errors import Refused
from dovetail.cli.planning import Case, refused_arguments, runnable, warned
from dovetail.kube.objects.problems import Problem
from dovetail.model.pod import Pod, group_title
from dovetail.whatif.explain import ExplainedPod, explain

POD_WORDS = frozenset({"pod", "pods", "po"})
WORKLOAD_WORDS = {  # what users type -> the kind of a pod's owner
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
    """The object to explain: a kind ("" = a pod, else a workload) and a name."""

    kind: str
    name: str
    namespace: str | None


class ExplainResult(NamedTuple):
    """The explanation of one pod, and the problems of the input."""

    about: ExplainedPod
    problems: tuple[Problem, ...]

    @property
    def own(self) -> tuple[Problem, ...]:
        """The problems that may matter for this pod: not those of other pods and workloads, nor of other namespaces."""
        pod = self.about.pod
        names = {pod.name, pod.owner.rpartition("/")[2], group_title(pod.group).rpartition("/")[2]}
        return tuple(problem for problem in self.problems if _may_matter(problem, pod.namespace, names))


def parse_target(words: Sequence[str], namespace: str | None) -> Target:
    """The target of the command line: `web-0`, `pod web-0`, `pod/web-0`, `deployment/web`."""
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


def answer(case: Case, target: Target) -> ExplainResult:
    """The answer for the target. Raises Refused if no pod matches, or if pods of several namespaces match."""
    try:
        found, warnings = explain(
            case.given,
            runnable(case),
            lambda pod: _means(target, pod),
            lambda pods: _check_namespace(target, pods),
        )
    except ValueError as error:
        raise refused_arguments(case, error) from error
    if found is None:
        raise _unknown(case, target)
    return ExplainResult(found, warned(case, warnings))


def _may_matter(problem: Problem, namespace: str, names: Collection[str]) -> bool:
    """`where` ends with the object: "cluster.yaml#2 Pod default/web-0"."""
    *_, kind, name = ["", "", *problem.where.split()]
    where, slash, name = name.rpartition("/")
    if not slash:  # a node, or a file
        return True
    makes_pods = kind == "Pod" or kind in WORKLOAD_WORDS.values()
    return where == namespace and (name in names or not makes_pods)


def _means(target: Target, pod: Pod) -> bool:
    if target.namespace is not None and pod.namespace != target.namespace:
        return False
    kind, _, owner = pod.owner.partition("/")
    owner = owner.rpartition("/")[2]
    if target.kind:
        return kind == target.kind and owner == target.name
    return target.name in (pod.name, owner, group_title(pod.group).rpartition("/")[2])


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
