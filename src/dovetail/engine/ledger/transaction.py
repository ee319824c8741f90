"""What a transaction of the ledger did to pods, so that it can be undone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Change(NamedTuple):
    """What a transaction did to a pod, so that it can be undone."""

    uid: str
    slot: int
    added: bool
    row: int


@dataclass(slots=True)
class Transaction:
    committed: bool = False

    def commit(self) -> None:
        self.committed = True


def passing(changes: Sequence[Change]) -> Collection[int]:
    """Slots that were taken and released inside the transaction.

    Undone, they are free: their data says nothing, and the witnesses have counted both changes already.
    """
    return {one.slot for one in changes if one.added} & {one.slot for one in changes if not one.added}
