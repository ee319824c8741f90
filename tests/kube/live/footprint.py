"""`python -m tests.kube.live.footprint NODES PODS`: MiB in use by a scheduler that knows so many, and nothing else.

Nodes have eight cards and twenty labels. All pods run, each with a share of a card; a hundred are of one owner.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import msgspec

from dovetail.kube.api.watch import Changed
from dovetail.kube.live import heap
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import Stage
from tests.kube.manifests import ALLOCATED, GPU, MEM, Object, card, container, node

CARDS, LABELS, OF_ONE_OWNER, AT_ONCE = 8, 20, 100, 500


def made_node(number: int) -> Object:
    name = f"node-{number:05}"
    labels = {f"topology.example.com/label-{n}": f"value-{n}-{number}" for n in range(LABELS)}
    allocatable = {"cpu": "128", "memory": "1024Gi", "pods": "250", GPU: str(10 * CARDS)}
    return node(name, *(card(f"GPU-{name}-{n}") for n in range(CARDS)), labels=labels, allocatable=allocatable)


def made_pod(number: int, nodes: int) -> Object:
    owner, name = f"job-{number // OF_ONE_OWNER}", f"node-{number % nodes:05}"
    meta = {
        "name": f"{owner}-{number:08x}",
        "namespace": "ml",
        "uid": f"00000000-0000-0000-0000-{number:012x}",
        "resourceVersion": str(number),
        "labels": {"app": owner, "pod-template-hash": f"{number // OF_ONE_OWNER:010x}"},
        "annotations": {ALLOCATED: f"GPU-{name}-{number // nodes % CARDS},NVIDIA,500,10:;"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}],
    }
    ask = container({"cpu": "500m", "memory": "1Gi", GPU: 1, MEM: 500, "nvidia.com/gpucores": 10})
    return {"metadata": meta, "spec": {"schedulerName": "dovetail", "nodeName": name, "containers": [ask]}}


async def know(stage: Stage, nodes: int, pods: int) -> None:
    """In batches of JSON, as from a list."""
    for start in range(0, nodes, AT_ONCE):
        text = msgspec.json.encode([made_node(n) for n in range(start, min(nodes, start + AT_ONCE))])
        items = msgspec.json.decode(text, type=list[objects.Node])
        stage.driver.happened(stage.mirror.hear_nodes([Changed(one) for one in items]))
    for start in range(0, pods, AT_ONCE):
        text = msgspec.json.encode([made_pod(n, nodes) for n in range(start, min(pods, start + AT_ONCE))])
        stage.driver.hear_pods([Changed(one) for one in msgspec.json.decode(text, type=list[objects.Pod])])
        await asyncio.sleep(0)
    while stage.driver._inbox:
        await asyncio.sleep(0)


def resident() -> float:
    gc.collect()
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def main(nodes: int, pods: int) -> None:
    heap.keep_compact()
    stage = Stage()
    running = asyncio.create_task(stage.driver.run())
    await know(stage, nodes, pods)
    print(f"{len(stage.scheduler.ledger.nodes)} {len(stage.scheduler.ledger.pods)} {resident():.1f}")
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
