"""`dovetail doctor --from hami`: what differs for nodes and installation when a cluster changes to Dovetail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.kube.api.client import Api
from dovetail.kube.conversion.device_config import read_device_config
from dovetail.kube.conversion.quotas import quota_from
from dovetail.kube.conversion.register import DEVICE_CORDON
from dovetail.kube.conversion.settled import has_hami_plugin
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.gather import Source, listed
from dovetail.kube.doctor.hami_pods import POD_DIFFERENCES, with_cards
from dovetail.kube.doctor.installed import ConfigMapObject, HamiSchedulerPod
from dovetail.kube.doctor.records import RECORD_CHECKS, named
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.files.decode import Found
from dovetail.kube.objects.problems import Problems
from dovetail.model.device import MIG

COMPONENT, SCHEDULER = "app.kubernetes.io/component", "hami-scheduler"  # labels of HAMi's chart
WEBHOOK_NAME = "vgpu.hami.io"
DEVICE_CONFIG = "device-config.yaml"
POLICY_FLAGS = {
    "node-scheduler-policy": ("binpack", "--node-policy"),
    "gpu-scheduler-policy": ("spread", "--gpu-policy"),
}
MIGRATION_PAGE = "docs/migrate-from-hami.md"
CARD_FAULTS = ("card-overbooked", "card-unregistered", "node-unsettled", "node-doubtful")


class HamiSummary(NamedTuple):
    """How many pods and nodes nothing differs for."""

    pods: int  # that ask for GPUs
    unaffected_pods: int
    nodes: int  # with GPUs
    unaffected_nodes: int


def summary_of(survey: Survey, findings: Iterable[Finding]) -> HamiSummary:
    concerned = {finding.object for finding in findings}
    pods = {one.where for one in with_cards(survey)}
    nodes = {f"Node {use.node.name}" for use in survey.seen.uses if use.cards}
    return HamiSummary(len(pods), len(pods - concerned), len(nodes), len(nodes - concerned))


async def read_hami(api: Api, kinds: dict[str, tuple[Any, ...]], remarks: list[str]) -> None:
    """HAMi's scheduler pods, and its device configuration in their namespaces."""
    labels = {"labelSelector": f"{COMPONENT}={SCHEDULER}"}
    pods = await listed(api, Source(SCHEDULER, "/api/v1/pods", HamiSchedulerPod, labels), remarks) or ()
    kinds[SCHEDULER] = pods
    found: list[Any] = []
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        maps = await listed(api, Source("ConfigMap", path, ConfigMapObject), remarks) or ()
        found += (one for one in maps if DEVICE_CONFIG in one.data)
    kinds["ConfigMap"] = tuple(found)


def _of_node(check: str, use: NodeUse, text: str, advice: str) -> Finding:
    return Finding(check, f"Node {use.node.name}", use.node.name, text, advice)


def _mixed(survey: Survey) -> Iterator[Finding]:
    """Nodes with cards of different sizes: the request's part of the card score differs between them."""
    for use in survey.seen.uses:
        sizes = {(card.device.memory_mib, card.device.slots, card.device.compute_milli) for card in own_cards(use)}
        if len(sizes) > 1:
            models = ", ".join(sorted({card.device.model for card in own_cards(use)}))
            text = f"its cards differ ({models}): HAMi leaves the request out of the card score, Dovetail counts it, so"
            text += " another card may be chosen"
            yield _of_node("hami-mixed-node", use, text, "nothing to do; to see it: dovetail explain POD")


def _mig(survey: Survey) -> Iterator[Finding]:
    for use in survey.seen.uses:
        cards = [card.device.uuid for card in own_cards(use) if card.device.mode == MIG]
        if cards or use.node.mig:
            text = f"{len(cards) or 'its'} cards are split by MIG, which HAMi places and Dovetail does not yet"
            yield _of_node("hami-mig", use, text, f"keep this node on HAMi: --node-selector ({MIGRATION_PAGE})")


def _cards(survey: Survey) -> Iterator[Finding]:
    """What HAMi does not see or ignores: over-booked cards, cards that only pods name, registers in doubt."""
    for check in RECORD_CHECKS:
        if check.name in CARD_FAULTS:
            for found in check.run(survey):
                yield found._replace(
                    check="hami-node-doubtful", message=f"{found.message}; HAMi goes on placing pods here"
                )


