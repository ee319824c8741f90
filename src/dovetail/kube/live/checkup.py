"""The checks of `dovetail doctor`: what is wrong with a cluster's nodes, cards and records.

A check is a function from the observed cluster to findings, and a row of CHECKS. It reads what the live scheduler would
read, with the same code, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import NodeUse, own_cards, usage
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.reading import Held, stored
from dovetail.kube.conversion.records import CHANGED
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.node import Enforcer
from dovetail.model.pod import Pod

SEAL_ADVICE = "delete the pod when its work allows it: the next one is sealed"
VERIFY_ADVICE = "compare with the node's own list (nvidia-smi, kubelet's podresources), then delete the pod"


class Finding(NamedTuple):
    """One problem, and what to do about it."""

    check: str
    object: str  # "Pod ml/train-0", "Node gpu-7"
    node: str  # "" = none
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster as the live scheduler would know it after a start."""

    held: tuple[tuple[Pod, Held], ...]  # running pods, by node, namespace and name
    unsealed: frozenset[str]  # uids of our running pods that hold devices and have no seal
    uses: tuple[NodeUse, ...]  # by name
    problems: dict[str, tuple[Problem, ...]] = field(default_factory=dict)  # by object: "Pod ml/train-0", "Node gpu-7"
    seals: bool = False  # there is a key to check seals with


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


def _unverified(seen: Seen) -> Iterator[Finding]:
    for pod, held in seen.held:
        if held.doubt:
            yield Finding("record-unverified", f"Pod {pod.key}", held.running.node, held.doubt, VERIFY_ADVICE)


def _changed(seen: Seen) -> Iterator[Finding]:
    for pod, held in seen.held:
        if held.report[0] == CHANGED:
            advice = "find out who changed it: only the scheduler writes this annotation"
            yield Finding("record-changed", f"Pod {pod.key}", held.running.node, held.report[1], advice)


def _doubtful(seen: Seen) -> Iterator[Finding]:
    """Records that contradict each other or the request, or cannot be read."""
    for pod, held in seen.held:
        if held.doubt or held.report[0]:
            continue
        for problem in seen.problems.get(f"Pod {pod.key}", ()):
            text = f"{problem.field} {problem.message}"
            yield Finding("record-doubtful", problem.where, held.running.node, text, VERIFY_ADVICE)


def _unsealed(seen: Seen) -> Iterator[Finding]:
    for pod, held in seen.held if seen.seals else ():
        if pod.uid in seen.unsealed and pod.wants_devices and not held.doubt:
            text = "its record has no seal: it was bound before records were sealed"
            yield Finding("record-unsealed", f"Pod {pod.key}", held.running.node, text, SEAL_ADVICE)


def _missing(seen: Seen) -> Iterator[Finding]:
    """Missing records, except where kubelet picks the cards: no record is expected there."""
    kubelet_picks = {use.node.name for use in seen.uses if use.node.enforcer is Enforcer.STOCK}
    for pod, held in seen.held:
        known = held.record is not None or held.doubt or f"Pod {pod.key}" in seen.problems
        if pod.wants_devices and not known and held.running.node not in kubelet_picks:
            text = "asks for cards, and no record says which it has; it is charged to cards that could be its own"
            yield Finding("record-missing", f"Pod {pod.key}", held.running.node, text, VERIFY_ADVICE)


def _overbooked(seen: Seen) -> Iterator[Finding]:
    """Cards overbooked by pods whose cards are known.

    A pod whose cards are unknown is charged on every card that it may hold, which is no fact. It is a separate finding.
    """
    for use in seen.uses:
        for card in own_cards(use):
            device, (slots, memory, compute) = card.device, card.known
            for what, used, size, unit in (
                ("memory", memory, device.memory_mib, "MiB"),
                ("compute", compute // 10, device.compute_milli // 10, "%"),
                ("slots", slots, device.slots, "pods"),
            ):
                if used > size:
                    text = f"card {device.uuid}: {what} {used:,} of {size:,} {unit} in use by {_names(card.known_pods)}"
                    yield Finding("card-overbooked", f"Node {use.node.name}", use.node.name, text, "delete one of them")


def _unregistered(seen: Seen) -> Iterator[Finding]:
    for use in seen.uses:
        for card in use.cards:
            if card.device.quarantined and card.pods:
                text = f"card {card.device.uuid} is not registered, and held by {_names(card.pods)}"
                advice = "check the card and the device plugin; where the card never was there, the record is false"
                yield Finding("card-unregistered", f"Node {use.node.name}", use.node.name, text, advice)


def _unsettled(seen: Seen) -> Iterator[Finding]:
    for use in seen.uses:
        if use.node.unsettled:
            text = f"takes no new GPU pods: {use.node.unsettled}"
            advice = "see docs/live.md, When a node takes no new GPU pods"
            yield Finding("node-unsettled", f"Node {use.node.name}", use.node.name, text, advice)


def _unreadable(seen: Seen) -> Iterator[Finding]:
    for use in seen.uses:
        for problem in seen.problems.get(f"Node {use.node.name}", ()):
            advice = "look at the device plugin that writes the annotation: its log, and its version"
            text = f"{problem.field} {problem.message}"
            yield Finding("node-doubtful", problem.where, use.node.name, text, advice)


def _names(pods: tuple[str, ...]) -> str:
    shown = ", ".join(pods[:5])
    return shown + (f" and {len(pods) - 5} more" if len(pods) > 5 else "")


class Check(NamedTuple):
    name: str
    sentence: str  # what is wrong if the check finds something
    run: Callable[[Seen], Iterable[Finding]]


CHECKS = (
    Check("record-unverified", "The record of a pod's cards fails its check.", _unverified),
    Check("record-changed", "Another client changed the record; the sealed cards count.", _changed),
    Check("record-doubtful", "A record contradicts another one or the request, or cannot be read.", _doubtful),
    Check("record-unsealed", "A record was written without a seal; needs --seal-key-file.", _unsealed),
    Check("record-missing", "A pod with devices runs, and no record says which it has.", _missing),
    Check("card-overbooked", "Pods hold more of a card than it has.", _overbooked),
    Check("card-unregistered", "A pod holds a card that its node does not register.", _unregistered),
    Check("node-unsettled", "A node takes no new pods with devices.", _unsettled),
    Check("node-doubtful", "What a node says of its cards cannot be read, in whole or in part.", _unreadable),
)


def findings(seen: Seen) -> list[Finding]:
    """All findings in the order of the table; those of one check by node and name."""
    return [finding for check in CHECKS for finding in check.run(seen)]
