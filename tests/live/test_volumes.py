"""Volumes of a pod are bound before the pod is, against the real API server and its persistent volume controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.kubeconfig import from_files
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.live.volume_mirror import PATHS, TYPES, VolumeMirror
from dovetail.kube.live.volumes import NotBound, Task, Why, bind_volumes
from dovetail.model.volumes import Claim, Volume, VolumeChoice
from tests.engine.storeroom import Storeroom, pod
from tools.controlplane.access import grant_dovetail
from tools.controlplane.client import Client, Object
from tools.controlplane.plane import ControlPlane

HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
PROTECTED = {"metadata": {"finalizers": None}}


def storage_class(name: str, provisioner: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


LOCAL = storage_class("local", "kubernetes.io/no-provisioner")
MADE = storage_class("made", "example.com/by-hand")


def volume(name: str, node: str, size: str = "10Gi", kind: str = "local", **spec: Any) -> Object:
    rows = [{"key": HOST, "operator": "In", "values": [node]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": kind,
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": rows}]}},
            **spec,
        },
    }


def claim(name: str, kind: str = "local", size: str = "5Gi") -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": kind, "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


class Cluster:
    """Two nodes, and what reflectors say of volumes, told to the engine as well."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api, self.client = api, client
        self.mirror = VolumeMirror()
        self.room = Storeroom(a={}, b={})
        self.pods: set[str] = set()

    # What `bind_volumes` asks.
    def claim(self, key: str) -> Claim | None:
        return self.mirror.claim(key)

    def volume(self, name: str) -> Volume | None:
        return self.mirror.volume(name)

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        row = self.room.ledger.row_of.get(name)
        return None if row is None else self.room.ledger.nodes[row].labels

    def has_pod(self, uid: str) -> bool:
        return uid in self.pods

    async def changed(self) -> None:
        await self.mirror.changed()

    # What a test does.
    async def until(self, true: Any) -> None:
        async with asyncio.timeout(60):
            while not true():
                await self.changed()

    async def has(self, *objects: Object) -> None:
        """The objects exist, volumes are available, and we have heard of it."""
        for item in objects:
            self.client.create(item)
            kind, name = item["kind"], item["metadata"]["name"]
            if kind == "PersistentVolume" and "claimRef" not in item["spec"]:
                self.client.patch(kind, name, {"status": {"phase": "Available"}}, part="status")
                await self.until(lambda name=name: (found := self.volume(name)) and found.phase == "Available")
            elif kind == "PersistentVolumeClaim":
                await self.until(lambda name=name: self.claim(f"default/{name}"))

    async def places(self, name: str, node: str, *claims: str) -> Task:
        """A pod comes to the node as soon as it may, and is promised what it needs."""
        one = pod(name, *claims)
        await self.until(lambda: isinstance(said := self.room.says(one), dict) and not said[node])
        self.pods.add(one.uid)
        return Task(one.uid, node, self.room.places(one, node))

    async def binds(self, task: Task, timeout: float = 60.0) -> NotBound | None:
        return await bind_volumes(task, self.api, self, timeout)

    def is_bound(self, name: str) -> bool:
        return bool(self.client.get("PersistentVolumeClaim", name)["status"]["phase"] == "Bound")


@asynccontextmanager
async def cluster(plane: ControlPlane, *objects: Object) -> AsyncIterator[Cluster]:
    grant_dovetail(plane.client())
    async with Api(Credentials(from_files([plane.kubeconfig("dovetail")]))) as api:
        here = Cluster(api, plane.client())

        def listener(kind: str) -> Any:
            def deliver(batch: Any) -> None:
                heard = here.mirror.hear(kind, batch)
                here.room.volumes.change(heard.facts, heard.gone)

            return deliver

        reflectors = [Reflector(api, path, TYPES[kind], listener(kind)) for kind, path in PATHS.items()]
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        try:
            for reflector in reflectors:
                await reflector.synced()
            await here.has(*objects)
            yield here
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def with_controller(plane: ControlPlane) -> None:
    plane.start_controller_manager("persistentvolume-binder")


def why(result: NotBound | None) -> Why | None:
    return None if result is None else result.why


# ---- volumes that are there -------------------------------------------------------------------------------------