def _cordons(survey: Survey) -> Iterator[Finding]:
    cordoned = {node.metadata.name for node in survey.nodes if node.metadata.annotations.get(DEVICE_CORDON, "").strip()}
    for use in survey.seen.uses:
        if use.node.name in cordoned:
            text = f"{DEVICE_CORDON}: HAMi notices it when the register changes; Dovetail at once"
            yield _of_node("hami-cordon", use, text, "nothing to do, if the cards are meant to be cordoned")


def _ties(survey: Survey) -> Iterator[Finding]:
    """Nodes with equal node scores: HAMi takes one by chance."""
    equal: dict[float, list[str]] = defaultdict(list)
    for use in survey.seen.uses:
        if use.cards and not use.node.unschedulable:
            equal[_node_score(list(own_cards(use)))].append(use.node.name)
    groups = [names for names in equal.values() if len(names) > 1]
    if groups:
        names = [name for names in groups for name in names]
        text = (
            f"{len(names)} nodes have the same score as another one now ({named(tuple(names))}): HAMi takes one of them"
        )
        text += " by chance, Dovetail always the same"
        yield Finding("hami-ties", "Nodes", "", text, "nothing to do: docs/policies.md, ties")


def _node_score(cards: list[CardUse]) -> float:
    """HAMi's: 10 × the sum of the used parts of slots, compute and memory (policy/node_policy.go:106-131)."""
    slots, cores, memory = (
        sum(card.device.slots for card in cards),
        sum(card.device.compute_milli for card in cards),
        sum(card.device.memory_mib for card in cards),
    )
    if not (slots and cores and memory):
        return 0.0
    used = (
        sum(card.slots_used for card in cards) / slots
        + sum(card.compute_used_milli for card in cards) / cores
        + sum(card.memory_used_mib for card in cards) / memory
    )
    return round(10 * used, 6)


def _locks(survey: Survey) -> Iterator[Finding]:
    names = tuple(node.metadata.name for node in survey.nodes if has_hami_plugin(node.metadata.annotations))
    if names:
        text = (
            f"HAMi's device plugin runs on {len(names)} nodes ({named(names)}): Dovetail keeps HAMi's lock there, one"
        )
        text += " pod after the other, and pods wait for it in order where HAMi fails and tries again"
        advice = "kubectl apply -k deploy/optional/hami-lock, before Dovetail places pods there"
        yield Finding("hami-node-lock", "Nodes", "", text, advice)


def _names(survey: Survey) -> Iterator[Finding]:
    """Scheduler names of pods with GPUs that Dovetail does not serve."""
    pods: dict[str, list[str]] = defaultdict(list)
    for one in with_cards(survey):
        if one.source.spec.scheduler_name and one.source.spec.scheduler_name not in survey.names:
            pods[one.source.spec.scheduler_name].append(one.pod.key)
    for name, keys in sorted(pods.items()):
        text = f"{len(keys)} pods with GPUs have it ({named(tuple(keys))})"
        text += f", and Dovetail serves {', '.join(sorted(survey.names))}"
        advice = f"start Dovetail with --scheduler-name {name}: {MIGRATION_PAGE}, step 3"
        yield Finding("hami-scheduler-name", f"schedulerName {name}", "", text, advice)


def _running(survey: Survey) -> Iterator[Finding]:
    pods = [one for one in survey.of(SCHEDULER) if one.status.phase not in ("Succeeded", "Failed")]
    if not pods:
        return
    where = f"Pod {pods[0].metadata.namespace}/{pods[0].metadata.name}"
    both = [lease.key for lease in survey.leases if SCHEDULER in lease.marks().names]
    text = f"HAMi's scheduler runs ({len(pods)} pods)"
    if both:
        text += f", and the Dovetail of Lease {both[0]} serves {SCHEDULER} too: both decide for the same pods"
    advice = f"scale it to 0 before Dovetail serves {SCHEDULER}, or give each its own nodes ({MIGRATION_PAGE})"
    yield Finding("hami-scheduler-running", where, "", text, advice)


def _webhook(survey: Survey) -> Iterator[Finding]:
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for one in survey.of(kind):
            if any(webhook.name == WEBHOOK_NAME for webhook in one.webhooks):
                text = f"HAMi's webhook is registered: new GPU pods get schedulerName {SCHEDULER} while it answers"
                advice = f"keep it until Dovetail's webhook is installed, then delete it: {MIGRATION_PAGE}, step 5"
                yield Finding("hami-webhook-registered", f"{kind} {one.metadata.name}", "", text, advice)


