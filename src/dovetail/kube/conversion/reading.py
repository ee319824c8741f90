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
from dovetail.kube.conversion.memberships import Membership, membership
from dovetail.kube.conversion.owners import Owners, created, maker
from dovetail.kube.conversion.preemption import QOS_CLASSES, placed_at, started_at
from dovetail.kube.conversion.queue_names import named_queue
from dovetail.kube.conversion.records import CHANGED, UNVERIFIED, Account, account, trace_of
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.resize import resized
from dovetail.kube.conversion.settings import Settings, says_ignore
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, Refusal, RunningPod, Tolerance
from dovetail.model.reason import Reason

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
    changes: int = 0  # how often another client changed what is said of its cards
    said: int = 0  # digest of which cards its plugin says it gave; 0 = nothing yet
    given: int = 0  # how often its plugin said that; once for each container that asks for whole cards
    proves: bool = True  # its record proves which node has a card; where records are sealed, only sealed ones do

    def with_pod(self, pod: Pod) -> Held:
        return self._replace(running=replace(self.running, pod=pod))

    @property
    def recorded(self) -> frozenset[str]:
        """UUIDs of the cards that the record names."""
        return frozenset(share.uuid for share in self.record or ())


class Stay(NamedTuple):
    """How a pod came to its node, as far as a scheduler saw it. For files this is unknown."""

    waited: bool = False  # it was seen before it had a node, so we bound it ourselves
    placed_itself: bool = False  # it was created with a node, so no scheduler gave it cards or a seal


UNSEEN = Stay()
NO_TOLERANCES: Mapping[str, Tolerance] = {}


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


def identified(
    asked: Pod,
    source: objects.Pod,
    owners: Owners,
    where: str,
    problems: Problems,
    tolerances: Mapping[str, Tolerance] = NO_TOLERANCES,
) -> Pod:
    """The request with the pod's identity: its names, owner, group, queue, age, labels and rank.

    `tolerances` are by the name of the PriorityClass.
    """
    meta = source.metadata
    place = membership(meta, source.spec, meta.namespace)
    return replace(
        in_gang(asked, place, where, problems),
        name=meta.name,
        uid=meta.uid,
        owner=owners.of_pod(meta, meta.namespace),
        maker=maker(meta, meta.namespace) if asked.profile.default_spread else "",
        created=created(meta, where, problems),
        queue=named_queue(meta),
        labels=_own_labels(meta.labels),
        leaving=bool(meta.deletion_timestamp),
        qos=QOS_CLASSES.get(source.status.qos_class, asked.qos),
        tolerance=tolerances.get(source.spec.priority_class_name),
    )


def in_gang(pod: Pod, place: Membership, where: str, problems: Problems) -> Pod:
    """The pod with its gang and role. One with a wrong annotation about its gang is not placed."""
    if place.wrong:
        problems.error(where, place.field, place.wrong.partition(": ")[2])
        refusal = pod.refusal or Refusal(Reason.INVALID_REQUEST, printable(place.wrong, 400))
        return replace(pod, group=place.group, refusal=refusal)
    if place.remark:
        problems.mistake(where, place.field, place.remark)
    if not place.group:
        return pod
    return replace(pod, group=place.group, role=place.role, terms=place.terms)


def first_held(
    pod: Pod, source: objects.Pod, settings: Settings, where: str, problems: Problems, stay: Stay = UNSEEN
) -> Held:
    """What a pod that has a node holds by its record, when the pod is first seen (ADR 13, ADR 16)."""
    node, notes, seals = source.spec.node_name, readable(source.metadata).annotations, settings.seals
    if pod.refusal is not None:  # it runs: errors in its spec no longer matter
        pod = replace(pod, refusal=None)
    ours = source.spec.scheduler_name in settings.schedulers
    found = account(pod, node, notes, settings.vendors, seals, where, problems, ours, stay.placed_itself)
    trace = trace_of(source.metadata.annotations, settings.vendors)
    final = found.sealed or bool(found.doubt) or (stay.waited and ours)
    running = RunningPod(pod, node, found.shares, found.trust)  # `booked` adds its times
    proves = found.sealed or not seals
    held = Held(running, found.shares, trace, trace, final, found.doubt, _report(found), proves=proves)
    return booked(held, pod, source)


def booked(held: Held, pod: Pod, source: objects.Pod) -> Held:
    """What the pod holds now: less than its record, once its init containers have ended."""
    shares = held.record
    if shares is not None and source.spec.init_containers:
        shares = without_finished_init(shares, [container.kind for container in pod.containers], source)
    times = placed_at(source.status), started_at(source.status)
    return held._replace(running=RunningPod(pod, source.spec.node_name, shares, held.running.trust, *times))


def _report(found: Account) -> tuple[str, str]:
    """The event that the pod's owner should see, if any."""
    if found.doubt:
        return UNVERIFIED, found.doubt
    return (CHANGED, RESTORED) if found.changed else ("", "")


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels without the one that binding adds: a bound pod counts as the same pod."""
    labels = pod_labels(labels)
    return {key: value for key, value in labels.items() if key != NODE_LABEL} if NODE_LABEL in labels else labels
