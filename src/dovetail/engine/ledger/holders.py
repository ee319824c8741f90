"""The pods that hold something: by UID for callers, by slot for the kernel.

A value per pod would cost more than the decision. So the data of a pod is in arrays by slot, and becomes a value only
when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.model.decision import Share
from dovetail.model.pod import Pod
from dovetail.policies.rows import Ints


class LedgerError(RuntimeError):
    """The ledger contradicts itself: a bug, never a user's error."""


class HeldPod(msgspec.Struct, frozen=True):
    """A pod that holds something, as it was when read."""

    pod: Pod
    slot: int
    assumed: bool  # its cards are a guess: no record names them


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
        """Make room for as many slots as the book has."""
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
        """Replace the pod at the slot by this one."""
        self._pod[slot] = pod

    def add_all(self, uids: Sequence[str], slots: Ints, pods: npt.NDArray[Any]) -> None:
        """Add pods. `pods` may be templates: a pod is then its template with its own name."""
        before = len(self.slot_of)
        self.slot_of.update(zip(uids, slots.tolist(), strict=True))
        if len(self.slot_of) != before + len(uids):
            raise LedgerError("some of the pods are booked already")
        self._pod[slots], self._assumed[slots] = pods, False

    def clear(self) -> None:
        """Drop all pods."""
        self.slot_of.clear()
        self._pod[:], self._assumed[:] = None, False

    def drop(self, uids: Sequence[str]) -> list[tuple[str, int]]:
        """Drop the pods. Returns (uid, slot) of each known one, for `put_back`."""
        take, dropped = self.slot_of.pop, []
        for uid in uids:
            slot = take(uid, None)
            if slot is not None:
                dropped.append((uid, slot))
        return dropped

    def put_back(self, uid: str, slot: int) -> None:
        """Put a dropped pod back. Its data is still at its slot: no other pod got the slot."""
        self.slot_of[uid] = slot

    def assume(self, uid: str) -> None:
        """Mark the booked cards of the pod as a guess: no record names its cards."""
        self._assumed[self.slot_of[uid]] = True

    def is_assumed(self, slot: int) -> bool:
        return bool(self._assumed[slot])


def shares_of(uuids: Sequence[str], taken: Ints) -> tuple[Share, ...]:
    """The cards that the kernel gave to a pod (lines of `Batch.taken`). `uuids` are the cards of its node."""
    return tuple([Share(at, uuids[card], mib, milli) for at, card, mib, milli in taken.tolist()])
