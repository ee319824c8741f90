"""Claims, volumes, classes and attach limits → the model's values. An object that cannot be read is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dovetail.kube.conversion.amounts import text_of
from dovetail.kube.files.decode import Found, Objects
from dovetail.kube.objects import volumes as objects
from dovetail.kube.objects.bounds import CLAIM_SELECTOR, VOLUME_DRIVERS
from dovetail.kube.objects.core import NodeSelector, Quantity, Requirement
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model import quantity, rules
from dovetail.model.relations import Selector
from dovetail.model.volumes import (
    AttachLimits,
    Attachment,
    Capacity,
    Claim,
    ClaimRef,
    CsiDriver,
    StorageClass,
    Volume,
    VolumeFact,
)

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
MAX_ATTACHED = 2**31 - 1  # volumes of one driver on a node: an int32 of the API

# In-tree provisioner -> the CSI driver that replaces it (csi-translation-lib); and the same by field of a volume.
MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
DISKS = {
    "aws_elastic_block_store": "ebs.csi.aws.com",
    "azure_disk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gce_persistent_disk": "pd.csi.storage.gke.io",
    "portworx_volume": "pxd.portworx.com",
}
# Translatable, but kube-scheduler counts none of their volumes (isCSIMigrationOn).
NEVER_COUNTED = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")


class _Wrong(ValueError):
    """The object is wrong: (path, message)."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def volume_facts(found: Objects, problems: Problems) -> tuple[VolumeFact, ...]:
    """All facts about volumes in the input, by kind and name."""
    facts = (
        volume_fact(item, problems) for kind in READERS for item in sorted(found.of(kind), key=lambda item: item.key)
    )
    return tuple(fact for fact in facts if fact is not None)


def volume_fact(item: Found, problems: Problems) -> VolumeFact | None:
    """The fact; None, with an error that names the field, where the object is wrong."""
    try:
        return READERS[item.kind](item)
    except _Wrong as wrong:
        problems.error(item.where, wrong.path, f"{wrong}; the {item.kind} is left out")
        return None


def claim_from(item: Found) -> Claim:
    claim: objects.PersistentVolumeClaim = item.value
    meta, spec = claim.metadata, claim.spec
    asked = spec.resources.requests.get("storage")
    owners = (owner.uid for owner in meta.owner_references if owner.controller and owner.kind == "Pod")
    return Claim(
        namespace=item.namespace,
        name=item.name,
        uid=meta.uid,
        volume=spec.volume_name,
        storage_class=meta.annotations.get(BETA_CLASS, spec.storage_class_name or ""),
        access_modes=tuple(spec.access_modes),
        request=None if asked is None else _bytes(asked, "spec.resources.requests.storage"),
        selector=None if spec.selector is None else _selector(spec.selector, "spec.selector"),
        mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name,
        bind_completed=BIND_COMPLETED in meta.annotations,
        lost=claim.status.phase == "Lost",
        leaving=bool(meta.deletion_timestamp),
        selected_node=meta.annotations.get(SELECTED_NODE),
        owner=next(owners, ""),
        version=meta.resource_version,
    )


def volume_from(item: Found) -> Volume:
    volume: objects.PersistentVolume = item.value
    meta, spec, ref = volume.metadata, volume.spec, volume.spec.claim_ref
    driver, handle, migrated = _source(spec)
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return Volume(
        name=item.name,
        capacity=_bytes(spec.capacity.get("storage", 0), "spec.capacity.storage"),
        storage_class=meta.annotations.get(BETA_CLASS, spec.storage_class_name),
        access_modes=tuple(spec.access_modes),
        mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name,
        phase=volume.status.phase,
        claim_ref=None if ref is None else ClaimRef(ref.namespace, ref.name, ref.uid),
        affinity=None if required is None else _terms(required, "spec.nodeAffinity.required.nodeSelectorTerms"),
        labels=meta.labels,
        driver=driver,
        handle=handle,
        migrated=migrated,
        leaving=bool(meta.deletion_timestamp),
        version=meta.resource_version,
    )


def class_from(item: Found) -> StorageClass:
    kind: objects.StorageClass = item.value
    topologies = tuple(
        rules.AffinityTerm(
            tuple(rules.Requirement(row.key, "In", tuple(row.values)) for row in term.match_label_expressions)
        )
        for term in kind.allowed_topologies
    )
    return StorageClass(
        name=item.name,
        waits=kind.volume_binding_mode == "WaitForFirstConsumer",
        provisioner=kind.provisioner,
        driver="" if kind.provisioner in NEVER_COUNTED else MIGRATED.get(kind.provisioner),
        topologies=topologies or None,
        default=kind.metadata.annotations.get(DEFAULT_CLASS) == "true",
    )


