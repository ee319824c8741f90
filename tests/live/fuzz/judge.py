"""Follows every pod, and judges each placement on an honest machine when it is made. Shares no code with dovetail.

What a pod holds is what was written when it was bound. What a lying node says and what its pods hold does not count.
Pods whose names begin with `direct-` were put on a node by their tenant: no scheduler could help it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.live.assigned import ALLOCATED, Use, holds, over, pieces, uses
from tests.live.chaos.machines import MEMORY, Machine
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, SLOTS

CARD = {"devmem": MEMORY, "devcore": 100, "count": SLOTS}  # as every honest card is
PERCENT = "nvidia.com/gpumem-percentage"
UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{f"{unit}i": 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P", "E")) if unit},
}


@dataclass(frozen=True)
class Held:
    """A pod that dovetail bound to an honest machine, as it was then."""

    name: str
    namespace: str
    machine: Machine
    uses: dict[str, Use]  # card -> what it takes of it
    gpus: int  # that it asked for
    memory: int  # MiB of GPU memory that it holds at least
    record: str  # its cards as they were written


class Judge:
    """`with Judge(client, machines, quotas) as judge`; `wrong` are the findings so far."""

    def __init__(self, api: Client, machines: dict[str, Machine], quotas: dict[str, int]) -> None:
        """`quotas`: namespace -> MiB of GPU memory that its pods may hold."""
        self._api, self._machines, self._quotas = api, machines, quotas
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.held: dict[str, Held] = {}  # uid -> what it holds
        self.placed = 0
        self.wrong: list[str] = []
        self.restarted = False  # the scheduler was started anew: see `hear`
        self._edited: set[str] = set()  # uids of those whose record was written over
        self._seen: dict[str, str] = {}  # uid -> node, of all pods there are

    def __enter__(self) -> Judge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def most_held(self, namespace: str) -> int:
        return sum(one.memory for one in list(self.held.values()) if one.namespace == namespace)

    def _follow(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = version or self._list()
                for event in self._api.watch("Pod", version, None, seconds=3, allowWatchBookmarks="true"):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self.hear(event["object"], event["type"] == "DELETED")
            except (OSError, ApiError):  # the API server is away
                version = ""
                time.sleep(0.1)

    def _list(self) -> str:
        said = self._api.ask("GET", "/api/v1/pods")
        there = {item["metadata"]["uid"] for item in said["items"]}
        for uid in [uid for uid in self._seen if uid not in there]:
            self._forget(uid)
        for item in said["items"]:
            self.hear(item, gone=False)
        return str(said["metadata"]["resourceVersion"])

    def _forget(self, uid: str) -> None:
        self.held.pop(uid, None)
        self._seen.pop(uid, None)
        self._edited.discard(uid)

    def hear(self, item: Object, gone: bool) -> None:
        """One event of the watch.

        A scheduler that is started anew cannot know which cards a pod has whose record was written over: from then on
        such a card is not judged. While it runs, it knows.
        """
        meta, uid = item["metadata"], item["metadata"]["uid"]
        if gone:
            self._forget(uid)
            return
        if not holds(item):
            self.held.pop(uid, None)
            return
        where = item["spec"]["nodeName"]
        if uid in self._seen:
            if self._seen[uid] != where:
                self.wrong.append(f"bound twice: {meta['name']} to {self._seen[uid]} and to {where}")
            if uid in self.held and _record(item) != self.held[uid].record:
                self._edited.add(uid)
            return
        self._seen[uid] = where
        machine = self._machines.get(where)
        if machine is None or item["spec"].get("schedulerName") != "dovetail" or meta["name"].startswith("direct-"):
            return
        self.placed += 1
        try:
            new = self.held[uid] = held_by(item, machine)
        except ValueError as error:
            self.wrong.append(f"unreadable: the record of {meta['namespace']}/{meta['name']}: {error}")
            return
        self.wrong += [f"{new.namespace}/{new.name} on {machine.name}: {what}" for what in self._judge(new, item)]

    def _judge(self, new: Held, item: Object) -> Iterator[str]:
        for uuid in new.uses:
            if not uuid.startswith(f"GPU-{new.machine.name}-"):
                yield f"{uuid} is no card of this machine"
            sharing = {
                uid: one.uses[uuid] for uid, one in self.held.items() if uuid in one.uses and one.machine == new.machine
            }
            if not self.restarted or self._edited.isdisjoint(sharing):
                yield from over(uuid, CARD, sharing.values())
        if new.machine.kind == "stock":
            whole = sum(one.gpus for one in self.held.values() if one.machine == new.machine)
            if whole > new.machine.cards:
                yield f"{whole} GPUs on a machine of {new.machine.cards}"
        elif new.gpus and len(pieces(item)) < new.gpus:
            yield f"asks for {new.gpus} cards, and {len(pieces(item))} are written down"
        most = self._quotas.get(new.namespace)
        if most is not None and new.memory and (sum_ := self.most_held(new.namespace)) > most:
            yield f"quota: {sum_} MiB of {most}"


def held_by(item: Object, machine: Machine) -> Held:
    """Of a pod that asks for no card a record does not count: its tenant wrote it, and the Binding left it alone."""
    meta, gpus = item["metadata"], gpus_of(item)
    taken = uses(item) if gpus and machine.kind != "stock" else {}
    stated = sum(int(container_memory(one)) for one in item["spec"]["containers"])
    memory = sum(use.memory for use in taken.values()) if taken else min(stated, gpus * MEMORY)
    return Held(meta["name"], meta["namespace"], machine, taken, gpus, memory, _record(item))


def _record(item: Object) -> str:
    return str((item["metadata"].get("annotations") or {}).get(ALLOCATED, ""))


def gpus_of(item: Object) -> int:
    """Cards that the app containers ask for; a part without a count is one card, as HAMi's webhook would write it."""
    left_alone = (item["metadata"].get("labels") or {}).get("hami.io/webhook") == "ignore"
    return sum(_count(container, left_alone) for container in item["spec"]["containers"])


def _count(container: Object, left_alone: bool) -> int:
    asked = container.get("resources", {}).get("limits", {})
    part = any(number(asked.get(name, "0")) for name in (GPU_MEMORY, GPU_CORES, PERCENT))
    return int(number(asked.get(GPU, "1" if part and not left_alone else "0")))


def container_memory(container: Object) -> float:
    """MiB of GPU memory that a container states, for all of its cards."""
    asked = container.get("resources", {}).get("limits", {})
    return number(asked.get(GPU_MEMORY, "0")) * number(asked.get(GPU, "1"))


def number(text: str) -> float:
    """A quantity of Kubernetes: `16Gi`, `1e3`, `100k`, `500m`."""
    if text.endswith("m"):
        return float(text[:-1]) / 1000
    unit = next((unit for unit in sorted(UNITS, key=len, reverse=True) if unit and text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * float(UNITS[unit])


def eventually(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
