"""Builds nodes, pods and workloads as JSON objects, with few arguments. Cards are in HAMi's encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tools.controlplane.client import Object

REGISTER = "hami.io/node-nvidia-register"
HANDSHAKE = "hami.io/node-handshake"
GPU, GPU_MEMORY, GPU_CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
SLOTS = 10  # HAMi's default for the number of pods that share a card


def card(uuid: str, index: int = 0, memory: int = 15360, model: str = "NVIDIA Tesla T4", **fields: Any) -> Object:
    """An entry of HAMi's register. Values of 0 are left out, as in HAMi."""
    whole = {"id": uuid, "index": index, "count": SLOTS, "devmem": memory, "devcore": 100, "type": model}
    return {key: value for key, value in {**whole, "mode": "hami-core", "health": True, **fields}.items() if value}


def cards(node: str, count: int, memory: int = 15360, model: str = "NVIDIA Tesla T4") -> list[Object]:
    """`count` equal cards, named after the node: GPU-<node>-0, GPU-<node>-1, …"""
    return [card(f"GPU-{node}-{index}", index, memory, model) for index in range(count)]


def node(
    name: str,
    gpus: Sequence[Object] | int = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A node; `gpus=2` gives it two cards.

    `resources` are added to 32 CPUs, 128 GiB and 110 pods, or replace them.
    """
    gpus = cards(name, gpus) if isinstance(gpus, int) else list(gpus)
    has = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    notes = dict(annotations or {})
    if gpus:
        has[GPU] = str(sum(gpu["count"] for gpu in gpus))
        notes.setdefault(REGISTER, json.dumps(gpus, separators=(",", ":")))
    has |= dict(resources or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}, "annotations": notes},
        "spec": spec,
        "status": {"capacity": has, "allocatable": has, "conditions": [ready()]},
    }


def ready() -> Object:
    """The Ready condition of a node whose kubelet works."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {"type": "Ready", "status": "True", **said, "lastHeartbeatTime": now, "lastTransitionTime": now}


def pod(
    name: str,
    limits: Mapping[str, str | int] | None = None,
    scheduler: str = "dovetail",
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container; `limits` are also its requests. Further keywords go into its spec."""
    meta = {"name": name, "namespace": namespace, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(limits, scheduler, **spec)}


def pod_spec(limits: Mapping[str, str | int] | None = None, scheduler: str = "dovetail", **spec: Any) -> Object:
    amounts = {key: str(value) for key, value in (limits or {}).items()}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": amounts}}
    containers = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"schedulerName": scheduler, **containers, **spec}


def gpu_limits(count: int = 1, memory: int | None = None, cores: int | None = None) -> dict[str, str | int]:
    """Limits such as `gpu_limits(1, memory=4096, cores=30)`: MiB and percent of each card, in HAMi's units."""
    asked = {GPU: count, GPU_MEMORY: memory, GPU_CORES: cores}
    return {key: value for key, value in asked.items() if value is not None}


def deployment(name: str, replicas: int, template: Object, namespace: str = "default", **spec: Any) -> Object:
    """A Deployment. `template` is a pod_spec, or a pod whose labels, annotations and spec are used."""
    meta = dict(template.get("metadata", {}))
    inner: Object = template.get("spec", template)
    labels = {**meta.get("labels", {}), "app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels, "annotations": meta.get("annotations", {})}, "spec": inner},
            **spec,
        },
    }


def condition(item: Object, kind: str) -> Object | None:
    """The condition of this type, such as PodScheduled."""
    found: list[Object] = item.get("status", {}).get("conditions", [])
    return next((entry for entry in found if entry["type"] == kind), None)
