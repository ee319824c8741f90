"""The doctor's checks of nodes and cards: cards that no pod can use, and nodes where no plugin enforces a share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.records import named
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.live.hami_lock import LOCK, OLD
from dovetail.kube.objects import core as objects
from dovetail.model.node import PREFER_NO_SCHEDULE, Enforcer
from dovetail.model.pod import Pod

STRANDED = 4  # a card is reported if at least 1/4 of its memory is free and cannot be given to any pod
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"  # node-feature-discovery: a device of NVIDIA
GPU_LABELS = (PCI_LABEL, "feature.node.kubernetes.io/pci-0302_10de.present", "nvidia.com/gpu.present", "gpu")
YES = ("true", "on")
OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")  # Kubernetes removes them by itself


def _unhealthy(survey: Survey) -> Iterator[Finding]:
    for use, card in _cards(survey):
        if not card.device.healthy:
            advice = "look for XID errors (dmesg), replace the card or restart the device plugin: HAMi's never recovers"
            held = f"; {named(card.pods)} hold it" if card.pods else ""
            yield _of_node("card-unhealthy", use, f"card {card.device.uuid} is registered as unhealthy{held}", advice)


def _cordoned(survey: Survey) -> Iterator[Finding]:
    for use, card in _cards(survey):
        if card.device.cordoned:
            advice = f"when the work on it is done: kubectl annotate node {use.node.name} hami.io/device-cordon-"
            text = f"card {card.device.uuid} is cordoned by the annotation hami.io/device-cordon: no new pods"
            yield _of_node("card-cordoned", use, text, advice)


def _stranded(survey: Survey) -> Iterator[Finding]:
    """Cards with much free memory that no pod can get, as their slots or their compute are used up."""
    for use, card in _cards(survey):
        device, free = card.device, card.device.memory_mib - card.memory_used_mib
        if free * STRANDED < device.memory_mib or len(card.pods) < 2 or not device.healthy or device.cordoned:
            continue
        if card.slots_used >= device.slots:
            text = f"no slot is left: {card.slots_used} of {device.slots} pods"
            advice = "raise deviceSplitCount in HAMi's device-config.yaml, or give its pods more memory each"
        elif device.compute_milli and card.compute_used_milli >= device.compute_milli:
            text = f"no compute is left: {card.compute_used_milli // 10} of {device.compute_milli // 10} %"
            advice = "let pods ask for less nvidia.com/gpucores, or for none (shared), where they do not need it"
        else:
            continue
        text = f"card {device.uuid}: {free:,} of {device.memory_mib:,} MiB are free, and {text}"
        yield _of_node("card-stranded", use, text, advice)


def _twice(survey: Survey) -> Iterator[Finding]:
    """Cards that two nodes register."""
    nodes: dict[str, list[NodeUse]] = defaultdict(list)
    for use, card in _cards(survey):
        nodes[card.device.uuid].append(use)
    for uuid, uses in sorted(nodes.items()):
        if len(uses) > 1:
            names = ", ".join(use.node.name for use in uses)
            advice = "delete the Node object that is out of date, or the copied annotation: a card is in one machine"
            yield _of_node(
                "card-duplicate", uses[-1], f"card {uuid} is registered by {len(uses)} nodes: {names}", advice
            )


def _not_ready(survey: Survey) -> Iterator[Finding]:
    for use, idle, source in _idle(survey):
        if (status := _ready(source)) != "True":
            text = f"has {idle} idle card{'s' * (idle != 1)} and is not ready: Ready is {status}"
            advice = f"kubectl describe node {use.node.name}; look at its kubelet"
            yield _of_node("node-not-ready", use, text, advice)


def _unschedulable(survey: Survey) -> Iterator[Finding]:
    for use, idle, source in _idle(survey):
        if use.node.unschedulable and _ready(source) == "True":
            text = f"has {idle} idle card{'s' * (idle != 1)} and is cordoned"
            yield _of_node("node-cordoned", use, text, f"when it may take pods: kubectl uncordon {use.node.name}")


def _idle(survey: Survey) -> Iterator[tuple[NodeUse, int, objects.Node]]:
    """Nodes with idle cards, how many, and the Node objects."""
    sources = {node.metadata.name: node for node in survey.nodes}
    for use in survey.seen.uses:
        if idle := sum(1 for card in own_cards(use) if not card.pods):
            yield use, idle, sources[use.node.name]


def _tainted(survey: Survey) -> Iterator[Finding]:
    """Nodes with idle cards and a taint that no pod with cards tolerates."""
    tolerated = {one.pod.node_rules.tolerations for one in survey.asked if one.pod.wants_devices}  # of few templates
    for use in survey.seen.uses:
        cards = list(own_cards(use))
        if not cards or any(card.pods for card in cards):
            continue
        for taint in use.node.taints:
            if taint.effect == PREFER_NO_SCHEDULE or taint.key.startswith(OWN_TAINTS):
                continue
            if not any(one.tolerates(taint) for tolerations in tolerated for one in tolerations):
                text = f"{len(cards)} cards are idle, and no pod with cards tolerates the taint {taint}"
                advice = f"remove it: kubectl taint node {use.node.name} {taint}- ; or add a toleration to the pods"
                yield _of_node("node-tainted", use, text, advice)


def _without_enforcer(survey: Survey) -> Iterator[Finding]:
    """Nodes with cards that no resource offers, and shares of cards where only whole cards can be enforced."""
    sources = {node.metadata.name: node for node in survey.nodes}
    for use in survey.seen.uses:
        label = next((name for name in GPU_LABELS if use.node.labels.get(name) in YES), "")
        if label and not use.cards and not use.node.mig and not _offers(sources[use.node.name], survey):
            text = f"the label {label} says that it has GPUs, and no device plugin offers them"
            advice = "install HAMi's device plugin (label gpu=on), or NVIDIA's; its DaemonSet must tolerate the taints"
            yield _of_node("node-without-enforcer", use, text, advice)
    with_cards = [use for use in survey.seen.uses if use.cards]
    if not with_cards or any(use.node.enforcer is not Enforcer.STOCK for use in with_cards):
        return
    for one in survey.asked:
        if not one.source.spec.node_name and one.source.spec.scheduler_name in survey.names and _wants_a_part(one.pod):
            text = f"asks for a part of a card, and all {len(with_cards)} nodes with cards give whole cards only"
            advice = "install HAMi's device plugin on a node, or ask for whole cards: nvidia.com/gpu alone"
            yield Finding("node-without-enforcer", one.where, "", text, advice)


def _offers(node: objects.Node, survey: Survey) -> bool:
    """Whether the node's register or its allocatable resources name cards, even if none can be read."""
    counts = {row.count for row in survey.vendors.rows if row.count}
    registers = {row.register for row in survey.vendors.rows if row.register}
    allocatable = node.status.allocatable or {}
    offered = any(str(allocatable.get(name, "0")) != "0" for name in counts)
    return offered or any(node.metadata.annotations.get(name) for name in registers)


