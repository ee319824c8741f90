"""Words for resources, amounts and refusals, for `plan`, `explain`, conditions, events and logs alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.model.node import CPU, MEMORY, PODS, STORAGE, Node
from dovetail.model.reason import Reason, sentence
from dovetail.model.relations import PodTerm, Relations, Selector
from dovetail.model.rules import NodeRules, Requirement

_TITLES = {CPU: "CPU", MEMORY: "memory", STORAGE: "ephemeral storage", PODS: "pod slots"}
_BYTE_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("G", 10**9), ("M", 10**6))
MOST_KINDS_OF_LACK = 6  # in one sentence
MOST_VALUES = 3  # of what nodes have instead, in one sentence


def resource_title(name: str) -> str:
    return _TITLES.get(name, name)


def unit_of(name: str) -> int:
    """The smallest step in which a suggestion changes a resource: MiB for amounts in bytes."""
    return 2**20 if name in (MEMORY, STORAGE) else 1


def amount_of(name: str, amount: int) -> str:
    """The amount as in manifests: `500m`, `2`, `2Gi`, `1536Mi`.

    Bytes that are not a whole unit are rounded up to Mi.
    """
    if name == CPU:
        return f"{amount}m" if amount % 1000 else f"{amount // 1000}"
    if name in (MEMORY, STORAGE):
        return _bytes(amount)
    return f"{amount:,}"


def _bytes(amount: int) -> str:
    for unit, size in _BYTE_UNITS:
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{-(-amount // 2**20)}Mi" if amount else "0"


def count_of(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True, slots=True)
class Fact:
    """What one node lacks, in parts, so that equal facts of several nodes become one sentence."""

    what: str  # "GPU memory short"
    amount: str = ""  # "by 1,024 MiB"
    have: str = ""  # what the node has instead: "zone=c"
    fitting: int = 0  # cards that fit, of `asked`
    asked: int = 0
    everywhere: bool = False  # true for every node

    def __str__(self) -> str:
        return together((self,))


def together(facts: Sequence[Fact]) -> str:
    """What several nodes lack, nearest first: `GPU memory short by 1,024 MiB or more`."""
    first, kinds = facts[0], set(facts)
    text = first.what
    if first.amount:
        text += f" {first.amount}" + (" or more" if len({fact.amount for fact in kinds}) > 1 else "")
    values = list(dict.fromkeys(fact.have for fact in facts if fact.have))
    if values:
        rest = ", others" if len(values) > MOST_VALUES else ""
        who = "the node has" if len(facts) == 1 else "the nodes have"
        text += f" ({who} {', '.join(values[:MOST_VALUES])}{rest})"
    most = max(fact.fitting for fact in kinds)
    if not most:
        return text
    at_most = "at most " if len({fact.fitting for fact in kinds}) > 1 else ""
    return f"{at_most}{most} of {first.asked} GPUs fit, the others: {text}"


class Lacking(NamedTuple):
    """What nodes lack, equal facts together."""

    reason: Reason
    text: str  # "GPU memory short by 1,024 MiB or more"
    nodes: int
    everywhere: bool = False

    def __str__(self) -> str:
        return self.text if self.everywhere else f"{self.text} on {count_of(self.nodes, 'node')}"


def in_one_sentence(lacking: Sequence[Lacking]) -> str:
    """`GPU memory short by 1,024 MiB on 3 nodes; taint team=ml:NoSchedule not tolerated on 1 node`"""
    parts = [str(one) for one in lacking[:MOST_KINDS_OF_LACK]]
    rest = sum(one.nodes for one in lacking[MOST_KINDS_OF_LACK:])
    return "; ".join([*parts, *([f"something else on {count_of(rest, 'node')}"] if rest else [])])


def affinity_fact(rules: NodeRules, node: Node) -> Fact:
    """The term of the required node affinity that comes nearest, its failing rows, and the node's values."""
    terms = rules.affinity or ()
    have = {**node.labels, "metadata.name": node.name}
    failing = [[row for row in (*term.expressions, *term.fields) if not row.matches(have)] for term in terms]
    if not terms or not any(failing):
        return Fact("required node affinity has no term that matches any node")
    number = min((n for n, rows in enumerate(failing) if rows), key=lambda n: (len(failing[n]), n))
    rows = failing[number]
    which = f"term {number + 1} of {len(terms)} of the required node affinity fails"
    values = [f"{row.key}={have[row.key]}" if row.key in have else f"no {row.key}" for row in rows]
    return Fact(f"{which}: {', '.join(map(requirement, rows))}", have=", ".join(values))


def relation_fact(relations: Relations, reason: Reason) -> Fact:
    """The rule about other pods that the node breaks, if the pod has only one of that kind."""
    terms = {Reason.POD_AFFINITY: relations.affinity, Reason.POD_ANTI_AFFINITY: relations.anti_affinity}.get(reason, ())
    if len(terms) == 1:
        kind = "affinity" if reason == Reason.POD_AFFINITY else "anti-affinity"
        return Fact(f"required pod {kind} {pod_term(terms[0])} does not match")
    hard = [one for one in relations.spread if one.hard]
    if reason == Reason.SPREAD and len(hard) == 1:
        return Fact(f"topology spread over {hard[0].topology_key} (maxSkew {hard[0].max_skew}) does not hold")
    if reason == Reason.HOST_PORT and len(relations.ports) == 1:
        return Fact(f"host port {relations.ports[0].port}/{relations.ports[0].protocol} in use")
    return Fact(sentence(reason))


def pod_term(term: PodTerm) -> str:
    """`to app=web over kubernetes.io/hostname`"""
    return f"to {_selected(term.selector)} over {term.topology_key}"


def _selected(selector: Selector | None) -> str:
    if selector is None:
        return "no pod"
    rows = [f"{label}={value}" for label, value in selector.labels]
    return ", ".join([*rows, *map(requirement, selector.expressions)]) or "all pods"


def requirement(row: Requirement) -> str:
    """`zone In a,b`"""
    return f"{row.key} {row.operator} {','.join(row.values)}".rstrip()
