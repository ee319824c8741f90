"""How many volumes each node has attached, and whether a pod's would be too many (kube-scheduler's NodeVolumeLimits).

A volume counts once per node, however many pods use it there. A changed row is counted again by the next call of
`exceeded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.node_rows import NodeRows
from dovetail.model.volumes import AttachLimits, Attachment, Volume
from dovetail.policies.rows import Ints

Attached = tuple[str, str]  # (driver, handle)
NO_VOLUME_LIMIT = np.iinfo(np.int64).max


class VolumeLimits:
    """Counts attached volumes. `attached_by` gives what a claim (by key) attaches; None = it is not counted."""

    def __init__(
        self,
        places: NodeRows,
        attached_by: Callable[[str], Attached | None],
        volumes: Mapping[str, Volume],
    ) -> None:
        self._places, self._attached_by, self._volumes = places, attached_by, volumes
        self._limits: dict[str, AttachLimits] = {}  # node -> limits
        self._most: dict[str, Ints | None] = {}  # driver that was asked about -> by row; None = no node limits it
        self._attachments: dict[str, dict[str, Attachment]] = {}  # node -> name -> attachment
        self._at: dict[str, str] = {}  # attachment -> node
        self._claims: dict[int, Counter[str]] = {}  # row -> claim -> pods there
        self._rows_of: dict[str, set[int]] = {}  # claim -> rows
        self._stale: set[int] = set()
        self._on: dict[int, tuple[set[Attached], set[Attached]]] = {}  # row -> (by pods, by attachments only)
        self._rows_with: dict[Attached, set[int]] = {}  # by pods
        self._counts: dict[str, Ints] = {}  # driver -> attached by row
        self._size, self._reused = 0, 0  # number of rows, and of reused rows, at the last refresh

    # ---- facts --------------------------------------------------------------------------------------------------

    def set(self, limits: AttachLimits) -> bool:
        """Store the limits. Returns whether the node can attach more volumes of some driver than before."""
        before = self._limits.get(limits.node)
        self._limits[limits.node] = limits
        self._most.clear()
        return before is not None and any(
            driver not in limits.most or limits.most[driver] > most for driver, most in before.most.items()
        )

    def drop(self, node: str) -> bool:
        gone = self._limits.pop(node, None)
        self._most.clear()
        return gone is not None and bool(gone.most)

    def attach(self, attachment: Attachment) -> None:
        self.detach(attachment.name)
        self._at[attachment.name] = attachment.node
        self._attachments.setdefault(attachment.node, {})[attachment.name] = attachment
        self._note_node(attachment.node)

    def detach(self, name: str) -> bool:
        node = self._at.pop(name, None)
        if node is None:
            return False
        del self._attachments[node][name]
        self._note_node(node)
        return True

    def clear(self) -> None:
        """Drop the claims of all pods."""
        self._stale.update(self._claims)
        self._claims.clear()
        self._rows_of.clear()

    def came(self, claims: Iterable[str], row: int) -> None:
        there = self._claims.setdefault(row, Counter())
        for claim in claims:
            there[claim] += 1
            self._rows_of.setdefault(claim, set()).add(row)
        self._stale.add(row)

    def left(self, claims: Iterable[str], row: int) -> None:
        there = self._claims.get(row, Counter())
        for claim in claims:
            there[claim] -= 1
            if there[claim] <= 0:
                del there[claim]
                self._rows_of.get(claim, set()).discard(row)
        self._stale.add(row)

    def note(self, claims: Iterable[str]) -> None:
        """Count again the rows of these claims: what they attach may have changed."""
        for claim in claims:
            self._stale.update(self._rows_of.get(claim, ()))

    def note_volume(self, volume: str) -> None:
        for node, attachments in self._attachments.items():
            if any(one.volume == volume for one in attachments.values()):
                self._note_node(node)

    def note_all(self) -> None:
        self._stale.update(self._claims)

    def _note_node(self, node: str) -> None:
        row = self._places.row_of.get(node)
        if row is not None:
            self._stale.add(row)

    # ---- the question -------------------------------------------------------------------------------------------

    def exceeded(self, claims: Iterable[str]) -> npt.NDArray[np.bool_]:
        """[row]: whether a pod with these claims would exceed the node's attach limits.

        As in kube-scheduler, a volume that a pod on the node uses is not new there. A volume that is only attached is
        counted, and counts again as new.
        """
        refused = np.zeros(len(self._places.nodes), dtype=np.bool_)
        new = {found for claim in claims if (found := self._attached_by(claim)) is not None}
        if not new or not self._limits:
            return refused
        self._refresh()
        for driver in sorted({driver for driver, _ in new}):
            most = self._limit(driver)
            if most is None:
                continue
            more = np.full(self._size, sum(one[0] == driver for one in new), dtype=np.int64)
            for attached in new:
                if attached[0] == driver:
                    more[list(self._rows_with.get(attached, ()))] -= 1
            refused |= (more > 0) & (self._count(driver) + more > most)
        return refused

    def _limit(self, driver: str) -> Ints | None:
        """By row; None if no node limits the driver.

        Built for drivers that a claim asks about: a node may name drivers that no other node has.
        """
        if driver not in self._most:
            rows = self._places.row_of
            limits = [one for one in self._limits.values() if driver in one.most and one.node in rows]
            most = np.full(self._size, NO_VOLUME_LIMIT)
            most[[rows[one.node] for one in limits]] = [one.most[driver] for one in limits]
            self._most[driver] = most if limits else None
        return self._most[driver]

    def _count(self, driver: str) -> Ints:
        count = self._counts.get(driver)
        if count is None:
            count = self._counts[driver] = np.zeros(self._size, dtype=np.int64)
        return count

    def _refresh(self) -> None:
        size = len(self._places.nodes)
        if (size, self._places.reused) != (self._size, self._reused):
            self._most.clear()
            self._reused = self._places.reused
            for row in range(size, self._size):  # of a node that was only a trial
                self._on.pop(row, None)
                self._stale.discard(row)
            self._stale.update(self._on)  # a new node in a row does not have the volumes of the old one
            room = max(0, size - self._size)
            self._counts = {d: np.pad(count, (0, room))[:size] for d, count in self._counts.items()}
            self._size = size
            for node in self._attachments:  # some were attached to nodes without a row
                self._note_node(node)
        if self._stale:
            for row in self._stale:
                self._recount(row, self._places.nodes[row].name)
            self._stale = set()

    def _recount(self, row: int, node: str) -> None:
        pods, others = self._on.pop(row, (set(), set()))
        for attached in pods | others:
            self._count(attached[0])[row] -= 1
        for attached in pods:
            self._rows_with[attached].discard(row)
            if not self._rows_with[attached]:
                del self._rows_with[attached]
        pods = {found for claim in self._claims.get(row, ()) if (found := self._attached_by(claim)) is not None}
        others = {found for one in self._attachments.get(node, {}).values() for found in self._attached(one)} - pods
        for attached in pods | others:
            self._count(attached[0])[row] += 1
        for attached in pods:
            self._rows_with.setdefault(attached, set()).add(row)
        if pods or others:
            self._on[row] = (pods, others)

    def _attached(self, one: Attachment) -> list[Attached]:
        volume = self._volumes.get(one.volume)
        counted = one.driver and volume is not None and volume.driver and not volume.migrated
        return [(one.driver, volume.handle)] if counted and volume is not None else []
