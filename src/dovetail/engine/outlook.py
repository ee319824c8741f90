"""The workload that joint policies prepare for: told once, or learned from the pods that come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import ALLOCATED, POD_SHAPE, POD_STATE, RESERVED
from dovetail.engine.ledger.intern import NOBODY
from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.pod import Pod
from dovetail.policies.cards import WHOLE
from dovetail.policies.outlook import tables
from dovetail.policies.rows import (
    ACTIVE,
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_MEMORY,
    ASK_PERCENT,
    ASK_RULE,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    CPU,
    FIRST_ASK,
    FLAGS,
    KIND,
    LAST_ASK,
    NODE_FLAGS,
    QUARANTINED,
    Ints,
)
from dovetail.policies.table import NODE_POLICIES
from dovetail.policies.typical import TypicalPod, most_frequent

MOST_SHAPES = 4096  # beyond, requests that came once or twice between two looks back are forgotten
FORGET_FROM = 8192  # pods between two looks back; what came before counts half from then on


class Outlook:
    """Counts requests by shape. Each time the number of pods has doubled, it looks back, and the tables are made again.

    What they are made of depends on the pods that came and on nothing else: not on how they were bundled, not on who
    asked for an explanation in between, not on what was tried and undone.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._times: Counter[int] = Counter()  # shape -> pods
        self._basis: Mapping[int, int] = {}  # the same at the last look back
        self.told = False
        self.learning = False
        self._begun = False  # a pod with a joint policy came
        self.until_next = 1  # pods to be seen before the next look back
        self._values = False  # some policy reads the tables of policies/values.py
        self._counted = -1  # nodes written when the cards were counted
        self._cards: tuple[int, ...] = ()  # milli of each kind
        self._made_of: tuple[Mapping[int, int], tuple[object, ...]] | None = None
        ledger.bystanders.append(self._remember)

    def expect(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """This is the workload, each pod so many times. Nothing is learned from now on."""
        self._times = Counter()
        for pod, times in pods:
            self._times[self._shape(pod)] += times
        self._basis = dict(self._times)
        self.told, self.learning = True, False

    def start_learning(self) -> None:
        """Pods with a joint policy are about to come; unless the workload was told."""
        self.learning = not self.told

    def see(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """Pods that came, at most `until_next` at a time. Those before the first with a joint policy do not count,
        but what runs when it comes does."""
        came = list(pods)
        if not self._begun:
            if all(NODE_POLICIES[pod.profile.node].offer is None for pod, _ in came):
                return
            self._begun = True
            self._times.update(self._there())
            self.until_next = -self._times.total()
        for pod, times in came:
            self._times[self._shape(pod)] += times
            self.until_next -= times
        if self.until_next <= 0:
            self._look_back()

    def prepare(self, values: bool = False) -> None:
        """A joint policy is about to decide: bring the tables up to date, those of policies/values.py included."""
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
        """Those that are remembered."""
        return {*self._times, *self._basis}

    def _look_back(self) -> None:
        seen = self._times.total()
        self._basis = dict(self._times)
        if seen >= 2 * FORGET_FROM:
            rare = 2 if len(self._times) > MOST_SHAPES else 0  # that many or fewer: forgotten
            self._times = Counter({shape: -(-n // 2) for shape, n in self._times.items() if n > rare})
        self.until_next = max(1, min(seen, FORGET_FROM))

    def _there(self) -> dict[int, int]:
        """Who holds something now, by shape."""
        pod = self._ledger.book.pod
        holding = np.isin(pod[:, POD_STATE], (RESERVED, ALLOCATED))
        shapes, times = np.unique(pod[holding, POD_SHAPE], return_counts=True)
        return dict(zip(shapes.tolist(), times.tolist(), strict=True))

    def _remember(self) -> Callable[[], None]:
        """What came in a transaction that is undone never came."""
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
        return self._ledger.intern.shape(pod, NOBODY)

    def _typical(self, basis: Mapping[int, int]) -> list[TypicalPod]:
        """Pods that ask for cards of several vendors or sizes are counted by their first ask."""
        requests: Counter[TypicalPod] = Counter()
        memory, compute = self._sizes()
        for shape, times in basis.items():
            requests[self._request(shape, memory, compute)] += times
        if self.told:
            return [pod._replace(times=times) for pod, times in requests.items()]
        names = list(self._ledger.intern.kinds)  # their numbers depend on who came first, and may not break ties
        counted = [
            ((pod.cpu, pod.cards, sorted((names[kind], milli) for kind, milli in pod.parts), pod.parts), times)
            for pod, times in requests.items()
        ]
        return [TypicalPod(times, cpu, cards, parts) for (cpu, cards, _, parts), times in most_frequent(counted)]

    def _request(self, shape: int, memory: Ints, compute: Ints) -> TypicalPod:
        wants = self._ledger.intern.wants
        first, cpu = int(wants.shape[shape, FIRST_ASK]), int(wants.need[shape, CPU])
        if first == wants.shape[shape, LAST_ASK]:
            return TypicalPod(1, cpu, 0, ())
        ask = wants.ask[first]
        parts = []
        for kind in np.flatnonzero(wants.kind_ok[ask[ASK_RULE], : len(memory)] & (memory >= 0)).tolist():
            share = int(ask[ASK_PERCENT]) * WHOLE // 100
            if ask[ASK_PERCENT] < 0:
                share = -(-int(ask[ASK_MEMORY]) * WHOLE // max(1, int(memory[kind])))
            part = int(ask[ASK_COMPUTE]) * WHOLE // max(1, int(compute[kind]))
            parts.append((kind, min(WHOLE, max(1, share, part))))
        return TypicalPod(1, cpu, int(ask[ASK_COUNT]), tuple(parts))

    def _capacity(self) -> tuple[int, ...]:
        """Milli of each kind of card in the cluster."""
        if self._counted != self._ledger.places.written:
            rows, kinds = self._ledger.rows, max(1, len(self._ledger.intern.kinds))
            cards = np.bincount(rows.card[self._registered(), KIND], minlength=kinds)
            self._counted, self._cards = self._ledger.places.written, tuple((cards * WHOLE).tolist())
        return self._cards

    def _registered(self) -> npt.NDArray[np.bool_]:
        """[node, card]: cards that nodes speak of, in the order they stand in `rows.card`. Nodes that are gone say
        nothing."""
        rows = self._ledger.rows
        cards = np.where(rows.fact[:, NODE_FLAGS] & ACTIVE, rows.fact[:, CARDS], 0)
        there = np.arange(rows.card.shape[1]) < cards[:, None]
        return np.asarray(there & (rows.card[:, :, FLAGS] & QUARANTINED == 0))

    def _sizes(self) -> tuple[Ints, Ints]:
        """Memory and compute of the largest card of each kind; −1 where nobody registers one."""
        card, kinds = self._ledger.rows.card[self._registered()], max(1, len(self._ledger.intern.kinds))
        memory, compute = np.full((2, kinds), -1, dtype=np.int64)
        np.maximum.at(memory, card[:, KIND], card[:, CARD_MEMORY])
        np.maximum.at(compute, card[:, KIND], card[:, COMPUTE])
        return memory, compute
