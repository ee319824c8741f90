"""What people read: why a pod waits, where it went. Short, the same at every try, and typed where tools look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.model.decision import Share
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod
from dovetail.model.reason import POD_LEVEL, Reason, name, sentence

UNSCHEDULABLE = "Unschedulable"  # cluster autoscalers add nodes for pods that say this
LONGEST = 1024  # characters of an event's note
MOST_REASONS = 6


def condition_reason(reason: Reason) -> str:
    """`Unschedulable` only where another node would help; else our own word, which no autoscaler acts on."""
    return name(reason) if reason in POD_LEVEL and reason is not Reason.NO_NODES else UNSCHEDULABLE


def why_pending(pod: Pod, reason: Reason, counts: Mapping[Reason, int]) -> str:
    """`0/5 nodes are available: 3 GPU memory short, 2 taint not tolerated.`"""
    if pod.refusal is not None:
        return cut(f"{pod.refusal.message}.")
    if reason in POD_LEVEL and reason is not Reason.NO_NODES:
        return cut(f"{sentence(reason)}.")
    total = sum(counts.values())
    if not total:
        return "0/0 nodes are available: the cluster has no nodes."
    said = sorted(((count, reason) for reason, count in counts.items() if reason), key=lambda one: (-one[0], one[1]))
    parts = [f"{count} {sentence(reason)}" for count, reason in said[:MOST_REASONS]]
    rest = sum(count for count, _ in said[MOST_REASONS:])
    if rest:
        parts.append(f"{rest} something else")
    return cut(f"0/{total} nodes are available: {', '.join(parts)}.")


def where_to(pod: Pod, node: Node, shares: Sequence[Share]) -> str:
    """`placed ml/train-0 on node-a: GPU-1 (40960 MiB, 50 %), GPU-2 (40960 MiB, 50 %)`"""
    if not shares:
        return cut(f"placed {pod.key} on {node.name}")
    if node.enforcer is Enforcer.STOCK:
        return cut(f"placed {pod.key} on {node.name}: {len(shares)} GPU, which kubelet picks")
    cards = [f"{share.uuid} ({share.memory_mib} MiB, {_percent(share.compute_milli)})" for share in shares]
    return cut(f"placed {pod.key} on {node.name}: {', '.join(cards)}")


def _percent(milli: int) -> str:
    return f"{milli / 10:g} %" if milli else "any compute"


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
