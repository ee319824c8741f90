"""Pods as Kubernetes stores them → what they ask for and what they hold: one reading for files and for watches.

A pod is read in two steps: what its spec asks for (`asked_by`), which replicas share, and who it is (`identified`). The
record of a pod that has a node is then read in the light of what it asks for (`first_held`, `booked`).
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
    record: tuple[Share, ...] | None  # its cards; None = no record says which
    trace: int = 0  # of the record's text as it is now
    origin: int = 0  # of its text when it was first believed
    final: bool = False  # nothing that is written later counts
    doubt: str = ""  # why its record is not believed
    report: tuple[str, str] = ("", "")  # an event that its owner should see: reason and text; sent once a pod
    proves: bool = True  # its record shows which node has a card; where records are sealed, only sealed ones do

    @property
    def recorded(self) -> frozenset[str]:
        """UUIDs of the cards that the record names."""
        return frozenset(share.uuid for share in self.record or ())


class Stay(NamedTuple):
    """How a pod came to its node, as far as a scheduler saw it. Files have not seen anything."""

    waited: bool = False  # it was seen before it had a node, so that we bound it ourselves
    placed_itself: bool = False  # it was made with a node, so that no scheduler gave it cards or a seal


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
    """Whether HAMi's webhook passed over the pod. `namespace`: the labels of its namespace.

    A pod that runs and has a record was admitted, whatever the labels ask by now.
    """
    if not says_ignore(source.metadata.labels, namespace):
        return False
    return not (source.spec.node_name and has_record(source.metadata.annotations, settings.vendors))


def asked_by(source: objects.Pod, passed_over: bool, settings: Settings, where: str, problems: Problems) -> Pod:
    """What the pod asks for, by its spec and annotations. `settings` are those of its scheduler's name."""
    settings = settings.without_webhook if passed_over else settings
    meta, spec = readable(source.metadata), source.spec
    if spec.node_name:
        spec = msgspec.structs.replace(spec, node_name="")  # where it is, not where it must be
    template = Template(where, "spec", meta.namespace, meta.name, meta, spec, resized(source.status))
    return pod_from(template, settings, problems)


def identified(asked: Pod, source: objects.Pod, owners: Owners, where: str, problems: Problems) -> Pod:
    """The pod that asks for this: its names, owner, group, age and labels."""
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
    """What the record of a pod that has a node is worth when it is first seen (ADR 13, ADR 16)."""
    node, notes, seals = source.spec.node_name, readable(source.metadata).annotations, settings.seals
    pod = replace(pod, refusal=None)  # it runs: what is wrong with its spec no longer matters
    ours = source.spec.scheduler_name in settings.schedulers
    found = account(pod, node, notes, settings.vendors, seals, where, problems, ours, stay.placed_itself)
    trace = trace_of(source.metadata.annotations, settings.vendors)
    final = found.sealed or bool(found.doubt) or (stay.waited and ours)
    running = RunningPod(pod, node, found.shares, found.trust)
    proves = found.sealed or not seals
    return booked(Held(running, found.shares, trace, trace, final, found.doubt, _report(found), proves), pod, source)


def booked(held: Held, pod: Pod, source: objects.Pod) -> Held:
    """With what the pod holds by now: less than its record says, once its init containers have ended."""
    kinds = [container.kind for container in pod.containers]
    shares = None if held.record is None else without_finished_init(held.record, kinds, source)
    return held._replace(running=RunningPod(pod, source.spec.node_name, shares, held.running.trust))


def _report(found: Account) -> tuple[str, str]:
    """The event that the pod's owner should see, if any."""
    if found.doubt:
        return UNVERIFIED, found.doubt
    return (CHANGED, RESTORED) if found.changed else ("", "")


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """Without the one that binding adds: it says nothing new, and a pod that is bound is still the same pod."""
    labels = pod_labels(labels)
    return {key: value for key, value in labels.items() if key != NODE_LABEL} if NODE_LABEL in labels else labels
