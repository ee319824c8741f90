"""Formats the explanation of one pod, for users and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from dovetail.cli.output import rights, table
from dovetail.cli.output.amounts import card_mib, count
from dovetail.cli.output.plan_json import devices, domain, eviction, policy
from dovetail.cli.output.plan_table import evictions
from dovetail.cli.planning import of_severity
from dovetail.engine.why.refused import asks_nodes
from dovetail.engine.why.verdict import Verdict, blocking
from dovetail.kube.live.words import cut, unavailable
from dovetail.kube.objects.problems import Problem
from dovetail.model.decision import Share
from dovetail.model.order import as_people_count
from dovetail.model.reason import POD_LEVEL_REASONS, Reason, name, sentence
from dovetail.policies.titles import gpu_policy, is_joint
from dovetail.whatif.explain import ExplainedPod

MAX_NODES_SHOWN = 5  # runners-up and refusals shown, unless wide

Json = dict[str, Any]


def state(answer: ExplainedPod) -> str:
    if answer.running is not None:
        return "running"
    return "placed" if answer.decision is not None and answer.decision.placed else "pending"


def document(answer: ExplainedPod, problems: Sequence[Problem]) -> Json:
    shares, explanation = _shares(answer), answer.explanation
    suggestions = [
        {"kind": one.kind, "sentence": one.sentence, "node": one.verified_node} for one in answer.suggestions
    ]
    nearest = explanation.nearest if explanation is not None else None
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "Explanation",
        "namespace": answer.pod.namespace,
        "pod": answer.pod.name,
        "state": state(answer),
        "policy": policy(answer.pod),
        "node": answer.node.name if answer.node is not None else None,
        "devices": devices(answer.pod, answer.node, shares) if answer.node is not None else [],
        "reason": name(_reason(answer)),
        "message": _why_pending(answer) if state(answer) == "pending" else "",
        "condition": _condition(answer) if state(answer) == "pending" else "",
        "counted": [{"why": why, "nodes": number} for why, number in explanation.counted] if explanation else [],
        "nodes": [_verdict_document(verdict) for verdict in explanation.verdicts] if explanation else [],
        "nearest": nearest.node if nearest is not None else None,
        "domain": domain(answer.gathering),
        "beyond": list(explanation.beyond) if explanation is not None else [],
        "suggestion": next(iter(suggestions), None),
        "suggestions": suggestions,
        "evictions": [eviction(one) for one in answer.evictions],
        "owed": rights.owed_document(answer.owed),
        "ways": [rights.way_document(way) for way in answer.ways],
        "warnings": of_severity(problems, "warning"),
        "errors": of_severity(problems, "error"),
        "notes": of_severity(problems, "note"),
    }


def _verdict_document(verdict: Verdict) -> Json:
    return {
        "node": verdict.node,
        "fits": verdict.reason == Reason.OK,
        "score": verdict.score,
        "reason": name(verdict.reason),
        "why": verdict.sentence,
        "hami": verdict.hami,
        "devices": [{"uuid": uuid, "reason": name(reason), "why": why} for uuid, reason, why in verdict.cards],
    }


def lines(answer: ExplainedPod, wide: bool) -> Iterator[str]:
    pod = answer.pod
    axes = f"node {pod.profile.node}"
    if pod.wants_devices:
        joint = is_joint(pod.profile)
        axes = f"node and GPU {pod.profile.node}" if joint else f"{axes} × GPU {gpu_policy(pod.profile)}"
    colour = {"placed": "green", "pending": "yellow", "running": "cyan"}[state(answer)]
    yield f"{click.style(pod.key, bold=True)}: {click.style(state(answer), fg=colour)}  ({axes})"
    if answer.node is not None:
        yield from _where(answer)
    if state(answer) == "placed":
        yield from _runners_up(answer, wide)
        if answer.evictions:
            yield ""
            yield "Stopped for it:"
            yield evictions(answer.evictions, wide)
    if state(answer) == "pending":
        yield from _pending(answer, wide)
        yield from rights.lines(answer.owed, answer.ways, wide)


def _where(answer: ExplainedPod) -> Iterator[str]:
    assert answer.node is not None
    yield f"  node  {answer.node.name}"
    for card in devices(answer.pod, answer.node, _shares(answer)):
        index = "-" if card["index"] is None else card["index"]
        which = "kubelet's choice" if card["uuid"] is None else f"{index}  {card['uuid']}"
        compute = f", {card['compute_milli'] // 10} % compute" if card["compute_milli"] else ""
        yield f"  GPU   {which}  {card_mib(card['memory_mib'])}{compute}  container {card['container']}"
    if answer.running is not None and answer.running.shares is None and answer.pod.wants_devices:
        yield "  GPU   no record says which; plans assume the first that fit"


def _runners_up(answer: ExplainedPod, wide: bool) -> Iterator[str]:
    assert answer.explanation is not None
    assert answer.node is not None
    fitting = [verdict for verdict in answer.explanation.verdicts if verdict.reason == Reason.OK]
    yield ""
    yield f"Why here: {count(len(fitting), 'node')} could take it; the policy {answer.pod.profile.node} ranks them"
    shown = fitting if wide else fitting[: MAX_NODES_SHOWN + 1]
    rows = [("→" if v.node == answer.node.name else "", v.node, _score(v.score)) for v in shown]
    yield table.render(("", "NODE", "SCORE"), rows, right=(2,), indent="  ")
    if len(shown) < len(fitting):
        yield f"  and {count(len(fitting) - len(shown), 'node')} more; -o wide shows all"
    refusing = [verdict for verdict in answer.explanation.verdicts if verdict.reason != Reason.OK]
    if refusing:
        yield ""
        yield "Elsewhere it does not fit:"
        yield from _counted(answer)


def _pending(answer: ExplainedPod, wide: bool) -> Iterator[str]:
    yield ""
    if answer.explanation is None:
        yield f"Why: {_why_pending(answer)}"
        yield from _alternatives(answer) if answer.suggestions else ()
        return
    refusing = [verdict for verdict in answer.explanation.verdicts if verdict.reason != Reason.OK]
    besides = "; besides" if answer.decision is not None and answer.decision.reason == Reason.QUOTA else ""
    yield f"Why: {_why_pending(answer)}" + (f"{besides}:" if refusing else "")
    yield from _counted(answer)
    yield from (f"  {said}" for said in answer.explanation.beyond)
    nearest = answer.explanation.nearest
    if nearest is not None and nearest.reason != Reason.OK:
        yield ""
        yield f"Nearest miss: {nearest.node}: {nearest.sentence}" + (f"  [{nearest.hami}]" if nearest.hami else "")
        yield from _cards(nearest, wide)
    if wide and refusing:
        yield ""
        refusing.sort(key=lambda verdict: as_people_count(verdict.node))
        rows = [(verdict.node, name(verdict.reason), verdict.sentence, verdict.hami) for verdict in refusing]
        yield table.render(("NODE", "REASON", "WHY", "IN HAMI'S WORDS"), rows, indent="  ")
    yield from _alternatives(answer)


def _alternatives(answer: ExplainedPod) -> Iterator[str]:
    yield ""
    if not answer.suggestions:
        yield "No single change that is known here would place it."
        return
    several = len(answer.suggestions) > 1
    yield (
        "Each of these changes alone would place it, as tried:" if several else "This change would place it, as tried:"
    )
    for one in answer.suggestions:
        yield f"  {click.style(one.sentence, bold=True)}: it then lands on {one.verified_node}"


def _why_pending(answer: ExplainedPod) -> str:
    """The problem of the pod or its group; else that no node can take it. `counted` says what the nodes lack."""
    assert answer.decision is not None
    if answer.why or answer.explanation is None:
        return answer.why
    if answer.decision.reason in POD_LEVEL_REASONS:
        return sentence(answer.decision.reason)
    if answer.pod.own_node in [verdict.node for verdict in answer.explanation.verdicts]:
        return f"its own node {answer.pod.own_node} cannot take it"
    number = len(answer.explanation.verdicts)
    return "the only node cannot take it" if number == 1 else f"none of {count(number, 'node')} can take it"


def _condition(answer: ExplainedPod) -> str:
    """The message that the live scheduler writes into the pod's condition."""
    found, decision = answer.explanation, answer.decision
    if answer.why or found is None or decision is None or not asks_nodes(decision.reason):
        return cut(f"{_why_pending(answer)}.")
    return unavailable(len(found.verdicts), found.lacking)


def _reason(answer: ExplainedPod) -> Reason:
    if answer.decision is None or answer.decision.placed:
        return Reason.OK
    return blocking(answer.decision.reason, answer.explanation.verdicts if answer.explanation is not None else ())


def _counted(answer: ExplainedPod) -> Iterator[str]:
    assert answer.explanation is not None
    for lack in answer.explanation.lacking:
        yield f"  {lack}"


def _cards(verdict: Verdict, wide: bool) -> Iterator[str]:
    shown = verdict.cards if wide else verdict.cards[:8]
    for uuid, _, why in shown:
        yield f"  {uuid}  {why}"
    if len(shown) < len(verdict.cards):
        yield f"  and {len(verdict.cards) - len(shown)} more GPUs; -o wide shows all"


def _shares(answer: ExplainedPod) -> tuple[Share, ...]:
    if answer.running is not None:
        return answer.running.shares or ()
    return answer.decision.shares if answer.decision is not None else ()


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.4g}"
