"""A control plane on loopback: etcd and the API server with RBAC; on request, controllers and kube-scheduler."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.controlplane.binaries import Binaries, find
from tools.controlplane.client import Access, Client, Object
from tools.controlplane.process import GRACE_SECONDS, Failed, Process, Room, free_ports, is_free
from tools.controlplane.recipes import KWOK
from tools.controlplane.users import Users, service_account_key

ETCD_BYTES = 8 << 30  # etcd's own limit is 2 GiB, which ten minutes of large pods reach: it refuses all writes then
# The controllers that make pods from workloads and clean up after them. There are no node controllers, so that nothing
# taints nodes or evicts pods by itself.
CONTROLLERS = (
    "cronjob daemonset deployment disruption garbage-collector job namespace replicaset resourceclaim resourcequota "
    "statefulset"
)
TRIES = 3  # another process may take a port after it was found free


@dataclass(frozen=True)
class Options:
    flow_control: bool = True  # API priority and fairness
    api_server: Sequence[str] = ()  # further flags
    port: int | None = None  # of the API server; None = any free port
    logs: Path | None = None  # an existing folder for the components' logs; None = beside their other files


class ControlPlane:
    """Use it as `with ControlPlane() as plane:`.

    All its processes are stopped at the end, or when this process dies.
    """

    def __init__(self, binaries: Binaries | None = None, options: Options | None = None) -> None:
        self.binaries = binaries or find()
        self.options = options or Options()
        self.room = Room()
        self.path = self.room.path
        self.users = Users(self.path)
        self.key = service_account_key(self.path / "service-accounts.key")
        self.port = self._etcd_port = 0
        self._processes: dict[str, Process] = {}
        self._clients: dict[str | None, Client] = {}

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the whole control plane

    def start(self) -> None:
        if self.options.port is not None and not is_free(self.options.port):
            raise Failed(f"port {self.options.port} of 127.0.0.1 is in use: name another one, or none for any")
        for attempt in range(TRIES):
            self._etcd_port, self._peer_port, free = free_ports(3)
            self.port = self.options.port or free
            try:
                self._start_etcd()
                self.start_api_server()
                return
            except Failed as error:
                self._stop_processes()
                if "address already in use" not in str(error) or attempt == TRIES - 1:
                    raise

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._stop_processes()
        self.room.close()

    def _stop_processes(self) -> None:
        for name in reversed(self._processes):  # etcd last
            self._processes[name].stop()
        self._processes.clear()

    # --- clients

    @property
    def authority(self) -> Path:
        """The certificate that the API server makes at its first start, and keeps."""
        return self.path / "pki" / "apiserver.crt"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def version(self) -> tuple[int, int]:
        """The version, such as (1, 36), for the few differences between series."""
        said = self.client().ask("GET", "/version")
        return int(said["major"]), int(said["minor"])

    def client(self, user: str | None = "admin") -> Client:
        """A client for one of USERS; None is an anonymous client."""
        if user not in self._clients:
            token = self.users.tokens[user] if user is not None else None
            self._clients[user] = Client(Access(self.port, token, self.authority))
        return self._clients[user]

    def kubeconfig(self, user: str = "admin") -> Path:
        return self.users.kubeconfig(user, self.port, self.authority)

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """The output of `kubectl`. Raises Failed with its error output."""
        command = [self.binaries.path("kubectl"), "--kubeconfig", self.kubeconfig(user), *arguments]
        done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"kubectl {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    # --- the components

    def process(self, name: str) -> Process:
        """The process of `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `kwok`."""
        return self._processes[name]

    def running(self, name: str) -> bool:
        return name in self._processes and self._processes[name].running()

    def stop_component(self, name: str, grace: float = GRACE_SECONDS) -> None:
        if name in self._processes:
            self._processes.pop(name).stop(grace)

    def start_api_server(self) -> None:
        """Start the API server, on the same port as before."""
        if self.running("kube-apiserver"):
            return
        process = self._launch("kube-apiserver", self._api_server_flags())
        process.wait_until(self._api_server_ready)

    def stop_api_server(self, grace: float = GRACE_SECONDS) -> None:
        """Stop the API server; `grace=0` is a crash."""
        self.stop_component("kube-apiserver", grace)

    def restart_api_server(self, grace: float = GRACE_SECONDS) -> None:
        self.stop_api_server(grace)
        self.start_api_server()

    def start_controller_manager(self, controllers: str = CONTROLLERS, more_flags: Sequence[str] = ()) -> None:
        names = ",".join(f"{name}-controller" for name in controllers.split())
        flags = [f"--kubeconfig={self.kubeconfig()}", f"--controllers={names}", "--leader-elect=false", *more_flags]
        self._start_with_health_port("kube-controller-manager", flags)

    def start_scheduler(self, config: Object | None = None) -> None:
        """Start kube-scheduler with this KubeSchedulerConfiguration. The kubeconfig is filled in."""
        document: Object = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            **(config or {}),
        }
        kubeconfig = str(self.kubeconfig("system:kube-scheduler"))
        document["clientConnection"] = {"qps": 1000, "burst": 1000, **document.get("clientConnection", {})}
        document["clientConnection"]["kubeconfig"] = kubeconfig
        path = self.path / "kube-scheduler.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")
        self.stop_component("kube-scheduler")
        self._start_with_health_port("kube-scheduler", [f"--config={path}"])

    def start_kwok(self) -> None:
        """Start KWOK as the kubelet of all nodes, instead of the stand-in."""
        (port,) = free_ports(1)
        serving = [f"--server-address=127.0.0.1:{port}", f"--config={KWOK.folder / 'stages.yaml'}"]
        process = self._launch("kwok", [f"--kubeconfig={self.kubeconfig()}", "--manage-all-nodes=true", *serving])
        process.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/healthz"))

    # --- history

    def compact(self) -> int:
        """Compact etcd to the current revision, and return it. The API server's own cache stays."""
        revision = int(self._etcd("kv/range", {"key": "AA=="})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def forget_history(self) -> None:
        """Make watches from any older resourceVersion fail with 410: compact etcd and restart the API server."""
        self.compact()
        self.restart_api_server()

    def _etcd(self, call: str, body: Object) -> Any:
        request = urllib.request.Request(f"{self._etcd_url}/v3/{call}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    # --- starting the components

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    def _launch(self, name: str, flags: Sequence[str]) -> Process:
        if self.running(name):
            raise Failed(f"{name} is running already")
        process = Process(name, [self.binaries.path(name), *flags], (self.options.logs or self.path) / f"{name}.log")
        self._processes[name] = process
        return process

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self._peer_port}"
        flags = {
            "data-dir": self.path / "etcd",
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
            "quota-backend-bytes": ETCD_BYTES,
        }
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        process = self._launch("etcd", [*words, "--unsafe-no-fsync"])
        process.wait_until(lambda: _answers(f"{self._etcd_url}/health"))

    def _api_server_flags(self) -> list[str]:
        flags = {
            "etcd-servers": self._etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self.port,
            "cert-dir": self.authority.parent,
            "endpoint-reconciler-type": "none",  # a loopback address is not allowed in Endpoints
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": self.key,
            "service-account-key-file": self.key,
            "token-auth-file": self.users.token_file,
            "authorization-mode": "RBAC",
            # no controller creates service accounts here, and no kubelet makes nodes ready
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            "allow-privileged": "true",
            "enable-priority-and-fairness": str(self.options.flow_control).lower(),
        }
        return [*(f"--{flag}={value}" for flag, value in flags.items()), *self.options.api_server]

    def _api_server_ready(self) -> bool:
        """True if the API server is ready.

        /readyz includes the bootstrap of the RBAC roles; the namespace `default` is created a moment later.
        """
        try:
            client = self.client()
            return client.request("GET", "/readyz")[0] == 200 and client.find("Namespace", "default") is not None
        except OSError:
            return False

    def _start_with_health_port(self, name: str, flags: Sequence[str]) -> None:
        if self.running(name):
            return
        (port,) = free_ports(1)
        serving = ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.path / name}"]
        process = self._launch(name, [*flags, *serving])
        process.wait_until(lambda: _answers(f"https://127.0.0.1:{port}/healthz"))


def _answers(url: str) -> bool:
    """True if a GET returns 200. The certificate is not verified: the URL is a health check on loopback."""
    try:
        with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
