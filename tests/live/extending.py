"""`dovetail extender` as a process behind a real kube-scheduler that is configured as HAMi's chart does it."""

from __future__ import annotations

import itertools
import json
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from tests.live.dovetail_process import DOVETAIL, Dovetail
from tools.controlplane.access import grant_dovetail
from tools.controlplane.client import Object
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import free_ports

NAME = "hami-scheduler"
# HAMi's chart: templates/scheduler/configmapnew.yaml; the resources are those of values.yaml's default devices.
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")
_numbers = itertools.count()
_TRUSTS_ALL = ssl._create_unverified_context()  # as kube-scheduler with `insecure: true`, which HAMi's chart has


def kube_scheduler_config(url: str, seconds: int = 30, **more: Any) -> Object:
    """The KubeSchedulerConfiguration of HAMi's chart, with this URL."""
    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "weight": 1,
        "httpTimeout": f"{seconds}s",
        "managedResources": [{"name": name, "ignoredByScheduler": True} for name in RESOURCES],
        **more,
    }
    if url.startswith("https"):
        extender |= {"enableHTTPS": True, "tlsConfig": {"insecure": True}}
    return {"profiles": [{"schedulerName": NAME}], "extenders": [extender]}


class ExtenderProcess(Dovetail):
    """Start, freeze, kill and start again; the log goes on in one file."""

    def __init__(self, plane: ControlPlane, *options: str, https: bool = False) -> None:
        self.port, self.http = free_ports(2)
        secure = _certificate(plane.path) if https else []
        self.url = f"http{'s' * https}://127.0.0.1:{self.http}"
        command = [
            *(DOVETAIL, "--debug", "extender", "--kubeconfig", str(plane.kubeconfig("dovetail"))),
            *("--http_bind", f"127.0.0.1:{self.http}", "--metrics-bind-address", f"127.0.0.1:{self.port}"),
            *("--identity", "extender", "--interpreted", "--debug", *secure, *options),
        ]
        self.runs(command, plane.path / f"extender-{next(_numbers)}.log")

    def fetch(self, path: str) -> tuple[int, str]:
        """GET from the extender's own port."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=10, context=_TRUSTS_ALL) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def post(self, verb: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{verb}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60, context=_TRUSTS_ALL) as answer:
            return json.load(answer)

    def freeze(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGCONT)


def _certificate(folder: Path) -> list[str]:
    issued, chain, key = trustme.CA().issue_cert("127.0.0.1"), folder / "extender.crt", folder / "extender.key"
    chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return ["--cert_file", str(chain), "--key_file", str(key)]


@contextmanager
def extending(
    plane: ControlPlane, *options: str, asks: Mapping[str, Any] | None = None, https: bool = False
) -> Iterator[ExtenderProcess]:
    """An extender and a kube-scheduler that asks it. `asks`: arguments of `kube_scheduler_config`."""
    grant_dovetail(plane.client())
    extender = ExtenderProcess(plane, *options, https=https)
    try:
        extender.start()
        plane.start_scheduler(kube_scheduler_config(extender.url, **(asks or {})))
        yield extender
    finally:
        plane.stop_component("kube-scheduler", grace=0)
        extender.stop()
