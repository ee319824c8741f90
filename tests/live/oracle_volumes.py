"""Generated clusters in which every rule about volumes says yes to some nodes and no to others.

Cases share four nodes and nothing else: each has its own class, driver, volumes and claims, so that one run of
kube-scheduler answers for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.controlplane.client import Object

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BETA_ZONE, REGION = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region"
NODES: dict[str, dict[str, str]] = {
    "a": {ZONE: "x", REGION: "r", "disk": "1"},
    "b": {ZONE: "y", REGION: "r", "disk": "2"},
    "c": {BETA_ZONE: "x"},
    "d": {},
}
CORE, STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED = "volume.kubernetes.io/selected-node"


@dataclass
class Case:
    """What to create for one pod, in this order; `limits` go into the CSINodes, `deleted` are deleted afterwards."""

    number: int
    chance: Random
    objects: list[tuple[str, Object]] = field(default_factory=list)  # (path, object)
    statuses: list[tuple[str, Object]] = field(default_factory=list)  # (path, status)
    limits: dict[str, int] = field(default_factory=dict)  # node -> volumes of the case's driver
    deleted: list[str] = field(default_factory=list)  # paths

    @property
    def driver(self) -> str:
        return f"csi-{self.number}.example.com"

    def maybe(self, percent: int) -> bool:
        return self.chance.random() * 100 < percent

    def one_of(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def name(self, word: str) -> str:
        return f"{word}-{self.number}"


def case(number: int, seed: int) -> Case:
    made = Case(number, Random(f"{seed}/{number}"))
    _class(made)
    claims = [made.name(f"claim-{n}") for n in range(made.one_of(1, 1, 2, 3))]
    for n, name in enumerate(claims):
        _claim(made, name, n)
    for n in range(made.one_of(0, 1, 2, 4)):
        _free_volume(made, n)
    if made.maybe(50):
        made.limits = {node: made.one_of(0, 1, 2, 3) for node in NODES if made.maybe(60)}
    for n in range(made.one_of(0, 0, 1, 3)):
        used = made.chance.sample(claims, made.one_of(1, len(claims)))
        made.objects.append(_pod(made, made.name(f"runs-{n}"), used, nodeName=made.one_of(*NODES)))
    asked = [*claims, *(["no-such-claim"] if made.maybe(4) else [])]
    made.objects.append(_pod(made, made.name("asks"), asked, schedulerName="oracle", ephemeral=made.maybe(10)))
    return made


def _object(kind: str, name: str, **fields: Any) -> Object:
    version = "v1" if kind in ("Pod", "PersistentVolume", "PersistentVolumeClaim") else "storage.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **fields.pop("meta", {})}, **fields}


def _class(made: Case) -> None:
    """How volumes come about: found or made, at once or for a pod, where, and whether their driver counts room."""
    if made.maybe(4):
        return  # nobody knows the claims' class
    fields: Object = {
        "provisioner": made.one_of("kubernetes.io/no-provisioner", made.driver, made.driver, "kubernetes.io/aws-ebs"),
        "volumeBindingMode": made.one_of("Immediate", *["WaitForFirstConsumer"] * 9),
    }
    if made.maybe(30):
        rows = [{"key": made.one_of(ZONE, "disk", HOST), "values": made.one_of(["x"], ["1", "a"], ["y", "2", "d"])}]
        fields["allowedTopologies"] = [{"matchLabelExpressions": rows}]
    made.objects.append((f"{STORAGE}/storageclasses", _object("StorageClass", made.name("class"), **fields)))
    if made.maybe(50):
        spec = {"storageCapacity": made.maybe(70), "attachRequired": True}
        made.objects.append((f"{STORAGE}/csidrivers", _object("CSIDriver", made.driver, spec=spec)))
        for n in range(made.one_of(0, 1, 2)):
            room: Object = {"storageClassName": made.name("class")}
            if made.maybe(90):
                room["nodeTopology"] = made.one_of({}, {"matchLabels": {ZONE: "x"}}, _expression("disk", "Exists"))
            if made.maybe(90):
                room["capacity"] = made.one_of("1Gi", "5Gi", "20Gi")
            if made.maybe(20):
                room["maximumVolumeSize"] = made.one_of("1Gi", "5Gi")
            path = f"{STORAGE}/namespaces/default/csistoragecapacities"
            made.objects.append((path, _object("CSIStorageCapacity", made.name(f"room-{n}"), **room)))


def _expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def _claim(made: Case, name: str, n: int) -> None:
    """Bound to a volume, told to take one, waiting for one, or lost."""
    annotations: dict[str, str] = {}
    spec: Object = {
        "accessModes": [made.one_of("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")],
        "resources": {"requests": {"storage": made.one_of("1Gi", "5Gi", "10Gi")}},
        "storageClassName": made.name("class") if made.maybe(97) else "",
        "volumeMode": made.one_of("Filesystem", "Filesystem", "Filesystem", "Block"),
    }
    if made.maybe(8):
        spec["volumeAttributesClassName"] = "gold"
    if made.maybe(45):
        volume = made.name(f"bound-{n}")
        spec["volumeName"] = volume
        annotations = {} if made.maybe(5) else dict(BOUND)
        if made.maybe(95):
            _volume(made, volume, {"namespace": "default", "name": name}, phase="Bound")
    elif made.maybe(15):
        annotations[SELECTED] = made.one_of(*NODES)
    elif made.maybe(15):
        spec["selector"] = made.one_of({"matchLabels": {"tier": "fast"}}, _expression("tier", "NotIn", "slow"))
    path = f"{CORE}/namespaces/default/persistentvolumeclaims"
    meta = {"annotations": annotations}
    made.objects.append((path, _object("PersistentVolumeClaim", name, meta=meta, spec=spec)))
    if made.maybe(3):
        made.statuses.append((f"{path}/{name}", {"phase": "Lost"}))
    if made.maybe(3):
        made.deleted.append(f"{path}/{name}")


def _free_volume(made: Case, n: int) -> None:
    """Nobody's yet, or kept for a claim of this name."""
    name = made.name(f"free-{n}")
    kept = {"namespace": "default", "name": made.name(made.one_of("claim-0", "claim-1", "another"))}
    _volume(made, name, kept if made.maybe(20) else None, phase=made.one_of(*["Available"] * 8, "Released", "Pending"))
    if made.maybe(5):
        made.deleted.append(f"{CORE}/persistentvolumes/{name}")


