"""The doctor's checks of records, cards and registers, as the live scheduler would read them after a start."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.engine.usage import own_cards
from dovetail.kube.conversion.records import CHANGED
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.survey import Survey
from dovetail.model.node import Enforcer

SEAL_ADVICE = "delete the pod when its work allows it: the next one is sealed"
VERIFY_ADVICE = "compare with the node's own list (nvidia-smi, kubelet's podresources), then delete the pod"


def _unverified(survey: Survey) -> Iterator[Finding]:
    for pod, held in survey.seen.held:
        if held.doubt:
            yield Finding("record-unverified", f"Pod {pod.key}", held.running.node, held.doubt, VERIFY_ADVICE)


def _changed(survey: Survey) -> Iterator[Finding]:
    for pod, held in survey.seen.held:
        if held.report[0] == CHANGED:
            advice = "find out who changed it: only the scheduler writes this annotation"
            yield Finding("record-changed", f"Pod {pod.key}", held.running.node, held.report[1], advice)


def _doubtful(survey: Survey) -> Iterator[Finding]:
    """Records that contradict each other or the request, or cannot be read."""
    for pod, held in survey.seen.held:
        if held.doubt or held.report[0]:
            continue
        for problem in survey.seen.problems.get(f"Pod {pod.key}", ()):
            text = f"{problem.field} {problem.message}"
            yield Finding("record-doubtful", problem.where, held.running.node, text, VERIFY_ADVICE)


def _unsealed(survey: Survey) -> Iterator[Finding]:
    for pod, held in survey.seen.held if survey.seen.seals else ():
        if pod.uid in survey.seen.unsealed and pod.wants_devices and not held.doubt:
            text = "its record has no seal: it was bound before records were sealed"
            yield Finding("record-unsealed", f"Pod {pod.key}", held.running.node, text, SEAL_ADVICE)


def _missing(survey: Survey) -> Iterator[Finding]:
    """Missing records, except where kubelet picks the cards: no record is expected there."""
    kubelet_picks = {use.node.name for use in survey.seen.uses if use.node.enforcer is Enforcer.STOCK}
    for pod, held in survey.seen.held:
        known = held.record is not None or held.doubt or f"Pod {pod.key}" in survey.seen.problems
        if pod.wants_devices and not known and held.running.node not in kubelet_picks:
            text = "asks for cards, and no record says which it has; it is charged to cards that could be its own"
            yield Finding("record-missing", f"Pod {pod.key}", held.running.node, text, VERIFY_ADVICE)


def _overbooked(survey: Survey) -> Iterator[Finding]:
    """Cards overbooked by pods whose cards are known.

    A pod whose cards are unknown is charged on every card that it may hold, which is no fact. It is a separate finding.
    """
    for use in survey.seen.uses:
        for card in own_cards(use):
            device, (slots, memory, compute) = card.device, card.known
            for what, used, size, unit in (
                ("memory", memory, device.memory_mib, "MiB"),
                ("compute", compute // 10, device.compute_milli // 10, "%"),
                ("slots", slots, device.slots, "pods"),
            ):
                if used > size:
                    text = f"card {device.uuid}: {what} {used:,} of {size:,} {unit} in use by {named(card.known_pods)}"
                    yield Finding("card-overbooked", f"Node {use.node.name}", use.node.name, text, "delete one of them")


def _unregistered(survey: Survey) -> Iterator[Finding]:
    for use in survey.seen.uses:
        for card in use.cards:
            if card.device.quarantined and card.pods:
                text = f"card {card.device.uuid} is not registered, and held by {named(card.pods)}"
                advice = "check the card and the device plugin; where the card never was there, the record is false"
                yield Finding("card-unregistered", f"Node {use.node.name}", use.node.name, text, advice)


def _unsettled(survey: Survey) -> Iterator[Finding]:
    for use in survey.seen.uses:
        if use.node.unsettled:
            text = f"takes no new GPU pods: {use.node.unsettled}"
            advice = "see docs/live.md, When a node takes no new GPU pods"
            yield Finding("node-unsettled", f"Node {use.node.name}", use.node.name, text, advice)


def _unreadable(survey: Survey) -> Iterator[Finding]:
    for use in survey.seen.uses:
        for problem in survey.seen.problems.get(f"Node {use.node.name}", ()):
            advice = "look at the device plugin that writes the annotation: its log, and its version"
            text = f"{problem.field} {problem.message}"
            yield Finding("node-doubtful", problem.where, use.node.name, text, advice)


def named(pods: tuple[str, ...]) -> str:
    shown = ", ".join(pods[:5])
    return shown + (f" and {len(pods) - 5} more" if len(pods) > 5 else "")


RECORD_CHECKS = (
    Check("record-unverified", "error", "The record of a pod's cards fails its check.", _unverified),
    Check("record-changed", "warning", "Another client changed the record; the sealed cards count.", _changed),
    Check(
        "record-doubtful", "warning", "A record contradicts another one or the request, or cannot be read.", _doubtful
    ),
    Check("record-unsealed", "note", "A record was written without a seal; needs --seal-key-file.", _unsealed),
    Check("record-missing", "warning", "A pod with devices runs, and no record says which it has.", _missing),
    Check("card-overbooked", "error", "Pods hold more of a card than it has.", _overbooked),
    Check("card-unregistered", "warning", "A pod holds a card that its node does not register.", _unregistered),
    Check("node-unsettled", "warning", "A node takes no new pods with devices.", _unsettled),
    Check(
        "node-doubtful", "warning", "What a node says of its cards cannot be read, in whole or in part.", _unreadable
    ),
)
