"""HAMi's test vectors, decided twice: by the engine itself, and by `dovetail plan -o json` on manifests.

A scene is nodes and what runs on them, as values of the model; `manifests` writes it down as HAMi would have: registers
with empty values left out, running pods with the device string.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import ContainerKind, Pod, Quota
from dovetail.model.reason import Reason
from tests.builders import cluster, group, use

Json = dict[str, Any]
WORD, MODEL = "NVIDIA", "NVIDIA A100-SXM4-80GB"


class Use(NamedTuple):
    """Containers that together hold so many slots, MiB and per cent of compute of one card."""

    node: str
    uuid: str
    slots: int
    memory: int
    cores: int


@dataclass(frozen=True)
class Scene:
    nodes: tuple[Node, ...]
    uses: tuple[Use, ...] = ()
    quotas: tuple[Quota, ...] = ()


class Given(NamedTuple):
    """One card given to one container."""

    container: str
    uuid: str
    memory: int
    cores: int


class Outcome(NamedTuple):
    node: str | None
    given: tuple[Given, ...]
    refused: dict[str, str]  # node -> why, in HAMi's words

    @property
    def cards(self) -> list[str]:
        return [given.uuid for given in self.given]


def scene(*nodes: Node, uses: Sequence[Use] = (), model: str = WORD, quotas: Sequence[Quota] = ()) -> Scene:
    """All cards that are called by the bare word get this model name."""
    return Scene(tuple(with_model(one, model) for one in nodes), tuple(uses), tuple(quotas))


def with_model(node: Node, model: str) -> Node:
    return replace(
        node, devices=tuple(msgspec.structs.replace(d, model=model) if d.model == WORD else d for d in node.devices)
    )


def started(given: Scene) -> Scheduler:
    scheduler = cluster(*given.nodes, quotas=given.quotas)
    for one in given.uses:
        use(scheduler, *one)
    return scheduler


# ---- by the engine ------------------------------------------------------------------------------------------------


def by_engine(given: Scene, *pods: Pod) -> list[Outcome]:
    """Placed one by one; what the nodes lack is asked when all are placed, as `plan` does."""
    scheduler = started(given)
    decisions = scheduler.place([group(pod) for pod in pods])
    outcomes = []
    for pod, decision in zip(pods, decisions, strict=True):
        shares = tuple(
            Given(pod.containers[s.container].name, s.uuid, s.memory_mib, s.compute_milli // 10)
            for s in decision.shares
        )
        lacking = {} if decision.placed else {v.node: v.hami for v in verdicts(scheduler, pod) if v.reason != Reason.OK}
        outcomes.append(Outcome(decision.node, shares, lacking))
    return outcomes


# ---- by the command line ------------------------------------------------------------------------------------------


def by_plan(given: Scene, *pods: Pod, options: Sequence[str] = ()) -> list[Outcome]:
    """`dovetail plan -f - -o json` with the pods in this order (by their creation time)."""
    document = plan(*manifests(given), *(pod_manifest(pod, n) for n, pod in enumerate(pods)), options=options)
    assert document["errors"] == []
    found: dict[str, Outcome] = {}
    for placed in document["placements"]:
        shares = tuple(
            Given(d["container"], d["uuid"], d["memory_mib"], d["compute_milli"] // 10) for d in placed["devices"]
        )
        found[placed["pod"]] = Outcome(placed["node"], shares, {})
    for waiting in document["pending"]:
        found[waiting["pod"]] = Outcome(None, (), waiting["nodes"])
    return [found[pod.name] for pod in pods]


def plan(*objects: Json, options: Sequence[str] = ()) -> Json:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    result = CliRunner().invoke(cli, ["plan", "-f", "-", "-o", "json", *options], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.stdout, result.stderr
    document: Json = json.loads(result.stdout)
    return document


def manifests(given: Scene) -> list[Json]:
    running = [pod for one in given.uses for pod in _use_manifests(one)]
    return [node_manifest(node) for node in given.nodes] + running + [_quota_manifest(quota) for quota in given.quotas]


def node_manifest(node: Node) -> Json:
    annotations = {"hami.io/node-nvidia-register": json.dumps([_register(device) for device in node.devices])}
    if cordoned := [device.uuid for device in node.devices if device.cordoned]:
        annotations["hami.io/device-cordon"] = ", ".join(cordoned)
    if node.links:
        ids = [device.uuid for device in node.devices]
        annotations["hami.io/node-nvidia-score"] = json.dumps(
            [
                {"uuid": ids[x], "score": {ids[y]: pair for y, pair in enumerate(scores) if x != y}}
                for x, scores in enumerate(node.links)
            ]
        )
    slots = sum(device.slots for device in node.devices)
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "9999", "nvidia.com/gpu": str(slots)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "annotations": annotations, "labels": dict(node.labels)},
        "status": {"allocatable": allocatable},
    }


def pod_manifest(pod: Pod, n: int = 0) -> Json:
    rules = pod.rules_for(WORD)
    annotations = {
        "hami.io/node-scheduler-policy": pod.profile.node,
        "hami.io/gpu-scheduler-policy": ",".join(pod.profile.device),
        "hami.io/device-scoring-weights": "slot={},core={},memory={}".format(*pod.profile.weights),
        "nvidia.com/use-gputype": ",".join(rules.use_types),
        "nvidia.com/nouse-gputype": ",".join(rules.nouse_types),
        "nvidia.com/use-gpuuuid": ",".join(rules.use_uuids),
        "nvidia.com/nouse-gpuuuid": ",".join(rules.nouse_uuids),
        "nvidia.com/numa-bind": "true" if rules.numa_bind else "",
    }
    init, app = list[Json](), list[Json]()
    for container in pod.containers:
        limits: dict[str, str] = {}
        for ask in container.asks:
            limits |= {"nvidia.com/gpu": str(ask.count), "nvidia.com/gpucores": str(ask.compute_milli // 10)}
            if ask.memory_percent is not None:
                limits["nvidia.com/gpumem-percentage"] = str(ask.memory_percent)
            else:
                limits["nvidia.com/gpumem"] = str(ask.memory_mib)
        made = {"name": container.name, "image": "i", "resources": {"limits": limits}}
        if container.kind is ContainerKind.SIDECAR:
            made["restartPolicy"] = "Always"
        (app if container.kind is ContainerKind.APP else init).append(made)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "creationTimestamp": f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z",
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {"initContainers": init, "containers": app or [{"name": "main", "image": "i"}]},
    }


def _register(device: Device) -> Json:
    """As Go writes it: false, 0 and empty are left out."""
    entry = {
        "id": device.uuid,
        "index": device.index,
        "count": device.slots,
        "devmem": device.memory_mib,
        "devcore": device.compute_milli // 10,
        "type": device.model,
        "numa": device.numa,
        "mode": device.mode,
        "health": device.healthy,
    }
    return {key: value for key, value in entry.items() if value}


def _use_manifests(one: Use) -> list[Json]:
    """The first pod has all of it but 1 MiB for each of the others: HAMi gives no pod less."""
    made = []
    for n in range(one.slots):
        memory, cores = (max(1, one.memory - one.slots + 1), one.cores) if n == 0 else (1, 0)
        made.append(running_pod(f"on-{one.uuid}-{n}", one.node, f"{one.uuid},NVIDIA,{memory},{cores}:;"))
    return made


def running_pod(name: str, node: str, string: str, containers: int = 1) -> Json:
    """A pod that runs, with HAMi's device string."""
    made = [
        {"name": f"c{n}", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}} for n in range(containers)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name.lower(),
            "namespace": "running",
            "uid": f"uid-{name}",
            "annotations": {"hami.io/vgpu-devices-allocated": string, "hami.io/vgpu-node": node},
        },
        "spec": {"nodeName": node, "containers": made},
        "status": {"phase": "Running"},
    }


def _quota_manifest(quota: Quota) -> Json:
    hard = {f"limits.{WORD.lower()}.com/gpumem": str(mib) for mib in quota.device_memory_mib.values()}
    hard |= {f"limits.{WORD.lower()}.com/gpucores": str(milli // 10) for milli in quota.device_compute_milli.values()}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": quota.name, "namespace": quota.namespace},
        "spec": {"hard": hard},
    }
