"""Pods per second behind kube-scheduler: 300 pods on 200 nodes, with and without HAMi's node lock.

The shape of a measurement of HAMi's own extender on a machine of this kind: kube-scheduler configured as HAMi's chart
does it, all pods there before it starts, and a device plugin that acknowledges at once. The API server counts writes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from bench.live_cluster import NODES, PODS, client, create, delete_pods, say, watching
from bench.live_contenders import DOVETAIL
from bench.live_load import CARD_MIB, CARDS, MODEL, ROOM
from dovetail.kube.api.client import Api
from tools.controlplane.access import ROLES, grant_dovetail
from tools.controlplane.client import Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, HANDSHAKE, cards, node, pod
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

SIZE, COUNT = 200, 300
NAME = "hami-scheduler"
SECONDS = 300.0
# Measured for HAMi v2.10 in this shape elsewhere, on the same kind of machine: pods/s, writes a pod.
HAMI = {"binpack": "8.8 pods/s", "spread": "17 to 22 pods/s", "writes": "4 to 5.6 writes a pod"}
_COUNTER = re.compile(r"apiserver_request_total\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class ExtenderRun:
    policy: str
    lock: bool
    pods_per_second: float
    seconds: float
    writes_per_pod: float  # Bindings, and patches of pods and nodes by the extender
    plugin_writes_per_pod: float  # the plugin's acknowledgement, and its end of the lock
    events_per_pod: float


async def extender_runs() -> list[ExtenderRun]:
    found = []
    for lock in (False, True):
        for policy in ("binpack", "spread"):
            with ControlPlane() as plane:
                grant_dovetail(plane.client(), *ROLES)
                async with client(plane) as api:
                    run = await _measure(plane, api, policy, lock)
            say(f"  extender, {policy}, {'with' if lock else 'without'} HAMi's lock: {run}")
            found.append(run)
    say(f"  HAMi, with its lock: binpack {HAMI['binpack']}, spread {HAMI['spread']}, {HAMI['writes']}")
    return found


def _nodes(lock: bool) -> Iterator[Object]:
    notes = {HANDSHAKE: "Reported_2026.11.18 10:00:00"} if lock else {}
    for n in range(SIZE):
        name = f"node-{n:05d}"
        yield node(name, cards(name, CARDS, CARD_MIB, MODEL), annotations=notes, resources=ROOM)


def _pods() -> Iterator[Object]:
    for n in range(COUNT):
        part = 1 + n % 8
        limits: dict[str, str | int] = {GPU: 1, GPU_MEMORY: 1024 * part, GPU_CORES: 5 * part, "cpu": "100m"}
        yield pod(f"pod-{n:05d}", limits, NAME)


async def _measure(plane: ControlPlane, api: Api, policy: str, lock: bool) -> ExtenderRun:
    await create(api, NODES, _nodes(lock), SIZE, "nodes")
    await create(api, PODS, _pods(), COUNT, "pods")
    port, http = free_ports(2)
    command = [
        *(DOVETAIL, "extender", "--kubeconfig", str(plane.kubeconfig("dovetail")), "--identity", "bench"),
        *("--http_bind", f"127.0.0.1:{http}", "--metrics-bind-address", f"127.0.0.1:{port}"),
        *("--node-scheduler-policy", policy),
    ]
    extender = Process("dovetail", command, plane.path / "extender.log")
    with ExitStack() as stack:
        stack.callback(extender.stop)
        if lock:
            stack.enter_context(Kubelet(plane.client().access)).hami = True
        await asyncio.to_thread(extender.wait_until, lambda: "ready: " in extender.last_words(50), 300.0)
        before = await _writes(api)
        async with watching(plane) as sight:
            await asyncio.to_thread(plane.start_scheduler, _kube_scheduler(f"http://127.0.0.1:{http}"))
            await sight.until(lambda: len(sight.bound) >= COUNT, SECONDS, f"{COUNT} pods bound")
            times = sorted(sight.bound.values())
        await asyncio.sleep(5.0)  # the plugin's last acknowledgements, and events
        after = await _writes(api)
        plane.stop_component("kube-scheduler")
        await delete_pods(api)
    made = {key: (after.get(key, 0) - before.get(key, 0)) / COUNT for key in after}
    patches = made.get("pods PATCH", 0.0) + made.get("nodes PATCH", 0.0)
    plugin = 2.0 if lock else 0.0  # a patch of the pod, and one of the node
    seconds = times[-1] - times[0]
    return ExtenderRun(
        policy,
        lock,
        round((COUNT - 1) / seconds, 1),
        round(seconds, 2),
        round(made.get("pods/binding POST", 0.0) + patches - plugin, 2),
        plugin,
        round(made.get("events POST", 0.0), 2),
    )


async def _writes(api: Api) -> dict[str, float]:
    """What the API server has counted: resource and verb -> successful writes."""
    text = bytes(await api.get("/metrics")).decode()
    found: dict[str, float] = {}
    for labels, number in _COUNTER.findall(text):
        said = dict(_LABEL.findall(labels))
        if said["verb"] not in ("POST", "PATCH", "PUT") or not said["code"].startswith("2"):
            continue
        what = f"{said['resource']}/{said['subresource']}".rstrip("/")
        key = f"{what} {said['verb']}"
        found[key] = found.get(key, 0.0) + float(number)
    return found


def _kube_scheduler(url: str) -> Object:
    names = (GPU, GPU_MEMORY, GPU_CORES, "nvidia.com/gpumem-percentage")
    asked = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "weight": 1,
        "httpTimeout": "30s",
        "managedResources": [{"name": name, "ignoredByScheduler": True} for name in names],
    }
    return {"profiles": [{"schedulerName": NAME}], "extenders": [asked]}


def summary(runs: list[ExtenderRun]) -> list[dict[str, Any]]:
    return [asdict(run) for run in runs]


if __name__ == "__main__":
    print(json.dumps(summary(asyncio.run(extender_runs()))))
