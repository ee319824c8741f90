"""The load of the live benchmark: nodes of eight cards, and pods of 240 shapes, a fifth of them with rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, cards, node, pod

CARDS = 8
MODEL, CARD_MIB = "NVIDIA A100-SXM4-80GB", 81920
ROOM = {"cpu": "128", "memory": "1024Gi", "pods": "110", "ephemeral-storage": "1024Gi"}
ZONES, POOLS = 10, 4
SHAPES = 240
APPS = 8  # not a divisor of the number of rules: ten pods of each application for each rule
ZONE, HOST, POOL = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/pool"
ENVIRONMENT = [{"name": f"VARIABLE_{n}", "value": "some value of some length"} for n in range(8)]


def nodes(count: int) -> Iterator[Object]:
    for n in range(count):
        name = f"node-{n:05d}"
        labels = {ZONE: f"zone-{n % ZONES}", POOL: f"pool-{n % POOLS}"}
        yield node(name, cards(name, CARDS, CARD_MIB, MODEL), labels, resources=ROOM)


def shared_gpu(shape: int) -> dict[str, str | int]:
    """Limits for parts of cards, by memory and compute: Dovetail's case."""
    cores = 5 * (shape % 9)
    limits: dict[str, str | int] = {GPU: 2 if shape % 7 == 0 else 1, GPU_MEMORY: 1024 * (1 + shape % 8)}
    return {**limits, **({GPU_CORES: cores} if cores else {}), **_plain(shape)}


def counted_gpu(shape: int) -> dict[str, str | int]:
    """Limits for whole cards, the only case of the stock kube-scheduler; CPU and memory as in `shared_gpu`."""
    return {GPU: 2 if shape % 7 == 0 else 1, **_plain(shape)}


def _plain(shape: int) -> dict[str, str | int]:
    return {"cpu": f"{100 * (1 + shape % 20)}m", "memory": f"{256 * (1 + shape // 20)}Mi"}


def pods(
    count: int, scheduler: str, limits: Callable[[int], dict[str, str | int]], prefix: str = "pod"
) -> Iterator[Object]:
    """Pods; every fifth has a rule: node selector, node affinity, anti-affinity, affinity and spread in turn."""
    for n in range(count):
        app = f"app-{n // 5 % APPS}"
        rule = list(RULES)[n // 5 % len(RULES)] if n % 5 == 0 else "none"
        rules = RULES[rule](app) if rule in RULES else {}
        labels = {"app": app, "rule": rule, "example.com/team": f"team-{n % 7}"}
        made = pod(f"{prefix}-{n:05d}", limits(n % SHAPES), scheduler, labels=labels, **rules)
        made["spec"]["containers"][0]["env"] = ENVIRONMENT
        yield made


def hopeless(count: int, first: int = 0) -> Iterator[Object]:
    """Pods for which no node is large enough; every fifth also has rules."""
    for n, made in enumerate(pods(count, "dovetail", shared_gpu, "hopeless")):
        made["metadata"]["name"] = f"hopeless-{first + n:05d}"
        made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = f"{129 + (first + n) % 200}"
        yield made


def running(count: int, nodes: int) -> Iterator[Object]:
    """Running pods with a node and, in HAMi's annotations, cards on it: four per node, two per card."""
    for n in range(count):
        name, slot = f"node-{n % nodes:05d}", n // nodes
        shape = n % SHAPES
        memory, cores = 1024 * (1 + shape % 8), 5 * (shape % 9)
        limits = {GPU: 1, GPU_MEMORY: memory, **({GPU_CORES: cores} if cores else {}), **_plain(shape)}
        text = f"GPU-{name}-{slot // 2},NVIDIA,{memory},{cores}:;"
        notes = {
            "hami.io/vgpu-node": name,
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-phase": "success",
            "hami.io/bind-time": "1700000000",
            "hami.io/vgpu-devices-to-allocate": text,
            "hami.io/vgpu-devices-allocated": text,
        }
        labels = {"app": f"app-{n % APPS}", "hami.io/vgpu-node": name}
        made = pod(f"running-{n:05d}", limits, "dovetail", labels=labels, annotations=notes, nodeName=name)
        made["spec"]["containers"][0]["env"] = ENVIRONMENT
        yield made


def _selector(app: str) -> dict[str, Any]:
    return {"nodeSelector": {ZONE: f"zone-{app[-1]}"}}


def _node_affinity(app: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": POOL, "operator": "In", "values": ["pool-1", "pool-2"]}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def _apart(app: str) -> dict[str, Any]:
    """Anti-affinity: no two pods of an application on one node."""
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_same(app, "apart", HOST)]}}
    }


def _together(app: str) -> dict[str, Any]:
    return {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_same(app, "together", ZONE)]}}
    }


def _spread(app: str) -> dict[str, Any]:
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_same(app, "spread", ZONE)}
    return {"topologySpreadConstraints": [rule]}


def _same(app: str, rule: str, key: str) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app, "rule": rule}}}


RULES: dict[str, Callable[[str], dict[str, Any]]] = {
    "selector": _selector,
    "node-affinity": _node_affinity,
    "apart": _apart,
    "together": _together,
    "spread": _spread,
}
