"""Pods as Kubernetes stores them → their requests and what they hold: the same functions for files and watches.

A pod is read in two steps: the request in its spec (`asked_by`), which replicas share, and its identity (`identified`).
If the pod has a node, its record is then read together with its request (`first_held`, `booked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.assigned import has_record, without_finished_init
from dovetail.kube.conversion.bounded import pod_labels, readable
from dovetail.kube.conversion.groups import named_group
from dovetail.kube.conversion.owners import Owners, created, maker
from dovetail.kube.conversion.records import CHANGED, UNVERIFIED, Account, account, trace_of
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.resize import resized
from dovetail.kube.conversion.settings import Settings, says_ignore
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, RunningPod

TERMINAL = ("Succeeded", "Failed")  # phases of pods that hold nothing any more
NODE_LABEL = "hami.io/vgpu-node"  # written with a Binding, as HAMi does
RESTORED = "another client changed which cards the pod is said to have; the cards of its seal stay booked"


class Held(NamedTuple):
    """What a running pod holds."""

    running: RunningPod  # as it is booked: without the shares of finished init containers
    record: tuple[Share, ...] | None  # its cards; None = no record names them
    trace: int = 0  # digest of the record's present text
    origin: int = 0  # digest of its text when it was first trusted
    final: bool = False  # later changes of the record do not count
    doubt: str = ""  # why its record is not trusted
    report: tuple[str, str] = ("", "")  # an event for the pod's owner: reason and text; sent once for each pod
    proves: bool = True  # its record proves which node has a card; where records are sealed, only sealed ones do

    @property
    def recorded(self) -> frozenset[str]:
        """UUIDs of the cards that the record names."""
        return frozenset(share.uuid for share in self.record or ())


class Stay(NamedTuple):
    """How a pod came to its node, as far as a scheduler saw it. For files this is unknown."""

    waited: bool = False  # it was seen before it had a node, so we bound it ourselves
    placed_itself: bool = False  # it was created with a node, so no scheduler gave it cards or a seal


UNSEEN = Stay()


def stored(source: objects.Pod, namespace: str, name: str = "", uid: str = "") -> objects.Pod:
    """The pod with the names that the API server would have given it, where a file leaves them out."""
    meta = source.metadata
    names = {"namespace": namespace, "name": name or meta.name}
    uid = uid or meta.uid or f"{namespace}/{name or meta.name}"
    if (meta.namespace, meta.name, meta.uid) == (namespace, names["name"], uid):
        return source
    return msgspec.structs.replace(source, metadata=msgspec.structs.replace(meta, uid=uid, **names))


def is_ending(namespace: objects.Namespace) -> bool:
    """Whether the namespace is being deleted: the API server refuses every Binding in it, and its pods end soon."""
    return bool(namespace.metadata.deletion_timestamp)


def is_passed_over(source: objects.Pod, namespace: Mapping[str, str], settings: Settings) -> bool:
    """Whether HAMi's webhook ignored the pod. `namespace`: the labels of its namespace.

    A running pod with a record was admitted, whatever the labels are now.
    """
    if not says_ignore(source.metadata.labels, namespace):
        return False
    return not (source.spec.node_name and has_record(source.metadata.annotations, settings.vendors))


def asked_by(source: objects.Pod, passed_over: bool, settings: Settings, where: str, problems: Problems) -> Pod:
    """The pod's request, from its spec and annotations. `settings` are those of its scheduler's name."""
    settings = settings.without_webhook if passed_over else settings
    meta, spec = readable(source.metadata), source.spec
    if spec.node_name:
        spec = msgspec.structs.replace(spec, node_name="")  # its present node, not a required node
    template = Template(where, "spec", meta.namespace, meta.name, meta, spec, resized(source.status))
    return pod_from(template, settings, problems)


def identified(asked: Pod, source: objects.Pod, owners: Owners, where: str, problems: Problems) -> Pod:
    """The request with the pod's identity: its names, owner, group, age and labels."""
    meta = source.metadata
    return replace(
        asked,
        name=meta.name,
        uid=meta.uid,
        owner=owners.of_pod(meta, meta.namespace),
        maker=maker(meta, meta.namespace) if asked.profile.default_spread else "",
        created=created(meta, where, problems),
        group=named_group(meta, source.spec, meta.namespace),
        labels=_own_labels(meta.labels),
        leaving=bool(meta.deletion_timestamp),
    )


def first_held(
    pod: Pod, source: objects.Pod, settings: Settings, where: str, problems: Problems, stay: Stay = UNSEEN
) -> Held:
    """What a pod that has a node holds by its record, when the pod is first seen (ADR 13, ADR 16)."""
    node, notes, seals = source.spec.node_name, readable(source.metadata).annotations, settings.seals
    pod = replace(pod, refusal=None)  # it runs: errors in its spec no longer matter
    ours = source.spec.scheduler_name in settings.schedulers
    found = account(pod, node, notes, settings.vendors, seals, where, problems, ours, stay.placed_itself)
    trace = trace_of(source.metadata.annotations, settings.vendors)
    final = found.sealed or bool(found.doubt) or (stay.waited and ours)
    running = RunningPod(pod, node, found.shares, found.trust)
    proves = found.sealed or not seals
    return booked(Held(running, found.shares, trace, trace, final, found.doubt, _report(found), proves), pod, source)


def booked(held: Held, pod: Pod, source: objects.Pod) -> Held:
    """What the pod holds now: less than its record, once its init containers have ended."""
    kinds = [container.kind for container in pod.containers]
    shares = None if held.record is None else without_finished_init(held.record, kinds, source)
    return held._replace(running=RunningPod(pod, source.spec.node_name, shares, held.running.trust))


def _report(found: Account) -> tuple[str, str]:
    """The event that the pod's owner should see, if any."""
    if found.doubt:
        return UNVERIFIED, found.doubt
    return (CHANGED, RESTORED) if found.changed else ("", "")


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels without the one that binding adds: a bound pod counts as the same pod."""
    labels = pod_labels(labels)
    return {key: value for key, value in labels.items() if key != NODE_LABEL} if NODE_LABEL in labels else labels
