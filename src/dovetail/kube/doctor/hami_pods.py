"""What differs for the pods of a HAMi cluster when Dovetail places them (HAMi v2.10, pkg/device/nvidia/device.go)."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.kube.conversion.card_memory import has_memory_unit
from dovetail.kube.conversion.policies import DEVICE_POLICY_KEYS, NODE_POLICY_KEYS, WEIGHTS_KEY
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.records import RECORD_CHECKS
from dovetail.kube.doctor.survey import AskingPod, Survey
from dovetail.kube.objects import core as objects
from dovetail.model.device import only_substring_matches
from dovetail.model.reason import Reason

HAMI_NODE_POLICIES = ("binpack", "spread")  # every other text is binpack, silently (policy/node_policy.go)
HAMI_DEVICE_POLICIES = ("binpack", "spread", "topology-aware", "mutex", "numa")  # others: spread (policy/gpu_policy.go)
SCORED_VENDORS = (
    "Metax-GPU",
    "Metax-SGPU",
    "Ascend910A",
    "Ascend910B2",
    "Ascend910B3",
    "Ascend910B4",
    "kunlun",
    "Vastai",
)
SIDECAR = "Always"
RECORD_FAULTS = ("record-unverified", "record-doubtful", "record-missing")


def with_cards(survey: Survey) -> list[AskingPod]:
    """Pods that ask for cards and have not ended, those whose request is refused too."""
    return [
        one
        for one in survey.asked
        if one.source.status.phase not in ("Succeeded", "Failed")
        and (one.pod.wants_devices or _names_cards(one, survey))
    ]


def _names_cards(one: AskingPod, survey: Survey) -> bool:
    names = survey.vendors.positions
    return any(
        name in names for part in _containers(one) for name in (*part.resources.limits, *part.resources.requests)
    )


def _containers(one: AskingPod) -> tuple[objects.Container, ...]:
    return (*one.source.spec.init_containers, *one.source.spec.containers)


def _of_pod(check: str, one: AskingPod, text: str, advice: str) -> Finding:
    return Finding(check, one.where, one.source.spec.node_name, text, advice)


def _types(survey: Survey) -> Iterator[Finding]:
    """GPU types that HAMi matches as a part of a word."""
    models: dict[str, set[str]] = {}
    for use in survey.seen.uses:
        for card in use.cards:
            models.setdefault(card.device.vendor, set()).add(card.device.model)
    for one in with_cards(survey):
        for row in survey.vendors.rows:
            for key in filter(None, (row.use_type, row.nouse_type)):
                for word in one.source.metadata.annotations.get(key, "").split(","):
                    matched = sorted(m for m in models.get(row.word, ()) if only_substring_matches(m, word))
                    if matched:
                        yield _of_pod("hami-type-match", one, _type_text(key, word.strip(), matched), TYPE_ADVICE)


TYPE_ADVICE = "write the whole word of each model that is meant, for example H20,H200"


def _type_text(key: str, word: str, matched: list[str]) -> str:
    return f"{key}: {word} matches {', '.join(matched)} in HAMi, as a part of a word; Dovetail matches whole words only"


def _policies(survey: Survey) -> Iterator[Finding]:
    for one in with_cards(survey):
        notes = one.source.metadata.annotations
        for key, known, instead in (
            (NODE_POLICY_KEYS[1], HAMI_NODE_POLICIES, "binpack"),
            (DEVICE_POLICY_KEYS[1], HAMI_DEVICE_POLICIES, "spread"),
        ):
            given = notes.get(key, "").strip()
            unknown = [name.strip() for name in given.split(",") if name.strip() not in known]
            if not given or not unknown:
                continue
            refused = one.pod.refusal is not None
            then = "Dovetail does not place the pod" if refused else "Dovetail uses it"
            text = f"{key}: {given} is no policy of HAMi, which uses {instead} without a message; {then}"
            advice = f"write {instead} to keep what HAMi did, or choose one: dovetail policies"
            yield _of_pod("hami-policy-ignored", one, text, advice)


def _has_unknown_policy(one: AskingPod) -> bool:
    notes = one.source.metadata.annotations
    return any(notes.get(key) for key in (NODE_POLICY_KEYS[1], DEVICE_POLICY_KEYS[1], WEIGHTS_KEY))


def _refused(survey: Survey) -> Iterator[Finding]:
    """Requests that HAMi drops silently, or reads in its own way, and that Dovetail refuses."""
    for one in with_cards(survey):
        refusal = one.pod.refusal
        if refusal is None or (refusal.reason is Reason.INVALID_REQUEST and _has_unknown_policy(one)):
            continue
        runs = "; the running pod keeps its GPUs, the next one waits" if one.source.spec.node_name else ""
        text = f"Dovetail does not place it: {refusal.message}{runs}"
        yield _of_pod("hami-refused", one, text, "correct the pod's template: docs/mistakes.md")


def _memory_units(survey: Survey) -> Iterator[Finding]:
    """Amounts of GPU memory with a unit: HAMi counts bytes as MiB, and drops the whole request."""
    for one in with_cards(survey):
        for container, name, value, _ in _amounts(one, survey):
            if has_memory_unit(str(value)):
                text = f"container {container.name}: {name}: {value} is no number of MiB to HAMi, which gives no GPU"
                text += "; Dovetail gives that much memory"
                yield _of_pod("hami-memory-unit", one, text, "nothing to do if the unit is meant; else write plain MiB")


def _amounts(one: AskingPod, survey: Survey) -> Iterator[tuple[objects.Container, str, objects.Quantity, Vendor]]:
    """The amounts of GPU memory of each container, limits before requests."""
    for container in _containers(one):
        limits, requests = container.resources.limits, container.resources.requests
        for row in survey.vendors.rows:
            value = limits.get(row.memory, requests.get(row.memory)) if row.memory else None
            if value is not None:
                yield container, row.memory, value, row


def _both_amounts(survey: Survey) -> Iterator[Finding]:
    for one in with_cards(survey):
        for container, name, _, row in _amounts(one, survey):
            resources = container.resources
            if row.percentage and (row.percentage in resources.limits or row.percentage in resources.requests):
                text = f"container {container.name}: {name} and {row.percentage}: HAMi books the first and scores the"
                text += " second; Dovetail books and scores the first"
                yield _of_pod("hami-two-amounts", one, text, f"leave {row.percentage} out: it counts for nothing")


def _exclusive(survey: Survey) -> Iterator[Finding]:
    """Whole cards that HAMi's webhook did not see: without cores, which Dovetail fills in when it places them."""
    for one in with_cards(survey):
        filled = any("exclusive" in problem.message and problem.severity == "note" for problem in one.problems)
        if filled and one.source.metadata.uid and not one.source.spec.node_name:
            text = (
                "asks for a whole card without gpucores: HAMi's webhook did not see it, so HAMi counts no compute for"
            )
            text += " it; Dovetail counts 100 % of each card, also in the namespace's quota of gpucores"
            advice = "nothing to do, unless a quota of gpucores is tight: then write gpucores: 0 into the pod"
            yield _of_pod("hami-exclusive-cores", one, text, advice)


