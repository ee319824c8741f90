"""Kubernetes' rules about which nodes a pod may use, as values that check a node."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.model.node import StaticNode, Taint
from dovetail.model.reason import Reason

CORDON_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")  # the taint that stands for `kubectl cordon`


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"  # Equal | Exists | Lt | Gt
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint is tolerated (k8s.io/api/core/v1/toleration.go).

        An empty effect, or an empty key with Exists, matches all.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        if not self.key:
            return False
        if self.operator in ("Lt", "Gt"):
            return _compare(taint.value, self.operator, self.value)
        return self.value == taint.value


@dataclass(frozen=True, slots=True)
class Requirement:
    """One matchExpressions or matchFields row."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        if self.operator == "Exists":
            return present
        if self.operator == "DoesNotExist":
            return not present
        if self.operator == "NotIn":
            return not present or labels[self.key] not in self.values
        if not present:
            return False
        if self.operator == "In":
            return labels[self.key] in self.values
        return _compare(labels[self.key], self.operator, self.values[0] if self.values else "")


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Expressions over labels and over fields; all must match. An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def nodes_named(self) -> tuple[str, ...]:
        """The only nodes that the fields allow; empty = any."""
        return next((field.values for field in self.fields if field.operator == "In"), ())

    def matches(self, node: StaticNode) -> bool:
        if not self.expressions and not self.fields:
            return False
        return all(e.matches(node.labels) for e in self.expressions) and all(
            f.matches({"metadata.name": node.name}) for f in self.fields
        )


NodeKey = tuple[Any, ...]  # taints, unschedulable, the name or "", the value or None of each label read


class SeenLabels(Mapping[str, str]):
    """The labels of a node that a kept answer depends on. Reading another label raises an error."""

    def __init__(self, labels: Sequence[str], values: Sequence[str | None]) -> None:
        self._values = dict(zip(labels, values, strict=True))  # None = the node has no such label

    def __getitem__(self, label: str) -> str:
        if label not in self._values:
            raise UndeclaredLabel(f"label {label} is read, but not in NodeRules.labels_looked_at")
        value = self._values[label]
        if value is None:
            raise KeyError(label)
        return value

    def __iter__(self) -> Iterator[str]:
        return (label for label, value in self._values.items() if value is not None)

    def __len__(self) -> int:
        return sum(value is not None for value in self._values.values())


class UndeclaredLabel(Exception):
    """A rule reads a label that its kept answers do not depend on."""


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What a pod requires of a node, whatever runs there: a static class, evaluated when a node changes."""

    node_name: str = ""
    selector: tuple[tuple[str, str], ...] = ()  # sorted (label, value)
    affinity: tuple[AffinityTerm, ...] | None = None  # any term may match; None = no requirement
    tolerations: tuple[Toleration, ...] = ()

    def refusal(self, node: StaticNode) -> Reason:
        """The first rule that the node breaks, in kube-scheduler's order of plugins."""
        return next(self.refusals(node), Reason.OK)

    def refusals(self, node: StaticNode) -> Iterator[Reason]:
        """Every rule that the node breaks, in kube-scheduler's order of plugins; once per taint not tolerated."""
        if self.node_name and self.node_name != node.name:
            yield Reason.NODE_NAME
        if node.unschedulable and not self._tolerates(CORDON_TAINT):
            yield Reason.NODE_UNSCHEDULABLE
        if node.taints:  # a cordon is also written as a taint: count it once
            yield from (
                Reason.TAINT for taint in self._untolerated(node) if not (node.unschedulable and taint == CORDON_TAINT)
            )
        if self.selector and any(node.labels.get(label) != value for label, value in self.selector):
            yield Reason.NODE_SELECTOR
        if self.affinity is not None and not any(term.matches(node) for term in self.affinity):
            yield Reason.NODE_AFFINITY

    def keys(self, nodes: Sequence[StaticNode]) -> list[NodeKey]:
        """For each node, everything that `refusal` depends on: equal keys give equal answers."""
        columns: list[Sequence[Hashable]] = [[node.taints for node in nodes], [node.unschedulable for node in nodes]]
        columns.append([node.name for node in nodes] if self.looks_at_names else [""] * len(nodes))
        columns += ([node.labels.get(label) for node in nodes] for label in self.labels_looked_at)
        return list(zip(*columns, strict=True))

    def refusal_of(self, key: NodeKey) -> Reason:
        """`refusal` of every node with this key. The rules see only the key."""
        taints, unschedulable, name, *values = key
        return self.refusal(StaticNode(name, SeenLabels(self.labels_looked_at, values), taints, unschedulable))

    @property
    def labels_looked_at(self) -> tuple[str, ...]:
        """The labels that `refusal` may read."""
        terms = (one for term in self.affinity or () for one in term.expressions)
        return tuple(dict.fromkeys((*(label for label, _ in self.selector), *(one.key for one in terms))))

    @property
    def only_node(self) -> str:
        """The only node allowed: by nodeName, or by every affinity term, as the DaemonSet controller writes it."""
        named = {name for term in self.affinity or () for name in term.nodes_named or ("",)}
        return self.node_name or (named.pop() if len(named) == 1 else "")

    @property
    def looks_at_names(self) -> bool:
        return bool(self.node_name) or any(term.fields for term in self.affinity or ())

    def untolerated(self, node: StaticNode) -> Taint | None:
        """The first taint that the pod does not tolerate."""
        return next(self._untolerated(node), None)

    def _untolerated(self, node: StaticNode) -> Iterator[Taint]:
        for taint in node.taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not self._tolerates(taint):
                yield taint

    def _tolerates(self, taint: Taint) -> bool:
        return any(t.tolerates(taint) for t in self.tolerations)


def _compare(have: str, operator: str, want: str) -> bool:
    """Compare by Gt or Lt: 64-bit integers as in Go; anything else matches nothing, as in Kubernetes."""
    left, right = _integer(have), _integer(want)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def _integer(text: str) -> int | None:
    """The integer as strconv.ParseInt(text, 10, 64) reads it: no underscores, no spaces, nothing larger; else None."""
    if not _INTEGER.match(text) or len(text) > 40:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
