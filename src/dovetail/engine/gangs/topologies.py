"""Domains of the topology by row: nodes with one value of a label, inside the domains of all wider levels.

A topology lists node labels from the widest level to the narrowest. A label that is in no topology is a flat topology
of its own. Arrays are kept, and read again only for nodes that changed (engine/rules/node_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dovetail.engine.rules.node_columns import NodeFacts
from dovetail.model.node import Node
from dovetail.model.order import natural
from dovetail.policies.rows import Ints

HOSTNAME = "kubernetes.io/hostname"
NO_DOMAIN_HERE = 0  # the number of nodes that lack a label of the level, or of a wider one
MAX_DOMAIN_LEVELS = 64  # levels whose arrays are kept


@dataclass(slots=True)
class DomainLevel:
    """The domains of one level. Numbers start with 1; they grow while the cluster changes."""

    label: str
    of_row: Ints  # [row]: the number of the node's domain
    paths: list[tuple[str, ...]]  # by number: the values of all levels, the widest first
    place: Ints  # by number: the position in the order of the paths, for ties

    @property
    def size(self) -> int:
        """The highest number plus one."""
        return len(self.paths)

    def title(self, domain: int) -> str:
        """`block-1/rack-7`"""
        return "/".join(self.paths[domain])


class Topologies:
    """The known topologies, and the domains of every level that a rule has named."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._levels: dict[str, tuple[str, ...]] = {}  # name of the topology -> labels
        self._numbers: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}  # labels -> path -> number
        self._kept: dict[
            tuple[str, ...], tuple[int, DomainLevel]
        ] = {}  # labels -> changes of nodes when made, the level

    def set(self, name: str, levels: tuple[str, ...]) -> None:
        """Store a topology; no levels = it is gone."""
        self._levels[name] = levels
        if not levels:
            del self._levels[name]

    def labels_above(self, label: str) -> tuple[str, ...]:
        """The labels that identify a domain of this level: those of the wider levels, and its own.

        Of several topologies with the label, the first by name counts.
        """
        for name in sorted(self._levels):
            levels = self._levels[name]
            if label in levels:
                return levels[: levels.index(label) + 1]
        return (label,)

    def level(self, label: str) -> DomainLevel:
        """The domains of this level, up to date."""
        labels = self.labels_above(label)
        facts = self._facts
        facts.refresh()
        kept = self._kept.get(labels)
        if kept is not None and kept[0] == facts.changes:
            return kept[1]
        known = self._numbers.get(labels)
        if known is None or len(known) > 2 * len(facts.active) + 1_000:  # paths of nodes that are long gone
            facts.drop(("domain", labels))
            known = self._numbers[labels] = {(): NO_DOMAIN_HERE}
        numbers = known

        def number(node: Node) -> int:
            path = tuple(_values(node, labels))
            return numbers.setdefault(path, len(numbers)) if len(path) == len(labels) else NO_DOMAIN_HERE

        of_row: Ints = facts.of(("domain", labels), number, np.int64)
        made = DomainLevel(label, of_row, list(numbers), _places(list(numbers), kept[1] if kept is not None else None))
        if len(self._kept) >= MAX_DOMAIN_LEVELS:
            self._kept.clear()
        self._kept[labels] = (facts.changes, made)
        return made


def _values(node: Node, labels: tuple[str, ...]) -> Iterator[str]:
    """The node's values of the labels, up to the first that it lacks. Every node has its own name as host name."""
    for label in labels:
        value = node.labels.get(label, node.name if label == HOSTNAME else None)
        if value is None:
            return
        yield value


def _places(paths: list[tuple[str, ...]], before: DomainLevel | None) -> Ints:
    if before is not None and before.paths == paths:
        return before.place
    order = sorted(range(len(paths)), key=lambda n: [natural(value) for value in paths[n]])
    place: Ints = np.empty(len(paths), dtype=np.int64)
    place[order] = np.arange(len(paths))
    return place
