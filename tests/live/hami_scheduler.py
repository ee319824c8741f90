"""What HAMi's scheduler leaves on pods and nodes, as far as Dovetail, the device plugin and HAMi itself read it.

The order of writes and their texts are those of HAMi v2.10 (pkg/scheduler/scheduler.go, Filter and Bind): the record on
the waiting pod, the lock on the node, the phase, the Binding. It shares no code with Dovetail.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime

from tools.controlplane.client import Client, Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, REGISTER

NAME = "hami-scheduler"
NODE, TIME, LOCK = "hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/mutex.lock"
ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
PHASE, BIND_TIME = "hami.io/bind-phase", "hami.io/bind-time"


class HamiScheduler:
    """Places pods of one card, by HAMi's record of what is in use. `pool`: its --node-label-selector."""

    def __init__(self, api: Client, pool: dict[str, str] | None = None) -> None:
        self._api, self._pool = api, pool or {}

    def place(self, name: str) -> str:
        """Place the pod; returns its card. Raises LookupError if no card has room."""
        pod = self._api.get("Pod", name)
        assert pod["spec"]["schedulerName"] == NAME
        memory, cores = asked(pod)
        for node in sorted(self._api.list("Node"), key=lambda one: str(one["metadata"]["name"])):
            labels = node["metadata"].get("labels", {})
            if any(labels.get(key) != value for key, value in self._pool.items()):
                continue
            for card in json.loads(node["metadata"]["annotations"].get(REGISTER, "[]")):
                used = self.used(card["id"])
                wanted = {"pods": (1, "count"), "memory": (memory, "devmem"), "cores": (cores, "devcore")}
                if all(used[what] + amount <= card[size] for what, (amount, size) in wanted.items()):
                    self._bind(pod, node["metadata"]["name"], f"{card['id']},NVIDIA,{memory},{cores}:;")
                    return str(card["id"])
        raise LookupError(f"no card for {name}")

    def used(self, card: str) -> Counter[str]:
        """What the records of pods say is in use of a card: its restart reads the same annotations."""
        total = Counter[str]()
        for pod in self._api.list("Pod", namespace=None):
            notes = pod["metadata"].get("annotations", {})
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or not notes.get(NODE):
                continue
            for container in notes.get(ALLOCATED, "").split(";"):
                for part in filter(None, container.split(":")):
                    uuid, _, memory, cores = part.split(",")
                    if uuid == card:
                        total += Counter(pods=1, memory=int(memory), cores=int(cores))
        return total

    def _bind(self, pod: Object, node: str, record: str) -> None:
        api, name = self._api, pod["metadata"]["name"]
        notes = {NODE: node, TIME: str(int(time.time())), ALLOCATED: record, TO_ALLOCATE: record}
        api.patch("Pod", name, {"metadata": {"annotations": notes, "labels": {NODE: node}}})
        api.wait_until(lambda: not self._lock(node), f"the lock of {node} is free")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        api.patch("Node", node, {"metadata": {"annotations": {LOCK: f"{now},default,{name}"}}})
        phase = {PHASE: "allocating", BIND_TIME: str(int(time.time()))}
        api.patch("Pod", name, {"metadata": {"annotations": phase}})
        status, said = api.bind(name, node)
        assert status == 201, said
        api.wait_until(lambda: api.get("Pod", name)["metadata"]["annotations"][PHASE] == "success", "the plugin has it")

    def _lock(self, node: str) -> str:
        return str(self._api.get("Node", node)["metadata"].get("annotations", {}).get(LOCK, ""))


def asked(pod: Object) -> tuple[int, int]:
    """(MiB, per cent) of one card."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert str(limits[GPU]) == "1"
    return int(str(limits[GPU_MEMORY]).replace("k", "000")), int(
        limits.get(GPU_CORES, 0)
    )  # the server stores 8000 as 8k
