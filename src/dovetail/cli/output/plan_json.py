"""The JSON of `plan`, a stable interface: fields are added, never renamed or given another meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dovetail.cli.planning import PlanReport
from dovetail.engine.usage import CardUse, NodeUse, whole_cards_free
from dovetail.engine.why.gathering import Gathering
from dovetail.engine.why.verdict import Verdict, nearest
from dovetail.model.decision import Share
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason, name
from dovetail.policies.titles import gpu_policy
from dovetail.whatif.plan import PlannedPod, why_pending
from dovetail.whatif.preempting import Eviction

Json = dict[str, Any]


def document(plan: PlanReport) -> Json:
    nodes = plan.nodes
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "Plan",
        "summary": summary(plan),
        "placements": [placement(outcome, nodes) for outcome in plan.placed],
        "pending": [_pending(outcome) for outcome in plan.pending],
        "evictions": [eviction(one) for one in plan.evictions],
        "nodes": [_node(before, after) for before, after in zip(plan.before, plan.after, strict=True)],
        "warnings": plan.said("warning"),
        "errors": plan.said("error"),
        "notes": plan.said("note"),
        "ignored": dict(sorted(plan.ignored.items())),
        "not_placed": [one._asdict() for one in plan.not_placed],
    }


def summary(plan: PlanReport) -> Json:
    placed = plan.placed
    cards = {(outcome.decision.node, share.uuid) for outcome in placed for share in outcome.decision.shares}
    return {
        "pods": len(plan.outcomes),
        "placed": len(placed),
        "pending": len(plan.outcomes) - len(placed),
        "evicted": len(plan.evictions),
        "nodes_used": len({outcome.decision.node for outcome in placed}),
        "gpus_used": len(cards),
        "whole_gpus_free": {"before": whole_cards_free(plan.before), "after": whole_cards_free(plan.after)},
    }


def placement(outcome: PlannedPod, nodes: Mapping[str, Node]) -> Json:
    pod, decision = outcome.pod, outcome.decision
    assert decision.node is not None
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "node": decision.node,
        "policy": policy(pod),
        "devices": devices(pod, nodes[decision.node], decision.shares),
    }


def eviction(one: Eviction) -> Json:
    return {
        "namespace": one.pod.namespace,
        "pod": one.pod.name,
        "node": one.node,
        "by": {"namespace": one.by.namespace, "pod": one.by.name},
        "reason": one.reason,
        "breaks_budget": one.breaks_budget,
    }


def policy(pod: Pod) -> Json:
    return {"node": pod.profile.node, "gpu": gpu_policy(pod.profile)}


def devices(pod: Pod, node: Node, shares: tuple[Share, ...]) -> list[Json]:
    """The cards of a pod.

    uuid and index are null if kubelet picks the card (stock plugin): they are not known yet.
    """
    indexes = {device.uuid: device.index for device in node.devices}  # does not include quarantined cards
    known = node.enforcer != Enforcer.STOCK
    return [
        {
            "container": pod.containers[share.container].name if share.container < len(pod.containers) else None,
            "uuid": share.uuid if known else None,
            "index": indexes.get(share.uuid) if known else None,
            "memory_mib": share.memory_mib,
            "compute_milli": share.compute_milli,
        }
        for share in shares
    ]


def node_reasons(verdicts: tuple[Verdict, ...]) -> dict[str, str]:
    """node -> the reason why it refuses the pod, in HAMi's wording if HAMi has one."""
    return {v.node: v.hami or v.sentence for v in verdicts if v.reason != Reason.OK}


def _pending(outcome: PlannedPod) -> Json:
    numbers = Counter(name(verdict.reason) for verdict in outcome.verdicts if verdict.reason != Reason.OK)
    miss = nearest(outcome.verdicts)
    return {
        "namespace": outcome.pod.namespace,
        "pod": outcome.pod.name,
        "policy": policy(outcome.pod),
        "reason": name(outcome.reason),
        "message": why_pending(outcome),
        "reasons": dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0]))),
        "nodes": node_reasons(outcome.verdicts),
        "nearest": miss.node if miss is not None else None,
        "domain": domain(outcome.lack.gathering),
    }


def domain(gathering: Gathering | None) -> Json | None:
    """The domain that came nearest to holding a gang, and how many members it could take; null = no rule names one."""
    if gathering is None or gathering.nearest is None:
        return None
    nearest_one, group = gathering.nearest, gathering.group
    return {
        "level": nearest_one.level,
        "name": nearest_one.name,
        "domains": nearest_one.domains,
        "fit": gathering.fit,
        "members": len(group.pods),
        "needed": max(group.needed, 0),
    }


def _node(before: NodeUse, after: NodeUse) -> Json:
    node = after.node
    resources = sorted({*node.allocatable, *(name for name, used in after.used.items() if used)})
    return {
        "name": node.name,
        "enforcer": str(node.enforcer),
        "pods": {"before": before.pods, "after": after.pods},
        "resources": {
            resource: {
                "allocatable": node.allocatable.get(resource, 0),
                "before": before.used.get(resource, 0),
                "after": after.used.get(resource, 0),
            }
            for resource in resources
        },
        "whole_gpus_free": {"before": whole_cards_free((before,)), "after": whole_cards_free((after,))},
        "devices": [_card(old, new) for old, new in zip(before.cards, after.cards, strict=True)],
    }


def _card(before: CardUse, after: CardUse) -> Json:
    device = after.device
    return {
        "uuid": device.uuid,
        "index": None if device.quarantined else device.index,
        "model": device.model,
        "healthy": device.healthy,
        "cordoned": device.cordoned,
        "quarantined": device.quarantined,
        "slots": device.slots,
        "memory_mib": device.memory_mib,
        "compute_milli": device.compute_milli,
        "before": _use(before),
        "after": _use(after),
        "pods": list(after.pods),
        "assumed": after.assumed,
    }


def _use(card: CardUse) -> Json:
    return {
        "slots": card.slots_used,
        "memory_mib": card.memory_used_mib,
        "compute_milli": card.compute_used_milli,
    }
