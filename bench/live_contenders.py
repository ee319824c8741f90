"""The contenders, each in its own process: Dovetail, the stock kube-scheduler, and a bare loop of Bindings."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import live_load as load
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

DOVETAIL = str(Path(sys.executable).parent / "dovetail")
ROOT = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int, line: str = "VmRSS") -> float:
    for text in Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith(f"{line}:"):
            return int(text.split()[1]) / 1024
    raise KeyError(line)


class Contender(Protocol):
    name: str
    scheduler: str  # spec.schedulerName of its pods

    def limits(self, shape: int) -> dict[str, str | int]:
        """The requests of its pods."""

    def start(self) -> int:
        """Start the process and return its id."""

    def stop(self) -> None: ...

    def last_words(self) -> str: ...


@dataclass
class Dovetail:
    plane: ControlPlane
    name: str = "dovetail"
    scheduler: str = "dovetail"

    def __post_init__(self) -> None:
        self.port = free_ports(1)[0]
        self.process: Process | None = None

    def limits(self, shape: int) -> dict[str, str | int]:
        return load.shared_gpu(shape)

    def start(self) -> int:
        command = [
            *(DOVETAIL, "scheduler", "--kubeconfig", str(self.plane.kubeconfig("dovetail"))),
            *("--listen", f"127.0.0.1:{self.port}", "--identity", "bench"),
        ]
        self.process = Process("dovetail", command, self.plane.path / "dovetail.log")
        return self.process.pid

    def ready(self) -> bool:
        return self._get("/readyz") is not None

    def wait_ready(self, seconds: float = 300.0) -> float:
        """Wait until Dovetail is ready; return the seconds that it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.wait_until(self.ready, seconds)
        return time.monotonic() - began

    def metric(self, name: str) -> float:
        for line in (self._get("/metrics") or "").splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None

    def stop(self) -> None:
        """Stop the process cleanly, so that the next leader need not write its epoch to pods."""
        if self.process is not None:
            self.process.stop(30.0)
            self.process = None

    def last_words(self) -> str:
        return self.process.last_words() if self.process is not None else ""


@dataclass
class KubeScheduler:
    plane: ControlPlane
    name: str = "kube_scheduler"
    scheduler: str = "default-scheduler"

    def limits(self, shape: int) -> dict[str, str | int]:
        return load.counted_gpu(shape)

    def start(self) -> int:
        self.plane.start_scheduler({"clientConnection": {"qps": 5000, "burst": 5000}})
        return self.plane.process("kube-scheduler").pid

    def stop(self) -> None:
        self.plane.stop_component("kube-scheduler")

    def last_words(self) -> str:
        return self.plane.process("kube-scheduler").last_words()


@dataclass
class Bare:
    """Does not check whether pods fit: pod n goes to node n, modulo the number of nodes."""

    plane: ControlPlane
    name: str = "bare"
    scheduler: str = "nobody"

    def __post_init__(self) -> None:
        self.process: Process | None = None

    def limits(self, shape: int) -> dict[str, str | int]:
        return load.shared_gpu(shape)

    def start(self) -> int:
        command = [sys.executable, "-m", "bench.live_bare", str(self.plane.kubeconfig("dovetail"))]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = Process("bare", command, self.plane.path / "bare.log", PYTHONPATH=path)
        return self.process.pid

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None

    def last_words(self) -> str:
        return self.process.last_words() if self.process is not None else ""
