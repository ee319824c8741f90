"""Which pods hold something: by UID for those who ask, by slot for the kernel's sake.

A value per pod would cost more than deciding where it goes, so what is known of a pod stands in arrays by its slot, and
becomes a value when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.model.pod import Pod
from dovetail.policies.rows import Ints


class LedgerError(RuntimeError):
    """The ledger contradicts itself: a bug, never the user's fault."""


class HeldPod(msgspec.Struct, frozen=True):
    """A pod that holds something, as it was when asked."""

    pod: Pod
    slot: int
    assumed: bool  # nobody wrote down which cards it has


class Holders(Mapping[str, HeldPod]):
    """uid -> what it holds."""

    def __init__(self) -> None:
        self.slot_of: dict[str, int] = {}
        self._pod: npt.NDArray[Any] = np.empty(0, dtype=object)  # by slot: the pod, or the template it is made from
        self._assumed = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.slot_of)

    def __iter__(self) -> Iterator[str]:
        return iter(self.slot_of)

    def __contains__(self, uid: object) -> bool:
        return uid in self.slot_of

    def __getitem__(self, uid: str) -> HeldPod:
        slot = self.slot_of[uid]
        return HeldPod(self.pod(uid), slot, bool(self._assumed[slot]))

    def pod(self, uid: str) -> Pod:
        known: Pod = self._pod[self.slot_of[uid]]
        return known if known.uid == uid else known.named(uid)

    def at(self, slot: int) -> Pod:
        """The pod at a slot, or the template it is made from."""
        known: Pod = self._pod[slot]
        return known

    def fit(self, slots: int) -> None:
        """Room for as many slots as the book has."""
        missing = slots - len(self._pod)
        if missing > 0:
            self._pod = np.concatenate([self._pod, np.empty(missing, dtype=object)])
            self._assumed = np.concatenate([self._assumed, np.zeros(missing, dtype=np.bool_)])

    def add(self, uid: str, slot: int, pod: Pod, assumed: bool) -> None:
        if uid in self.slot_of:
            raise LedgerError(f"pod {uid} is booked already")
        self.slot_of[uid] = slot
        self._pod[slot], self._assumed[slot] = pod, assumed

    def put(self, slot: int, pod: Pod) -> None:
        """The pod at the slot is this one now."""
        self._pod[slot] = pod

    def add_all(self, uids: Sequence[str], slots: Ints, pods: npt.NDArray[Any]) -> None:
        """`pods` may be templates: a pod is then its template under its own name."""
        before = len(self.slot_of)
        self.slot_of.update(zip(uids, slots.tolist(), strict=True))
        if len(self.slot_of) != before + len(uids):
            raise LedgerError("some of the pods are booked already")
        self._pod[slots], self._assumed[slots] = pods, False

    def clear(self) -> None:
        """Nobody holds anything."""
        self.slot_of.clear()
        self._pod[:], self._assumed[:] = None, False

    def drop(self, uids: Sequence[str]) -> list[tuple[str, int]]:
        """They hold nothing any more: (uid, slot) of those that were known, which `put_back` understands."""
        take, dropped = self.slot_of.pop, []
        for uid in uids:
            slot = take(uid, None)
            if slot is not None:
                dropped.append((uid, slot))
        return dropped

    def put_back(self, uid: str, slot: int) -> None:
        """The rest of what is known of the pod still stands at its slot: nobody was given it in between."""
        self.slot_of[uid] = slot

    def assume(self, uid: str) -> None:
        """No record says which cards the pod has: those booked are a guess."""
        self._assumed[self.slot_of[uid]] = True

    def is_assumed(self, slot: int) -> bool:
        return bool(self._assumed[slot])
