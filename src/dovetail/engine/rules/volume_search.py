"""The volume that an unbound claim would get on each node: kube-scheduler's FindPodVolumes, for all nodes at once.

Claims of one pod are served in order of size, smallest first. Each takes the smallest matching volume that no other
claim of the pod took there. Of equal volumes the smaller name wins (kube-scheduler takes any).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.engine.rules.label_index import LabelRows
from dovetail.engine.rules.volume_stock import Stock
from dovetail.model.relations import Selector
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.model.volumes import Capacity, Claim, CsiDriver, StorageClass, Volume
from dovetail.policies.rows import Ints

Bools = npt.NDArray[np.bool_]
NOTHING = -1
AT_A_TIME = 10_000  # rows of offered volumes in one step


@dataclass(frozen=True, slots=True)
class VolumeCandidates:
    """For one claim, by row: a volume (its number in `volumes`) or NOTHING; and whether one can be created there."""

    claim: Claim
    volumes: Sequence[Volume]
    taken: Ints
    can_make: Bools

    @property
    def satisfied(self) -> Bools:
        found: Bools = self.taken != NOTHING
        return found | self.can_make

    def volume(self, row: int) -> Volume | None:
        number = int(self.taken[row])
        return None if number == NOTHING else self.volumes[number]


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Classes, drivers and capacities for creating volumes."""

    classes: Mapping[str, StorageClass]
    drivers: Mapping[str, CsiDriver]
    capacities: Callable[[str], Iterable[Capacity]]  # of a class

    def rows(self, claim: Claim, labels: LabelRows) -> Ints:
        """Rows for which a volume of the claim can be created."""
        kind = self.classes.get(claim.storage_class)
        if kind is None or not kind.provisions:
            return np.empty(0, dtype=np.int64)
        rows = labels.matching(kind.topologies)
        driver = self.drivers.get(kind.provisioner)
        if claim.request is None or driver is None or not driver.tracks_capacity:
            return rows
        enough = [
            labels.matching(selected(one.nodes))
            for one in self.capacities(kind.name)
            if one.nodes is not None and one.largest is not None and one.largest >= claim.request
        ]
        return np.intersect1d(rows, np.concatenate(enough)) if enough else np.empty(0, dtype=np.int64)


def search(claims: Iterable[Claim], stock: Stock, making: Provisioning, labels: LabelRows) -> list[VolumeCandidates]:
    """One answer per claim. The claims are unbound, of classes that wait for a pod, and in the pod's order."""
    found: list[VolumeCandidates] = []
    shelf = Shelf()
    for claim in sorted(claims, key=lambda claim: claim.request or 0):
        size = len(labels)
        can_make = np.zeros(size, dtype=np.bool_)
        taken = np.full(size, NOTHING, dtype=np.int64)
        rows, node = making.rows(claim, labels), stock.promised_to(claim)
        if node is None:
            can_make[rows] = True
            kept = stock.prebound(claim)
            shelf.take(kept[:1] or stock.candidates(claim), taken, [one.taken for one in found], labels)
        else:
            can_make[rows[rows == labels.row(node)]] = True
        found.append(VolumeCandidates(claim, shelf.volumes, taken, can_make))
    return found


class Shelf:
    """Volumes of one search, numbered."""

    def __init__(self) -> None:
        self.volumes: list[Volume] = []
        self._number: dict[str, int] = {}

    def take(self, volumes: Iterable[Volume], taken: Ints, before: Sequence[Ints], labels: LabelRows) -> None:
        """Take on each row the first usable volume that no claim before took there."""
        for rows, numbers in self._offers(volumes, labels):
            free = taken[rows] == NOTHING
            for other in before:
                free &= other[rows] != numbers
            first, at = np.unique(rows[free], return_index=True)
            taken[first] = numbers[free][at]
            if (taken != NOTHING).all():
                return

    def _offers(self, volumes: Iterable[Volume], labels: LabelRows) -> Iterator[tuple[Ints, Ints]]:
        """(rows, volume there) in the order of the volumes, some thousands at a time."""
        rows: list[Ints] = []
        numbers: list[int] = []
        waiting = 0
        for volume in volumes:
            rows.append(labels.matching(volume.affinity))
            numbers.append(self._numbered(volume))
            waiting += len(rows[-1])
            if waiting >= AT_A_TIME:
                yield np.concatenate(rows), np.repeat(numbers, [len(part) for part in rows])
                rows, numbers, waiting = [], [], 0
        if rows:
            yield np.concatenate(rows), np.repeat(numbers, [len(part) for part in rows])

    def _numbered(self, volume: Volume) -> int:
        number = self._number.setdefault(volume.name, len(self.volumes))
        if number == len(self.volumes):
            self.volumes.append(volume)
        return number


def selected(selector: Selector) -> tuple[AffinityTerm, ...] | None:
    """A label selector as node terms; an empty selector selects all nodes."""
    rows = (*(Requirement(key, "In", (value,)) for key, value in selector.labels), *selector.expressions)
    return (AffinityTerm(rows),) if rows else None
