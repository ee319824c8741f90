"""Claims, volumes, classes and attach limits as Kubernetes writes them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.relations import Selector
from dovetail.model.rules import AffinityTerm, Requirement
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
from tests.kube import manifests
from tests.kube.manifests import Object

STORAGE = "storage.k8s.io/v1"
GIB = 2**30


def only_fact(source: Object) -> VolumeFact:
    given = manifests.read(source)
    assert not given.ignored
    (fact,) = given.volumes
    return fact


def claim(meta: Object | None = None, status: Object | None = None, **spec: Any) -> Claim:
    source = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", **(meta or {})}}
    fact = only_fact({**source, "spec": spec, "status": status or {}})
    assert isinstance(fact, Claim)
    return fact


def volume(meta: Object | None = None, phase: str = "Available", **spec: Any) -> Volume:
    source = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", **(meta or {})}}
    fact = only_fact({**source, "spec": spec, "status": {"phase": phase}})
    assert isinstance(fact, Volume)
    return fact


def test_a_bound_claim() -> None:
    bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    assert claim(
        {"namespace": "ml", "uid": "u", "resourceVersion": "7", "annotations": bound},
        {"phase": "Bound"},
        accessModes=["ReadWriteOncePod"],
        resources={"requests": {"storage": "10Gi"}},
        storageClassName="fast",
        volumeMode="Block",
        volumeName="v",
    ) == Claim(
        "ml",
        "data",
        "u",
        volume="v",
        storage_class="fast",
        access_modes=("ReadWriteOncePod",),
        request=10 * GIB,
        mode="Block",
        bind_completed=True,
        version="7",
    )


def test_an_empty_claim_has_kubernetes_defaults() -> None:
    assert claim() == Claim("default", "data")
    assert claim(storageClassName=None, volumeMode=None, selector=None) == Claim("default", "data")


def test_what_a_claim_says_by_annotations_and_status() -> None:
    assert (
        claim({"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}, storageClassName="new").storage_class
        == "old"
    )
    assert claim({"annotations": {"volume.kubernetes.io/selected-node": "a"}}).selected_node == "a"
    assert claim({"deletionTimestamp": "2026-01-01T00:00:00Z"}).leaving
    assert claim(status={"phase": "Lost"}).lost
    assert claim(volumeAttributesClassName="gold").attributes_class == "gold"


@pytest.mark.parametrize(
    ("owner", "uid"),
    [
        ({"kind": "Pod", "name": "web", "uid": "u", "controller": True}, "u"),
        ({"kind": "Pod", "name": "web", "uid": "u"}, ""),
        ({"kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}, ""),
    ],
)
def test_a_claim_is_a_pods_own_where_the_pod_controls_it(owner: Object, uid: str) -> None:
    assert claim({"ownerReferences": [owner]}).owner == uid


def test_a_claim_selects_volumes() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["3"]}],
    }
    expected = Selector((("a", "1"), ("b", "2")), (Requirement("c", "NotIn", ("3",)),))
    assert claim(selector=selector).selector == expected
    assert claim(selector={}).selector == Selector()


def test_a_local_volume() -> None:
    rows = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]
    assert volume(
        {"labels": {"disk": "fast"}, "resourceVersion": "9"},
        accessModes=["ReadWriteOnce"],
        capacity={"storage": "1Ti"},
        claimRef={"namespace": "ml", "name": "data"},
        local={"path": "/mnt"},
        nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": rows}]}},
        storageClassName="local",
    ) == Volume(
        "v",
        2**40,
        "local",
        ("ReadWriteOnce",),
        phase="Available",
        claim_ref=ClaimRef("ml", "data"),
        affinity=(AffinityTerm((Requirement("kubernetes.io/hostname", "In", ("a",)),)),),
        labels={"disk": "fast"},
        version="9",
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"csi": {"driver": "csi.example.com", "volumeHandle": "h"}}, ("csi.example.com", "h", False)),
        ({"awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-1"}}, ("ebs.csi.aws.com", "vol-1", True)),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, ("ebs.csi.aws.com", "vol-1", True)),
        ({"gcePersistentDisk": {"pdName": "disk"}}, ("pd.csi.storage.gke.io", "disk", True)),
        ({"azureDisk": {"diskName": "d", "diskURI": "/disk"}}, ("disk.csi.azure.com", "/disk", True)),
        ({"nfs": {"server": "s", "path": "/"}}, ("", "", False)),
    ],
)
def test_who_attaches_a_volume(source: Object, expected: tuple[str, str, bool]) -> None:
    found = volume(**source)
    assert (found.driver, found.handle, found.migrated) == expected


def test_a_volume_that_is_going_and_one_that_is_huge() -> None:
    assert volume({"deletionTimestamp": "2026-01-01T00:00:00Z"}).leaving
    assert volume(capacity={"storage": "4E"}).capacity == 4 * 10**18


def test_storage_classes() -> None:
    rows = [{"key": "zone", "values": ["x", "y"]}]
    source = {
        "apiVersion": STORAGE,
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
    }
    default = {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    assert only_fact(source) == StorageClass("fast", provisioner="csi.example.com")
    assert only_fact(
        {
            **source,
            "metadata": default,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": rows}],
        }
    ) == StorageClass(
        "fast",
        True,
        "csi.example.com",
        topologies=(AffinityTerm((Requirement("zone", "In", ("x", "y")),)),),
        default=True,
    )


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [("csi.example.com", None), ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"), ("kubernetes.io/azure-file", "")],
)
def test_who_attaches_the_volumes_of_a_class(provisioner: str, driver: str | None) -> None:
    source = {"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": "x"}, "provisioner": provisioner}
    fact = only_fact(source)
    assert isinstance(fact, StorageClass)
    assert fact.driver == driver


def test_what_nodes_and_drivers_can_attach_and_make() -> None:
    drivers = [
        {"name": "one", "nodeID": "a", "allocatable": {"count": 3}},
        {"name": "none", "nodeID": "a", "allocatable": {"count": 0}},
        {"name": "any", "nodeID": "a"},
        {"name": "unsaid", "nodeID": "a", "allocatable": {}},
    ]
    assert only_fact(manifests.other("CSINode", STORAGE, "a", spec={"drivers": drivers})) == AttachLimits(
        "a", {"one": 3, "none": 0}
    )
    assert only_fact(manifests.other("CSIDriver", STORAGE, "d", spec={"storageCapacity": True})) == CsiDriver("d", True)
    assert only_fact(manifests.other("CSIDriver", STORAGE, "d", spec={})) == CsiDriver("d")
    spec = {"attacher": "d", "nodeName": "a", "source": {"persistentVolumeName": "v"}}
    assert only_fact(manifests.other("VolumeAttachment", STORAGE, "x", spec=spec)) == Attachment("x", "a", "d", "v")


@pytest.mark.parametrize(
    ("fields", "largest", "nodes"),
    [
        ({}, None, None),
        ({"capacity": "2Gi", "nodeTopology": {}}, 2 * GIB, Selector()),
        ({"capacity": "2Gi", "maximumVolumeSize": "1Gi"}, GIB, None),
        ({"capacity": 5, "nodeTopology": {"matchLabels": {"zone": "x"}}}, 5, Selector((("zone", "x"),))),
    ],
)
def test_room_for_new_volumes(fields: Object, largest: int | None, nodes: Selector | None) -> None:
    source = manifests.other("CSIStorageCapacity", STORAGE, "c", storageClassName="fast", **fields)
    assert only_fact(source) == Capacity("default", "c", "fast", largest, nodes)


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (
            manifests.other("PersistentVolumeClaim", spec={"resources": {"requests": {"storage": "ten"}}}),
            "spec.resources.requests.storage",
        ),
        (manifests.other("PersistentVolume", spec={"capacity": {"storage": "ten"}}), "spec.capacity.storage"),
        (
            manifests.other(
                "PersistentVolumeClaim", spec={"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}
            ),
            "spec.selector.matchExpressions[0].operator",
        ),
    ],
)
def test_what_cannot_be_understood_is_said_and_left_out(source: Object, field: str) -> None:
    given = manifests.read(source)
    assert given.volumes == ()
    (problem,) = manifests.said(given, "error")
    assert problem.field == field
    assert "left out" in problem.message


def test_kinds_of_another_group_are_not_ours() -> None:
    given = manifests.read(manifests.other("StorageClass", "example.com/v1"))
    assert given.volumes == ()
    assert given.ignored == {"StorageClass": 1}


def test_facts_come_in_an_order_of_their_own() -> None:
    sources = [
        manifests.other("PersistentVolumeClaim", name="b"),
        manifests.other("PersistentVolumeClaim", name="a"),
        manifests.other("StorageClass", STORAGE),
    ]
    assert manifests.read(*sources).volumes == manifests.read(*reversed(sources)).volumes
