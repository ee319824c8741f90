"""A cluster as the doctor sees it: the scheduler's own reading of nodes and pods, and the objects around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import NodeUse, usage
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.reading import Held, stored
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.live.lease import Lease
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.pod import Pod

DEFAULT_ACCOUNT = ("kube-system", "dovetail-scheduler")  # namespace and name of the ServiceAccount in deploy/


@dataclass(frozen=True, slots=True)
class Seen:
    """Nodes and running pods as the live scheduler would know them after a start."""

    held: tuple[tuple[Pod, Held], ...]  # running pods, by node, namespace and name
    unsealed: frozenset[str]  # uids of our running pods that hold devices and have no seal
    uses: tuple[NodeUse, ...]  # by name
    problems: dict[str, tuple[Problem, ...]] = field(default_factory=dict)  # by object: "Pod ml/train-0", "Node gpu-7"
    seals: bool = False  # there is a key to check seals with


class Missing(NamedTuple):
    """A right that the scheduler's user lacks."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str  # what does not work without it
    namespace: str = ""  # "" = in all namespaces


class Probe(NamedTuple):
    """The answer of a webhook's address to a TLS handshake."""

    configuration: str  # "MutatingWebhookConfiguration dovetail"
    address: str
    unreachable: str = ""  # why no connection was made; "" = one was made
    refused: str = ""  # why the caBundle does not verify the certificate; "" = it does
    not_after: float | None = None  # when the certificate expires, in seconds since 1970


class AskingPod(NamedTuple):
    """A pod, and what it asks for as Dovetail reads it."""

    source: objects.Pod
    pod: Pod
    problems: tuple[Problem, ...]

    @property
    def where(self) -> str:
        return f"Pod {self.pod.key}"


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that a check may read. A kind that is absent from `kinds` was not read: absence proves nothing."""

    seen: Seen
    nodes: tuple[objects.Node, ...]
    asked: tuple[AskingPod, ...]  # all pods
    kinds: Mapping[str, tuple[Any, ...]]  # kind -> typed objects
    complete: bool  # a cluster was read, not files: an object that is not there does not exist
    now: float
    names: frozenset[str]  # scheduler names that Dovetail serves
    vendors: Vendors = DEFAULT_VENDORS
    account: tuple[str, str] = DEFAULT_ACCOUNT
    version: tuple[int, int] | None = None  # of Kubernetes
    missing: tuple[Missing, ...] = ()
    probes: tuple[Probe, ...] = ()
    served: Mapping[str, frozenset[str]] | None = None  # API group -> versions; None = not known

    def of(self, kind: str) -> tuple[Any, ...]:
        return self.kinds.get(kind, ())

    def knows(self, kind: str) -> bool:
        """Whether all objects of the kind were read, so that one that is not there does not exist."""
        return self.complete and kind in self.kinds

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The Leases of Dovetails."""
        return self.of("Lease")


def look(
    reader: PodReader,
    nodes: Iterable[objects.Node],
    pods: Iterable[objects.Pod],
    *,
    now: float,
    settle_seconds: float,
    seals: bool,
) -> Seen:
    """The cluster as a scheduler that starts now would read these objects."""
    mirror, scheduler = Mirror(reader, lambda: now, settle_seconds=settle_seconds), Scheduler(mode="interpreted")
    pods = [stored(pod, pod.metadata.namespace or "default") for pod in pods]
    happened = mirror.hear_nodes([Changed(node) for node in nodes])
    happened += mirror.hear_pods([Changed(pod) for pod in pods])
    for kind in (NodeChanged, PodObserved):
        for event in happened:
            if isinstance(event, kind):
                scheduler.handle(event)
    known = (one for one in mirror.pods.values() if one.held is not None)
    held = sorted(known, key=lambda one: (one.held.running.node, one.key) if one.held else ("", ""))
    subjects = {f"Pod {one.key}" for one in held} | {f"Node {name}" for name in mirror.nodes}
    about: dict[str, tuple[Problem, ...]] = {}
    for problem in mirror.problems:
        if problem.where in subjects and problem.field.startswith("metadata.annotations"):
            about[problem.where] = (*about.get(problem.where, ()), problem)
    bare = (pod for pod in pods if reader.is_ours(pod) and not pod.metadata.annotations.get(SEAL))
    unsealed = frozenset(pod.metadata.uid for pod in bare)
    return Seen(tuple((one.pod, one.held) for one in held if one.held), unsealed, usage(scheduler), about, seals)


def asked_of(reader: PodReader, pods: Iterable[objects.Pod]) -> tuple[AskingPod, ...]:
    """Every pod with its request, by namespace and name."""
    found = []
    for pod in pods:
        source = stored(pod, pod.metadata.namespace or "default")
        reading = reader.pod(source)
        found.append(AskingPod(source, reading.pod, reading.problems))
    return tuple(sorted(found, key=lambda one: one.pod.key))
