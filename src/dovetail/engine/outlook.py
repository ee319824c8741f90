"""The workload that joint policies prepare for: told once, or learned from the pods that come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from dovetail.engine.intern import NOBODY
from dovetail.engine.ledger import Ledger
from dovetail.model.pod import Pod
from dovetail.policies.cards import WHOLE
from dovetail.policies.outlook import TypicalPod, most_frequent, tables
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_MEMORY,
    ASK_PERCENT,
    ASK_RULE,
    CARD_MEMORY,
    CPU,
    FIRST_ASK,
    KIND,
    LAST_ASK,
    Ints,
)

FORGET_FROM = 8192  # pods between two looks back; what came before counts half from then on


class Outlook:
    """Counts requests by shape. The tables are made again when the number of pods seen has doubled."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._times: Counter[int] = Counter()  # shape -> pods
        self.told = False
        self.learning = False
        self.until_next = 1  # pods to be seen before the tables are made again
        self._made_for: tuple[int, int] | None = None  # kinds of card, most cards on a node

    def expect(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """This is the workload, each pod so many times. Nothing is learned from now on."""
        self._times = Counter()
        for pod, times in pods:
            self._times[self._shape(pod)] += times
        self.told, self.learning, self._made_for = True, False, None

    def see(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """Pods that came. At most `until_next` of them at a time, so that it does not matter how they are bundled."""
        for pod, times in pods:
            self._times[self._shape(pod)] += times
            self.until_next -= times
        if self.until_next <= 0:
            self._made_for = None

    def start_learning(self) -> None:
        """From the pods that are there, and from those that come from now on; unless the workload was told."""
        if not self.told and not self.learning:
            self.learning = True
            self.see((held.pod, 1) for held in self._ledger.pods.values())

    def prepare(self) -> None:
        """A joint policy is about to decide: bring the tables up to date."""
        self.start_learning()
        fit_for = (len(self._ledger.intern.kinds), self._ledger.rows.card.shape[1])
        if fit_for != self._made_for:
            self._ledger.storage.set_outlook(tables(self._typical(), *fit_for))
            self._ledger.vectors.forget()
            self._made_for = fit_for
            if self.learning and self.until_next <= 0:
                self._look_ahead()

    def _look_ahead(self) -> None:
        seen = self._times.total()
        if seen >= 2 * FORGET_FROM:
            self._times = Counter({shape: -(-times // 2) for shape, times in self._times.items()})
        self.until_next = max(1, min(seen, FORGET_FROM))

    def _shape(self, pod: Pod) -> int:
        return self._ledger.intern.shape(pod, NOBODY)

    def _typical(self) -> list[TypicalPod]:
        """Pods that ask for cards of several vendors or sizes are counted by their first ask."""
        requests: Counter[TypicalPod] = Counter()
        memory = self._memory_by_kind()
        for shape, times in self._times.items():
            requests[self._request(shape, memory)] += times
        if self.told:
            return [pod._replace(times=times) for pod, times in requests.items()]
        counted = [((pod.cpu, pod.cards, pod.parts), times) for pod, times in requests.items()]
        return [TypicalPod(times, *key) for key, times in most_frequent(counted)]

    def _request(self, shape: int, memory: Ints) -> TypicalPod:
        wants = self._ledger.intern.wants
        first, cpu = int(wants.shape[shape, FIRST_ASK]), int(wants.need[shape, CPU])
        if first == wants.shape[shape, LAST_ASK]:
            return TypicalPod(1, cpu, 0, ())
        ask = wants.ask[first]
        parts = []
        for kind in np.flatnonzero(wants.kind_ok[ask[ASK_RULE], : len(memory)]).tolist():
            share = int(ask[ASK_PERCENT]) * WHOLE // 100
            if ask[ASK_PERCENT] < 0:
                share = -(-int(ask[ASK_MEMORY]) * WHOLE // max(1, int(memory[kind])))
            parts.append((kind, min(WHOLE, max(1, share, int(ask[ASK_COMPUTE])))))
        return TypicalPod(1, cpu, int(ask[ASK_COUNT]), tuple(parts))

    def _memory_by_kind(self) -> Ints:
        card = self._ledger.rows.card
        memory = np.zeros(max(1, len(self._ledger.intern.kinds)), dtype=np.int64)
        np.maximum.at(memory, card[:, :, KIND].ravel(), card[:, :, CARD_MEMORY].ravel())
        return memory
