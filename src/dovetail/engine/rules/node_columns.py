"""Labels, taints and images of nodes as arrays by row: computed once, and again only for nodes that changed.

A node that is gone has the value 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.remembered import Remembered
from dovetail.model.node import PREFER_NO_SCHEDULE, Node, Taint
from dovetail.model.rules import NodeRules, Toleration
from dovetail.policies.rows import ACTIVE, NODE_FLAGS, Ints

Flags = npt.NDArray[np.bool_]

MAX_KEPT_ARRAYS = 1_000  # arrays
MAX_NODE_FACT_BYTES = 32 << 20  # of these arrays, and of the rules that they are answers to
LONGEST_LOG = 100_000


@dataclass(slots=True)
class Image:
    """An image as in kube-scheduler's cache: the size is that of the first node that reported it.

    See backend/cache addNodeImageStates.
    """

    size: int
    rows: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _KeptArray:
    """An array by row, and the position in the log of changes up to which it is valid."""

    array: npt.NDArray[Any]
    seen: int


class _KeptArrays(Remembered[Hashable, _KeptArray]):
    """Arrays by what they are answers to. The numbers of a label's values are dropped with the label's array."""

    def __init__(self, values: dict[str, dict[str, int]]) -> None:
        super().__init__(MAX_KEPT_ARRAYS, MAX_NODE_FACT_BYTES)
        self._values = values

    def forget(self, key: Hashable) -> None:
        super().forget(key)
        if isinstance(key, tuple) and key[0] == "label":
            self._values.pop(key[1], None)


class NodeFacts:
    """Facts about labels, taints and images of all nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._written = -1
        self._nodes: list[Node | None] = []  # by row; None = no active node
        self._log: list[int] = []  # rows in the order in which they changed
        self._values: dict[str, dict[str, int]] = {}  # label -> its values, numbered from 1
        self._kept = _KeptArrays(self._values)  # least recently used first
        self.active: Flags = np.zeros(0, dtype=np.bool_)
        self.changes = 0  # grows whenever a node changed
        self.avoided: Counter[Taint] = Counter()  # PreferNoSchedule taints -> nodes that have it
        self.images: dict[str, Image] = {}

    def refresh(self) -> None:
        """Read nodes that were added, changed or removed. Cheap if there are none."""
        if self._written == self._ledger.places.written:
            return
        self._written = self._ledger.places.written
        nodes = self._ledger.nodes
        self.active = (self._ledger.rows.fact[: len(nodes), NODE_FLAGS] & ACTIVE) != 0
        changed = self._drop_rows(len(nodes))
        self._nodes += [None] * (len(nodes) - len(self._nodes))
        for row, (node, there) in enumerate(zip(nodes, self.active.tolist(), strict=True)):
            new = node if there else None
            if self._nodes[row] is not new:
                self._change(row, self._nodes[row], new)
                changed = True
        self.changes += changed
        if len(self._log) > LONGEST_LOG:
            self._kept.clear()
            self._values.clear()
            self._log.clear()

    def _drop_rows(self, size: int) -> bool:
        """Drop the rows of nodes that were only a trial."""
        if len(self._nodes) <= size:
            return False
        for row in range(size, len(self._nodes)):
            self._change(row, self._nodes[row], None)
        del self._nodes[size:]
        self._kept.clear()
        self._log.clear()
        return True

    def _change(self, row: int, old: Node | None, new: Node | None) -> None:
        self._nodes[row] = new
        self._log.append(row)
        if old is not None:
            self._avoid(old, -1)
            for name in old.images:
                self.images[name].rows.discard(row)
                if not self.images[name].rows:
                    del self.images[name]
        if new is not None:
            self._avoid(new, 1)
            for name, size in new.images.items():
                self.images.setdefault(name, Image(size)).rows.add(row)

    def _avoid(self, node: Node, nodes: int) -> None:
        for taint in node.taints:
            if taint.effect == PREFER_NO_SCHEDULE:
                self.avoided[taint] += nodes
                if not self.avoided[taint]:
                    del self.avoided[taint]

    def of(self, key: Hashable, fact: Callable[[Node], int], dtype: type) -> npt.NDArray[Any]:
        """The value of `fact` for every active node, 0 for the others. Equal keys mean equal facts."""
        self.refresh()
        kept = self._kept.get(key)
        if kept is None:
            array: npt.NDArray[Any] = np.array([0 if node is None else fact(node) for node in self._nodes], dtype=dtype)
            kept = self._kept.remember(key, _KeptArray(array, len(self._log)), (key, array))
        else:
            self._kept.renew(key)
        missing = len(self._nodes) - len(kept.array)
        if missing:
            kept.array = np.concatenate([kept.array, np.zeros(missing, dtype=dtype)])
        if kept.seen < len(self._log):
            for row in self._log[kept.seen :]:
                node = self._nodes[row]
                kept.array[row] = 0 if node is None else fact(node)
            kept.seen = len(self._log)
        return kept.array

    def drop(self, key: Hashable) -> None:
        """Drop a kept array: the meaning of its numbers has changed."""
        self._kept.forget(key)

    def domains(self, label: str) -> tuple[Ints, int]:
        """By row the number of the node's value of the label, 0 = none; and the highest number plus one."""
        values = self._values.get(label)
        if values is None or len(values) > 2 * len(self._nodes) + 1_000:  # values of nodes that are long gone
            self._kept.forget(("label", label))
            values = self._values[label] = {}

        def number(node: Node, values: dict[str, int] = values) -> int:
            value = node.labels.get(label)
            return 0 if value is None else values.setdefault(value, len(values) + 1)

        array: Ints = self.of(("label", label), number, np.int64)
        return array, len(values) + 1

    def selected(self, rules: NodeRules) -> Flags:
        """Nodes that nodeSelector and required node affinity accept."""
        if not rules.selector and rules.affinity is None:
            self.refresh()
            return self.active
        return self.of(("selected", rules.selector, rules.affinity), lambda node: _selects(rules, node), np.bool_)

    def endured(self, rules: NodeRules) -> Flags:
        """Nodes without a taint that the pod does not tolerate."""
        return self.of(("endured", rules.tolerations), lambda node: rules.untolerated(node.static) is None, np.bool_)

    def disliked(self, tolerations: tuple[Toleration, ...]) -> Ints:
        """By row the number of PreferNoSchedule taints that are not tolerated."""

        def count(node: Node) -> int:
            return sum(
                t.effect == PREFER_NO_SCHEDULE and not any(one.tolerates(t) for one in tolerations) for t in node.taints
            )

        array: Ints = self.of(("disliked", tolerations), count, np.int64)
        return array


def _selects(rules: NodeRules, node: Node) -> bool:
    if any(node.labels.get(label) != value for label, value in rules.selector):
        return False
    return rules.affinity is None or any(term.matches(node.static) for term in rules.affinity)
