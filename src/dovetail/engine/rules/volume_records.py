"""Claims, volumes and classes, and which pods a change of them may help."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.engine.ledger.node_rows import NodeRows
from dovetail.engine.rules.label_index import LabelRows
from dovetail.engine.rules.volume_limits import Attached, VolumeLimits
from dovetail.engine.rules.volume_search import Provisioning, VolumeCandidates, search
from dovetail.engine.rules.volume_stock import Stock
from dovetail.model.volumes import (
    AttachLimits,
    Attachment,
    Capacity,
    Claim,
    CsiDriver,
    StorageClass,
    Volume,
    VolumeFact,
)


@dataclass(frozen=True, slots=True)
class Helps:
    """The pods that a change may help: pods with one of these claims, or with a claim of one of these classes."""

    claims: frozenset[str] = frozenset()  # "namespace/name"
    classes: frozenset[str] = frozenset()
    anyone: bool = False  # all pods with claims

    def __bool__(self) -> bool:
        return self.anyone or bool(self.claims) or bool(self.classes)

    def __or__(self, other: Helps) -> Helps:
        return Helps(self.claims | other.claims, self.classes | other.classes, self.anyone or other.anyone)


HELPS_NO_POD = Helps()
HELPS_ALL_PODS = Helps(anyone=True)


class Records:
    """Facts by name. `moves` grows with every change, so that answers can be kept until then."""

    def __init__(self, places: NodeRows) -> None:
        self.labels = LabelRows(places)
        self.stock = Stock()
        self.claims: dict[str, Claim] = {}  # by key
        self.classes: dict[str, StorageClass] = {}
        self.limits = VolumeLimits(places, self.attached_by, self.stock.volumes)
        self.moves = 0
        self._claims_on: dict[str, set[str]] = {}  # volume -> claims that name it
        self._drivers: dict[str, CsiDriver] = {}
        self._capacities: dict[str, dict[str, Capacity]] = {}  # class -> key -> capacity
        self._making = Provisioning(self.classes, self._drivers, lambda name: self._capacities.get(name, {}).values())

    def set(self, fact: VolumeFact) -> Helps:
        """Store a fact that is new or changed."""
        self.moves += 1
        match fact:
            case Claim():
                return self._set_claim(fact)
            case Volume():
                return self._set_volume(fact)
            case StorageClass():
                self.classes[fact.name] = fact
                self.limits.note_all()
                return Helps(classes=frozenset((fact.name,)))
            case CsiDriver():
                self._drivers[fact.name] = fact
                return HELPS_NO_POD if fact.tracks_capacity else self._classes_of(fact.name)
            case Capacity():
                self._drop_capacity(fact)
                self._capacities.setdefault(fact.storage_class, {})[fact.key] = fact
                return Helps(classes=frozenset((fact.storage_class,)))
            case AttachLimits():
                return HELPS_ALL_PODS if self.limits.set(fact) else HELPS_NO_POD
            case Attachment():
                self.limits.attach(fact)
                return HELPS_NO_POD

    def drop(self, fact: VolumeFact) -> Helps:
        """Drop a fact that is gone; only its name is read."""
        self.moves += 1
        match fact:
            case Claim():
                self._drop_claim(fact.key)
            case Volume():
                self.stock.drop(fact.name)
                self._note_volume(fact.name)
            case StorageClass():
                self.classes.pop(fact.name, None)
                self.limits.note_all()
            case CsiDriver():
                self._drivers.pop(fact.name, None)
                return self._classes_of(fact.name)
            case Capacity():
                self._drop_capacity(fact)
            case AttachLimits():
                return HELPS_ALL_PODS if self.limits.drop(fact.node) else HELPS_NO_POD
            case Attachment():
                return HELPS_ALL_PODS if self.limits.detach(fact.name) else HELPS_NO_POD
        return HELPS_NO_POD

    def waits(self, claim: Claim) -> bool:
        """Whether the claim is unbound, and is bound or provisioned only when its pod has a node."""
        kind = self.classes.get(claim.storage_class)
        return not claim.volume and kind is not None and kind.waits

    def attached_by(self, key: str) -> Attached | None:
        """CSI driver and handle of a claim's volume.

        If the volume does not exist yet, the claim's name is the handle.
        """
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.stock.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return (volume.driver, volume.handle) if volume.driver and volume.handle else None
        kind = self.classes.get(claim.storage_class)
        if kind is None:
            return None
        driver = kind.provisioner if kind.driver is None else kind.driver
        return (driver, f" {key}") if driver else None

    def search(self, claims: list[Claim]) -> list[VolumeCandidates]:
        return search(claims, self.stock, self._making, self.labels) if claims else []

    def _set_claim(self, claim: Claim) -> Helps:
        before = self.claims.get(claim.key)
        self._drop_claim(claim.key)
        self.claims[claim.key] = claim
        if claim.volume:
            self._claims_on.setdefault(claim.volume, set()).add(claim.key)
        self.stock.settle(claim)
        self.limits.note((claim.key,))
        same = before is not None and replace(before, version=claim.version) == claim
        return HELPS_NO_POD if same else Helps(claims=frozenset((claim.key,)))

    def _drop_claim(self, key: str) -> None:
        gone = self.claims.pop(key, None)
        if gone is not None:
            self._claims_on.get(gone.volume, set()).discard(key)
            self.limits.note((key,))

    def _set_volume(self, volume: Volume) -> Helps:
        before = self.stock.volumes.get(volume.name)
        self.stock.set(volume)
        self._note_volume(volume.name)
        if before is not None and replace(before, version=volume.version) == volume:
            return HELPS_NO_POD
        claims = frozenset(self._claims_on.get(volume.name, ()))
        if volume.claim_ref is not None:
            return Helps(claims | {volume.claim_ref.key})
        return Helps(claims, frozenset((volume.storage_class,)))

    def _note_volume(self, name: str) -> None:
        self.limits.note(self._claims_on.get(name, ()))
        self.limits.note_volume(name)

    def _drop_capacity(self, capacity: Capacity) -> None:
        for known in self._capacities.values():
            known.pop(capacity.key, None)

    def _classes_of(self, driver: str) -> Helps:
        return Helps(classes=frozenset(kind.name for kind in self.classes.values() if kind.provisioner == driver))