async def test_a_claim_gets_the_smallest_volume_of_the_chosen_node(plane: ControlPlane) -> None:
    with_controller(plane)
    volumes = (
        volume("big", "a", "20Gi"),
        volume("small", "a", "10Gi"),
        volume("tiny", "a", "1Gi"),
        volume("far", "b", "6Gi"),
    )
    async with cluster(plane, LOCAL, *volumes, claim("data")) as here:
        task = await here.places("web", "a", "data")
        assert [choice.volume for choice in task.choices] == ["small"]
        assert await here.binds(task) is None
        here.client.wait_until(lambda: here.is_bound("data"))
        there = here.client.get("PersistentVolume", "small")
        assert there["spec"]["claimRef"]["name"] == "data"
        assert there["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
        assert here.room.says(pod("later", "data")) == {"a": "", "b": "VOLUME_NODE"}
        assert here.room.volumes.choice(pod("later", "data"), "a") == ()


async def test_pods_at_the_same_time_get_different_volumes(plane: ControlPlane) -> None:
    with_controller(plane)
    async with cluster(plane, LOCAL, volume("v", "a"), volume("w", "a"), claim("one"), claim("two")) as here:
        tasks = [await here.places("first", "a", "one"), await here.places("second", "a", "two")]
        assert await asyncio.gather(*(here.binds(task) for task in tasks)) == [None, None]
        names = {here.client.get("PersistentVolumeClaim", name)["spec"]["volumeName"] for name in ("one", "two")}
        assert names == {"v", "w"}


async def test_pods_that_share_a_claim_wait_for_the_same_volume(plane: ControlPlane) -> None:
    with_controller(plane)
    async with cluster(plane, LOCAL, volume("v", "a"), volume("w", "a"), claim("one")) as here:
        tasks = [await here.places("first", "a", "one"), await here.places("second", "a", "one")]
        assert await asyncio.gather(*(here.binds(task) for task in tasks)) == [None, None]
        assert here.client.get("PersistentVolume", "w")["status"]["phase"] == "Available"


async def test_a_volume_kept_for_the_claim_gets_its_uid_and_no_annotation(plane: ControlPlane) -> None:
    kept = volume("kept", "a", claimRef={"namespace": "default", "name": "data"})
    async with cluster(plane, LOCAL, claim("data"), kept) as here:
        await here.until(lambda: here.volume("kept"))
        task = await here.places("web", "a", "data")
        assert [choice.prebound for choice in task.choices] == [True]
        assert why(await here.binds(task, timeout=0.2)) is Why.TIMEOUT  # nobody binds: the controller does not run
        there = here.client.get("PersistentVolume", "kept")
        assert there["spec"]["claimRef"]["uid"] == here.client.get("PersistentVolumeClaim", "data")["metadata"]["uid"]
        assert "annotations" not in there["metadata"]


async def test_a_volume_that_changed_since_it_was_chosen_is_not_written(plane: ControlPlane) -> None:
    async with cluster(plane, LOCAL, volume("v", "a"), claim("data")) as here:
        task = await here.places("web", "a", "data")
        here.client.patch("PersistentVolume", "v", {"metadata": {"labels": {"seen": "yes"}}})
        assert why(await here.binds(task)) is Why.CHANGED
        assert "claimRef" not in here.client.get("PersistentVolume", "v")["spec"]


async def test_a_volume_that_another_claim_took_is_left_to_it(plane: ControlPlane) -> None:
    async with cluster(plane, LOCAL, volume("v", "a"), claim("data"), claim("other")) as here:
        task = await here.places("web", "a", "data")
        other = here.client.get("PersistentVolumeClaim", "other")["metadata"]
        reference = {"namespace": "default", "name": "other", "uid": other["uid"]}
        here.client.patch("PersistentVolume", "v", {"spec": {"claimRef": reference}})
        assert why(await here.binds(task)) is Why.TAKEN
        assert here.client.get("PersistentVolume", "v")["spec"]["claimRef"]["name"] == "other"


async def test_a_volume_that_is_taken_away_again_sends_the_pod_back(plane: ControlPlane) -> None:
    async with cluster(plane, LOCAL, volume("v", "a"), claim("data")) as here:
        waiting = asyncio.create_task(here.binds(await here.places("web", "a", "data")))
        await here.until(lambda: (found := here.volume("v")) and found.claim_ref)
        here.client.patch("PersistentVolume", "v", {"spec": {"claimRef": None}})
        assert why(await waiting) is Why.RESET


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "PersistentVolume"])
async def test_what_is_deleted_meanwhile_sends_the_pod_back(plane: ControlPlane, kind: str) -> None:
    async with cluster(plane, LOCAL, volume("v", "a"), claim("data")) as here:
        waiting = asyncio.create_task(here.binds(await here.places("web", "a", "data")))
        await here.until(lambda: (found := here.volume("v")) and found.claim_ref)
        name = {"PersistentVolumeClaim": "data", "PersistentVolume": "v"}[kind]
        here.client.delete(kind, name)
        here.client.patch(kind, name, PROTECTED)
        assert why(await waiting) is Why.GONE


