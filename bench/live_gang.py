"""A large gang on a real control plane: from the creation of its first pod to the Binding of its last.

500 nodes of eight GPUs, one PodGroup, 512 pods of one GPU. The bare loop binds as many pods that exist already, with as
many Bindings at once, and does nothing else. The gang's time includes the creation of its pods, which is also measured
by itself: no scheduler can place the gang before its last pod exists.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import live_load as load
from bench.live_cluster import NODES, PODS, create, delete_pods, say, watching
from bench.live_contenders import Bare, Dovetail
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import NotFound, Unavailable
from dovetail.kube.api.retry import retrying
from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, pod
from tools.controlplane.plane import ControlPlane

SIZE, MEMBERS, ROUNDS = 500, 512, 3
API_GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"
GROUPS = f"/apis/{API_GROUP}/v1alpha1/namespaces/default/podgroups"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Figures = dict[str, float]


def _kind() -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    names = {"kind": "PodGroup", "plural": "podgroups"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{API_GROUP}", "annotations": approved},
        "spec": {"group": API_GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _pods(prefix: str, scheduler: str, labels: dict[str, str] | None = None) -> Iterator[Object]:
    for n in range(MEMBERS):
        yield pod(f"{prefix}-{n:05d}", {GPU: 1}, scheduler, labels=labels)


async def gang(plane: ControlPlane, api: Api) -> Figures:
    """Seconds, the median of the rounds; the gang and the bare loop take turns."""
    await create(api, NODES, load.nodes(SIZE), SIZE, "nodes")
    await api.post(CRDS, _kind())
    rounds: list[tuple[float, ...]] = []
    dovetail = Dovetail(plane)
    try:
        dovetail.start()
        dovetail.wait_ready()
        for number in range(ROUNDS):
            made, bound, spread = await _gang_round(plane, api, number)
            bare_made, bare = await _bare_round(plane, api)
            say(
                f"  round {number + 1}: pods created in {made:.2f} s; first created to last bound {bound:.2f} s, of "
                f"which binding {spread:.2f} s; bare loop {bare:.2f} s"
            )
            rounds.append((made, bound, spread, bare_made, bare))
    finally:
        dovetail.stop()
        await delete_pods(api)
    median = [sorted(column)[ROUNDS // 2] for column in zip(*rounds, strict=True)]
    names = ("created", "first_created_to_last_bound", "binding", "bare_created", "bare_binding")
    figures = {f"{name}_seconds": round(value, 3) for name, value in zip(names, median, strict=True)}
    _, bound, spread, bare_made, bare = median
    ratios = {
        "bound_to_bare_bindings": bound / bare,
        "bound_to_bare_creation_and_bindings": bound / (bare_made + bare),
        "binding_to_bare_bindings": spread / bare,
    }
    return figures | {name: round(value, 2) for name, value in ratios.items()}


async def _gang_round(plane: ControlPlane, api: Api, number: int) -> tuple[float, float, float]:
    """Seconds from the first POST to: the last pod created, the last pod bound; and from the first to the last bind."""
    name = f"gang{number}"
    body = {"apiVersion": f"{API_GROUP}/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
    await retrying(lambda: _make(api, {**body, "spec": {"minMember": MEMBERS}}), tries=20)
    async with watching(plane) as sight:
        began = time.monotonic()
        await create(api, PODS, _pods(name, "dovetail", {LABEL: name}), MEMBERS, f"pods of {name}")
        made = time.monotonic() - began
        await sight.until(lambda: len(sight.bound) == MEMBERS, 300, "all members have a node")
        first, last = min(sight.bound.values()), max(sight.bound.values())
    await delete_pods(api)
    return made, last - began, last - first


async def _make(api: Api, body: Object) -> None:
    """Create the PodGroup; a CRD that is not served yet answers 404, which is worth another try."""
    try:
        await api.post(GROUPS, body)
    except NotFound as error:
        raise Unavailable(error.message) from error


async def _bare_round(plane: ControlPlane, api: Api) -> tuple[float, float]:
    """Seconds to create the pods, and from the first to the last pod that the bare loop binds."""
    bare, began = Bare(plane), time.monotonic()
    await create(api, PODS, _pods("bare", bare.scheduler), MEMBERS, "pods for the bare loop")
    made = time.monotonic() - began
    async with watching(plane) as sight:
        bare.start()
        try:
            await sight.until(lambda: len(sight.bound) == MEMBERS, 300, "the bare loop has bound all pods")
        finally:
            bare.stop()
        seconds = max(sight.bound.values()) - min(sight.bound.values())
    await delete_pods(api)
    return made, seconds
