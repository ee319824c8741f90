"""Kubernetes' objects about volumes, typed as in kube/objects/core.py: only the fields we use."""

from __future__ import annotations

import msgspec

from dovetail.kube.objects.core import Meta, NodeSelector, Quantities, Quantity, Requirement, Struct, Texts


class VersionedMeta(Meta, frozen=True):
    resource_version: str = ""


class LabelSelector(Struct, frozen=True):
    match_labels: Texts = msgspec.field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class ClaimResources(Struct, frozen=True):
    requests: Quantities = msgspec.field(default_factory=dict)


class ClaimSpec(Struct, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: ClaimResources = ClaimResources()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str = ""
    volume_mode: str = ""
    volume_name: str = ""


class ClaimStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    metadata: VersionedMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ObjectReference(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Csi(Struct, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class Disk(Struct, frozen=True):
    """An in-tree disk; each kind has another field for the disk's name."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    pd_name: str = ""
    disk_uri: str = msgspec.field(name="diskURI", default="")

    @property
    def called(self) -> str:
        return self.volume_id or self.pd_name or self.disk_uri


class VolumeNodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Struct, frozen=True):
    access_modes: tuple[str, ...] = ()
    capacity: Quantities = msgspec.field(default_factory=dict)
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str = ""
    volume_mode: str = ""
    csi: Csi | None = None
    aws_elastic_block_store: Disk | None = None
    gce_persistent_disk: Disk | None = None
    azure_disk: Disk | None = None
    cinder: Disk | None = None
    portworx_volume: Disk | None = None


class VolumeStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolume(Struct, frozen=True):
    metadata: VersionedMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(Struct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Struct, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Struct, frozen=True):
    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverLimit(Struct, frozen=True):
    count: int | None = None


class NodeDriver(Struct, frozen=True):
    name: str = ""
    allocatable: DriverLimit | None = None


class CSINodeSpec(Struct, frozen=True):
    drivers: tuple[NodeDriver, ...] = ()


class CSINode(Struct, frozen=True):
    metadata: Meta
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Struct, frozen=True):
    storage_capacity: bool = False


class CSIDriver(Struct, frozen=True):
    metadata: Meta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Struct, frozen=True):
    metadata: Meta
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    node_topology: LabelSelector | None = None


class AttachmentSource(Struct, frozen=True):
    persistent_volume_name: str = ""


class AttachmentSpec(Struct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Struct, frozen=True):
    metadata: Meta
    spec: AttachmentSpec = AttachmentSpec()


STORAGE_GROUP = "storage.k8s.io"
VOLUME_KINDS = {
    ("", "PersistentVolumeClaim"): PersistentVolumeClaim,
    ("", "PersistentVolume"): PersistentVolume,
    (STORAGE_GROUP, "StorageClass"): StorageClass,
    (STORAGE_GROUP, "CSINode"): CSINode,
    (STORAGE_GROUP, "CSIDriver"): CSIDriver,
    (STORAGE_GROUP, "CSIStorageCapacity"): CSIStorageCapacity,
    (STORAGE_GROUP, "VolumeAttachment"): VolumeAttachment,
}
VOLUME_KINDS_WITHOUT_NAMESPACE = ("PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment")
