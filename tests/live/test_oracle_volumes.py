"""The real kube-scheduler and our engine leave the same nodes to pods with volumes, case by generated case."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dovetail.engine.kernel.build import builder
from dovetail.engine.ledger.intern import Interner
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules.volumes import Volumes
from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import parse
from dovetail.kube.objects.problems import Problems
from dovetail.model.reason import Reason
from tests.live.oracle_volumes import CORE, NODES, STORAGE, Case, case, own_claim
from tools.controlplane.client import MERGE, Client, Object
from tools.controlplane.objects import node
from tools.controlplane.plane import ControlPlane

CASES = 150
EBS, EBS_LIMITS = (
    "ebs.csi.aws.com",
    {"a": 0, "b": 1, "c": 6, "d": 1000},
)  # all cases' in-tree volumes count for this one
READ = (
    f"{CORE}/nodes",
    f"{CORE}/pods",
    f"{CORE}/persistentvolumes",
    f"{CORE}/persistentvolumeclaims",
    f"{STORAGE}/storageclasses",
    f"{STORAGE}/csinodes",
    f"{STORAGE}/csidrivers",
    f"{STORAGE}/csistoragecapacities",
    f"{STORAGE}/volumeattachments",
)


class Extender(ThreadingHTTPServer):
    """Is told which nodes kube-scheduler's own filters left, and refuses them all, so that nothing is ever bound."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.left: dict[str, set[str]] = {}  # pod -> nodes

    @property
    def config(self) -> Object:
        return {"urlPrefix": f"http://127.0.0.1:{self.server_port}", "filterVerb": "filter", "nodeCacheCapable": True}


class _Handler(BaseHTTPRequestHandler):
    server: Extender

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.left.setdefault(asked["Pod"]["metadata"]["name"], set(asked["NodeNames"]))
        answer = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(asked["NodeNames"], "seen")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def extender() -> Iterator[Extender]:
    with Extender() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def create(api: Client, cases: list[Case]) -> None:
    for name, labels in NODES.items():
        api.create(node(name, labels=labels))
        drivers = [
            {"name": one.driver, "nodeID": name, "allocatable": {"count": one.limits[name]}}
            for one in cases
            if name in one.limits
        ]
        drivers.append({"name": EBS, "nodeID": name, "allocatable": {"count": EBS_LIMITS[name]}})
        csi = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": drivers},
        }
        api.create(csi)
    for one in cases:
        for path, item in one.objects:
            made = api.ask("POST", path, item)
            if item["kind"] == "Pod" and any("ephemeral" in volume for volume in item["spec"]["volumes"]):
                api.ask("POST", path.replace("pods", "persistentvolumeclaims"), own_claim(made, one.number))
        for path, status in one.statuses:
            api.ask("PATCH", f"{path}/status", {"status": status}, MERGE)
        for path in one.deleted:
            api.ask("DELETE", path)


def answers(plane: ControlPlane, api: Client, cases: list[Case]) -> dict[str, set[str]]:
    """pod -> nodes that kube-scheduler's filters leave to the case's pod."""
    with extender() as server:
        profile = {"schedulerName": "oracle"}
        plane.start_scheduler(
            {"profiles": [profile], "extenders": [server.config], "percentageOfNodesToScore": 100, "parallelism": 2}
        )

        def tried() -> bool:
            pods = api.list("Pod", None, fieldSelector="spec.schedulerName=oracle")
            return len(pods) == len(cases) and all(
                pod["metadata"]["name"] in server.left or pod["status"].get("conditions") for pod in pods
            )

        api.wait_until(tried, "every pod was tried", 120)
        plane.stop_component("kube-scheduler", grace=0)
        return {name: server.left.get(name, set()) for name in (one.name("asks") for one in cases)}


def read(api: Client) -> ClusterInput:
    """The cluster as the API server has it."""
    problems = Problems()
    text = "\n".join(json.dumps(api.ask("GET", path)) for path in READ)
    given = load(parse("cluster.json", text, problems), Settings(), problems, everything=True)
    assert not [problem for problem in given.problems if problem.severity == "error"]
    return given


def ours(given: ClusterInput) -> dict[str, dict[str, str]]:
    """pod -> node -> why it is refused there, "" where it is not."""
    ledger = Ledger(builder(False).book_keeping(), Interner())
    volumes = Volumes(ledger)
    for one in given.nodes:
        ledger.set_node(one)
    volumes.change(given.volumes)
    for running in given.running:
        volumes.came(running.pod, ledger.row_of[running.node])
    said: dict[str, dict[str, str]] = {}
    for pod in (pod for group in given.groups for pod in group.pods):
        whatever = volumes.refusal(pod)
        codes = volumes.refusals(pod).tolist() if whatever is None else [int(whatever)] * len(ledger.nodes)
        names = (each.name for each in ledger.nodes)
        said[pod.name] = {name: Reason(code).name if code else "" for name, code in zip(names, codes, strict=True)}
    return said


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kube_scheduler_leaves_the_same_nodes(plane: ControlPlane, api: Client, seed: int) -> None:
    cases = [case(number, seed) for number in range(CASES)]
    create(api, cases)
    expected, found = answers(plane, api, cases), ours(read(api))
    left = {pod: {name for name, reason in said.items() if not reason} for pod, said in found.items()}
    assert {pod: (found[pod], expected[pod]) for pod in expected if left[pod] != expected[pod]} == {}
    reasons = {reason for said in found.values() for reason in said.values()}
    assert reasons == {  # a generator that never reaches a rule proves nothing about it
        "",
        "CLAIM_MISSING",
        "CLAIM_UNBOUND",
        "CLAIM_IN_USE",
        "VOLUME_LIMIT",
        "VOLUME_NODE",
        "VOLUME_NONE",
        "VOLUME_ZONE",
    }
