"""Kubernetes manifests in a few words, and what is read from them."""

from __future__ import annotations

import json
from typing import Any

from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import parse
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.pod import DeviceAsk, Pod

Object = dict[str, Any]
GPU, MEM, PCT, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
REGISTER = "hami.io/node-nvidia-register"
ALLOCATED = "hami.io/vgpu-devices-allocated"


def container(
    limits: Object | None = None, requests: Object | None = None, name: str = "main", **fields: Any
) -> Object:
    return {"name": name, "resources": {"limits": limits or {}, "requests": requests or {}}, **fields}


def pod(
    name: str = "p", *containers: Object, meta: Object | None = None, status: Object | None = None, **spec: Any
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"containers": list(containers) or [container()], **spec},
        "status": status or {},
    }


def gpu_pod(annotations: Object | None = None, **limits: Any) -> Object:
    """gpu_pod(gpu=1, gpumem=4096) asks in limits; `pct` is gpumem-percentage."""
    named = {f"nvidia.com/{'gpumem-percentage' if key == 'pct' else key}": value for key, value in limits.items()}
    return pod("p", container(named), meta={"annotations": annotations or {}})


def workload(kind: str, name: str = "web", template: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": template or {"spec": {"containers": [container()]}}, **spec},
    }


def card(uuid: str, model: str = "NVIDIA A100-SXM4-80GB", memory: int = 8000, **fields: Any) -> Object:
    """An entry of HAMi's register."""
    return {"id": uuid, "count": 10, "devmem": memory, "devcore": 100, "type": model, "health": True, **fields}


def node(name: str = "n", *cards: Object, labels: Object | None = None, **fields: Any) -> Object:
    annotations = {REGISTER: json.dumps(list(cards))} if cards else {}
    annotations.update(fields.pop("annotations", {}))
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", **fields.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": labels or {}},
        "spec": fields.pop("spec", {}),
        "status": {"allocatable": allocatable, **fields},
    }


def other(kind: str, api_version: str = "v1", name: str = "x", **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def read(*objects: Object, settings: Settings | None = None) -> ClusterInput:
    problems = Problems()
    documents = parse("m.json", "\n".join(json.dumps(item) for item in objects), problems)
    return load(documents, settings or Settings(), problems)


def pods_of(given: ClusterInput) -> list[Pod]:
    return [member for group in given.groups for member in group.pods]


def only_pod(*objects: Object, settings: Settings | None = None) -> Pod:
    (found,) = pods_of(read(*objects, settings=settings))
    return found


def ask_of(source: Object, settings: Settings | None = None) -> DeviceAsk | None:
    """What the pod's only container asks of cards."""
    (only,) = only_pod(source, settings=settings).containers
    return only.asks[0] if only.asks else None


def said(given: ClusterInput, severity: str, field: str = "") -> list[Problem]:
    return [p for p in given.problems if p.severity == severity and p.field.endswith(field)]
