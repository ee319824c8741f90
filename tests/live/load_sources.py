"""Sources of measured load for tests: a metrics API behind the aggregation layer, and an exporter for Prometheus.

Both are real servers on loopback. They can lie, die and come back.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

GROUP = "/apis/metrics.k8s.io/v1beta1"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices"
PROMETHEUS_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dovetail" / "prometheus"


class Server:
    """An HTTP server whose answers are made by `answer(path) -> (status, type, text)`. It counts what it is asked."""

    def __init__(self, answer: Callable[[str], tuple[int, str, str]], tls: Path | None = None) -> None:
        self.port, self._tls, self._answer = free_ports(1)[0], tls, answer
        self.asked: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, kind, text = outer._answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients that leave early

        self._server = Quiet(("127.0.0.1", self.port), Handler)
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._tls / "apiserver.crt", self._tls / "apiserver.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def count(self, part: str) -> int:
        return sum(1 for path in self.asked if part in path)


class MetricsApi(Server):
    """metrics.k8s.io with the CPU use of nodes, in cores as text; memory is always 1 GiB."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(self._say, plane.authority.parent)
        self.cpu: dict[str, str | tuple[str, ...]] = {}  # several: one after the other, from answer to answer
        self.age = timedelta(seconds=1)

    def _say(self, path: str) -> tuple[int, str, str]:
        body: dict[str, Any]
        if path.partition("?")[0] == f"{GROUP}/nodes":
            at = (datetime.now(UTC) - self.age).strftime("%Y-%m-%dT%H:%M:%SZ")
            turn = self.count("/nodes")
            now = {name: cpu if isinstance(cpu, str) else cpu[turn % len(cpu)] for name, cpu in self.cpu.items()}
            items = [
                {"metadata": {"name": name}, "timestamp": at, "window": "1s", "usage": {"cpu": cpu, "memory": "1Gi"}}
                for name, cpu in now.items()
            ]
            body = {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        elif path.startswith("/apis"):
            nodes = {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["list"]}
            body = {"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [nodes]}
        else:
            return 404, "text/plain", "not here"
        return 200, "application/json", json.dumps(body)


@contextmanager
def aggregated(api: Client, stub: MetricsApi) -> Iterator[None]:
    """Register the stub as the server of metrics.k8s.io, with a real APIService."""
    stub.start()
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": stub.port}]}
    meta = {"name": "metrics-stub", "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "service": {**meta, "port": stub.port},
            "insecureSkipTLSVerify": True,  # the stub has the certificate of the API server, for another name
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    api.ask("POST", API_SERVICE, service)
    try:
        api.wait_until(lambda: api.request("GET", f"{GROUP}/nodes")[0] == 200, "metrics.k8s.io is served", 60)
        yield
    finally:
        api.ask("DELETE", f"{API_SERVICE}/v1beta1.metrics.k8s.io")
        stub.stop()


class Exporter(Server):
    """Series in Prometheus' text format."""

    def __init__(self) -> None:
        super().__init__(lambda path: (200, "text/plain; version=0.0.4", self.text))
        self.text = ""

    def says(self, **loads: float | str) -> None:
        """DCGM's utilisation of cards: says(a0=40) is card GPU-a-0 of node a."""
        lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
        for name, load in loads.items():
            labels = f'Hostname="{name[0]}",gpu="{name[1]}",UUID="GPU-{name[0]}-{name[1]}"'
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {load}")
        self.text = "\n".join(lines) + "\n"


class Prometheus:
    """Debian's prometheus, or the one that PROMETHEUS names. It scrapes the exporter every second."""

    def __init__(self, exporter: Exporter, folder: Path) -> None:
        self._folder, self.port = folder, free_ports(1)[0]
        scrape = f"  - job_name: dcgm\n    static_configs: [{{targets: ['127.0.0.1:{exporter.port}']}}]\n"
        every = "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        (folder / "prometheus.yml").write_text(f"{every}scrape_configs:\n{scrape}")
        self.process: Process | None = None

    def start(self) -> None:
        flags = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": self._folder / "data",
            "web.listen-address": f"127.0.0.1:{self.port}",
            "log.level": "warn",
        }
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        self.process = Process("prometheus", [find_prometheus(), *words], self._folder / "prometheus.log")

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(0)
            self.process = None


def find_prometheus() -> str:
    names = [os.environ.get("PROMETHEUS", ""), "prometheus", str(PROMETHEUS_CACHE / "usr" / "bin" / "prometheus")]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no prometheus: run .ci/prometheus, or say where it is with PROMETHEUS=…")
    return found


@contextmanager
def stopped(*servers: Server | Prometheus) -> Iterator[None]:
    """Stop them in the end, whatever happens."""
    try:
        yield
    finally:
        for server in servers:
            with suppress(Exception):
                server.stop()