def limits_from(item: Found) -> AttachLimits:
    drivers: Sequence[objects.NodeDriver] = item.value.spec.drivers
    if len(drivers) > VOLUME_DRIVERS.most:
        raise _Wrong("spec.drivers", VOLUME_DRIVERS.exceeded(len(drivers)))
    most = {}
    for number, driver in enumerate(drivers):
        count = None if driver.allocatable is None else driver.allocatable.count
        if count is None:
            continue
        if not 0 <= count <= MAX_ATTACHED:
            path = f"spec.drivers[{number}].allocatable.count"
            raise _Wrong(path, f"{printable(str(count), 40)} is not between 0 and {MAX_ATTACHED:,}")
        most[driver.name] = count
    return AttachLimits(item.name, most)


def driver_from(item: Found) -> CsiDriver:
    return CsiDriver(item.name, item.value.spec.storage_capacity)


def capacity_from(item: Found) -> Capacity:
    given: objects.CSIStorageCapacity = item.value
    largest = given.capacity if given.maximum_volume_size is None else given.maximum_volume_size
    return Capacity(
        namespace=item.namespace,
        name=item.name,
        storage_class=given.storage_class_name,
        largest=None if largest is None else _bytes(largest, "capacity"),
        nodes=None if given.node_topology is None else _selector(given.node_topology, "nodeTopology"),
    )


def attachment_from(item: Found) -> Attachment:
    spec: objects.AttachmentSpec = item.value.spec
    return Attachment(item.name, spec.node_name, spec.attacher, spec.source.persistent_volume_name)


READERS: dict[str, Callable[[Found], VolumeFact]] = {
    "StorageClass": class_from,
    "CSIDriver": driver_from,
    "CSIStorageCapacity": capacity_from,
    "CSINode": limits_from,
    "PersistentVolume": volume_from,
    "PersistentVolumeClaim": claim_from,
    "VolumeAttachment": attachment_from,
}


def _source(spec: objects.VolumeSpec) -> tuple[str, str, bool]:
    """CSI driver, handle, and whether they belong to a migrated in-tree disk."""
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle, False
    for name, driver in DISKS.items():
        disk: objects.Disk | None = getattr(spec, name)
        if disk is not None:
            called = disk.called
            return driver, called.rpartition("/")[2] if called.startswith("aws://") else called, True
    return "", "", False


def _bytes(value: Quantity, path: str) -> int:
    try:
        return quantity.parse(text_of(value))
    except quantity.QuantityError as error:
        raise _Wrong(path, str(error)) from error


def _terms(given: NodeSelector, path: str) -> tuple[rules.AffinityTerm, ...]:
    return tuple(
        rules.AffinityTerm(
            _requirements(term.match_expressions, f"{path}[{number}].matchExpressions", NODE_OPERATORS),
            _requirements(term.match_fields, f"{path}[{number}].matchFields", NODE_OPERATORS),
        )
        for number, term in enumerate(given.node_selector_terms)
    )


def _selector(given: objects.LabelSelector, path: str) -> Selector:
    if len(given.match_labels) > CLAIM_SELECTOR.most:
        raise _Wrong(f"{path}.matchLabels", CLAIM_SELECTOR.exceeded(len(given.match_labels)))
    expressions = _requirements(given.match_expressions, f"{path}.matchExpressions", LABEL_OPERATORS)
    return Selector(tuple(sorted(given.match_labels.items())), expressions)


def _requirements(given: Iterable[Requirement], path: str, operators: tuple[str, ...]) -> tuple[rules.Requirement, ...]:
    found: list[rules.Requirement] = []
    rows = tuple(given)
    count = sum(1 + len(row.values) for row in rows)
    if count > CLAIM_SELECTOR.most:
        raise _Wrong(path, CLAIM_SELECTOR.exceeded(count))
    for number, row in enumerate(rows):
        if row.operator not in operators:
            message = f"{printable(row.operator)!r} is none of {', '.join(operators)}"
            raise _Wrong(f"{path}[{number}].operator", message)
        found.append(rules.Requirement(row.key, row.operator, tuple(row.values)))
    return tuple(found)
