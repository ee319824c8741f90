"""kube-scheduler's own preemption with Dovetail behind it: the pods that end are those that free the cards, too."""

from __future__ import annotations

from typing import Any

from tests.live.assigned import faults, pieces
from tests.live.extending import NAME, extending
from tests.live.preempting import priority_class, runs
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

RANKS = {"lowest": 1, "low": 10, "high": 1000}
GPU = {"nvidia.com/gpu": 1}


def pod(name: str, rank: str, limits: Object, where: str = "", **more: Any) -> Object:
    here: Object = {"nodeSelector": {"kubernetes.io/hostname": where}} if where else {}
    return objects.pod(name, limits, scheduler=NAME, priorityClassName=rank, **here, **more)


def two_nodes(api: Client) -> None:
    """4 CPUs and a card each."""
    for name, value in RANKS.items():
        api.create(priority_class(name, value))
    for name in ("n", "m"):
        api.create(objects.node(name, gpus=1, resources={"cpu": "4"}))


def test_the_node_is_chosen_where_the_victims_free_the_card(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """By priorities kube-scheduler would stop `hog` on m; but the card of m is held by `keeper`, which stays."""
    two_nodes(api)
    with extending(plane, asks={"preemptVerb": "preempt"}) as extender:
        api.create(pod("big", "low", {**GPU, "cpu": 3}, "n"))
        api.create(pod("keeper", "high", GPU, "m"))
        api.create(pod("hog", "lowest", {"cpu": 3}, "m"))
        runs(api, "big", "keeper", "hog")
        api.create(pod("urgent", "high", {**GPU, "cpu": 3}))
        runs(api, "urgent")
        urgent = api.get("Pod", "urgent")
        assert urgent["spec"]["nodeName"] == "n", extender.words()
        assert [piece.card for piece in pieces(urgent)] == ["GPU-n-0"]
        assert {one["metadata"]["name"] for one in api.list("Pod")} == {"urgent", "keeper", "hog"}
        assert faults(api) == []


def test_a_pod_stays_with_its_volume(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Its volume is on n. Room is made there, though a pod of a lower priority could be stopped on m."""
    two_nodes(api)
    _volume(api, "data", "n")
    with extending(plane, asks={"preemptVerb": "preempt"}) as extender:
        api.create(pod("big", "low", {**GPU, "cpu": 3}, "n"))
        api.create(pod("other", "lowest", {**GPU, "cpu": 3}, "m"))
        runs(api, "big", "other")
        mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        api.create(pod("urgent", "high", {**GPU, "cpu": 3}, volumes=mounts))
        runs(api, "urgent")
        assert api.get("Pod", "urgent")["spec"]["nodeName"] == "n", extender.words()
        assert {one["metadata"]["name"] for one in api.list("Pod")} == {"urgent", "other"}
        assert faults(api) == []


def _volume(api: Client, claim: str, where: str) -> None:
    """A claim that is bound to a local volume of this node, as the controllers would leave it."""
    modes, amount = ["ReadWriteOnce"], {"storage": "1Gi"}
    meta = {"name": claim, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    spec = {"volumeName": "pv", "storageClassName": "", "accessModes": modes, "resources": {"requests": amount}}
    made = api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [where]}]}]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": made["metadata"]["uid"]}
    volume = {
        "capacity": amount,
        "accessModes": modes,
        "claimRef": reference,
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": volume})
    api.patch("PersistentVolume", "pv", {"status": {"phase": "Bound"}}, part="status")
    api.patch(
        "PersistentVolumeClaim",
        claim,
        {"status": {"phase": "Bound", "accessModes": modes, "capacity": amount}},
        part="status",
    )