async def test_a_pod_that_is_deleted_meanwhile_is_let_go(plane: ControlPlane) -> None:
    async with cluster(plane, LOCAL, volume("v", "a"), claim("data")) as here:
        waiting = asyncio.create_task(here.binds(await here.places("web", "a", "data")))
        await here.until(lambda: (found := here.volume("v")) and found.claim_ref)
        here.pods.clear()
        here.mirror.notify()
        assert why(await waiting) is Why.GONE


async def test_a_choice_of_something_that_is_gone_already(plane: ControlPlane) -> None:
    async with cluster(plane, LOCAL, claim("data")) as here:
        here.pods.add("u")
        nothing = VolumeChoice("default/data", "uid", "a", "no-such-volume", "1")
        assert why(await here.binds(Task("u", "a", (nothing,)))) is Why.GONE


# ---- volumes that are made --------------------------------------------------------------------------------------


def made_for(here: Cluster, name: str, node: str) -> Object:
    """What a provisioner makes for a claim."""
    meta = here.client.get("PersistentVolumeClaim", name)["metadata"]
    return volume(f"pvc-{name}", node, kind="made", claimRef={"namespace": "default", "name": name, "uid": meta["uid"]})


async def test_a_volume_is_made_for_the_chosen_node(plane: ControlPlane) -> None:
    with_controller(plane)
    async with cluster(plane, MADE, claim("data", "made")) as here:
        task = await here.places("web", "b", "data")
        assert [choice.volume for choice in task.choices] == [""]
        waiting = asyncio.create_task(here.binds(task))
        await here.until(lambda: (found := here.claim("default/data")) and found.selected_node == "b")
        here.client.create(made_for(here, "data", "b"))
        assert await waiting is None
        here.client.wait_until(lambda: here.is_bound("data"))


async def test_a_provisioner_that_cannot_sends_the_pod_back(plane: ControlPlane) -> None:
    async with cluster(plane, MADE, claim("data", "made")) as here:
        waiting = asyncio.create_task(here.binds(await here.places("web", "b", "data")))
        await here.until(lambda: (found := here.claim("default/data")) and found.selected_node == "b")
        here.client.patch("PersistentVolumeClaim", "data", {"metadata": {"annotations": {SELECTED: None}}})
        assert why(await waiting) is Why.NOT_MADE


async def test_a_volume_that_was_made_elsewhere_sends_the_pod_back(plane: ControlPlane) -> None:
    with_controller(plane)
    async with cluster(plane, MADE, claim("data", "made")) as here:
        waiting = asyncio.create_task(here.binds(await here.places("web", "b", "data")))
        await here.until(lambda: (found := here.claim("default/data")) and found.selected_node == "b")
        here.client.create(made_for(here, "data", "a"))
        assert why(await waiting) is Why.ELSEWHERE


async def test_a_claim_that_changed_since_it_was_chosen_is_not_written(plane: ControlPlane) -> None:
    async with cluster(plane, MADE, claim("data", "made")) as here:
        task = await here.places("web", "b", "data")
        here.client.patch("PersistentVolumeClaim", "data", {"metadata": {"labels": {"seen": "yes"}}})
        assert why(await here.binds(task)) is Why.CHANGED
        assert SELECTED not in here.client.get("PersistentVolumeClaim", "data")["metadata"].get("annotations", {})
