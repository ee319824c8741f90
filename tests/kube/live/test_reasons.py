"""Why pods wait: the word that tools act on, kept true while the reasons change."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.api.watch import Changed
from dovetail.kube.live.volume_mirror import TYPES, VolumeMirror
from dovetail.model.events import QuotaChanged, VolumesChanged
from dovetail.model.pod import Quota
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import Object

LOOK_AGAIN = 31.0  # seconds


def with_claim(name: str, cpu: str = "1") -> Object:
    item = waiting(name)
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    item["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    return item


def heard(mirror: VolumeMirror, kind: str, item: Object) -> VolumesChanged:
    event: Any = Changed(msgspec.convert(item, TYPES[kind]))
    told = mirror.hear(kind, [event])
    return VolumesChanged(0.0, told.facts, told.gone)


def the_claim_appears(stage: Stage) -> None:
    volumes = VolumeMirror()
    later = {"metadata": {"name": "fast"}, "provisioner": "x.csi", "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data", "namespace": "ml", "uid": "c1", "resourceVersion": "5"}, "spec": spec}
    stage.driver.happened([heard(volumes, "StorageClass", later), heard(volumes, "PersistentVolumeClaim", claim)])


def written(stage: Stage) -> None:
    """The API server says of the pods what they were told."""
    for uid, condition in stage.hands.conditions.items():
        stage.mirror.pods[uid].condition = (condition.reason, condition.message)


async def test_a_pod_that_only_its_quota_keeps_waiting_does_not_call_for_nodes() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 2), gpu_node("b", 2))
        quota = Quota("ml", "team", {}, {"NVIDIA": 1000}, {})
        stage.driver.happened([QuotaChanged(0.0, "ml", "team", quota)])
        stage.pods(waiting("w", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}))
        await stage.settle()
        reason, message = stage.hands.conditions["uid-w"]
    assert reason == "QuotaExceeded"
    assert message == "namespace quota exceeded: quota team: NVIDIA memory 0 of 1,000 MiB in use."


async def test_a_pod_that_no_node_takes_calls_for_nodes_whatever_its_quota() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 2))
        quota = Quota("ml", "team", {}, {"NVIDIA": 1000}, {})
        stage.driver.happened([QuotaChanged(0.0, "ml", "team", quota)])
        stage.pods(waiting("w", limits={"nvidia.com/gpu": 3, "nvidia.com/gpumem": 4000}))
        await stage.settle()
        assert stage.hands.conditions["uid-w"].reason == "Unschedulable"


async def test_a_reason_that_is_no_longer_true_is_corrected() -> None:
    """First its claim is missing, then CPU is: only the second calls for nodes."""
    async with Stage() as stage:
        item = gpu_node("a", 1)
        item["status"]["allocatable"]["cpu"] = "1"
        stage.nodes(item)
        stage.pods(with_claim("w", cpu="4"))
        await stage.settle()
        assert stage.hands.conditions["uid-w"].reason == "ClaimMissing"
        written(stage)
        the_claim_appears(stage)
        stage.clock += LOOK_AGAIN
        await stage.settle()
        stage.driver.happened(())
        await stage.settle()
        assert stage.hands.conditions["uid-w"] == ("Unschedulable", "0/1 nodes are available: 1 CPU short.")


async def test_what_is_still_being_written_is_not_replaced_by_something_else() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 1))
        claims = waiting("r")
        claims["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "c"}]
        stage.pods(with_claim("w"), claims)
        await stage.settle()
        before = dict(stage.hands.conditions)
        stage.clock += LOOK_AGAIN
        stage.driver.happened(())
        await stage.settle()
        assert stage.hands.conditions == before
    assert [before[uid].reason for uid in ("uid-r", "uid-w")] == ["ResourceClaimsNotSupported", "ClaimMissing"]
