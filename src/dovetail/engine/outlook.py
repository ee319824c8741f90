"""The workload that joint policies prepare for: given once, or learned from the pods that arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import ALLOCATED, POD_SHAPE, POD_STATE, RESERVED
from dovetail.engine.ledger.intern import NO_OWNER
from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.checkpoint import Expected
from dovetail.model.pod import Pod
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.outlook import tables
from dovetail.policies.rows import (
    ACTIVE,
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_MEMORY,
    ASK_PERCENT,
    ASK_RULE,
    CARD_KIND,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CPU_COLUMN,
    FIRST_ASK,
    FLAGS,
    LAST_ASK,
    NODE_FLAGS,
    QUARANTINED,
    Ints,
)
from dovetail.policies.table import NODE_POLICIES
from dovetail.policies.typical import TypicalPod, most_frequent

MOST_SHAPES = 1024  # more different requests at an update: those that came once or twice since the last are forgotten
FORGET_FROM = 8192  # pods between two updates; afterwards, earlier pods count half


class Outlook:
    """Counts requests by shape. Each time the number of pods has doubled, the tables are made again.

    The tables depend only on the pods that arrived. They do not depend on how events were bundled, on explanations in
    between, or on trials that were undone.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._times: Counter[int] = Counter()  # shape -> pods
        self._basis: Mapping[int, int] = {}  # the same at the last update
        self._examples: dict[int, Pod] = {}  # shape -> a pod of this shape, for `expected`
        self.told = False
        self.learning = False
        self._begun = False  # a pod with a joint policy arrived
        self.until_next = 1  # pods to arrive before the next update
        self._values = False  # a policy reads the tables of policies/values.py
        self._counted = -1  # `places.written` when the cards were counted
        self._cards: tuple[int, ...] = ()  # milli of each kind
        self._made_of: tuple[Mapping[int, int], tuple[object, ...]] | None = None
        ledger.bystanders.append(self._remember)

    def expect(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """Set the workload: each pod with its number of times. Nothing is learned from now on."""
        self._times = Counter()
        for pod, times in pods:
            self._times[self._shape(pod)] += times
        self._basis = dict(self._times)
        self.told, self.learning = True, False

    def start_learning(self) -> None:
        """Start learning, unless the workload was given: pods with a joint policy are about to arrive."""
        self.learning = not self.told

    def see(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """Count pods that arrived, at most `until_next` at a time.

        Counting begins at the first pod with a joint policy, with the pods that hold a node at that time.
        """
        came = list(pods)
        if not self._begun:
            if all(NODE_POLICIES[pod.profile.node].offer is None for pod, _ in came):
                return
            self._begun = True
            self._times.update(self._there())
            self.until_next = -self._times.total()
            self._examples.update(self._pods_there())
        for pod, times in came:
            shape = self._shape(pod)
            self._times[shape] += times
            self._examples.setdefault(shape, pod)
            self.until_next -= times
        if self.until_next <= 0:
            self._look_back()

    def prepare(self, values: bool = False) -> None:
        """Update the tables before a joint policy decides; with `values`, also those of policies/values.py."""
        self._values = self._values or values
        basis = self._basis if self._begun or self.told else self._there()
        intern, cards = self._ledger.intern, self._ledger.rows.card.shape[1]
        made_of = (len(intern.kinds), cards, self._capacity() if self._values else None)
        key = (intern.kinds.given, *made_of)
        if self._made_of is None or self._made_of[0] is not basis or self._made_of[1] != key:
            self._ledger.storage.set_outlook(tables(self._typical(basis), *made_of))
            self._ledger.vectors.forget()
            self._made_of = (basis, key)

    @property
    def shapes(self) -> set[int]:
        """The shapes that are counted."""
        return {*self._times, *self._basis}

    def _look_back(self) -> None:
        seen, crowded = self._times.total(), len(self._times) > MOST_SHAPES
        self._basis = dict(self._times)
        if crowded or seen >= 2 * FORGET_FROM:
            rare = 2 if crowded else 0  # so many or fewer: forgotten
            self._times = Counter({shape: -(-n // 2) for shape, n in self._times.items() if n > rare})
        self.until_next = max(1, min(seen, MOST_SHAPES if crowded else FORGET_FROM))
        self._examples = {shape: self._examples[shape] for shape in self.shapes if shape in self._examples}

    def expected(self) -> Expected | None:
        """What was learned, with a pod for each shape; None = no pod with a joint policy has come."""
        if not self._begun:
            return None
        times, basis = (
            tuple((self._examples[shape], n) for shape, n in counted.items() if shape in self._examples)
            for counted in (self._times, self._basis)
        )
        return Expected(times, basis, self.until_next)

    def restore(self, expected: Expected) -> None:
        """Take in what another engine has learned."""
        for pod, _ in (*expected.times, *expected.basis):
            self._examples.setdefault(self._shape(pod), pod)
        self._times = Counter()
        basis: Counter[int] = Counter()
        for pod, n in expected.times:
            self._times[self._shape(pod)] += n
        for pod, n in expected.basis:
            basis[self._shape(pod)] += n
        self._basis, self.until_next = dict(basis), expected.until_next
        self._begun = self.learning = True

    def _there(self) -> dict[int, int]:
        """The pods that hold something now, counted by shape."""
        pod = self._ledger.book.pod
        holding = np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED))
        shapes, times = np.unique(pod[holding, POD_SHAPE], return_counts=True)
        return dict(zip(shapes.tolist(), times.tolist(), strict=True))

    def _pods_there(self) -> dict[int, Pod]:
        """A pod of each shape that holds something now."""
        pods, shapes = self._ledger.pods, self._ledger.book.pod
        return {shapes.item(slot, POD_SHAPE): pods.pod(uid) for uid, slot in pods.slot_of.items()}

    def _remember(self) -> Callable[[], None]:
        """Restore the counts if a transaction is undone."""
        times, basis, until_next = self._times.copy(), self._basis, self.until_next
        told, learning, begun = self.told, self.learning, self._begun

        def restore() -> None:
            self._times, self._basis, self.until_next = times, basis, until_next
            self.told, self.learning, self._begun = told, learning, begun

        return restore

    def _shape(self, pod: Pod) -> int:
        """Without the UUIDs that the pod names: they do not matter here, and would be kept as long as the count."""
        if any(rules.use_uuids or rules.nouse_uuids for rules in pod.device_rules):
            plain = (replace(rules, use_uuids=(), nouse_uuids=()) for rules in pod.device_rules)
            pod = replace(pod, device_rules=tuple(plain))
        return self._ledger.intern.shape(pod, NO_OWNER)

    def _typical(self, basis: Mapping[int, int]) -> list[TypicalPod]:
        """The typical pods. A pod with asks for several vendors or sizes is counted by its first ask."""
        requests: Counter[TypicalPod] = Counter()
        memory, compute = self._sizes()
        for shape, times in basis.items():
            requests[self._request(shape, memory, compute)] += times
        if self.told:
            return [pod._replace(times=times) for pod, times in requests.items()]
        names = list(self._ledger.intern.kinds)  # numbers depend on the order of arrival, and must not break ties
        counted = [
            ((pod.cpu, pod.cards, sorted((names[kind], milli) for kind, milli in pod.parts), pod.parts), times)
            for pod, times in requests.items()
        ]
        return [TypicalPod(times, cpu, cards, parts) for (cpu, cards, _, parts), times in most_frequent(counted)]

    def _request(self, shape: int, memory: Ints, compute: Ints) -> TypicalPod:
        wants = self._ledger.intern.wants
        first, cpu = int(wants.shape[shape, FIRST_ASK]), int(wants.need[shape, CPU_COLUMN])
        if first == wants.shape[shape, LAST_ASK]:
            return TypicalPod(1, cpu, 0, ())
        ask = wants.ask[first]
        parts = []
        for kind in np.flatnonzero(wants.kind_ok[ask[ASK_RULE], : len(memory)] & (memory >= 0)).tolist():
            share = int(ask[ASK_PERCENT]) * WHOLE_CARD // 100
            if ask[ASK_PERCENT] < 0:
                share = -(-int(ask[ASK_MEMORY]) * WHOLE_CARD // max(1, int(memory[kind])))
            part = int(ask[ASK_COMPUTE]) * WHOLE_CARD // max(1, int(compute[kind]))
            parts.append((kind, min(WHOLE_CARD, max(1, share, part))))
        return TypicalPod(1, cpu, int(ask[ASK_COUNT]), tuple(parts))

    def _capacity(self) -> tuple[int, ...]:
        """Milli of each kind of card in the cluster."""
        if self._counted != self._ledger.places.written:
            rows, kinds = self._ledger.rows, max(1, len(self._ledger.intern.kinds))
            cards = np.bincount(rows.card[self._registered(), CARD_KIND], minlength=kinds)
            self._counted, self._cards = self._ledger.places.written, tuple((cards * WHOLE_CARD).tolist())
        return self._cards

    def _registered(self) -> npt.NDArray[np.bool_]:
        """[node, card]: whether an active node registers the card, in the order of `rows.card`."""
        rows = self._ledger.rows
        cards = np.where(rows.fact[:, NODE_FLAGS] & ACTIVE, rows.fact[:, CARDS], 0)
        there = np.arange(rows.card.shape[1]) < cards[:, None]
        return np.asarray(there & (rows.card[:, :, FLAGS] & QUARANTINED == 0))

    def _sizes(self) -> tuple[Ints, Ints]:
        """Memory and compute of the largest card of each kind; −1 if no node registers one."""
        card, kinds = self._ledger.rows.card[self._registered()], max(1, len(self._ledger.intern.kinds))
        memory, compute = np.full((2, kinds), -1, dtype=np.int64)
        np.maximum.at(memory, card[:, CARD_KIND], card[:, CARD_MEMORY])
        np.maximum.at(compute, card[:, CARD_KIND], card[:, COMPUTE])
        return memory, compute