def _volume(made: Case, name: str, owner: Object | None, phase: str) -> None:
    source = made.one_of(
        {"csi": {"driver": made.driver, "volumeHandle": made.one_of(name, f"shared-{made.number}")}},
        {"csi": {"driver": made.driver, "volumeHandle": name}},
        {"hostPath": {"path": "/mnt"}},
        {"awsElasticBlockStore": {"volumeID": f"aws://x/vol-{made.number}"}},
    )
    spec: Object = {
        "capacity": {"storage": made.one_of("1Gi", "5Gi", "10Gi", "20Gi")},
        "accessModes": made.one_of(
            ["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOncePod"]
        ),
        "storageClassName": made.name("class") if made.maybe(95) else "another",
        "volumeMode": made.one_of("Filesystem", "Filesystem", "Filesystem", "Block"),
        **source,
    }
    if owner is not None:
        spec["claimRef"] = owner
    if "csi" in source and made.maybe(8):
        spec["volumeAttributesClassName"] = "gold"
    if made.maybe(60):
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": made.chance.sample(TERMS, made.one_of(1, 1, 2))}}
    labels = {"tier": made.one_of("fast", "slow")} if made.maybe(50) else {}
    if made.maybe(30):
        labels[made.one_of(ZONE, BETA_ZONE)] = made.one_of("x", "y", "x__y", "z")
    if made.maybe(10):
        labels[REGION] = made.one_of("r", "s")
    meta = {"labels": labels}
    made.objects.append((f"{CORE}/persistentvolumes", _object("PersistentVolume", name, meta=meta, spec=spec)))
    made.statuses.append((f"{CORE}/persistentvolumes/{name}", {"phase": phase}))
    if "csi" in source and made.maybe(15):
        attached = {"attacher": made.driver, "nodeName": made.one_of(*NODES), "source": {"persistentVolumeName": name}}
        made.objects.append((f"{STORAGE}/volumeattachments", _object("VolumeAttachment", name, spec=attached)))


TERMS: list[Object] = [
    _expression(HOST, "In", "a"),
    _expression(HOST, "In", "b", "c"),
    _expression(HOST, "NotIn", "a"),
    _expression("disk", "Exists"),
    _expression("disk", "DoesNotExist"),
    _expression("disk", "Gt", "1"),
    _expression("disk", "Lt", "2"),
    {
        "matchExpressions": [
            {"key": ZONE, "operator": "In", "values": ["x", "y"]},
            {"key": "disk", "operator": "In", "values": ["2"]},
        ]
    },
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["d"]}]},
]


def _pod(made: Case, name: str, claims: list[str], ephemeral: bool = False, **spec: Any) -> tuple[str, Object]:
    volumes: list[Object] = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)
    ]
    if ephemeral:
        inner: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        inner["storageClassName"] = made.name("class")
        volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": inner}}})
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    body = {"containers": [container], "volumes": volumes, **spec}
    return f"{CORE}/namespaces/default/pods", _object("Pod", name, spec=body)


def own_claim(pod: Object, number: int) -> Object:
    """What the ephemeral volume controller makes for a pod; each third pod finds a stranger's claim of that name."""
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    own: Object = {} if number % 3 == 0 else {"ownerReferences": [owner]}
    template = next(volume["ephemeral"] for volume in pod["spec"]["volumes"] if "ephemeral" in volume)
    spec = template["volumeClaimTemplate"]["spec"]
    return _object("PersistentVolumeClaim", f"{meta['name']}-own", meta=own, spec=spec)