def _wants_a_part(pod: Pod) -> bool:
    return any(not ask.plain for container in pod.containers for ask in container.asks)


def _locked(survey: Survey) -> Iterator[Finding]:
    """HAMi's lock on a node, held by a pod that is gone, or for longer than HAMi waits: it blocks every bind."""
    unfinished = {one.pod.key for one in survey.asked if one.source.status.phase not in ("Succeeded", "Failed")}
    for node in survey.nodes:
        lock = node.metadata.annotations.get(LOCK, "")
        at, _, holder = lock.partition(",")
        holder = holder.replace(",", "/", 1)
        age = survey.now - (seconds_of(at) or 0.0)
        if not lock or not (age > OLD or (holder and holder not in unfinished)):
            continue
        who = f"pod {holder}, which {'runs or waits' if holder in unfinished else 'does not exist'}" if holder else "?"
        text = f"the annotation {LOCK} is held by {who}, since {at}"
        advice = (
            f"look at the device plugin's log on the node; then: kubectl annotate node {node.metadata.name} {LOCK}-"
        )
        yield Finding("node-lock-stale", f"Node {node.metadata.name}", node.metadata.name, text, advice)


def _format(survey: Survey) -> Iterator[Finding]:
    """Registers of old HAMi plugins: the text format has neither the mode of a card nor its MIG profiles."""
    for node in survey.nodes:
        for row in survey.vendors.rows:
            text = node.metadata.annotations.get(row.register, "").strip() if row.register else ""
            old = row.word == "NVIDIA" and ":" in text and text[:1] not in ("[", "{")
            if old or '"NVIDIA-NVIDIA' in text:
                what = "is in the text format of HAMi 2.5 and older" if old else "repeats the vendor: NVIDIA-NVIDIA"
                advice = "upgrade HAMi's device plugin on the node to 2.6 or newer; the cards are read all the same"
                said = f"{row.register} {what}"
                yield Finding("node-register-old", f"Node {node.metadata.name}", node.metadata.name, said, advice)


def _cards(survey: Survey) -> Iterator[tuple[NodeUse, CardUse]]:
    return ((use, card) for use in survey.seen.uses for card in own_cards(use))


def _of_node(check: str, use: NodeUse, text: str, advice: str) -> Finding:
    return Finding(check, f"Node {use.node.name}", use.node.name, text, advice)


def _ready(node: objects.Node) -> str:
    return next((one.status for one in node.status.conditions if one.type == "Ready"), "True")


CARD_CHECKS = (
    Check("card-unhealthy", "warning", "The device plugin says that a card is broken.", _unhealthy),
    Check("card-cordoned", "note", "A card takes no new pods, by an annotation.", _cordoned),
    Check("card-stranded", "note", "A card has free memory, and no slot or compute left to use it.", _stranded),
    Check("card-duplicate", "error", "Two nodes register one card.", _twice),
    Check("node-not-ready", "error", "A node with idle cards is not ready.", _not_ready),
    Check("node-cordoned", "note", "A node with idle cards is cordoned.", _unschedulable),
    Check("node-tainted", "warning", "A node with idle cards has a taint that no pod with cards tolerates.", _tainted),
    Check(
        "node-without-enforcer",
        "error",
        "No device plugin offers a node's cards, or no node enforces the shares that pods ask for.",
        _without_enforcer,
    ),
    Check("node-lock-stale", "error", "HAMi's lock on a node is left behind: no pod is bound there.", _locked),
    Check("node-register-old", "note", "A device plugin writes a format of old HAMi versions.", _format),
)
