"""A stand-in kubelet for all nodes: bound pods become Running, deleted pods go away. One thread, no containers."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tools.controlplane import hami_plugin
from tools.controlplane.admission import lacking
from tools.controlplane.client import Access, Object, path_of
from tools.controlplane.follow import Hub
from tools.controlplane.objects import ready

TERMINAL = ("Succeeded", "Failed")
AMOUNTS = ("capacity", "allocatable")


@dataclass(frozen=True)
class Refusal:
    """The reason with which a kubelet rejects a bound pod."""

    reason: str = "OutOfcpu"
    message: str = "Pod was rejected: Node didn't have enough resource: cpu"


class Kubelet:
    """Use it as `with Kubelet(plane.client().access) as kubelet:`. Its attributes may be changed while it runs."""

    def __init__(self, access: Access, hami: bool = False) -> None:
        self.start_delay = 0.0  # seconds from bound to Running
        self.stop_delay = 0.0  # seconds from deletionTimestamp to gone
        self.heartbeat_every: float | None = None  # seconds between two heartbeats of each node; None: no heartbeats
        self.hami = hami  # acts as HAMi's device plugin on nodes with its handshake
        self.advertises = False  # extended resources of a node's capacity become allocatable
        self.counts = False  # rejects pods for which the node lacks CPU, memory or a pod slot, as a real kubelet does
        self.complaints: list[str] = []  # problems that a real node would have had
        self.heartbeats = 0
        self._refusals: list[tuple[Callable[[Object], bool], Refusal]] = []
        self._access = access
        self._dead: set[str] = set()  # nodes without a kubelet
        self._nodes: dict[str, Object] = {}
        self._pods: dict[str, Object] = {}  # uid -> bound pod
        self._answered: set[str] = set()  # uids of pods that were set to Running or Failed: the watch may lag behind
        self._admitted: dict[str, Object] = {}  # uid -> admitted pod
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}  # (uid, start or stop) -> its task
        self._admitting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # node -> lock: one pod at a time
        self._listed = [threading.Event(), threading.Event()]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._error: BaseException | None = None

    # --- public methods

    def __enter__(self) -> Kubelet:
        self._thread.start()
        for listed in self._listed:
            if not listed.wait(30):
                raise RuntimeError(f"the stand-in kubelet does not get its lists: {self._error}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._main is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(30)
        if self._error is not None:
            raise self._error

    def refuse(
        self,
        which: str | Callable[[Object], bool],
        reason: str = Refusal.reason,
        message: str = Refusal.message,
    ) -> None:
        """Pods with this name, or for which this function is true, become Failed instead of Running."""
        refuses = which if callable(which) else lambda pod, name=which: bool(pod["metadata"]["name"] == name)
        self._refusals.append((refuses, Refusal(reason, message)))

    def admit_all(self) -> None:
        """Undo all calls of `refuse`."""
        self._refusals.clear()

    def kill(self, node: str) -> None:
        """Stop the kubelet of this node: it ignores its pods and sends no heartbeats."""
        self._dead.add(node)

    def revive(self, node: str) -> None:
        self._dead.discard(node)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._look_at_all)

    @property
    def under_way(self) -> int:
        """The number of pods that are being started or stopped."""
        return len(self._busy)

    # --- in its thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error
            for listed in self._listed:
                listed.set()

    async def _serve(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        async with Hub(self._access) as self._hub, asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._hub.follow("Node", "", self._nodes_are, self._node_changed))
            self._tasks.create_task(self._hub.follow("Pod", "spec.nodeName!=", self._pods_are, self._pod_changed))
            self._tasks.create_task(self._beat())

    def _nodes_are(self, nodes: list[Object]) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._look_at_all()
        self._listed[0].set()

    def _node_changed(self, kind: str, node: Object) -> None:
        name = node["metadata"]["name"]
        is_new = name not in self._nodes
        if kind == "DELETED":
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
            self._advertise(node)
        if is_new:
            self._look_at_all()

    def _advertise(self, node: Object) -> None:
        """Make extended resources in the node's capacity allocatable, as a real kubelet does."""
        name, status = node["metadata"]["name"], node["status"]
        has, offers = ({key: value for key, value in status.get(part, {}).items() if "/" in key} for part in AMOUNTS)
        if self.advertises and has != offers and name not in self._dead:
            body = {"status": {"allocatable": {**dict.fromkeys(offers), **has}}}
            self._tasks.create_task(self._hub.ask("PATCH", path_of("Node", name, part="status"), body))

    def _pods_are(self, pods: list[Object]) -> None:
        self._pods = {pod["metadata"]["uid"]: pod for pod in pods}
        self._admitted = {uid: pod for uid, pod in self._admitted.items() if uid in self._pods}
        self._look_at_all()
        self._listed[1].set()

    def _pod_changed(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._pods.pop(uid, None)
            self._admitted.pop(uid, None)
            self._answered.discard(uid)
        else:
            self._pods[uid] = pod
            self._look_at(uid)

    def _look_at_all(self) -> None:
        for uid in list(self._pods):
            self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        """Start the pending work for a pod, unless it is already running."""
        pod = self._pods[uid]
        if not self._is_mine(pod):
            return
        if pod["metadata"].get("deletionTimestamp"):
            self._do(uid, "stop", self._stop, self.stop_delay + _sleeps(pod))
        elif pod["status"].get("phase", "Pending") == "Pending" and uid not in self._answered:
            self._do(uid, "start", self._start, self.start_delay)

    def _is_mine(self, pod: Object) -> bool:
        name = pod["spec"]["nodeName"]
        return name in self._nodes and name not in self._dead

    def _do(self, uid: str, what: str, work: Callable[[str, float], Coroutine[Any, Any, None]], delay: float) -> None:
        """Run the work as a task.

        The delay is read now, so that a test that sees this pod under way can set another delay for the next pod.
        """
        key = (uid, what)
        if key not in self._busy:
            self._busy[key] = task = self._tasks.create_task(work(uid, delay))
            task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _start(self, uid: str, delay: float) -> None:
        await asyncio.sleep(delay)
        pod = self._pods.get(uid)
        if pod is None or pod["metadata"].get("deletionTimestamp") or not self._is_mine(pod):
            return
        name = pod["spec"]["nodeName"]
        async with self._admitting[name]:
            refusal = next((refusal for refuses, refusal in self._refusals if refuses(pod)), None) or self._full(pod)
            if refusal is None:
                self._admitted[uid] = pod
            if refusal is None and self.hami and hami_plugin.serves(self._nodes[name], pod):
                complaint = await hami_plugin.allocate(self._hub, pod)
                if complaint:
                    self.complaints.append(complaint)
                    refusal = Refusal("UnexpectedAdmissionError", f"Allocate failed due to {complaint}")
        await self._hub.ask("PATCH", _path(pod, "status"), {"status": _status(pod, refusal), **_only(uid)})
        self._answered.add(uid)

    def _full(self, pod: Object) -> Refusal | None:
        name = pod["spec"]["nodeName"]
        there = [one for one in self._admitted.values() if one["spec"]["nodeName"] == name]
        what = lacking(self._nodes[name], there, pod) if self.counts else None
        return Refusal(f"OutOf{what}", f"Node didn't have enough resource: {what}") if what else None

    async def _stop(self, uid: str, delay: float) -> None:
        await asyncio.sleep(delay)
        if uid in self._pods:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            await self._hub.ask("DELETE", _path(self._pods[uid]), body, "application/json")

    async def _beat(self) -> None:
        while True:
            every, names = self.heartbeat_every, [name for name in self._nodes if name not in self._dead]
            if every is None or not names:
                await asyncio.sleep(0.1)
                continue
            for name in names:
                await asyncio.sleep(every / len(names))
                status, _ = await self._hub.ask(
                    "PATCH", path_of("Node", name, part="status"), {"status": {"conditions": [_heartbeat()]}}
                )
                self.heartbeats += status == 200


def _sleeps(pod: Object) -> float:
    """Seconds that the pod's preStop hooks sleep."""
    hooks = (container.get("lifecycle", {}).get("preStop", {}) for container in pod["spec"]["containers"])
    return max((float(hook.get("sleep", {}).get("seconds", 0)) for hook in hooks), default=0.0)


def _heartbeat() -> Object:
    return {key: value for key, value in ready().items() if key != "lastTransitionTime"}


def _path(pod: Object, part: str = "") -> str:
    meta = pod["metadata"]
    return path_of("Pod", meta["name"], meta["namespace"], part)


def _only(uid: str) -> Object:
    """Restrict a patch to the pod with this uid: for a later pod of the same name, the API server returns 409."""
    return {"metadata": {"uid": uid}}


def _status(pod: Object, refusal: Refusal | None) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if refusal is not None:
        return {"phase": "Failed", "reason": refusal.reason, "message": refusal.message, "startTime": now}
    states = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    kinds = ("Initialized", "ContainersReady", "Ready")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
    return {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": states}