def _flags(survey: Survey) -> Iterator[Finding]:
    """Policies that HAMi's scheduler was started with."""
    for pod in survey.of(SCHEDULER):
        given = pod.flags()
        for flag, (usual, option) in POLICY_FLAGS.items():
            value = given.get(flag, usual)
            if value != usual:
                text = f"HAMi runs with --{flag}={value}; Dovetail's default is {usual}"
                where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
                yield Finding("hami-flags", where, "", text, f"start Dovetail with {option} {value} to keep it")
        if selector := given.get("node-label-selector"):
            where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
            text = f"HAMi places on nodes with --node-label-selector={selector} only"
            yield Finding("hami-flags", where, "", text, f"start Dovetail with --node-selector {selector} to keep it")


def _device_config(survey: Survey) -> Iterator[Finding]:
    """A device-config.yaml whose names or defaults Dovetail was not told."""
    for one in survey.of("ConfigMap"):
        where, problems = f"ConfigMap {one.metadata.namespace}/{one.metadata.name}", Problems()
        if DEVICE_CONFIG not in one.data:
            continue
        theirs = read_device_config(where, one.data[DEVICE_CONFIG], problems)
        for row in theirs.rows:
            ours = survey.vendors.by_word.get(row.word)
            fields = (
                [] if ours is None else [name for name in CONFIG_FIELDS if getattr(ours, name) != getattr(row, name)]
            )
            if fields:
                said = ", ".join(
                    f"{CONFIG_FIELDS[name]} {getattr(row, name)!r}, not {getattr(ours, name)!r}" for name in fields
                )
                advice = "give this file to Dovetail: --device-config FILE, or deviceConfig of its configuration"
                yield Finding("hami-device-config", where, "", f"{row.word}: {said}", advice)
        for problem in problems.found():
            if problem.severity != "note":
                yield Finding("hami-device-config", where, "", f"{problem.field} {problem.message}", "correct the file")


CONFIG_FIELDS = {  # field of a vendor's row -> what it is called here
    "count": "the resource of cards is",
    "memory": "the resource of memory is",
    "percentage": "the resource of the memory's percentage is",
    "core": "the resource of compute is",
    "memory_factor": "memoryFactor is",
    "default_memory": "defaultMemory is",
    "default_cores": "defaultCores is",
    "default_count": "defaultGPUNum is",
}


def _quotas(survey: Survey) -> Iterator[Finding]:
    """Namespaces with several quotas on one resource: in HAMi the last one counts, here all of them."""
    quotas: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source in survey.of("ResourceQuota"):
        namespace = source.metadata.namespace or "default"
        item = Found("", "ResourceQuota", "", namespace, source.metadata.name, source)
        quota = quota_from(item, survey.vendors, Problems())
        for what, limits in (("memory", quota.device_memory_mib), ("cores", quota.device_compute_milli)):
            for word in limits:
                quotas[namespace, f"{word} {what}"].append(quota.name)
    for (namespace, what), names in sorted(quotas.items()):
        if len(names) > 1:
            text = f"quotas {', '.join(sorted(names))} limit {what}: in HAMi the one that changed last counts alone, in"
            text += " Dovetail all of them"
            advice = "delete the ones that are not meant"
            yield Finding("hami-quotas", f"Namespace {namespace}", "", text, advice)


HAMI_CHECKS = (
    *POD_DIFFERENCES,
    Check("hami-node-doubtful", "error", "A node's cards are in doubt, and HAMi does not notice.", _cards),
    Check("hami-mig", "error", "Cards that are split by MIG.", _mig),
    Check("hami-mixed-node", "warning", "A node with cards of different sizes: the card score differs.", _mixed),
    Check("hami-cordon", "note", "A card is cordoned: Dovetail obeys at once.", _cordons),
    Check("hami-ties", "note", "Nodes with equal scores: HAMi chooses by chance.", _ties),
    Check("hami-quotas", "warning", "Several quotas on one resource: all of them count.", _quotas),
    Check("hami-device-config", "warning", "Resource names or defaults that Dovetail was not told.", _device_config),
    Check("hami-flags", "warning", "Defaults of HAMi's scheduler that differ from Dovetail's.", _flags),
    Check("hami-scheduler-name", "warning", "A scheduler name of GPU pods that Dovetail does not serve.", _names),
    Check("hami-scheduler-running", "warning", "HAMi's scheduler still runs.", _running),
    Check("hami-webhook-registered", "note", "HAMi's webhook is still registered.", _webhook),
    Check("hami-node-lock", "note", "Nodes with HAMi's device plugin: its lock is kept.", _locks),
)
