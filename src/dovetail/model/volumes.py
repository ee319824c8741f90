"""Volumes as in Kubernetes: claims, volumes, classes, attach limits of nodes. The engine decides what fits.

"Version" is the API server's resourceVersion: a write names the version of the object that it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.model.relations import Selector
from dovetail.model.rules import AffinityTerm

FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
AVAILABLE = "Available"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
ZONE_LABELS = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}  # label -> its current name


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim: what a pod asks for by name."""

    namespace: str
    name: str
    uid: str = ""
    volume: str = ""  # name of the volume that it has, or must take
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    request: int | None = None  # bytes; None = not stated
    selector: Selector | None = None
    mode: str = FILESYSTEM
    attributes_class: str = ""
    bind_completed: bool = False  # the controller has written the annotation
    lost: bool = False  # its volume is gone
    leaving: bool = False  # it has a deletion timestamp
    selected_node: str | None = None  # a volume is being created for this node
    owner: str = ""  # UID of the pod that it was created for; "" = none
    version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def bound(self) -> bool:
        """Whether the claim is fully bound (Binder.isPVCFullyBound)."""
        return self.volume != "" and self.bind_completed


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The claim that a volume belongs to. Without a UID: kept for any claim of this name."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def means(self, claim: Claim) -> bool:
        """Whether the reference names the claim (IsVolumeBoundToClaim)."""
        return (self.namespace, self.name) == (claim.namespace, claim.name) and self.uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume."""

    name: str
    capacity: int = 0  # bytes
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    attributes_class: str = ""
    phase: str = ""
    claim_ref: ClaimRef | None = None
    affinity: tuple[AffinityTerm, ...] | None = None  # any term may match; None = usable everywhere
    labels: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""  # CSI driver; "" = the volume is not counted
    handle: str = ""  # the driver's name for it
    migrated: bool = False  # an in-tree volume: driver and handle are those after migration
    leaving: bool = False
    version: str = ""

    def usable_on(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels can use the volume (CheckNodeAffinity).

        Fields of terms are ignored, and an empty term matches nothing.
        """
        return self.affinity is None or any(
            (term.expressions or term.fields) and all(row.matches(labels) for row in term.expressions)
            for term in self.affinity
        )

    @property
    def zones(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(label, values): a node must have one of the values.

        `a__b` is two values; a label that cannot be read is ignored.
        """
        found = []
        for label in ZONE_LABELS:
            values = [part.strip() for part in self.labels.get(label, "").split("__")]
            if all(values):
                found.append((label, tuple(sorted(set(values)))))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    waits: bool = False  # WaitForFirstConsumer; else volumes are bound before pods are placed
    provisioner: str = ""
    driver: str | None = None  # CSI driver that attaches its volumes; None = the provisioner, "" = not counted
    topologies: tuple[AffinityTerm, ...] | None = None  # where volumes can be created; None = everywhere
    default: bool = False

    @property
    def provisions(self) -> bool:
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """A CSINode: how many volumes of a driver the node can attach. A driver that is not listed has no limit there."""

    node: str
    most: Mapping[str, int] = field(default_factory=dict)  # driver -> volumes


@dataclass(frozen=True, slots=True)
class CsiDriver:
    """A CSIDriver."""

    name: str
    tracks_capacity: bool = False  # a volume is created only where a Capacity says that there is room


@dataclass(frozen=True, slots=True)
class Capacity:
    """A CSIStorageCapacity: the largest volume of a class that can be created for some nodes."""

    namespace: str
    name: str
    storage_class: str
    largest: int | None = None  # bytes; None = unknown, which is not enough
    nodes: Selector | None = None  # None = no node can reach it

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment: a volume that is attached to a node, or is being attached, whatever uses it."""

    name: str
    node: str
    driver: str
    volume: str  # name of the PersistentVolume


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """What happens to one unbound claim if its pod goes to this node."""

    claim: str  # "namespace/name"
    claim_uid: str
    node: str
    volume: str = ""  # this volume is bound to the claim; "" = a volume is created for the node
    version: str = ""  # of the object to be written: the volume, or the claim
    prebound: bool = False  # the volume names the claim already


VolumeFact = Claim | Volume | StorageClass | AttachLimits | CsiDriver | Capacity | Attachment
