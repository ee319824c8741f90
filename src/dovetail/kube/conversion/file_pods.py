"""Pods of files, as the API server would have stored them → their requests and what they hold, by reading.py.

A pod that exists is read unchanged; a pod that is still to be created is admitted first (admission.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from dovetail.kube.conversion.admission import Admission
from dovetail.kube.conversion.owners import Owners
from dovetail.kube.conversion.reading import Held, first_held, identified, is_ending, is_passed_over, stored
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.templates import SharedRequests
from dovetail.kube.conversion.webhook_rules import denials
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod to be placed."""

    pod: Pod
    where: str
    nominated: str = ""  # status.nominatedNodeName: the node that is being cleared for it
    exists: bool = False  # the API server has admitted it


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node."""

    held: Held
    where: str

    @property
    def running(self) -> RunningPod:
        return self.held.running


@dataclass(frozen=True, slots=True)
class Context:
    """What is needed to read a pod."""

    settings: Settings
    admission: Admission
    nodes: Sequence[Node]
    problems: Problems
    requests: SharedRequests
    namespaces: Mapping[str, objects.Namespace] = field(default_factory=dict)  # by name

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces[namespace].metadata.labels if namespace in self.namespaces else {}


def stored_pod(item: Found, uids: set[str], context: Context) -> objects.Pod:
    """The pod with its names and uid. Holdings are booked by uid, so no two pods may share one."""
    uid = item.value.metadata.uid or f"{item.namespace}/{item.name}"
    if uid in uids:
        context.problems.warning(
            item.where, "metadata.uid", "is also another pod's; namespace and name are used instead"
        )
        uid = f"{item.namespace}/{item.name}"
    uids.add(uid)
    return stored(item.value, item.namespace, item.name, uid)


def bound_pod(source: objects.Pod, who: Owners, where: str, context: Context) -> BoundPod:
    quiet = Problems()  # notes about a running pod do not help; errors become warnings
    asked, tolerances = _as_it_is(source, where, context, quiet), context.admission.tolerances
    pod = identified(asked, source, who, where, context.problems, tolerances)
    for problem in quiet.found():
        if problem.severity == "error":
            message = f"{problem.message}; the pod runs, and what could be read of it is counted"
            context.problems.warning(problem.where, problem.field, message)
    return BoundPod(first_held(pod, source, context.settings, where, context.problems), where)


def pending_pod(item: Found, source: objects.Pod, context: Context) -> Pod:
    """A pending pod, or one that is still to be created, as the API server would store it."""
    if exists(item.value):
        return _as_it_is(source, item.where, context, context.problems)
    return made_pod(item, source, "spec", context)


def _as_it_is(source: objects.Pod, where: str, context: Context, problems: Problems) -> Pod:
    """A pod that exists: admission is over. Only its priority may be missing, as people leave it out of files."""
    spec = context.admission.with_priority(source.spec, where, problems)
    passed_over = is_passed_over(source, context.labels_of(source.metadata.namespace), context.settings)
    return context.requests.asked_by(msgspec.structs.replace(source, spec=spec), passed_over, where, problems)


def made_pod(item: Found, source: objects.Pod | objects.PodTemplate, path: str, context: Context) -> Pod:
    labels = (source.metadata.labels, context.labels_of(item.namespace))
    settings = context.settings.before_admission(source.spec, *labels)
    admitted = context.admission.admit(source.spec, item.namespace, settings.vendors, item.where, context.problems)
    template = Template(item.where, path, item.namespace, item.name, source.metadata, admitted)
    template = replace(template, exists=isinstance(source, objects.Pod))
    pod = pod_from(template, settings, context.problems)
    if any(part.asks for part in pod.containers) and source.spec.scheduler_name in settings.webhooks_schedulers:
        for denial in denials(source.spec, path):
            context.problems.warning(item.where, denial.field, f"a webhook denies this pod: {denial.message}")
    return pod


def is_left_out(item: Found, context: Context) -> bool:
    """Whether the pod's namespace is being deleted: the API server refuses every Binding and every new pod there."""
    namespace = context.namespaces.get(item.namespace)
    if namespace is None or not is_ending(namespace):
        return False
    message = f"Namespace {item.namespace} is being deleted; nothing new is placed there"
    context.problems.note(item.where, "metadata.namespace", message)
    return True


def exists(source: objects.Pod) -> bool:
    """Whether the pod exists: it has a uid, as every pod of a cluster, or has a node.

    Else it is still to be created.
    """
    return bool(source.metadata.uid or source.spec.node_name)
