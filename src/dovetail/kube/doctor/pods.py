"""The doctor's checks of pods: those that no scheduler serves, that slipped past the webhook, or that do not end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from dovetail.kube.admission.unrouted import UNROUTED_ADVICE, unrouted
from dovetail.kube.admission.webhook import DEFAULT_SCHEDULER
from dovetail.kube.conversion.groups import group_name
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.records import named
from dovetail.kube.doctor.survey import AskingPod, Survey
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.queues import KAI_GROUP, SCHEDULER_PLUGINS, VOLCANO_GROUP
from dovetail.model.pod import group_title

PATIENCE = 30.0  # seconds: a pod that is younger may just not have been looked at
LONG_GONE = 300.0  # seconds after the end of a pod's grace period
DESCRIBED_BY_POD_GROUPS = (SCHEDULER_PLUGINS, VOLCANO_GROUP, KAI_GROUP)  # others may do without an object


def _unserved(survey: Survey) -> Iterator[Finding]:
    """Pods that wait for a scheduler that does not exist: no scheduler has said why they wait."""
    served = survey.names | {DEFAULT_SCHEDULER} | {name for lease in survey.leases for name in lease.marks().names}
    waiting: dict[str, list[str]] = defaultdict(list)
    for one in survey.asked:
        name = one.source.spec.scheduler_name
        if name and name not in served and _waits_unseen(one.source, survey.now):
            waiting[name].append(one.pod.key)
    for name, pods in sorted(waiting.items()):
        text = f"no scheduler serves spec.schedulerName {name}: {len(pods)} pods wait, and none was told why"
        advice = f"serve the name: --scheduler-name {name}, or `schedulers:` of the configuration; or correct the name"
        yield Finding("pod-unserved", f"Pod {pods[0]}", "", f"{text} ({named(tuple(pods))})", advice)


def _waits_unseen(pod: objects.Pod, now: float) -> bool:
    """Whether the pod waits for a scheduler, and none has written the condition PodScheduled."""
    created = seconds_of(pod.metadata.creation_timestamp)
    if created is None or now - created < PATIENCE or pod.metadata.deletion_timestamp:
        return False
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.status.phase in ("Succeeded", "Failed"):
        return False
    return not any(condition.type == "PodScheduled" for condition in pod.status.conditions)


def _slipped(survey: Survey) -> Iterator[Finding]:
    """Pods that ask for cards, and that kube-scheduler has: it neither knows the cards nor says which a pod has."""
    labels: dict[str, Mapping[str, str]] = {one.metadata.name: one.metadata.labels for one in survey.of("Namespace")}
    for one in survey.asked:
        source = one.source
        if not source.metadata.uid:
            continue  # a manifest that was never created: the webhook has not seen it yet
        if why := unrouted(source, labels.get(one.pod.namespace, {}), survey.vendors, survey.names):
            where = f"it runs on {source.spec.node_name}" if source.spec.node_name else "it waits"
            advice = f"{UNROUTED_ADVICE}; or write schedulerName {min(survey.names)} (see check webhook-*)"
            yield Finding("pod-slipped", one.where, source.spec.node_name, f"{why}; {where}", advice)


def _stuck(survey: Survey) -> Iterator[Finding]:
    """Pods that hold cards long after they should have ended. `deletionTimestamp` is the end of the grace period."""
    holders = {pod.uid for pod, held in survey.seen.held if pod.wants_devices or held.record}
    for one in survey.asked:
        ended = seconds_of(one.source.metadata.deletion_timestamp)
        if ended is None or survey.now - ended < LONG_GONE or one.source.metadata.uid not in holders:
            continue
        minutes = int(survey.now - ended) // 60
        text = f"should have ended {minutes:,} minutes ago, and holds its GPUs"
        advice = (
            f"look at its finalizers and the node's kubelet; if the node is gone: kubectl -n {one.pod.namespace} delete"
            f" pod {one.pod.name} --force --grace-period=0"
        )
        yield Finding("pod-terminating", one.where, one.source.spec.node_name, text, advice)


def _rejected(survey: Survey) -> Iterator[Finding]:
    """Pods that a kubelet refused after they were bound: it, or the device plugin, disagrees with the scheduler."""
    for one in survey.asked:
        status = one.source.status
        if status.phase == "Failed" and status.reason == "UnexpectedAdmissionError" and one.pod.wants_devices:
            text = f"its kubelet refused it: {status.message or status.reason}"
            advice = "look at the device plugin's log on the node; then delete the pod"
            yield Finding("pod-rejected", one.where, one.source.spec.node_name, text, advice)


def _gangs(survey: Survey) -> Iterator[Finding]:
    """Pods that wait for a PodGroup that does not exist, or whose kind is not installed."""
    there = {(one.metadata.namespace or "default", one.metadata.name) for one in survey.of("PodGroup")}
    waiting: dict[str, list[AskingPod]] = defaultdict(list)
    for one in survey.asked:
        if one.pod.group and not one.source.spec.node_name and one.source.spec.scheduler_name in survey.names:
            waiting[one.pod.group].append(one)
    for group, members in sorted(waiting.items() if survey.knows("PodGroup") else ()):
        name = group_name(group)
        if name.api_group not in DESCRIBED_BY_POD_GROUPS or (name.namespace, name.name) in there:
            continue
        installed = survey.served is None or name.api_group in survey.served
        text = f"waits for PodGroup {name.title} of {name.api_group}, which does not exist"
        text += "" if installed else ": its CustomResourceDefinition is not installed"
        advice = "create the PodGroup, or correct its name in the pods"
        advice = advice if installed else f"install the CustomResourceDefinitions of {name.api_group}"
        pods = tuple(one.pod.key for one in members)
        yield Finding("pod-group-missing", members[0].where, "", f"{text} ({named(pods)})", advice)


def _unserved_gangs(survey: Survey) -> Iterator[Finding]:
    """PodGroups of which no member has a scheduler."""
    members: dict[str, list[AskingPod]] = defaultdict(list)
    for one in survey.asked:
        if one.pod.group:
            members[group_title(one.pod.group)].append(one)
    for group in survey.of("PodGroup"):
        title = f"{group.metadata.namespace or 'default'}/{group.metadata.name}"
        pods = [one for one in members.get(title, ()) if not one.source.spec.node_name]
        if pods and all(_waits_unseen(one.source, survey.now) for one in pods):
            names = sorted({one.source.spec.scheduler_name for one in pods} - survey.names)
            if not names:
                continue
            text = f"none of its {len(pods)} pods has a scheduler: schedulerName {', '.join(names)}"
            advice = (
                f"write schedulerName {min(survey.names)} into its pods, or serve theirs: --scheduler-name {names[0]}"
            )
            yield Finding("pod-group-unserved", f"PodGroup {title}", "", text, advice)


POD_CHECKS = (
    Check("pod-unserved", "error", "Pods wait for a scheduler that does not exist.", _unserved),
    Check("pod-slipped", "error", "A pod with GPUs has the default scheduler: it slipped past the webhook.", _slipped),
    Check("pod-terminating", "error", "A pod that should have ended holds GPUs.", _stuck),
    Check("pod-rejected", "warning", "A kubelet refused a pod with GPUs after it was bound.", _rejected),
    Check("pod-group-missing", "warning", "Pods wait for a PodGroup that does not exist.", _gangs),
    Check("pod-group-unserved", "error", "No scheduler serves the pods of a PodGroup.", _unserved_gangs),
)