def _sidecars(survey: Survey) -> Iterator[Finding]:
    counts = {row.count for row in survey.vendors.rows if row.count}
    for one in with_cards(survey):
        for container in one.source.spec.init_containers:
            names = {*container.resources.limits, *container.resources.requests}
            if container.restart_policy == SIDECAR and names & counts:
                text = (
                    f"sidecar {container.name} has GPUs: HAMi counts it as an init container that ends; Dovetail counts"
                )
                text += " it as long as the pod runs"
                advice = "plan for it: such a pod needs more than HAMi has counted"
                yield _of_pod("hami-sidecar", one, text, advice)


def _numa(survey: Survey) -> Iterator[Finding]:
    for one in with_cards(survey):
        if "topology-aware" in one.pod.profile.device and any(rules.numa_bind for rules in one.pod.device_rules):
            text = "topology-aware with numa-bind: HAMi looks at the last NUMA node only; Dovetail at all of them"
            yield _of_pod("hami-numa", one, text, "nothing to do: the set of cards is as good or better")


def _vendor_scores(survey: Survey) -> Iterator[Finding]:
    for one in with_cards(survey):
        words = {ask.vendor for container in one.pod.containers for ask in container.asks} & set(SCORED_VENDORS)
        if words:
            text = f"{', '.join(sorted(words))}: HAMi adds the vendor's own score to nodes; Dovetail does not"
            yield _of_pod(
                "hami-vendor-score", one, text, "keep these nodes on HAMi: --node-selector (docs/migrate-from-hami.md)"
            )


def _records(survey: Survey) -> Iterator[Finding]:
    """Running pods whose record cannot be read: which cards they hold is not certain."""
    for check in RECORD_CHECKS:
        if check.name in RECORD_FAULTS:
            for found in check.run(survey):
                text = f"{found.message}; until it ends, Dovetail keeps every card of its node free that it may hold"
                yield found._replace(check="hami-record", message=text)


POD_DIFFERENCES = (
    Check("hami-record", "error", "The record of a running pod's cards cannot be read.", _records),
    Check(
        "hami-refused", "error", "HAMi places the pod, or drops its request silently; Dovetail refuses it.", _refused
    ),
    Check("hami-policy-ignored", "warning", "A policy that HAMi does not know, and replaces silently.", _policies),
    Check("hami-type-match", "warning", "A GPU type that HAMi matches as a part of a word.", _types),
    Check(
        "hami-memory-unit", "warning", "GPU memory with a unit, which HAMi drops with the whole request.", _memory_units
    ),
    Check("hami-sidecar", "warning", "A sidecar with GPUs, which HAMi counts as an init container.", _sidecars),
    Check("hami-vendor-score", "warning", "A vendor for which HAMi has a score of its own.", _vendor_scores),
    Check(
        "hami-exclusive-cores", "note", "A whole card without gpucores, which HAMi's webhook did not see.", _exclusive
    ),
    Check("hami-two-amounts", "note", "GPU memory stated twice.", _both_amounts),
    Check("hami-numa", "note", "topology-aware with numa-bind.", _numa),
)
