"""Text for people: why a pod waits, where it was placed. Short, the same at every try, and typed for tools."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dovetail.engine.why.findings import Findings
from dovetail.engine.wording import Lacking, in_one_sentence
from dovetail.model.decision import Share
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod
from dovetail.model.reason import POD_LEVEL_REASONS, Reason, name, sentence
from dovetail.model.visible import visible

UNSCHEDULABLE = "Unschedulable"  # cluster autoscalers add nodes for pods with this reason
MAX_NOTE_BYTES = 1024  # of an event's note (Kubernetes, pkg/apis/core/validation/events.go: NoteLengthLimit)
_MORE = "…".encode()


def condition_reason(reason: Reason) -> str:
    """`Unschedulable` only where another node would help; else a reason of our own, on which no autoscaler acts."""
    return name(reason) if reason in POD_LEVEL_REASONS and reason is not Reason.NO_NODES else UNSCHEDULABLE


def why_refused(pod: Pod, reason: Reason, which: str = "") -> str:
    """Why no node can take the pod; `which` names the quota or the claim, as `explain` does."""
    return cut(f"{pod.refusal.message if pod.refusal is not None else which or sentence(reason)}.")


def why_pending(found: Findings) -> str:
    """`0/5 nodes are available: GPU memory short by 1,024 MiB on 3 nodes; taint team=ml:NoSchedule not tolerated on 2
    nodes.` What blocks at the nearest miss comes first."""
    return unavailable(found.nodes, found.lacking)


def unavailable(nodes: int, lacking: Sequence[Lacking]) -> str:
    """The same, by what the nodes lack."""
    if not nodes:
        return "0/0 nodes are available: the cluster has no nodes."
    return cut(f"0/{nodes} nodes are available: {in_one_sentence(lacking)}.")


_HAVE = re.compile(r" \(the nodes? ha(?:s|ve) [^)]*\)")
_AMOUNTS = re.compile(r"\d[\d,.]*(?:[KMGT]i|[MGm])?\b|\bor more\b|\bat most\b")


def without_numbers(text: str) -> str:
    """The message without parts that change as pods and nodes come and go.

    These are amounts, numbers of nodes, what the nodes have instead, and the order of the reasons after the nearest
    miss.
    """
    text = _AMOUNTS.sub("", _HAVE.sub("", text.rstrip("."))).replace("nodes", "node")
    first, *others = (" ".join(part.split()) for part in text.split("; "))
    return "; ".join([first, *sorted(others)])


def where_to(pod: Pod, node: Node, shares: Sequence[Share]) -> str:
    """`Successfully assigned ml/train-0 to node-a: GPU-1 (40960 MiB, 50 %), GPU-2 (40960 MiB, 50 %)`

    Begins as kube-scheduler's event does (schedule_one.go): tools, and Kubernetes' own tests, search for these words.
    """
    assigned = f"Successfully assigned {pod.key} to {node.name}"
    if not shares:
        return cut(assigned)
    if node.enforcer is Enforcer.STOCK:
        return cut(f"{assigned}: {len(shares)} GPU, which kubelet picks")
    cards = [f"{share.uuid} ({share.memory_mib} MiB, {_percent(share.compute_milli)})" for share in shares]
    return cut(f"{assigned}: {', '.join(cards)}")


def _percent(milli: int) -> str:
    return f"{milli / 10:g} %" if milli else "any compute"


def cut(text: str, longest: int = MAX_NOTE_BYTES) -> str:
    """The text without control characters, cut between two characters to at most so many bytes of UTF-8."""
    encoded = visible(text).encode("utf-8", "replace")
    if len(encoded) <= longest:
        return encoded.decode()
    return encoded[: longest - len(_MORE)].decode(errors="ignore") + _MORE.decode()
