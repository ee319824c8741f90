"""kube-scheduler as an oracle: which nodes it finds feasible for a pod, and which it takes.

It never says the former, but an extender is told: ours listens, remembers, and lets everything through. Scores of
resources are switched off, so that only preferences decide. Nodes of a case have names of their own and are written
once; a probe that gets to see exactly these proves that the scheduler knows them. Pods come to it through one informer,
so whoever was created before a pod is known when that pod's turn comes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import Any

from tests.live.oracle_cases import CLAIMS, FINALIZER, HEAVY, RANKS, SPACES, ZONE
from tests.live.oracle_selectors import SELECTING
from tools.controlplane.client import ApiError, Client, Object, path_of
from tools.controlplane.objects import condition
from tools.controlplane.plane import ControlPlane

SECONDS = 30.0  # longer than anything takes here
BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
GATED = "SchedulingGated"  # what the API server says of a pod with a gate
FIRST = "first"  # the highest priority
PLUG = "plug"  # a pod that keeps the scheduler busy
OWN_GATE = {"name": "example.com/nominated"}
NO_SCORE = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")


def configuration(port: int, by_default: bool = False) -> Object:
    """`by_default`: resources are scored and pods spread as kube-scheduler does on its own."""
    spread = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs", "defaultingType": "List"}
    plugins = {"postFilter": {"disabled": [{"name": "*"}]}}
    if by_default:
        spread["defaultingType"] = "System"
    else:
        plugins["score"] = {"disabled": [{"name": name} for name in NO_SCORE]}
    return {
        "parallelism": 1,
        "clientConnection": {"qps": 10_000, "burst": 10_000},
        "profiles": [{"plugins": plugins, "pluginConfig": [{"name": "PodTopologySpread", "args": spread}]}],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{port}",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "weight": 1,
                "httpTimeout": "40s",
            }
        ],
    }


@dataclass
class Outcome:
    """What became of a pod."""

    node: str | None  # where it was bound
    feasible: frozenset[str]
    reason: str  # of the condition, where it was not


@dataclass
class Ear:
    """What the extender hears, and whom it lets through."""

    heard: dict[str, frozenset[str]] = field(default_factory=dict)  # uid -> nodes
    answered: dict[str, Queue[frozenset[str]]] = field(default_factory=dict)  # probes
    order: list[str] = field(default_factory=list)  # names of pods, in turn
    busy: threading.Event = field(default_factory=threading.Event)  # kube-scheduler waits for an answer
    go_on: threading.Event = field(default_factory=threading.Event)  # until this is set

    def filter(self, arguments: Object) -> Object:
        uid, names = arguments["Pod"]["metadata"]["uid"], frozenset(arguments["NodeNames"] or ())
        self.order.append(arguments["Pod"]["metadata"]["name"])
        if self.order[-1] == PLUG:
            self.busy.set()
            self.go_on.wait(SECONDS)
            return {"NodeNames": []}
        if self.order[-1].startswith("probe"):
            self.answered.setdefault(uid, Queue()).put(names)
            return {"NodeNames": []}
        self.heard[uid] = names
        return {"NodeNames": sorted(names)}


@contextmanager
def listening(ear: Ear) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(ear.filter(said)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Oracle:
    """One kube-scheduler, asked case after case."""

    def __init__(self, api: Client, ear: Ear) -> None:
        self.api, self.ear = api, ear
        self.facts: list[Object] = []  # claims and volumes, the same for all cases
        self.selecting: list[Object] = []  # Services and controllers, likewise
        self._settled: dict[str, Queue[Object]] = {}  # uid -> what the watch saw of it once it was decided
        self._released: set[str] = set()  # uids of pods whose gate was taken away
        self._probes = 0
        self._stop = threading.Event()

    # ---- the world that all cases share -------------------------------------------------------------------------

    def furnish(self) -> None:
        for name, labels in SPACES.items():
            self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        overhead = {"podFixed": {"cpu": "700m", "memory": "512Mi"}}
        heavy = {"metadata": {"name": HEAVY}, "handler": "heavy", "overhead": overhead}
        self.api.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", heavy)
        for name, value in {**RANKS, FIRST: 1_000_000}.items():
            rank = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self.api.create({**rank, "value": value})
        self.selecting = [self.api.create(item) for item in SELECTING]
        for claim, zones in CLAIMS.items():
            self.facts += [self.api.create(item) for item in _bound(claim, zones)]

    def namespaces(self) -> dict[str, dict[str, str]]:
        return {item["metadata"]["name"]: item["metadata"].get("labels", {}) for item in self.api.list("Namespace")}

    @contextmanager
    def watching(self) -> Iterator[None]:
        version = self.api.ask("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
        thread = threading.Thread(target=self._follow, args=(version,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._nudge()
            thread.join()

    def _follow(self, version: str) -> None:
        while not self._stop.is_set():
            for event in self.api.watch("Pod", version, namespace=None, seconds=600):
                if self._stop.is_set():
                    return
                pod: Object = event["object"]
                version = pod["metadata"]["resourceVersion"]
                said = condition(pod, "PodScheduled") or {}
                if event["type"] != "DELETED" and (pod["spec"].get("nodeName") or said.get("status") == "False"):
                    self._settled.setdefault(pod["metadata"]["uid"], Queue()).put(pod)

    def _nudge(self) -> None:
        """An event, so that the watch looks up."""
        self._drop(self.api.create(_probe("probe-last")))

    # ---- one case -----------------------------------------------------------------------------------------------

    def put_nodes(self, nodes: list[Object]) -> list[Object]:
        """In place of those that were there; returns when the scheduler knows it."""
        self.api.ask("DELETE", path_of("Node"))
        made = [self.api.create(node) for node in nodes]
        wanted = frozenset(node["metadata"]["name"] for node in nodes)
        for _ in range(100):
            if self._seen_by_a_probe() == wanted:
                return made
        raise TimeoutError(f"the scheduler never saw the nodes {sorted(wanted)}")

    def _seen_by_a_probe(self) -> frozenset[str]:
        self._probes += 1
        probe = self.api.create(_probe(f"probe-{self._probes}"))
        answers = self.ear.answered.setdefault(probe["metadata"]["uid"], Queue())
        try:
            return answers.get(timeout=0.5)
        except Empty:
            return frozenset()  # no node passed, so that we were not asked
        finally:
            self._drop(probe)
            del self.ear.answered[probe["metadata"]["uid"]]

    def put_running(self, pod: Object, status: Object | None, leaving: bool) -> Object:
        made = self.api.create(pod)
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        if status is not None:
            made = self.api.patch("Pod", name, {"status": status}, namespace, part="status")
        if leaving:
            self.api.delete("Pod", name, namespace)
            made = self.api.get("Pod", name, namespace)
            assert made["metadata"]["deletionTimestamp"]
        return made

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """The scheduler judges nobody until all pods that are created meanwhile are in its queue."""
        plug = self.api.create(_probe(PLUG))
        assert self.ear.busy.wait(SECONDS)
        yield
        first = _probe("probe-first")
        first["spec"]["priorityClassName"] = FIRST
        first = self.api.create(first)
        time.sleep(1.0)  # it is on its way; the assertion below says whether that was long enough
        turn = len(self.ear.order)
        self.ear.go_on.set()
        self.ear.answered.setdefault(first["metadata"]["uid"], Queue()).get(timeout=SECONDS)
        assert self.ear.order[turn] == "probe-first", f"{self.ear.order[turn]} came before all were there"
        self._drop(plug)
        self._drop(first)

    def create(self, pod: Object) -> Object:
        return self.api.create(pod)

    def nominate(self, pod: Object, node: str) -> None:
        """Keep the node for a pod that waits; "" = no longer. Who was told before a pod came is known at its turn."""
        meta = pod["metadata"]
        said = {"status": {"nominatedNodeName": node or None}}
        self.api.patch("Pod", meta["name"], said, meta["namespace"], part="status")

    def create_nominated(self, pod: Object, node: str) -> Object:
        """A pod that has a node kept for itself when its turn comes: a gate holds it back until that is known."""
        gates = pod["spec"].get("schedulingGates", [])
        made = self.api.create({**pod, "spec": {**pod["spec"], "schedulingGates": [*gates, OWN_GATE]}})
        self.nominate(made, node)
        if not gates:
            self._released.add(made["metadata"]["uid"])
        return self._patch(made, {"spec": {"schedulingGates": gates or None}})

    def _patch(self, pod: Object, change: Object) -> Object:
        return self.api.patch("Pod", pod["metadata"]["name"], change, pod["metadata"]["namespace"])

    def outcome(self, pod: Object) -> tuple[Outcome, Object]:
        """What the scheduler makes of a pod that was just created. One that it cannot place is deleted."""
        uid = pod["metadata"]["uid"]
        reason = GATED
        while reason == GATED:
            seen = self._settled.setdefault(uid, Queue()).get(timeout=SECONDS)
            node = seen["spec"].get("nodeName")
            reason = "" if node else (condition(seen, "PodScheduled") or {}).get("reason", "")
            if uid not in self._released:
                break
        del self._settled[uid]
        if not node:
            self._drop(seen)
        return Outcome(node, self.ear.heard.pop(uid, frozenset()), reason), seen

    def clear(self, pods: list[Object]) -> None:
        """Nobody stays: what a finalizer holds, too."""
        for pod in pods:
            if FINALIZER in pod["metadata"].get("finalizers", ()):
                self._patch(pod, {"metadata": {"finalizers": None}})
        for namespace in {pod["metadata"]["namespace"] for pod in pods}:
            self.api.ask("DELETE", path_of("Pod", namespace=namespace), gracePeriodSeconds=0)
        for pod in pods:
            self._settled.pop(pod["metadata"]["uid"], None)

    def remove(self, pod: Object) -> None:
        self._drop(pod)

    def _drop(self, pod: Object) -> None:
        try:
            self.api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], gracePeriodSeconds=0)
        except ApiError as error:
            if error.status != 409:  # somebody writes its status at the same moment
                raise
            self._drop(pod)


@contextmanager
def oracle(plane: ControlPlane, api: Client, by_default: bool = False) -> Iterator[Oracle]:
    ear = Ear()
    with listening(ear) as port:
        made = Oracle(api, ear)
        made.furnish()
        plane.start_scheduler(configuration(port, by_default))
        try:
            with made.watching():
                yield made
        finally:
            plane.stop_component("kube-scheduler", grace=0)


def _probe(name: str) -> Object:
    spec = {"containers": [{"name": "main", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _bound(claim: str, zones: str) -> list[Object]:
    """A claim, and the volume it is bound to: one that is reached from some zone only, or that a label puts there."""
    mode = ["ReadWriteOncePod" if claim == "alone" else "ReadWriteMany"]
    size = {"storage": "1Gi"}
    meta: Object = {"name": f"volume-{claim}"}
    volume: Object = {"capacity": size, "accessModes": mode, "hostPath": {"path": "/x"}, "storageClassName": ""}
    volume["claimRef"] = {"namespace": "blue", "name": claim}
    if zones == "label":
        meta["labels"] = {ZONE: "a"}
    elif zones:
        rows = [{"key": ZONE, "operator": "In", "values": list(zones)}]
        volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": rows}]}}
    asks = {"accessModes": mode, "resources": {"requests": size}, "volumeName": meta["name"], "storageClassName": ""}
    own = {"name": claim, "namespace": "blue", "annotations": BOUND}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own, "spec": asks},
    ]
