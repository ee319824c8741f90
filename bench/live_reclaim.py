"""Preemption on a real control plane: from the arrival of urgent pods to the evictions, and to their Bindings.

500 nodes of eight GPUs are full of pods of a low priority, which end as soon as they are evicted. Then one pod of one
GPU arrives, and afterwards 250 pods of eight GPUs each (2,000 GPUs).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench import live_load as load
from bench.live_cluster import NODES, PODS, Sight, create, delete_pods, say, watching
from bench.live_contenders import Dovetail
from dovetail.kube.api.client import Api
from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, pod
from tools.controlplane.plane import ControlPlane

SIZE, URGENT = 500, 250
CLASSES = {"bench-low": 0, "bench-urgent": 1000}
Figures = dict[str, dict[str, float]]


def _class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _pods(prefix: str, count: int, gpus: int, priority_class: str) -> Iterator[Object]:
    for n in range(count):
        facts: dict[str, Any] = {"priorityClassName": priority_class, "terminationGracePeriodSeconds": 0}
        yield pod(f"{prefix}-{n:05d}", {GPU: gpus}, "dovetail", **facts)


async def reclaim(plane: ControlPlane, api: Api) -> Figures:
    """Seconds by case: until the last eviction was seen, and until the last pod had a node."""
    await create(api, NODES, load.nodes(SIZE), SIZE, "nodes")
    for name, value in CLASSES.items():
        await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", _class(name, value))
    dovetail = Dovetail(plane)
    try:
        dovetail.start()
        async with watching(plane) as sight:
            singles = SIZE // 2 * load.CARDS
            await _fill(api, sight, "single", singles, 1)
            await _fill(api, sight, "whole", SIZE - SIZE // 2, load.CARDS)
            one = await _arrive(api, sight, "one", 1, 1)
            many = await _arrive(api, sight, "many", URGENT, load.CARDS)
            return {"1 GPU": one, f"{URGENT} pods of {load.CARDS} GPUs": many}
    finally:
        dovetail.stop()
        await delete_pods(api)


async def _fill(api: Api, sight: Sight, prefix: str, count: int, gpus: int) -> None:
    there = len(sight.bound)
    await create(api, PODS, _pods(prefix, count, gpus, "bench-low"), count, f"pods of {gpus} GPUs")
    await sight.until(lambda: len(sight.bound) == there + count, 300, "all pods of a low priority have a node")


async def _arrive(api: Api, sight: Sight, prefix: str, count: int, gpus: int) -> dict[str, float]:
    sight.deleted.clear()
    began = time.monotonic()
    await create(api, PODS, _pods(prefix, count, gpus, "bench-urgent"), count, f"urgent pods of {gpus} GPUs")
    names = [f"{prefix}-{n:05d}" for n in range(count)]
    await sight.until(lambda: all(name in sight.bound for name in names), 300, "all urgent pods have a node")
    bound = max(sight.bound[name] for name in names) - began
    evicted = max(sight.deleted.values(), default=began) - began
    say(f"  {count} × {gpus} GPUs: {len(sight.deleted)} evictions by {evicted:.2f} s, all bound by {bound:.2f} s")
    return {"evictions": len(sight.deleted), "evicted_seconds": round(evicted, 3), "bound_seconds": round(bound, 3)}
