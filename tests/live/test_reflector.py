"""The API client against the real API server: list, watch, bookmarks, restarts, lost history, permissions, bindings.

What a test does to the server, it does while the reflector stands still: in one thread, without awaiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Conflict, Forbidden, Gone, NotFound
from dovetail.kube.api.kubeconfig import from_files
from dovetail.kube.api.reflector import Pace, Reflector
from dovetail.kube.api.retry import Backoff, retrying
from dovetail.kube.api.typed import Head, TypedReader
from dovetail.kube.api.watch import NotServed, Replaced
from dovetail.kube.objects import core as objects
from tests.kube.api.stub import PODS, Consumer
from tools.controlplane.client import Client, Object
from tools.controlplane.objects import node, pod
from tools.controlplane.plane import ControlPlane

SOON = Pace(recheck=0.2, backoff=Backoff(first=0.1, longest=0.5))
CLOSING = 0.25  # seconds in which TLS connections end after their session, as aiohttp advises
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"


def connected(plane: ControlPlane, user: str = "admin") -> Api:
    return Api(Credentials(from_files([plane.kubeconfig(user)])))


@asynccontextmanager
async def reflecting(
    plane: ControlPlane, path: str = PODS, kind: Any = objects.Pod, pace: Pace = SOON, **more: Any
) -> AsyncIterator[tuple[Reflector[Any], Consumer]]:
    consumer = Consumer()
    async with connected(plane) as api:
        reflector = Reflector(api, path, kind, consumer.deliver, pace=pace, report=consumer.reports, **more)
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, consumer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(CLOSING)


async def watching(reflector: Reflector[Any]) -> None:
    async with asyncio.timeout(20):
        while not reflector.health().connected:
            await asyncio.sleep(0.01)


async def test_pods_that_are_there_that_come_and_that_go(plane: ControlPlane, api: Client) -> None:
    api.create(pod("a"))
    async with reflecting(plane) as (reflector, consumer):
        await reflector.synced()
        assert consumer.names == ["a"]
        api.create(pod("b"))
        await consumer.until(lambda: consumer.names == ["a", "b"])
        api.delete("Pod", "a")
        await consumer.until(lambda: consumer.names == ["b"])
        assert reflector.health().lists == 1
        assert consumer.reports == []


@pytest.mark.slow
async def test_bookmarks_keep_a_quiet_watch_up_to_date(plane: ControlPlane, api: Client) -> None:
    """Pods change, but none that is asked for; before a watch ends, the server says how far it is."""
    async with reflecting(plane, pace=Pace(watch=4), params={"fieldSelector": "metadata.name=a"}) as (
        reflector,
        consumer,
    ):
        await reflector.synced()
        made = api.create(pod("b"))
        version = int(made["metadata"]["resourceVersion"])
        async with asyncio.timeout(60):
            while int(reflector.version) < version:
                await asyncio.sleep(0.05)
        assert len(consumer.batches) == 1  # the list: bookmarks are not delivered
        assert reflector.health().lists == 1


@pytest.mark.slow
async def test_a_restart_of_the_api_server_loses_nothing(plane: ControlPlane, api: Client) -> None:
    api.create(pod("a"))
    async with reflecting(plane) as (reflector, consumer):
        await watching(reflector)
        plane.restart_api_server(grace=0)
        api.delete("Pod", "a")
        api.create(pod("b"))
        await consumer.until(lambda: consumer.names == ["b"])
        assert reflector.health().error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that is cut off on purpose
async def test_a_lost_history_lists_again(plane: ControlPlane, api: Client) -> None:
    """While we are cut off a pod goes, and the server forgets that it ever was."""
    api.create(pod("a"))
    api.create(pod("b"))
    async with reflecting(plane) as (reflector, consumer):
        await watching(reflector)
        await reflector._api.close()
        api.delete("Pod", "a")
        api.create(pod("c"))
        plane.forget_history()
        await consumer.until(lambda: consumer.names == ["b", "c"])
        assert reflector.health().lists == 2
        assert "410" in reflector.health().error


@pytest.mark.slow
async def test_a_list_that_outlives_its_history(plane: ControlPlane, api: Client) -> None:
    for name in "abc":
        api.create(pod(name))
    async with connected(plane) as client:
        pages = client.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1)
        first = await anext(pages)
        assert [item.metadata.name for item in first.items] == ["a"]
        assert first.rest
        await pages.aclose()  # page two is on its way, and might meet a server that is just going
        api.create(pod("d"))
        plane.forget_history()
        rest = client.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1, params={"continue": first.rest})
        with pytest.raises(Gone):
            await anext(rest)


async def test_pages(plane: ControlPlane, api: Client) -> None:
    for name in "abcde":
        api.create(pod(name))
    async with connected(plane) as client:
        pages = [page async for page in client.list_pages(PODS, TypedReader(objects.Pod), version="", limit=2)]
        assert [[item.metadata.name for item in page.items] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
        assert len({page.version for page in pages}) == 1


async def test_pages_of_a_version_that_has_passed_are_the_present(plane: ControlPlane, api: Client) -> None:
    """With a limit, a version alone would mean: as it was then."""
    api.create(pod("a"))
    async with connected(plane) as client:
        [page] = [page async for page in client.list_pages(PODS, TypedReader(objects.Pod), version="", limit=2)]
        for name in "bcde":
            api.create(pod(name))
        pages = [
            page async for page in client.list_pages(PODS, TypedReader(objects.Pod), version=page.version, limit=2)
        ]
        assert [item.metadata.name for page in pages for item in page.items] == list("abcde")


async def test_who_lacks_a_permission_is_told_which(plane: ControlPlane) -> None:
    async with connected(plane, "nobody") as client:
        with pytest.raises(Forbidden) as caught:
            await client.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/dovetail")
    missing = caught.value.missing
    assert missing is not None
    assert (missing.user, missing.verb, missing.resource) == ("nobody", "get", "leases")
    assert (missing.group, missing.namespace) == ("coordination.k8s.io", "default")


def binding(made: Object, to: str, **meta: str) -> Object:
    metadata = {"name": made["metadata"]["name"], "uid": made["metadata"]["uid"], **meta}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": to}}


async def test_a_stale_binding_is_a_conflict_and_so_is_a_second_one(plane: ControlPlane, api: Client) -> None:
    api.create(node("n1"))
    made = api.create(pod("a"))
    path = "/api/v1/namespaces/default/pods/a/binding"
    old = made["metadata"]["resourceVersion"]
    async with connected(plane) as client:
        touched = await client.patch("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"touched": "yes"}}})
        with pytest.raises(Conflict):
            await client.post(path, binding(made, "n1", resourceVersion=old))
        now = msgspec.json.decode(touched, type=Head).version
        body = msgspec.json.encode(binding(made, "n1", resourceVersion=now))
        await retrying(lambda: client.post(path, body))
        with pytest.raises(Conflict):  # sent twice by a retry: harmless, and told
            await client.post(path, body)
        with pytest.raises(NotFound):
            await client.post("/api/v1/namespaces/default/pods/gone/binding", body.replace(b'"a"', b'"gone"'))


def pod_group_crd() -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "podgroups.scheduling.x-k8s.io",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": "scheduling.x-k8s.io",
            "names": {"kind": "PodGroup", "plural": "podgroups"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_a_resource_that_is_installed_later(plane: ControlPlane, api: Client) -> None:
    async with reflecting(plane, POD_GROUPS, objects.PodGroup) as (reflector, consumer):
        await reflector.synced()
        assert consumer.batches == [[NotServed()]]
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.ask("POST", crds, pod_group_crd())
        try:
            await consumer.until(lambda: isinstance(consumer.batches[-1][0], Replaced))
            assert reflector.health().served
            group = {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "gang"},
                "spec": {"minMember": 3},
            }
            where = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
            api.ask("POST", where, group)
            await consumer.until(lambda: consumer.names == ["gang"])
        finally:
            api.ask("DELETE", f"{crds}/podgroups.scheduling.x-k8s.io")
        await consumer.until(lambda: consumer.batches[-1] == [NotServed()])
