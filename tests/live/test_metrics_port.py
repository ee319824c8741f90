"""The port for health and metrics of a real scheduler: worn at by strangers, and read by those whom RBAC lets."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path

import pytest

from dovetail.kube.live.port import BACKLOG, MAX_CONNECTIONS
from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import Alongside, create_all
from tools.controlplane.access import component, grant_dovetail
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

HALF_OPEN = 4_000
MOST_MADE = 40_000
CANARIES = 20
LONGEST = 10.0  # seconds for a canary or a probe: ten times the goal; 0.06 s and 0.001 s are usual
SHARE = gpu_limits(1, memory=500, cores=2)
BINDING = "rbac.authorization.k8s.io/v1"


def _open_files(dovetail: Dovetail) -> int:
    assert dovetail.process is not None
    return len(list(Path(f"/proc/{dovetail.process.pid}/fd").iterdir()))


class Strangers(Alongside):
    """Hold 4,000 connections that sent the first lines of a request, and open a new one for each that is ended."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port, self.made = port, 0
        self._held: deque[socket.socket] = deque()

    def _run(self) -> None:
        try:
            while self.made < MOST_MADE and not self._stop.wait(0.0005):
                one = socket.create_connection(("127.0.0.1", self._port), timeout=10)
                self._held.append(one)
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
                self.made += 1
                if len(self._held) > HALF_OPEN:
                    self._held.popleft().close()
        finally:
            while self._held:
                self._held.popleft().close()


def _canary(api: Client, name: str) -> float:
    """Seconds until it is bound."""
    began = time.monotonic()
    api.create(pod(name, SHARE))
    api.wait_until(lambda: api.get("Pod", name)["spec"].get("nodeName"), f"{name} is bound", 30)
    return time.monotonic() - began


def test_four_thousand_half_open_requests_slow_nothing(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    create_all(api, [node("a", gpus=4)])
    with scheduling(plane) as dovetail:
        calm = [_canary(api, f"calm-{number}") for number in range(5)]
        files = _open_files(dovetail)
        with Strangers(dovetail.port) as strangers:
            api.wait_until(lambda: strangers.made >= HALF_OPEN, "4,000 half-open requests", 60)
            assert _open_files(dovetail) <= files + MAX_CONNECTIONS + BACKLOG + 8  # and a few of its own
            waits = [_canary(api, f"p-{number}") for number in range(CANARIES)]
            probes = []
            for _ in range(20):
                began = time.monotonic()
                assert dovetail.get("/healthz")[0] == 200
                probes.append(time.monotonic() - began)
            made = strangers.made
        print(f"{made} connections; canary {max(calm):.3f} s, then {max(waits):.3f} s; probe {max(probes):.3f} s")
        assert max(waits) <= LONGEST, waits
        assert max(probes) <= LONGEST, probes
        api.wait_until(lambda: _open_files(dovetail) <= files + 8, "half-open requests are ended after 5 s", 30)


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_port_is_read_only(verb: str, plane: ControlPlane, api: Client) -> None:
    with scheduling(plane) as dovetail:
        request = urllib.request.Request(f"http://127.0.0.1:{dovetail.port}/metrics", method=verb, data=b"{}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5)
        with refused.value:
            assert refused.value.code == 405


def _read(dovetail: Dovetail, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{dovetail.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_metrics_are_for_those_whom_the_api_server_knows(plane: ControlPlane, api: Client) -> None:
    """Without the rights to ask, nobody reads; with them, who is bound to the shipped role for readers."""
    meta = {"name": "prometheus", "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    path = "/api/v1/namespaces/default/serviceaccounts/prometheus/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = api.ask("POST", path, body)["status"]["token"]
    with scheduling(plane, "--metrics-auth", "apiserver") as dovetail:
        assert (_read(dovetail, "/healthz"), _read(dovetail, "/readyz")) == (200, 200)
        assert _read(dovetail, "/metrics", token) == 503
        assert "deploy/optional/metrics-auth" in dovetail.words()
        grant_dovetail(api, component("metrics-auth"))
        api.wait_until(lambda: _read(dovetail, "/metrics", token) == 403, "the reader is known, and may not", 20)
        assert _read(dovetail, "/metrics") == 401
        assert _read(dovetail, "/metrics", "made-up") == 401
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dovetail-metrics-reader"}
        subject = {"kind": "ServiceAccount", **meta}
        made = {"apiVersion": BINDING, "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus"}}
        api.create({**made, "roleRef": role, "subjects": [subject]})
        api.wait_until(lambda: _read(dovetail, "/metrics", token) == 200, "the refusal is kept for 10 s only", 30)
        assert token not in dovetail.words()
